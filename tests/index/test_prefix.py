"""What a search that is confined to some sessions tells of others: nothing, whatever these hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.index import Index
from tests.index.concepts import Concepts

GUEST = (
    "banana banana cherry",
    "banana cherry cherry",
    "a saxophone, a trombone",
    f"banana {'and so on ' * 40} cherry",
    "my old dog likes bananas",
    "I parked behind the bakery",
)
QUERIES = (
    "banana cherry",
    "cherry banana",
    "saxophane",
    "trombonne",
    "what about the banana or cherry there",
    "where does the dog get a biscuit or banana",
    "a vehicle near the bakery, perhaps parked",
    "puppy",
)
# What others said, as words, as rare words, as a talk about the same, and as meaning.
OTHERS = {
    "words": ("saxophane", "trombonne", "puppies"),
    "bananas": ("banana",) * 30,
    "cherries": ("cherry",) * 30,
    "talk": ("a dog and a biscuit", "the bakery has a biscuit for the dog", "parked a vehicle") * 5,
}
# The guest's sessions, those of others, and how a search is kept to the former.
CONFINED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("guest:{}", "other:{}", {"prefix": "guest:"}),
    ("guest", "guest{}", {"only": "guest"}),
)


@pytest.mark.parametrize(("own", "foreign", "confine"), CONFINED, ids=["prefix", "only"])
@pytest.mark.parametrize("meaning", [False, True], ids=["words", "meaning"])
def test_what_others_said_changes_nothing(
    tmp_path: Path, own: str, foreign: str, confine: dict[str, Any], meaning: bool
) -> None:
    def found(others: tuple[str, ...]) -> list[list[tuple[str, int, str]]]:
        """What each query finds in the guest's sessions, in a store where others said something."""
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        with nacre.open(root / "store") as sessions:
            for at, text in enumerate(GUEST):
                sessions.add_message(own.format(at), "user", text)
            for at, text in enumerate(others):
                sessions.add_message(foreign.format(at), "user", text)
            index = Index(str(root / "store"), cache=str(root / "cache"), embedder=Concepts)
            assert not meaning or index.make_vectors(1000) == 0
            hits = [index.search(query, fill=True, meaning=meaning, **confine) for query in QUERIES]
            index.close()
        return [[(hit.key, hit.n, hit.snippet) for hit in many] for many in hits]

    alone = found(())

    assert all(alone[:7])
    assert bool(alone[7]) is meaning
    for others in OTHERS.values():
        assert found(others) == alone


def test_typos_questions_and_rare_words_work_within_a_prefix_too(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for at, text in enumerate(GUEST):
            sessions.add_message(f"guest:{at}", "user", text)
        sessions.add_message("other", "user", "where does the dog of the saxophane player get a biscuit")
        index = Index(str(tmp_path / "store"), cache=str(tmp_path / "cache"))
        assert [hit.key for hit in index.search("saxophane", prefix="guest:")] == ["guest:2"]
        assert [hit.key for hit in index.search("where does my dog get a biscuit", prefix="guest:")] == ["guest:4"]
        assert next(hit.key for hit in index.search("cherry bakery", prefix="guest:", fill=True)) == "guest:5"
        index.close()
