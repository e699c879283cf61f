"""read_file and list_files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from nacre.agent.ports import Tool
from nacre.errors import ToolError
from nacre.tools.files.file_reader import reading_tools
from nacre.tools.files.workspace import Workspace
from tests.tools.scenes import output, text


@pytest.fixture
def read(tmp_path: Path) -> Tool:
    return reading_tools(Workspace(tmp_path))[0]


@pytest.fixture
def listing(tmp_path: Path) -> Tool:
    return reading_tools(Workspace(tmp_path, hidden=[str(tmp_path / "hidden")]))[1]


def test_a_text_is_given_as_it_is_without_numbers(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffone\r\ntwo é\n\n  three".encode())
    assert text(read, path="a") == "one\ntwo é\n\n  three"


def test_a_part_says_where_it_is_and_how_to_go_on(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{i}\n" for i in range(1, 101)))
    assert (
        text(read, path="a", offset=10, limit=2)
        == "10\n11\n[lines 10 to 11 of a file of 292 bytes; offset=12 continues]"
    )
    assert text(read, path="a", offset=99) == "99\n100\n[lines 99 to 100, the last]"


def test_paging_through_a_long_file_shows_every_line_once(read: Tool, tmp_path: Path) -> None:
    lines = [f"line {i} " + "x" * (i % 300) for i in range(1, 2001)]
    (tmp_path / "a").write_text("\n".join(lines) + "\n")
    found: list[str] = []
    while len(found) < len(lines):
        shown = text(read, path="a", offset=len(found) + 1).splitlines()
        found += [line for line in shown if not line.startswith("[lines")]
    assert found == lines


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89PNG\r\n\x1a\n123", "a is a PNG image, 11 bytes: it is not text and is not shown."),
        (b"%PDF-1.7", "a is a PDF document, 8 bytes: it is not text and is not shown."),
        (b"ab\0cd" * 300, "a is a binary file, 1.5 kB: it is not text and is not shown."),
        (b"", "a is empty."),
        ("é".encode("utf-16"), "é"),
        (b"caf\xe9\n", "caf\ufffd\n[bytes that are not UTF-8 are shown as \ufffd]"),
        (b"\x1b[31mred", "\\x1b[31mred"),
    ],
)
def test_what_is_not_plain_text_is_told_or_shown(read: Tool, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a").write_bytes(data)
    assert text(read, path="a") == said


def test_a_very_long_line_is_cut_with_a_note(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x" * 5000 + "\nnext\n")
    assert text(read, path="a") == "x" * 2000 + " [… 3,000 characters left out]\nnext"


def test_a_huge_file_is_read_in_little_memory(read: Tool, tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.write(b"x" * 30_000_000 + b"\n" + b"line\n" * 10)
    tracemalloc.start()
    found = text(read, path="a", offset=2, limit=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.startswith("line\n[lines 2 to 2")
    assert peak < 2_000_000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"path": "none"}, "does not exist: list_files shows"),
        ({"path": "sub"}, "is a directory"),
        ({"path": "."}, r"'\.' is a directory"),
        ({"path": "a", "offset": 9}, "has 1 lines, so there is none at offset 9"),
        ({"path": "a", "offset": 0}, "1 or more"),
        ({"path": "a/b"}, "not a directory"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(
    read: Tool, tmp_path: Path, arguments: dict[str, object], complaint: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("one\n")
    with pytest.raises(ToolError, match=complaint):
        output(read, **arguments)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.py", "a.txt", "src/x.py", "src/deep/y.py", ".git/config", "hidden/h.py", "node_modules/m/i.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("12345")
    (tmp_path / "link").symlink_to("/etc")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", [".git/", "a.txt  5 bytes", "b.py  5 bytes", "link -> /etc", "node_modules/", "src/"]),
        ("**/*.py", ["b.py  5 bytes", "src/deep/y.py  5 bytes", "src/x.py  5 bytes"]),
        ("src/**", ["src/", "src/deep/", "src/deep/y.py  5 bytes", "src/x.py  5 bytes"]),
        ("*/x.py", ["src/x.py  5 bytes"]),
        ("node_modules/**/*.py", ["node_modules/m/i.py  5 bytes"]),
        ("[ab].*", ["a.txt  5 bytes", "b.py  5 bytes"]),
        ("nope", ["no file in . matches nope"]),
    ],
)
def test_a_pattern_finds_what_it_means_sorted_and_with_sizes(
    listing: Tool, tree: Path, pattern: str, expected: list[str]
) -> None:
    assert [line for line in text(listing, pattern=pattern).splitlines() if line[0] != "["] == expected


def test_crowded_directories_are_named_and_not_looked_into(listing: Tool, tree: Path) -> None:
    assert "[not searched: .git, node_modules; name them" in text(listing, pattern="**/*.py")


def test_a_directory_below_is_listed_with_paths_from_the_root(listing: Tool, tree: Path) -> None:
    assert text(listing, path="src").splitlines() == ["src/deep/", "src/x.py  5 bytes"]
    with pytest.raises(ToolError, match="leads out"):
        output(listing, path="..")
    with pytest.raises(ToolError, match="leads out"):
        output(listing, path="link")


def test_an_empty_folder_is_called_empty(listing: Tool, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert text(listing, path="sub") == "sub is empty"


def test_many_files_are_counted_and_not_all_shown(listing: Tool, tmp_path: Path) -> None:
    for i in range(700):
        (tmp_path / f"{i:03}").touch()
    lines = text(listing).splitlines()
    assert lines[0] == "000  0 bytes"
    assert len(lines) == 501
    assert lines[-1] == "[200 more not shown: use a narrower pattern]"


def test_a_hostile_name_cannot_drive_a_terminal(listing: Tool, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J").touch()
    assert text(listing) == "a\\x1b[2J  0 bytes"


def test_the_folders_of_skills_are_read_by_full_paths_in_any_case(tmp_path: Path) -> None:
    skill, room = tmp_path / "skills", tmp_path / "room"
    for folder in (skill / "pdf" / "References", room):
        folder.mkdir(parents=True)
    (skill / "pdf" / "References" / "forms.md").write_text("forms")
    (skill / "pdf" / "References" / "out").symlink_to("/etc")
    read, listing = reading_tools(Workspace(room), [Workspace(skill)])
    for path in ("References/forms.md", "references/FORMS.md", "./REFERENCES//Forms.md"):
        assert text(read, path=f"{skill}/pdf/{path}") == "forms"
    assert text(listing, path=f"{skill}/PDF", pattern="**/*.md") == f"{skill}/pdf/References/forms.md  5 bytes"
    for path in (f"{skill}/../room", f"{skill}/pdf/references/OUT/passwd", f"{skill}2/x", "pdf/References/forms.md"):
        with pytest.raises(ToolError):
            output(read, path=path)
    (skill / "pdf" / "References" / "Forms.md").write_text("others")
    with pytest.raises(ToolError, match="does not exist"):
        output(read, path=f"{skill}/pdf/References/FORMS.md")


def test_no_descriptor_is_left_open(listing: Tool, read: Tool, tree: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    text(listing, pattern="**")
    text(read, path="a.txt")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_line_that_nobody_can_wait_for_is_not_looked_for(read: Tool, tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as file:
        file.write("line\n" * 3_000)
        file.truncate(1 << 40)
    with pytest.raises(ToolError, match=r"not in its first 500\.0 MB: use a program"):
        text(read, path="a", offset=4_000)


@pytest.mark.parametrize("pattern", ["[" * 100_000, "**/*/" * 500, "**/a" * 11])
def test_a_pattern_that_would_take_for_ever_is_refused(listing: Tool, pattern: str) -> None:
    with pytest.raises(ToolError, match="shorten it"):
        text(listing, pattern=pattern)


def test_several_double_stars_in_a_row_are_one(listing: Tool, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    assert text(listing, pattern="**/**/c") == text(listing, pattern="**/c") == "a/b/c  0 bytes"
    assert text(listing, pattern="a/**/**") == text(listing, pattern="a/**")


@pytest.mark.parametrize("path", ["\ud83d", "a/\udfff/b"])
def test_half_a_character_is_not_a_path(read: Tool, listing: Tool, path: str) -> None:
    for tool in (read, listing):
        with pytest.raises(ToolError, match="is not a path"):
            text(tool, path=path)


def test_a_path_through_very_many_folders_is_refused(read: Tool, tmp_path: Path) -> None:
    (tmp_path / "/".join(["d"] * 201)).mkdir(parents=True)
    with pytest.raises(ToolError, match="more than 200 folders"):
        text(read, path="d/" * 201 + "x")
