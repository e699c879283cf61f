"""A conversation on a terminal: what it looks like, and that no message can drive the terminal."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from nacre.render.conversation import Cover, Cut, parts
from nacre.render.terminal import Sheet, conversation, cover, markdown
from nacre.render.text import ago, width
from nacre.render.usage import Usage
from tests.render.talk import NOW, call, listing, stored

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\u2066\r\x00\x7f" * 3
OUR_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def when(moment: datetime) -> str:
    return ago(moment, NOW.replace(hour=20))


def lines(sheet: Sheet, *messages: object, **options: object) -> list[str]:
    return list(conversation(parts(messages, **options), sheet, when=when))  # type: ignore[arg-type]


def test_a_conversation_reads_from_top_to_bottom() -> None:
    assert lines(Sheet(columns=60), *listing()) == [
        "",
        "#2 user · 1 h ago",
        "  what is here?",
        "",
        "#3 assistant · tiny · 1 h ago",
        '  ▸ list_files(path=".") → a.py (9 B)',
        "",
        "#5 assistant · 1 h ago",
        "  Two files:",
        "",
        "  • `a.py`",
        "  • `b.py`",
    ]


def test_unfolded_calls_show_all_of_their_result() -> None:
    assert lines(Sheet(columns=60, is_full=True), *listing())[5:11] == [
        "  ▾ list_files",
        '      path="."',
        "    → #4 (9 B)",
        "      a.py",
        "      b.py",
        "",
    ]


def test_the_cover_says_what_is_below() -> None:
    found = Cover(key="telegram:42", title="Tax\x1b[2J", created=NOW, messages=3, usage=Usage(12_345, 678, 13_023))
    assert list(cover(found, Sheet(columns=80), when=when)) == [
        "Tax\\x1b[2J",
        "telegram:42 · created 2 h ago · 3 messages · 13.0k tokens (12.3k in, 678 out)",
    ]


def test_what_is_no_longer_live_is_marked_and_the_summary_stands_at_the_cut() -> None:
    found = lines(Sheet(columns=50), *listing(), live={5}, newest="g", cut=Cut(summary="**Looked** around.", hidden=3))
    assert found[1] == "#2 × user · 1 h ago · not in the history"
    assert "── summary, 3 messages before ────────────────────" in found
    assert "  Looked around." in found


def test_what_is_no_longer_live_is_grey_throughout() -> None:
    found = lines(Sheet(columns=50, has_colour=True), stored(2, "user", "**a** `b`"), live=set(), newest="g")
    assert found[-1] == "  \x1b[2ma `b`\x1b[0m"


@pytest.mark.parametrize("sheet", [Sheet(), Sheet(is_full=True), Sheet(has_colour=True), Sheet(columns=1)])
def test_no_message_can_drive_the_terminal(sheet: Sheet) -> None:
    calls = (call(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}), call("b", "c", HOSTILE))
    code = f"```{HOSTILE}\n{HOSTILE}\n```\n[{HOSTILE}](http://{HOSTILE})\n|{HOSTILE}|\n|-|\n# {HOSTILE}\n- `{HOSTILE}`"
    found = lines(
        sheet,
        stored(2, HOSTILE, code, name=HOSTILE, model=HOSTILE, reasoning=HOSTILE, media=[HOSTILE]),
        stored(3, "assistant", [{"type": HOSTILE, "url": HOSTILE}], tool_calls=calls),
        stored(4, "tool", HOSTILE, tool_call_id=HOSTILE),
        stored(5, "tool", HOSTILE, tool_call_id="none"),
        cut=Cut(summary=HOSTILE),
    )
    text = OUR_COLOURS.sub("", "\n".join(found)) if sheet.has_colour else "\n".join(found)
    assert all(char == "\n" or char.isprintable() for char in text)


def test_colour_never_runs_over_the_end_of_a_line() -> None:
    found = list(markdown("**" + "bold words " * 30 + "end**", Sheet(columns=40, has_colour=True)))
    assert len(found) > 5
    assert all(line.count("\x1b[1m") == line.count("\x1b[0m") == 1 for line in found)


def test_colours_come_only_when_asked_for() -> None:
    assert "\x1b" not in "\n".join(lines(Sheet(), *listing()))


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_fit(columns: int) -> None:
    text = "# " + "漢字 " * 60 + "\n\n" + "word " * 200 + "\n\n> " + "quote " * 50 + "\n\n```\n" + "x" * 500 + "\n```"
    table = "\n\n| a | b |\n|---|---|\n| " + "cell " * 60 + "| d |"
    calls = (call("c", "shell", {"command": "run " * 100}),)
    found = lines(
        Sheet(columns=columns),
        stored(2, "user", text + table, model="m" * 300),
        stored(3, "assistant", tool_calls=calls),
        stored(4, "tool", "漢" * 400, tool_call_id="c"),
    )
    assert max(map(width, found)) <= columns


def test_links_show_their_address() -> None:
    text = "[here](https://x.org/a) https://x.org/b [bad](javascript:alert)"
    assert list(markdown(text, Sheet())) == ["here (https://x.org/a) https://x.org/b bad (javascript:alert)"]


def test_tables_stand_in_columns() -> None:
    assert list(markdown("| a | 漢字 |\n|--|--|\n| long | b |", Sheet())) == ["a    │ 漢字", "─────┼─────", "long │ b"]


def test_a_huge_line_is_wrapped() -> None:
    assert len(list(markdown("x" * 1_000_000, Sheet(columns=100)))) == 10_000
