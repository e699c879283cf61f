"""A snippet shows the hit, and nothing that drives a terminal."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from nacre.index.query import parse
from nacre.index.snippet import snippet


def shown(body: str, query: str) -> str:
    return snippet(body, parse(query, now=0).wanted)


def test_matches_stand_between_asterisks() -> None:
    assert shown("The disk is full.", "disk full") == "The **disk** is **full**."


def test_bold_of_the_message_is_not_taken_for_a_match() -> None:
    assert shown("The **mother-of-pearl** and **bold** words", "pearl") == "The mother-of-**pearl** and bold words"


def test_stars_of_code_stay() -> None:
    assert shown("call(**more, **rest) gives 2**8 or 3**9", "gives") == "call(**more, **rest) **gives** 2**8 or 3**9"


def test_the_hit_is_shown_wherever_it_is() -> None:
    found = shown("before " * 100 + "needle" + " after" * 100, "needle")
    assert "**needle**" in found
    assert found.startswith("…")
    assert found.endswith("…")
    assert len(found) < 180


def near(body: str, part: str, query: str, *, is_around_words: bool = False) -> str:
    start = body.index(part)
    terms = parse(query, now=0).wanted
    return snippet(body, terms, near=(start, start + len(part)), is_around_words=is_around_words)


def test_what_is_near_is_shown_whole_with_a_little_before_it() -> None:
    body = f"The place is far. {'x' * 300} before it. The key is under the third flowerpot. {'y' * 300}"
    line = near(body, "The key is under the third flowerpot.", "place key")
    assert line.startswith("…")
    assert "before it. The **key** is under the third flowerpot." in line
    assert near(body, "The key is", "place", is_around_words=True).startswith("The **place** is far.")
    assert "The key is" in near(body, "The key is", "nowhere", is_around_words=True)


def test_of_what_is_near_and_long_the_best_match_is_shown() -> None:
    part = f"{'word ' * 60}with the right one {'word ' * 60}"
    body = f"right at first. {part}at last"
    assert "with the **right** one" in near(body, part, "right")
    assert near(body, part, "nowhere").startswith("…word word")


def test_bold_before_what_is_near_does_not_move_it() -> None:
    part = "a" * 160
    assert near(f"{'**bold** ' * 50}{part}{'b' * 99}", part, "x") == f"…{part}…"


def test_a_word_is_marked_only_as_a_word() -> None:
    assert shown("concatenate a cat", "cat") == "concatenate a **cat**"


def test_accents_and_case_do_not_hide_a_match() -> None:
    assert shown("Mein RÉSUMÉ", "resume") == "Mein **RÉSUMÉ**"


def test_a_word_among_chinese_is_marked() -> None:
    assert shown("使用Python编程", "python") == "使用**Python**编程"


def test_a_phrase_is_marked_across_lines() -> None:
    assert shown("disk\n\n  full", '"disk full"') == "**disk full**"


def test_control_characters_are_left_out() -> None:
    assert shown("a \x1b[31mred\x1b[0m\u202e \x07word\x9b", "word") == "a [31mred [0m **word**"


@given(st.text(), st.text(min_size=1))
def test_any_body_and_any_query_give_one_printable_line(body: str, query: str) -> None:
    assert not set(shown(body, query)) & {chr(code) for code in (*range(32), *range(127, 160), 0x202E)}


def test_a_text_that_is_all_matches_takes_little_longer_whichever_term_is_the_rarest() -> None:
    def seconds(query: str) -> float:
        began = time.thread_time()
        snippet("数" + "的" * 50_000, parse(query, now=0).wanted)
        return time.thread_time() - began

    # Of the second query there is one place to choose from, of the first as many as are ever looked at.
    assert min(seconds("的") for _ in range(2)) < 5 * min(seconds("数 的") for _ in range(2))


def test_of_a_word_of_any_length_the_beginning_is_shown() -> None:
    assert shown("needle" * 1_000, "needle*") == f"**{('needle' * 167)[:1000]}**…"
