"""What people need who tidy up: how much room is taken, and the journals of long tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Self

from nacre.codec import parse_time
from nacre.errors import StoreError
from nacre.messages import DiskUsage, GenerationInfo
from nacre.records import View
from nacre.storage.postgres.connections import Run
from nacre.storage.postgres.database import Database
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED
from nacre.storage.postgres.view import head_of, sid_of
from nacre.storage.protocol import Lease


def generation(database: Database, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
    """The active generation of a session, or an archived one by its uid."""
    rows = database.connections.read(database.statements.generations_changed, sid_of(key))
    for changed, *row in rows:
        head = head_of(row)
        if (head.uid == uid and head.status == ARCHIVED) if uid else head.status == ACTIVE:
            view = database.view(key, head)
            last = next(view.back(view.n), None)
            updated = parse_time(last.ts if last is not None else head.updated)
            return GenerationInfo(
                key=key,
                generation=head.uid,
                pinned=is_pinned(view),
                updated=updated,
                changed=max(updated, datetime.fromtimestamp(int(changed or b"0") * 60, UTC)),
                bytes=head.bytes,
            )
    return None


def disk_usage(database: Database, keys: Sequence[str]) -> DiskUsage:
    """The room that the tables take with their indexes, and the bytes of some sessions' records."""
    tables = {
        (name or b"").decode(): int(size or b"0") for name, size in database.connections.read(database.statements.sizes)
    }
    sizes = {}
    for key in keys:
        rows = database.connections.read(database.statements.generations, sid_of(key))
        sizes[key] = sum(head_of(row).bytes for row in rows)
    return DiskUsage(folders=tables, sessions=sizes)


class PostgresJournal:
    """Lines of a long task; the process that has it open has a lease, so that there is one at a time."""

    def __init__(self, database: Database, name: str, lease: Lease) -> None:
        self._database, self._lease = database, lease
        self._name = f"journal:{name}"

    def __enter__(self) -> Self:
        self._lease.take()
        return self

    def __exit__(self, *_: object) -> None:
        self._lease.close()

    def last(self) -> bytes:
        """The last line; nothing if there is none."""
        rows = self._database.connections.read(self._database.statements.last_part, self._name)
        return bytes.fromhex((rows[0][0] or b"").decode()) if rows else b""

    def add(self, line: bytes) -> None:
        """Append a line, durably."""
        if self._lease.number is None:
            raise StoreError("the journal is not open")

        def work(run: Run) -> None:
            run(self._database.statements.add_part, self._name, line)

        self._database.connections.in_transaction(work, is_durable=True)
