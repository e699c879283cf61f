"""Listing and searching the sessions of a database: what the tables know, and full text that PostgreSQL indexes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nacre.errors import ConfigError
from nacre.history import session_state
from nacre.history.list_page import Wanted, page_of
from nacre.history.overview import labels as labels_in
from nacre.history.overview import overview, when_updated
from nacre.codec import parse_time
from nacre.messages import Hit, Page, SessionInfo

if TYPE_CHECKING:
    from nacre.storage.postgres.store import PostgresStore


def labels(meta: Mapping[str, Any], key: str) -> tuple[str, str, bool, list[str]]:
    """What a list is narrowed by: the text that is searched in, the folder, the pin and the tags."""
    title, cwd = (text if isinstance(text, str) else "" for text in (meta.get("title"), meta.get("cwd")))
    pinned, tags = labels_in(meta)
    folded = f"{key.casefold()}\n{title.casefold()}"
    return _storable(folded), _storable(cwd), pinned, [_storable(tag) for tag in tags]


def _storable(text: str) -> str:
    """A text without NUL, which a column of a database cannot have."""
    return text.replace("\0", "")


class PostgresIndex:
    """The catalogue and the search of a store in a database."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def page(self, wanted: Wanted) -> Page:
        folders = {"active": (False,), "archived": (True,), "all": (False, True)}[wanted.which]
        infos = (
            SessionInfo(
                key=found.key,
                messages=session_state.count(found.view),
                created=parse_time(found.created or found.updated),
                updated=parse_time(when_updated(found.view, found.updated)),
                bytes=found.size,
                archived=found.archived,
                generation=found.view.uid,
                **overview(found.view)._asdict(),
            )
            for archived in folders
            for found in self._store.each(archived=archived)
        )
        return page_of(infos, wanted)

    def search(self, query: str, **rest: Any) -> list[Hit]:
        raise ConfigError("not yet")

    def make_vectors(self, most: int) -> int:
        return 0

    def forget(self, key: str) -> None:
        """Do nothing: what is searched goes in the same transaction as the session."""

    def erase(self, key: str) -> None:
        """Do nothing, for the same reason."""

    def close(self) -> None:
        """Do nothing: the store is closed by its owner."""
