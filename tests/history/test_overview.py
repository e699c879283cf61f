"""What a list tells of a session that cannot be read to its end."""

from __future__ import annotations

from collections.abc import Iterator

from nacre.entries import Recalled, Record
from nacre.history.overview import overview


class Broken(Recalled):
    """A past whose records cannot be read."""

    def back(self, n: int) -> Iterator[Record]:
        raise OSError("broken")


def test_a_session_whose_last_message_cannot_be_read_is_listed_as_damaged() -> None:
    found = overview(Broken([]))
    assert (found.state, found.title, found.tags, found.last) == ("damaged", "", (), "")
