"""nacre sessions search."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from nacre import ConfigError, Hit, Sessions
from tests.cli.conftest import Nacre

HITS = [
    Hit(key="one", n=2, ts=datetime(2026, 1, 2, tzinfo=UTC), role="user", snippet="a \x1b[31mred\nword"),
    Hit(key="two", n=7, ts=datetime(2026, 1, 1, tzinfo=UTC), role="tool", snippet="another"),
]


class Asked:
    """What the store was asked, and what it answers."""

    def __init__(self) -> None:
        self.query = ""
        self.hits = HITS
        self.internal = self.meaning = False

    def search(self, query: str, *, limit: int = 50, internal: bool = False, meaning: bool = False) -> list[Hit]:
        self.query, self.internal, self.meaning = query, internal, meaning
        return self.hits[:limit]


@pytest.fixture
def asked(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> Asked:
    nacre.fill("a session")
    found = Asked()
    monkeypatch.setattr(Sessions, "search", lambda _, query, **given: found.search(query, **given))
    return found


def test_hits_are_named_so_that_they_can_be_shown(nacre: Nacre, asked: Asked) -> None:
    result = nacre("s", "search", "red", "word")
    assert result.code == 0
    assert asked.query == "red word"
    assert [line.split()[0] for line in result.out.splitlines() if not line.startswith(" ")] == ["one@2", "two@7"]
    assert "a \\x1b[31mred\\nword" in result.out


def test_the_envelope_and_a_record_per_line(nacre: Nacre, asked: Asked) -> None:
    document = nacre("s", "search", "x", "--json").json
    assert (document["schema_version"], document["count"]) == (1, 2)
    assert document["items"][0] == {
        "place": "one@2",
        "key": "one",
        "n": 2,
        "ts": "2026-01-02T00:00:00.000Z",
        "role": "user",
        "snippet": "a \x1b[31mred\nword",
        "generation": "",
    }
    lines = nacre("s", "search", "x", "--jsonl").out.splitlines()
    assert [json.loads(line)["n"] for line in lines] == [2, 7]


def test_nothing_found_is_exit_1_and_no_error(nacre: Nacre, asked: Asked) -> None:
    nacre.fill("one")
    asked.hits = []
    result = nacre("s", "search", "x", "--json")
    assert (result.code, result.json["count"]) == (1, 0)
    assert nacre("s", "search", "x") == (1, "", "nothing found\n")


def test_a_time_in_a_query_that_is_none_is_told_where_nothing_is_found(nacre: Nacre) -> None:
    nacre.fill("a session")
    told = nacre("s", "search", "since:yesterday", "zebra", "until:7d").err
    assert "since:yesterday was taken for words" in told
    assert "until:7d" not in told


def test_without_a_store_nothing_is_found(nacre: Nacre) -> None:
    result = nacre("s", "search", "x")
    assert (result.code, result.err.splitlines()[-1]) == (1, "nothing found")


@pytest.mark.parametrize(("limit", "has_more", "total"), [("1", True, None), ("2", False, 2)])
def test_it_is_said_whether_there_is_more(
    nacre: Nacre, asked: Asked, limit: str, has_more: bool, total: int | None
) -> None:
    document = nacre("s", "search", "x", "--limit", limit, "--json").json
    assert (document["has_more"], document["total"]) == (has_more, total)
    assert ("--limit shows more" in nacre("s", "search", "x", "--limit", limit).err) is has_more


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("value", ["yesterday", "2026-13-45"])
def test_a_date_that_is_none_is_refused(nacre: Nacre, asked: Asked, option: str, value: str) -> None:
    result = nacre("s", "search", "x", option, value)
    assert (result.code, asked.query) == (2, "")
    assert f"{option} is a date (2026-11-01)" in result.err


def test_options_become_filters_of_the_query(nacre: Nacre, asked: Asked) -> None:
    nacre.fill("a key")
    options = ("--role", "user", "--tool", "shell", "--since", "7d", "--until", "2026-01-01", "--session", "a key")
    nacre("s", "search", "x", *options)
    assert asked.query == 'x role:user tool:shell since:7d until:2026-01-01 session:"a key"'


def test_only_the_session_that_was_named_is_searched(nacre: Nacre, asked: Asked) -> None:
    nacre.fill("one")
    asked.hits = [*HITS, *(Hit(key="one-2", n=1, ts=hit.ts, role="user", snippet="") for hit in HITS)]
    assert [item["key"] for item in nacre("s", "search", "x", "--session", "one", "--json").json["items"]] == ["one"]


def test_a_limit_below_one_is_a_usage_error(nacre: Nacre, asked: Asked) -> None:
    assert nacre("s", "search", "x", "-n", "0").code == 2


def test_words_that_were_said_are_found(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre("s", "archive", "two")
    result = nacre("s", "search", "hello", "two", "--json")
    if result.code == 1 and "no index" in result.json.get("error", {}).get("message", ""):
        pytest.skip("this store is opened without an index")
    assert [item["key"] for item in result.json["items"]] == ["two"]


def test_in_colour_what_was_found_is_marked_by_it_across_lines(nacre: Nacre, asked: Asked) -> None:
    words = "before " * 9 + "**what was found, of several words that are wrapped** behind"
    asked.hits = [Hit(key="one", n=2, ts=HITS[0].ts, role="user", snippet=words)]
    plain, coloured = (nacre("s", "search", "x", *color).out for color in ((), ("--color", "always")))
    assert "**what" in plain
    lines = coloured.splitlines()[1:]
    assert "*" not in coloured
    assert "\x1b[33mwhat" in lines[0]
    assert lines[1].startswith("    \x1b[33m")
    assert lines[1].endswith("wrapped\x1b[0m behind")


def test_a_fork_and_its_parent_are_one_hit(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre("s", "fork", "one", "two")
    assert [item["key"] for item in nacre("s", "search", "hello", "--json").json["items"]] == ["one"]
    found = nacre("s", "search", "hello", "--session", "two", "--json").json["items"]
    assert [item["key"] for item in found] == ["two"]


def test_by_meaning_messages_are_read_first(nacre: Nacre, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter((20, 4, 0))
    monkeypatch.setattr(Sessions, "make_vectors", lambda _, most: next(left))
    nacre.fill("one")
    result = nacre("s", "search", "x", "--meaning")
    assert (result.code, asked.meaning, list(left)) == (0, True, [])


def test_what_was_not_read_for_its_meaning_in_time_is_said(
    nacre: Nacre, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sessions, "make_vectors", lambda _, most: 1234)
    monkeypatch.setattr("time.monotonic", iter(range(0, 1000, 4)).__next__)
    nacre.fill("one")
    assert "1,234 messages were searched by words only" in nacre("s", "search", "x", "--meaning").err


def test_without_embeddings_it_says_how_to_get_them(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Sessions, most: int) -> int:
        raise ConfigError("embeddings need 'numpy', which is not installed: run `nacre setup embeddings`")

    monkeypatch.setattr(Sessions, "make_vectors", missing)
    nacre.fill("one")
    result = nacre("s", "search", "x", "--meaning")
    assert result.code != 0
    assert "nacre setup embeddings" in result.err


def test_what_is_archived_is_named_so_that_it_can_be_shown(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        for drawer in ("green", "blue"):
            words = [f"the passport is in the {drawer} drawer", *("and so on" for _ in range(9))]
            sessions.add_messages("k", [{"role": "user", "content": one} for one in words])
            sessions.archive("k")
        sessions.add_message("k", "user", "where is it?")
    blue, green = (item["place"] for item in nacre("s", "search", "passport", "--json").json["items"])
    assert "in the blue" in nacre("s", "show", blue).out
    shown = nacre("s", "show", green).out
    assert "in the green" in shown
    assert "in the blue" not in shown
    assert blue in nacre("s", "search", "passport").out
    for verb in ("fork", "tail"):
        assert "archived generation" in nacre("s", verb, blue).err
