"""What a search with a prefix tells of other sessions: nothing, whatever these hold."""

from __future__ import annotations

from pathlib import Path

import nacre
from nacre.index import Index

GUEST = (
    "banana banana cherry",
    "banana cherry cherry",
    "a saxophone, a trombone",
    f"banana {'and so on ' * 40} cherry",
)
QUERIES = ("banana cherry", "cherry banana", "saxophane", "trombonne", "what about the banana or cherry there")


def found(root: Path, others: tuple[str, ...]) -> list[list[tuple[str, int, str]]]:
    """What each query finds in the guest's sessions, in a store where others said something."""
    with nacre.open(root / "store") as sessions:
        for at, text in enumerate(GUEST):
            sessions.add_message(f"guest:{at}", "user", text)
        for at, text in enumerate(others):
            sessions.add_message(f"other:{at}", "user", text)
        index = Index(str(root / "store"), cache=str(root / "cache"))
        hits = [index.search(query, prefix="guest:", fill=True) for query in QUERIES]
        index.close()
    return [[(hit.key, hit.n, hit.snippet) for hit in many] for many in hits]


def test_what_others_said_changes_nothing(tmp_path: Path) -> None:
    alone = found(tmp_path / "alone", ())

    assert alone[0]
    assert found(tmp_path / "words", ("saxophane", "trombonne")) == alone
    assert found(tmp_path / "bananas", ("banana",) * 30) == alone
    assert found(tmp_path / "cherries", ("cherry",) * 30) == alone
