"""A search finds exactly what a scan of every transcript finds by the same rule."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nacre import Sessions
from nacre.history.live import RULES
from nacre.index import Index
from nacre.index.query import Query, Term, parse
from nacre.index.text import body_of, is_unspaced
from nacre.store.files import Files

WORDS = [
    *("disk", "full", "Disk", "concatenate", "cat", "CATS", "résumé", "RESUME", "naïve", "Zürich", "zurich", "e"),
    *("ключ", "Ключ", "ключи", "αβγ", "foo_bar", "foo.bar()", "self._ops", "x==1", "->", "C++", "#!/bin/sh", "--force"),
    *(
        "数据",
        "数据库",
        "使用Python编程",
        "東京タワー",
        "タワー",
        "한국어를",
        "한국",
        "ไทย",
        "🎉",
        "a🎉b",
        "42",
        "3.14",
    ),
    *(
        '"quoted"',
        "it's",
        "50%",
        "under_score",
        "a\\b",
        "tab\tbed",
        "line\nbreak",
        "role:user",
        "-minus",
        "\u017f",
        "ﬁne",
    ),
]
ROLES = ("user", "assistant", "tool")


def text(chance: random.Random) -> str:
    return chance.choice((" ", "", ", ", "\n")).join(chance.choices(WORDS, k=chance.randint(1, 6)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sessions, Index]]:
    """Sessions that were appended to, truncated, rewound, compacted and archived."""
    root, cache = (str(tmp_path_factory.mktemp(name)) for name in ("store", "cache"))
    sessions = Sessions(Files(root, rules=RULES, compact_at=0, durability="relaxed"))
    index = Index(root, cache=cache)
    chance = random.Random(7)
    for number in range(12):
        key = f"talk:{number}"
        for _ in range(4):
            sessions.add_messages(key, [{"role": chance.choice(ROLES), "content": text(chance)} for _ in range(8)])
            index.search("anything")
            sessions.truncate_history(key, chance.randint(1, 20))
            sessions.save(key)
        if number % 4 == 0:
            sessions.archive(key)
    yield sessions, index
    index.close()
    sessions.close()


def scanned(sessions: Sessions, text: str) -> set[tuple[str, int]]:
    """What a query finds in every transcript; if whole words find nothing, what is inside words, else any of many."""
    query = parse(text, now=0)
    bodies = [
        (info.key, stored.n, stored.message.role, body_of(stored.message))
        for archived in (False, True)
        for info in sessions.list(archived=archived)
        for stored in sessions.transcript(info.key)
    ]
    for attempt in (query, query.loosened):
        found = {(key, n) for key, n, role, body in bodies if matches(attempt, key, role, body)}
        if found:
            return found
    rest = query._replace(wanted=())
    asked = [(key, n, role, body) for key, n, role, body in bodies if any(holds(term, body) for term in query.words)]
    return {(key, n) for key, n, role, body in asked if rest == Query() or matches(rest, key, role, body)}


def matches(query: Query, key: str, role: str, body: str) -> bool:
    return (
        query != Query()
        and all(holds(term, body) for term in query.wanted)
        and not any(holds(term, body) for term in query.unwanted)
        and (not query.roles or role in query.roles)
        and query.takes(key)
    )


def holds(term: Term, body: str) -> bool:
    if term.is_substring:
        return lowered(term.text) in lowered(body)
    words, said = tokens(term.text), tokens(body)
    return any(said[at : at + len(words)] == words for at in range(len(said) - len(words) + 1))


def lowered(text: str) -> str:
    """Lower case, character for character, as the trigram table has it."""
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text.replace("\u017f", "s"))


def tokens(text: str) -> list[str]:
    """Words without case and accents; what is written without spaces parts them."""
    parted = "".join(" | " if is_unspaced(char) else char for char in text)
    plain = unicodedata.normalize("NFD", parted.replace("\u017f", "s")).lower()
    return re.findall(r"[^\W_]+|\|", "".join(char for char in plain if unicodedata.category(char) != "Mn"))


def found(index: Index, query: str) -> set[tuple[str, int]]:
    return {(hit.key, hit.n) for hit in index.search(query, limit=1_000_000)}


@pytest.mark.parametrize("word", WORDS)
def test_every_word_by_itself(store: tuple[Sessions, Index], word: str) -> None:
    sessions, index = store
    assert found(index, word) == scanned(sessions, word)
    assert found(index, f'"{word}"') == scanned(sessions, f'"{word}"')


def test_every_part_of_every_word(store: tuple[Sessions, Index]) -> None:
    sessions, index = store
    parts = {word[at : at + size] for word in WORDS for size in (1, 2, 3, 4) for at in range(len(word) - size + 1)}
    chosen = random.Random(3).sample(sorted(parts), 60)
    assert {part: found(index, part) for part in chosen} == {part: scanned(sessions, part) for part in chosen}


@pytest.mark.parametrize("seed", range(60))
def test_random_queries(store: tuple[Sessions, Index], seed: int) -> None:
    sessions, index = store
    chance = random.Random(seed)
    words = [chance.choice(("", "", "-")) + chance.choice(WORDS) for _ in range(chance.randint(1, 3))]
    filters = [chance.choice(("", "role:user", "session:talk:1", "role:tool session:talk:11"))]
    query = " ".join(words + filters)
    assert found(index, query) == scanned(sessions, query)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(query=st.text(st.characters(codec=None)) | st.text("\"-:*()^~{}+ \0\\%_' aANDORTNE数🎉é\ud800", max_size=40))
def test_no_query_raises(store: tuple[Sessions, Index], query: str) -> None:
    _, index = store
    assert all(hit.snippet is not None for hit in index.search(query, limit=3))


@pytest.mark.parametrize(
    "query",
    [
        "a " * 5_000,
        "x" * 200_000,
        "数" * 50_000,
        "-a " * 3_000,
        "数据 " * 3_000,
        '"' * 999,
        "NEAR(a b)",
        "body:a",
        "a*",
        "^a",
    ],
    ids=lambda query: query[:9],
)
def test_no_length_and_no_syntax_raises(store: tuple[Sessions, Index], query: str) -> None:
    _, index = store
    assert isinstance(index.search(query), list)


def test_the_corpus_has_something_cold_and_archived(store: tuple[Sessions, Index]) -> None:
    sessions, _ = store
    root = Path(sessions.location)
    assert list((root / "cold").iterdir())
    assert list((root / "archive").iterdir())
