"""Documents in the database: small, read whole, and replaced in one transaction."""

from __future__ import annotations

from collections.abc import Callable

from nacre.storage.postgres.connections import Run
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.leases import PostgresLease
from nacre.storage.postgres.moving import check_not_sealed


class PostgresDocument:
    """A document under a name; with `held` it is changed only while that lease is not lost."""

    def __init__(self, database: Database, name: str, held: PostgresLease | None) -> None:
        self._database, self._held = database, held
        self._name = f"document:{name}"

    def read(self) -> bytes:
        rows = self._database.connections.read(self._database.statements.last_part, self._name)
        return bytes.fromhex((rows[0][0] or b"").decode()) if rows else b""

    def write(self, data: bytes) -> None:
        self._change(lambda run: run(self._database.statements.set_document, self._name, data))

    def set_aside(self) -> str:
        aside, data = f"{self._name}.unreadable", self.read()

        def work(run: Run) -> None:
            run(self._database.statements.set_document, aside, data)
            run(self._database.statements.erase_document, self._name)

        self._change(work)
        return aside

    def _change(self, change: Callable[[Run], object]) -> None:
        def work(run: Run) -> None:
            check_not_sealed(self._database, run)
            if self._held is not None:
                run(self._database.statements.held, *self._held.guard)
            change(run)

        self._database.connections.in_transaction(work, is_durable=True)
