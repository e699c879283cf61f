"""Output is bounded and harmless."""

from __future__ import annotations

import pytest

from nacre.tools.tool_output import harmless, limit_output, strip_terminal_codes


def test_short_text_is_as_it_is() -> None:
    found = limit_output("a\tb\nc é 漢")
    assert (found.text, found.whole) == ("a\tb\nc é 漢", None)


def test_long_text_keeps_head_and_tail_and_says_how_much_is_missing() -> None:
    found = limit_output("h" * 600 + "t" * 600, limit=100)
    assert found.text == "h" * 50 + "\n[… 1,100 characters left out …]\n" + "t" * 50
    assert found.whole == "h" * 600 + "t" * 600


def test_it_is_cut_between_lines_if_one_ends_near() -> None:
    text = "".join(f"line {i}\n" for i in range(1000))
    found = limit_output(text, limit=1000).text
    head, _, tail = found.partition("\n[…")
    assert text.startswith(head + "\n")
    assert tail.splitlines()[1].startswith("line ")
    left_out = int(found.split("[… ")[1].split(" ")[0].replace(",", ""))
    assert left_out + len(head) + len(tail.split("…]\n")[1]) == len(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\x00b\x07", "a\\x00b\\x07"),
        ("\x9b1m", "\\x9b1m"),
        ("\u202eevil", "\\u202eevil"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
    ],
)
def test_control_characters_are_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31merror\x1b[0m: x", "error: x"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("\x1b(B\x1b=plain", "plain"),
    ],
)
def test_what_a_program_printed_is_read_as_from_a_plain_terminal(text: str, shown: str) -> None:
    assert strip_terminal_codes(text) == shown
