"""Listing and searching the sessions of a database: what the tables know, and full text that PostgreSQL indexes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from nacre.errors import ConfigError
from nacre.history.list_page import Wanted
from nacre.history.overview import labels as labels_in
from nacre.index import postgres_intake, postgres_list, postgres_search
from nacre.index.postgres_list import FOLDED_END, MAX_TAG, storable
from nacre.index.query import parse
from nacre.messages import Hit, Page
from nacre.storage.postgres.connections import NotAllowed
from nacre.storage.postgres.store import PostgresStore

logger = logging.getLogger(__name__)


def labels(meta: Mapping[str, Any], key: str) -> tuple[str, str, bool, list[str]]:
    """What a list is narrowed by: the text that is searched in, the folder, the pin and the tags."""
    title, cwd = (text if isinstance(text, str) else "" for text in (meta.get("title"), meta.get("cwd")))
    pinned, tags = labels_in(meta)
    folded = f"{key.casefold()}{FOLDED_END}{title.casefold()}"
    # What an index takes of a text is limited; two tags that begin alike for so long are one to a list.
    return storable(folded), storable(cwd), pinned, [storable(tag)[:MAX_TAG] for tag in tags]


class PostgresIndex:
    """The catalogue and the search of a store in a database.

    What is searched is derived from the records when somebody searches, of what has changed since the last time; no
    append waits for it. It goes in the same transaction as its session.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._database = store.database

    def page(self, wanted: Wanted) -> Page:
        """A part of the list of sessions."""
        return postgres_list.page(self._database, wanted)

    def search(  # noqa: PLR0913 - what a search can be narrowed to
        self,
        query: str,
        *,
        limit: int = 50,
        internal: bool = False,
        fill: bool = False,
        skip: tuple[str, int] | None = None,
        prefix: str = "",
        only: str = "",
        meaning: bool = False,
    ) -> list[Hit]:
        """The messages that a query finds, best first; as `Index.search` does for files.

        Raises ConfigError for a search by meaning.
        """
        if meaning:
            raise ConfigError(
                "search by meaning works for sessions in files only, not yet for those in PostgreSQL; search without it"
            )
        parsed = parse(query, now=self._database.system.now())
        parsed = parsed._replace(internal=internal, fill=fill, skip=skip, prefix=prefix, only=only)
        if "\0" in prefix or "\0" in only:
            # No key has it.
            return []
        try:
            postgres_intake.take_in(self._database)
        except NotAllowed:
            logger.warning("new messages may be missing: they are not indexed yet, and this role may only read")
        return postgres_search.hits(self._database, parsed, limit=limit)

    def make_vectors(self, most: int) -> int:  # noqa: ARG002 - as in SessionIndex
        """Make no vectors, of which none are used; returns how many messages wait for one."""
        return 0

    def forget(self, key: str) -> None:
        """Do nothing: what is searched goes in the same transaction as the session."""

    def erase(self, key: str) -> None:
        """Do nothing, for the same reason."""

    def close(self) -> None:
        """Do nothing: the store is closed by its owner."""
