"""Markdown in pieces: what is drawn in the end is what is drawn of the whole, and what is final stays."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.render.terminal import Sheet, markdown
from nacre.render.turn import Stream

SHEET = Sheet(columns=40, has_colour=True)
LINES = (
    *("", " ", "a b **c", "d** e", "x" * 50, "\r", "c\r", "\x1b[2J"),
    *("- x", "  - y", "    z", " - w", "   - v", "* q", "1. one", "2) two", "\t- t", "- ```", "  in", "- "),
    *("```", "```py", "  ```", "~~~~", "~~~", "```x```", "  code\t", "\tx"),
    *("> q", "| a | b |", "|-|-|", "-|-", "a|b", "# h", "---"),
    *("===", "    indented", "[1]: https://x.org", "[a][1] &amp;", "-", "1.", ":-:|-:"),
)


def drawn(pieces: list[str]) -> list[str]:
    stream = Stream(lambda: SHEET)
    return [line for piece in pieces for line in stream.feed(piece)] + stream.end()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12), st.integers(1, 9))
def test_pieces_of_any_size_are_drawn_as_the_whole_is(lines: list[str], size: int) -> None:
    text = "\n".join(lines)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert drawn(pieces) == list(markdown(text, SHEET))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=10))
def test_what_is_final_with_its_tail_is_what_was_said_so_far(lines: list[str]) -> None:
    stream = Stream(lambda: SHEET)
    final: list[str] = []
    for at, line in enumerate(lines):
        final += stream.feed(f"{line}\n")
        whole = list(markdown("\n".join(lines[: at + 1]).replace("\r", ""), SHEET))
        seen = [line for line in [*final, *stream.tail] if line.strip()]
        assert seen == [line for line in whole if line.strip()] or stream.tail[-1:] == whole[-1:]


def test_a_paragraph_waits_for_its_end_and_is_seen_meanwhile() -> None:
    stream = Stream(lambda: Sheet(columns=20))
    assert stream.feed("some **bo") == []
    assert stream.tail == ["some **bo"]
    assert stream.feed("ld** words\n\nnext") == ["some bold words"]
    assert stream.tail == ["", "next"]


def test_lines_of_code_are_final_when_they_have_come() -> None:
    stream = Stream(Sheet)
    assert stream.feed("```py\na = 1\nb") == ["```py", "a = 1"]
    assert stream.tail == ["b", "```"]
    assert stream.feed(" = 2\n```\n") == ["b = 2", "```"]


def test_items_are_final_when_the_next_begins() -> None:
    stream = Stream(Sheet)
    assert stream.feed("- one\n- two\n") == ["• one"]
    assert stream.end() == ["• two"]


def test_it_can_be_used_again_after_its_end() -> None:
    stream = Stream(Sheet)
    stream.feed("a")
    assert stream.end() == ["a"]
    assert stream.tail == []
    assert [*stream.feed("b\n"), *stream.end()] == ["b"]
