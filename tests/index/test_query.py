"""Any text is a query, and says what it seems to say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.index.query import Query, parse

NOON = 1_794_744_000.0  # 2026-11-15T12:00:00Z


def asked(text: str) -> Query:
    return parse(text, now=NOON)


def wanted(text: str) -> list[str]:
    return [term.text for term in asked(text).wanted]


def unwanted(text: str) -> list[str]:
    return [term.text for term in asked(text).unwanted]


def test_words_are_wanted_one_by_one() -> None:
    assert wanted("  disk  full ") == ["disk", "full"]


def test_a_phrase_is_one_term() -> None:
    assert wanted('"disk full" now') == ["disk full", "now"]


def test_a_quote_that_is_not_closed_goes_to_the_end() -> None:
    assert wanted('now "disk full') == ["now", "disk full"]


def test_a_minus_excludes_a_word_or_a_phrase() -> None:
    assert unwanted('disk -full -"no room"') == ["full", "no room"]


@pytest.mark.parametrize("text", ["--force", "->", "-", "--"])
def test_a_minus_before_no_word_is_part_of_the_text(text: str) -> None:
    assert (wanted(text), unwanted(text)) == ([text], [])


def test_filters_are_taken_out() -> None:
    query = asked('role:user tool:Shell session:"my talk" session:irc disk')
    assert (query.roles, query.tools, query.keys) == (("user",), ("shell",), ("my talk",))
    assert query.beginnings == ("irc",)
    assert [term.text for term in query.wanted] == ["disk"]


@pytest.mark.parametrize("text", ["role:", "since:soon", "until:2026-13-01", "since:999999w", 'role:"', "colour:red"])
def test_a_filter_that_makes_no_sense_is_a_word(text: str) -> None:
    query = asked(text)
    assert query._replace(wanted=()) == Query()
    assert [term.text for term in query.wanted] == [text]


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("since:2026-11-01", "2026-11-01T00:00:00.000Z"),
        ("since:2026-11-01T10:30+01:00", "2026-11-01T09:30:00.000Z"),
        ("since:7d", "2026-11-08T12:00:00.000Z"),
        ("since:90m", "2026-11-15T10:30:00.000Z"),
    ],
)
def test_since_takes_a_date_a_time_or_an_age(text: str, since: str) -> None:
    assert asked(text).since == since


def test_until_a_day_means_all_of_it() -> None:
    assert asked("until:2026-11-01").until == "2026-11-01T23:59:59.999Z"


@pytest.mark.parametrize(
    ("text", "is_substring"),
    [
        ("disk", False),
        ("foo.bar()", False),
        ("数据", True),
        ("ab数", True),
        ("==", True),
        ("한국", True),
        ("ключ", False),
    ],
)
def test_scripts_without_spaces_and_signs_are_substrings(text: str, is_substring: bool) -> None:
    assert asked(text).wanted[0].is_substring is is_substring


@settings(deadline=None)
@given(st.text(st.characters(codec=None)) | st.text('"-:*()^~ \0 a7d数roletl', max_size=30))
def test_no_text_is_refused(text: str) -> None:
    assert all(term.text for term in asked(text).wanted + asked(text).unwanted)


@pytest.mark.parametrize("item", ["w{}", "-w{}", "role:w{}", "tool:w{}", "session:w{}", 'session:"w{}"'])
def test_of_more_than_can_be_meant_the_first_count(item: str) -> None:
    assert sum(map(len, asked(" ".join(item.format(i) for i in range(200)))[:6])) == 128
    assert asked(" ".join([item.format(1)] * 200)) == asked(item.format(1))


def test_of_a_long_text_the_beginning_counts_and_every_filter() -> None:
    assert wanted("x" * 5000) == ["x" * 4096]
    assert wanted("disk " + " " * 4090 + "full") == ["disk", "f"]
    assert asked("x" * 5000 + " more -not role:user") == asked("x" * 4096 + " role:user")
