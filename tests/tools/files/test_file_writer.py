"""write_file and edit_file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nacre.agent.ports import Tool
from nacre.errors import ToolError
from nacre.tools.files.file_writer import Writer, writing_tools
from nacre.tools.files.workspace import Workspace
from tests.growth import assert_linear
from tests.tools.scenes import output, scene, text


@pytest.fixture
def write(tmp_path: Path) -> Tool:
    return writing_tools(Workspace(tmp_path))[0]


@pytest.fixture
def edit(tmp_path: Path) -> Tool:
    return writing_tools(Workspace(tmp_path))[1]


def test_a_file_is_written_and_replaced(write: Tool, tmp_path: Path) -> None:
    assert text(write, path="x/a", content="é\r\n") == "wrote x/a (4 bytes)"
    assert text(write, path="x/a", content="") == "replaced x/a (0 bytes)"
    assert (tmp_path / "x" / "a").read_bytes() == b""


def test_half_a_surrogate_pair_is_refused_before_anything_is_written(write: Tool, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="surrogate"):
        output(write, path="a", content="x\ud800")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a b c", "b", "x", b"a x c"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\nc\n", "a\nb", "x", b"x\nc\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (b"caf\xe9 a", "a", "b", None),
        (b"caf\xe9 = 1", "= 1", "= 2", b"caf\xe9 = 2"),
        (b"x.*y", ".*", "\\1\\g<0>", b"x\\1\\g<0>y"),
        (b"gone\nstays\n", "gone\n", "", b"stays\n"),
    ],
)
def test_an_edit_keeps_line_ends_marks_and_odd_bytes(
    edit: Tool, tmp_path: Path, before: bytes, old: str, new: str, after: bytes | None
) -> None:
    (tmp_path / "a").write_bytes(before)
    if after is None:
        with pytest.raises(ToolError, match="2 times"):
            output(edit, path="a", old_text=old, new_text=new)
    else:
        output(edit, path="a", old_text=old, new_text=new)
    assert (tmp_path / "a").read_bytes() == (after or before)


def test_text_that_is_there_twice_is_edited_only_with_all(edit: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    with pytest.raises(ToolError, match=r"2 times \(lines 1, 3\).*or set all"):
        output(edit, path="a", old_text="x", new_text="z")
    assert text(edit, path="a", old_text="x", new_text="z", all="true") == "edited a: 2 places (line 1, 3)"
    assert (tmp_path / "a").read_text() == "z\ny\nz\n"


def test_places_that_overlap_are_not_one(edit: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("aaa")
    with pytest.raises(ToolError, match="2 times"):
        output(edit, path="a", old_text="aa", new_text="b")


@pytest.mark.parametrize(
    ("old", "said"),
    [
        (
            "def f():\n  return 1",
            "Line 2 has it with different whitespace or line breaks; it reads:\ndef f\\(\\):\n    return 1",
        ),
        ("def g():\n    return 1", "Line 2 is the most similar; it reads:\ndef f\\(\\):\n    return 1"),
        ("completely different words", "Nothing in the file is similar: read the file again"),
    ],
)
def test_text_that_is_not_there_is_answered_with_what_is_nearest(
    edit: Tool, tmp_path: Path, old: str, said: str
) -> None:
    (tmp_path / "a").write_text("import os\ndef f():\n    return 1\n\nprint(f())\n")
    with pytest.raises(ToolError, match=said):
        output(edit, path="a", old_text=old, new_text="x")


@pytest.mark.parametrize(
    ("data", "old", "new", "complaint"),
    [
        (b"a", "", "b", "old_text is empty"),
        (b"a", "a", "a", "nothing would change"),
        (b"a\0", "a", "b", "not UTF-8 text"),
        (b"a" * 10_000_001, "a", "b", "too large to edit"),
    ],
)
def test_what_cannot_be_edited_is_refused(
    edit: Tool, tmp_path: Path, data: bytes, old: str, new: str, complaint: str
) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ToolError, match=complaint):
        output(edit, path="a", old_text=old, new_text=new)
    assert (tmp_path / "a").read_bytes() == data


LINES = {
    "code": "    value = compute(a, b, c)  # {}\n",
    "one word": "a\n",
    "one line": "ab",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("ending", ["!", "! not there"])
def test_time_grows_with_the_file_and_not_with_its_square(tmp_path: Path, line: str, ending: str) -> None:
    writer = Writer(Workspace(tmp_path))

    def work(content: str) -> None:
        (tmp_path / "a").write_text(content)
        with pytest.raises(ToolError):
            writer.edit_file("a", content[: len(content) // 4] + ending, "x", scene())

    assert_linear(work, "".join(line.format(at) for at in range(400_000 // len(line))))


@given(
    pieces=st.lists(st.sampled_from(["a", "b", "ab", "\n", "\r\n", "\r", "é"]), max_size=30).map("".join),
    old=st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), min_size=1, max_size=3).map("".join),
    new=st.sampled_from(["", "c", "\n", "c\r\nd"]),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_every_place_is_edited_and_nothing_else(edit: Tool, tmp_path: Path, pieces: str, old: str, new: str) -> None:
    assume(old != new)
    (tmp_path / "a").write_bytes(pieces.encode())
    wanted = re.escape(old.replace("\r\n", "\n")).replace("\\\n", "\r?\n")
    windows = pieces.count("\r\n")
    ending = "\r\n" if windows and windows * 2 >= pieces.count("\n") else "\n"
    expected, count = re.subn(wanted, new.replace("\r\n", "\n").replace("\n", ending), pieces)
    if count:
        output(edit, path="a", old_text=old, new_text=new, all=True)
    else:
        with pytest.raises(ToolError, match="is not in"):
            output(edit, path="a", old_text=old, new_text=new, all=True)
    assert (tmp_path / "a").read_bytes().decode() == expected


@pytest.mark.parametrize(
    ("content", "new", "said"),
    [
        ("a" * 50_000, "b" * 1_000, "would have more than 10,000,000 characters"),
        ("a" * 200_000, "b", "more than 100,000 times"),
    ],
)
def test_an_edit_that_would_take_all_memory_is_refused(
    edit: Tool, tmp_path: Path, content: str, new: str, said: str
) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(ToolError, match=said):
        text(edit, path="a", old_text="a", new_text=new, all=True)
    assert (tmp_path / "a").read_text() == content


def test_half_a_surrogate_pair_is_not_edited_in(edit: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(ToolError, match="surrogate"):
        text(edit, path="a", old_text="x", new_text="\ud83d")
