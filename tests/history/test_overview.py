"""What a list tells of a session that cannot be read to its end."""

from __future__ import annotations

from collections.abc import Iterator

from nacre.history.overview import overview, when_updated
from nacre.records import MemoryView, Record


class Broken(MemoryView):
    """A past whose records cannot be read."""

    def back(self, n: int) -> Iterator[Record]:
        raise OSError("broken")


def test_a_session_whose_last_message_cannot_be_read_is_listed_as_damaged() -> None:
    found = overview(Broken([]))
    assert (found.state, found.title, found.tags, found.last) == ("damaged", "", (), "")


def test_a_session_that_cannot_be_read_was_updated_with_its_last_record() -> None:
    assert when_updated(Broken([]), "2026-11-17T00:00:00.000Z") == "2026-11-17T00:00:00.000Z"
