"""A search finds exactly what a scan of every transcript finds by the same rule."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nacre import Sessions
from nacre.history.session_state import RULES
from nacre.index import Index
from nacre.index.query import Query, Term, parse, spellings
from nacre.index.search_text import body_of, folded, is_unspaced, words_of
from nacre.index.stems import stem
from nacre.storage.file_store import FileStore

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
    *("e-mail", "email", "1,234.56", "shadowWrites", "shadow_writes", "Straße", "Müller", "mueller", "running", "mice"),
]
ROLES = ("user", "assistant", "tool")


def text(chance: random.Random) -> str:
    return chance.choice((" ", "", ", ", "\n")).join(chance.choices(WORDS, k=chance.randint(1, 6)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sessions, Index]]:
    """Sessions that were appended to, truncated, rewound, compacted and archived."""
    root, cache = (str(tmp_path_factory.mktemp(name)) for name in ("store", "cache"))
    sessions = Sessions(FileStore(root, rules=RULES, compact_at=0, durability="relaxed"))
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
    """What a query finds in every transcript.

    Whole words in any form; if they find nothing, what is inside words; if that finds nothing, what is a typo away;
    and of a question what has any of its words.
    """
    query = parse(text, now=0)
    bodies = [
        (info.key, stored.n, stored.message.role, body_of(stored.message))
        for archived in (False, True)
        for info in sessions.list(archived=archived)
        for stored in sessions.transcript(info.key)
    ]
    known = {stem for *_, body in bodies for stem in stems(body)}
    content = query.content
    found: set[tuple[str, int]] = set()
    for attempt in (content, content.loosened, content._replace(wanted=nearby(content.wanted, known))):
        found = found or {(key, n) for key, n, role, body in bodies if matches(attempt, key, role, body)}
    rest = query._replace(wanted=())
    words = [term._replace(is_exact=False) for term in nearby(query.words, known)]
    asked = [(key, n, role, body) for key, n, role, body in bodies if any(holds(term, body) for term in words)]
    some = {(key, n) for key, n, role, body in asked if rest == Query() or matches(rest, key, role, body)}
    return some if query.is_question and some else found | some


def matches(query: Query, key: str, role: str, body: str) -> bool:
    return (
        query != Query()
        and all(holds(term, body) for term in query.wanted)
        and not any(holds(term, body) for term in query.unwanted)
        and (not query.roles or role in query.roles)
        and query.takes(key)
    )


def holds(group: Term, body: str) -> bool:
    is_inside = any(term.is_substring or term.is_prefix for term in group.all)
    return any(
        folded(term.text) in folded(body) if is_inside and not term.is_prefix else holds_words(term, body)
        for term in group.all
    )


def holds_words(term: Term, body: str) -> bool:
    if term.is_prefix:
        return any(word.startswith(folded(term.text)) for word in tokens(body))
    if term.is_exact and not has(tokens(term.text), tokens(body)):
        return False
    return any(has(list(map(stem, tokens(spelling))), stems(body)) for spelling in spellings(term))


def has(words: list[str], said: list[str]) -> bool:
    return any(said[at : at + len(words)] == words for at in range(len(said) - len(words) + 1))


def nearby(terms: tuple[Term, ...], known: set[str]) -> tuple[Term, ...]:
    """The terms; one that is nowhere with every known word that is one edit away."""
    return tuple(
        term._replace(either=tuple(Term(near) for near in sorted(edits(folded(term.text))) if stem(near) in known))
        if re.fullmatch(r"[a-z]{6,}", folded(term.text))
        and not term.is_exact
        and not term.is_inside
        and stem(folded(term.text)) not in known
        else term
        for term in terms
    )


def edits(word: str) -> set[str]:
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    more = {head + letter + tail for head, tail in parts for letter in ascii_lowercase}
    other = {head + letter + tail[1:] for head, tail in parts if tail for letter in ascii_lowercase}
    less = {head + tail[1:] for head, tail in parts if tail}
    return more | other | less | {head + tail[1] + tail[0] + tail[2:] for head, tail in parts if len(tail) > 1}


def stems(text: str) -> list[str]:
    """What the word table has of a text."""
    return [stem(token) for token in re.findall(r"[^\W_]+|\ue000", words_of(text).lower())]


def tokens(text: str) -> list[str]:
    """Words without case and accents; what is written without spaces parts them."""
    parted = "".join(" | " if is_unspaced(char) else char for char in text)
    return re.findall(r"[^\W_]+|\|", folded(parted))


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
