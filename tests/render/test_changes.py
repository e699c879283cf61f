"""Changes to files as lines."""

from __future__ import annotations

from nacre.agent.ports import Approval, Change
from nacre.messages import ToolCall
from nacre.render.changes import change_lines, diff, mark
from nacre.render.terminal import Sheet
from nacre.render.turn import question
from tests.growth import assert_linear
from tests.render.test_turn import Tool


def lines(before: str | None, after: str | None, columns: int = 60) -> list[str]:
    return list(change_lines(Change(path="a", before=before, after=after), Sheet(columns=columns)))


def test_a_change_is_shown_with_the_lines_beside_it() -> None:
    before = "".join(f"{n}\n" for n in range(1, 21))
    assert lines(before, before.replace("10\n", "ten\n")) == [
        "    @ lines 7-13",
        "      7",
        "      8",
        "      9",
        "    - 10",
        "    + ten",
        "      11",
        "      12",
        "      13",
    ]


def test_a_new_file_is_all_added_and_a_deleted_one_all_removed() -> None:
    assert lines(None, "a\n\nb\n") == ["    + a", "    + ", "    + b"]
    assert lines("a\n", None) == ["    - a"]
    assert lines("a\n", "a\n") == ["      (nothing changes)"]


def test_a_long_line_continues_without_its_sign() -> None:
    assert lines(None, "x" * 60, columns=40) == ["    + " + "x" * 33, "      " + "x" * 27]


def test_texts_too_long_to_compare_are_shown_whole() -> None:
    assert sum(sign == "+" for sign, _ in diff("a\n" * 6000, "b\n" * 6000)) == 6000


def test_a_question_shows_the_change_the_rules_and_the_task() -> None:
    call = ToolCall(name="write_file", arguments={"path": "a.py", "content": "x\n"})
    change = Change(path="a.py", before=None, after="x\n")
    approval = Approval(
        tool=Tool("write"), call=call, change=change, always=("write_file(**)",), scope="folder", task="write it"
    )
    assert question(approval, Sheet()) == [
        "? write_file: a.py (new file)",
        "  asked by the delegated task: write it",
        "    + x",
        "  always = allow write_file(**) in this folder",
    ]
    assert len(question(approval, Sheet(), limit=4)) == 4


def test_a_line_of_megabytes_does_not_take_long() -> None:
    sheet = Sheet(columns=80)
    assert_linear(lambda line: sum(1 for _ in mark(line, "+ ", sheet, "")), "x" * 6_000_000)


def test_a_long_line_is_shown_with_every_character() -> None:
    line = "".join(chr(97 + at % 26) for at in range(500)) + "e\u0301" * 300
    shown = "".join(piece.strip() for piece in mark(line, "", Sheet(columns=40), ""))
    assert shown == line
