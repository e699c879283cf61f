"""A conversation on a terminal: what it looks like, and that no message can drive the terminal."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from wcwidth import wcswidth

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


@pytest.mark.parametrize("columns", [40, 58, 80, 200])
def test_lines_fit(columns: int) -> None:
    text = "# " + "漢字 " * 60 + "\n\n" + "word " * 200 + "\n\n> " + "quote " * 50
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


TABLE = """\
| setting | meaning | default |
|---|---|---|
| agent.max_context_tokens | maximum size of a request to the model | 32000 |
| 家族 👨‍👩‍👧 | हिन्दी में एक वाक्य जो काफ़ी लंबा है | ❤️ |
"""


@pytest.mark.parametrize("columns", [40, 58, 80, 200])
def test_a_table_fits_and_loses_nothing(columns: int) -> None:
    found = list(markdown(TABLE, Sheet(columns=columns)))
    assert max(map(wcswidth, found)) <= columns
    # Wrapped cells are read down their column.
    rows = [line.split("│") for line in found if "│" in line]
    assert all(len(row) == 3 for row in rows)
    read = ["".join(row[place].strip() for row in rows) for place in range(3)]
    for cell in ("agent.max_context_tokens", "हिन्दी", "❤️", "32000", "家族", "👨‍👩‍👧"):
        assert any(cell in column for column in read), (cell, found)


def test_a_table_at_40_columns_has_wrapped_cells_and_rules_between_its_rows() -> None:
    text = "| name | what it does |\n|--|--|\n| shell | runs a command in the sandbox of the workspace |\n| done | - |"
    assert list(markdown(text, Sheet(columns=40))) == [
        "name  │ what it does",
        "──────┼─────────────────────────────────",
        "shell │ runs a command in the sandbox of",
        "      │ the workspace",
        "──────┼─────────────────────────────────",
        "done  │ -",
    ]


def test_a_table_with_too_many_columns_for_the_screen_is_a_list_of_its_cells() -> None:
    text = "|a|b|c|d|e|\n|-|-|-|-|-|\n" + "|" + "|".join(f"cell number {n}" for n in range(5)) + "|"
    assert list(markdown(text, Sheet(columns=40))) == [
        "─" * 40,
        "a: cell number 0",
        "b: cell number 1",
        "c: cell number 2",
        "d: cell number 3",
        "e: cell number 4",
    ]


def test_columns_stand_on_the_side_that_their_rule_says() -> None:
    found = list(markdown("|left|center|right|\n|:--|:-:|--:|\n|a|b|c|", Sheet()))
    assert found == ["left │ center │ right", "─────┼────────┼──────", "a    │   b    │     c"]


def test_entities_are_characters_and_control_nothing() -> None:
    assert list(markdown("a &lt; b &#27;[2J", Sheet())) == ["a < b \ufffd[2J"]


def test_a_link_shows_its_address_once_behind_its_label() -> None:
    assert list(markdown("[a **b**](https://x.org)", Sheet())) == ["a b (https://x.org)"]


def test_a_table_without_rows_is_its_heads() -> None:
    assert list(markdown("| a | b |\n|--|--|", Sheet())) == ["a │ b", "──┼──"]


def test_lines_of_code_are_never_wrapped() -> None:
    line = "x = " + "y " * 60
    assert list(markdown(f"```py\n{line}\n```", Sheet(columns=40))) == ["```py", line, "```"]


def test_code_has_the_colours_of_its_language() -> None:
    found = list(markdown('```python\ndef f():  # why\n    return "x"\n```', Sheet(columns=40, has_colour=True)))
    assert [OUR_COLOURS.sub("", line) for line in found] == ["```python", "def f():  # why", '    return "x"', "```"]
    assert "\x1b[35mdef\x1b[0m" in found[1]
    assert "\x1b[2m# why\x1b[0m" in found[1]
    assert "\x1b[35mreturn\x1b[0m" in found[2]


def test_a_long_string_keeps_its_colour_from_line_to_line() -> None:
    found = list(markdown('```py\n"""one\nif two\n"""\n```', Sheet(has_colour=True)))
    assert found[2] == "\x1b[32mif two\x1b[0m"


@pytest.mark.parametrize("language", ["", "no-such-language", "c", "yaml", "json", "html", "console", "diff", "bash"])
def test_code_in_any_language_is_printed_whole(language: str) -> None:
    code = "/* a\n b: [1, 2] */\n$ ls <b>&</b>\n\n-x\n+y 'z"
    found = list(markdown(f"```{language}\n{code}\n```", Sheet(has_colour=True)))
    assert [OUR_COLOURS.sub("", line) for line in found[1:-1]] == code.split("\n")


def test_a_light_theme_has_colours_that_can_be_read_on_white() -> None:
    assert list(markdown("`x`", Sheet(has_colour=True, theme="light"))) == ["\x1b[38;5;30mx\x1b[0m"]


def test_a_huge_line_is_wrapped() -> None:
    assert len(list(markdown("x" * 1_000_000, Sheet(columns=100)))) == 10_000
