"""What people need who tidy up: how much room is taken, and the journals of long tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from nacre.codec import parse_time
from nacre.errors import StoreError
from nacre.messages import DiskUsage, GenerationInfo
from nacre.records import View
from nacre.storage.postgres.connections import Run
from nacre.storage.postgres.schema import ACTIVE, ARCHIVED
from nacre.storage.postgres.view import head_of, sid_of

if TYPE_CHECKING:
    from nacre.storage.postgres.store import PostgresStore
    from nacre.storage.protocol import Lease


def generation(store: PostgresStore, key: str, uid: str, *, is_pinned: Callable[[View], bool]) -> GenerationInfo | None:
    """The active generation of a session, or an archived one by its uid."""
    rows = store.connections.read(store.statements.generations_changed, sid_of(key))
    for changed, *row in rows:
        head = head_of(row)
        if (head.uid == uid and head.status == ARCHIVED) if uid else head.status == ACTIVE:
            view = store.view(key, head)
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


def disk_usage(store: PostgresStore, keys: Sequence[str]) -> DiskUsage:
    """The room that the tables take with their indexes, and the bytes of some sessions' records."""
    tables = {
        (name or b"").decode(): int(size or b"0") for name, size in store.connections.read(store.statements.sizes)
    }
    sizes = {}
    for key in keys:
        rows = store.connections.read(store.statements.generations, sid_of(key))
        sizes[key] = sum(head_of(row).bytes for row in rows)
    return DiskUsage(folders=tables, sessions=sizes)


class PostgresJournal:
    """Lines of a long task; whoever has it open has a lease, so that there is one at a time."""

    def __init__(self, store: PostgresStore, name: str) -> None:
        self._store = store
        self._name = f"journal:{name}"
        self._lease: Lease | None = None

    def __enter__(self) -> Self:
        lease = self._store.hold(f"nacre:journal:{self._name}")
        lease.take()
        self._lease = lease
        return self

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def last(self) -> bytes:
        """The last line; nothing if there is none."""
        rows = self._store.connections.read(self._store.statements.last_part, self._name)
        return bytes.fromhex((rows[0][0] or b"").decode()) if rows else b""

    def add(self, line: bytes) -> None:
        """Append a line, durably."""
        if self._lease is None:
            raise StoreError("the journal is not open")

        def work(run: Run) -> None:
            run(self._store.statements.add_part, self._name, line)

        self._store.connections.in_transaction(work, is_durable=True)
