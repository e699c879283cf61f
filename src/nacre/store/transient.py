"""Sessions in RAM, for tests and for channels that must not remember; gone when the process ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from threading import RLock
from typing import TypeVar

from nacre.entries import Past, Recalled, Receipt, Record, Report, Rules, State, Unit
from nacre.errors import Conflict, SessionNotFound, StoreError
from nacre.log.batch import Batch
from nacre.log.format import unseal
from nacre.log.ids import Ids, Seen
from nacre.log.names import stem
from nacre.log.ops import Ops
from nacre.log.place import new_uid
from nacre.log.tail import Header
from nacre.store.base import Generation, Listed

T = TypeVar("T")


class _Life:
    """One generation of a session: its records, and the ids among them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.staged: Sequence[Record] = ()
        self.header = Header()
        self.ids = Ids()
        self.size = 0

    @property
    def n(self) -> int:
        return self.records[-1].n if self.records else 0

    @property
    def state(self) -> State:
        return self.records[-1].st if self.records else State()

    def find(self, n: int) -> Record | None:
        return Recalled([*self.records, *self.staged]).find(n)

    def back(self, n: int) -> Iterator[Record]:
        return Recalled([*self.records, *self.staged]).back(n)

    def all(self) -> Iterator[Record]:
        return iter(self.records)

    def window(self) -> dict[str, Seen]:
        return self.ids.window(self)

    def take(self, batch: Batch) -> None:
        """Store a batch as a log would give it back."""
        stored = (unseal(line[:-1]) for line in batch.lines)
        self.records += [record for record in stored if record is not None]
        self.header = batch.header
        self.size += sum(map(len, batch.lines))
        self.staged = ()
        self.ids.add(batch.ids, upto=batch.n)


class Transient:
    """Every session of one process, in RAM."""

    location = ":memory:"

    def __init__(self, *, rules: Rules) -> None:
        self._rules = rules
        self._ops = Ops()
        self._lock = RLock()
        self._active: dict[str, _Life] = {}
        self._archived: dict[str, list[_Life]] = {}
        self._closed = False

    def run(self, key: str, unit: Unit) -> int:
        stem(key)
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            life = self._active.get(key) or _Life()
            batch = Batch(life, key=key, uid=lambda: new_uid(self._ops), rules=self._rules, relaxed=False)
            number = batch.add(unit, now=self._ops.now(), window=life.window)
            if batch.lines:
                life.take(batch)
                self._active[key] = life
            return number

    def submit(self, key: str, unit: Unit) -> Future[int]:
        future: Future[int] = Future()
        try:
            future.set_result(self.run(key, unit))
        except StoreError as error:
            future.set_exception(error)
        return future

    def read(self, key: str, get: Callable[[Past], T]) -> T | None:
        stem(key)
        with self._lock:
            lives = self._lives(key)
            return get(lives[-1]) if lives else None

    def close(self) -> None:
        self._closed = True

    def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
        stem(key)
        with self._lock:
            return [get(Generation(life.header.uid, life)) for life in self._lives(key)]

    def each(self, *, archived: bool) -> Iterator[Listed]:
        lives = self._archived if archived else {key: [life] for key, life in self._active.items()}
        for key in sorted(lives):
            for life in lives[key]:
                yield Listed(key, life, life.header.created, life.records[-1].ts, life.size, archived)

    def move(self, key: str, *, archive: bool) -> None:
        stem(key)
        with self._lock:
            if archive:
                self._archived.setdefault(key, []).append(self._taken(self._active, key, "active"))
                return
            if self._archived.get(key) and key in self._active:
                raise Conflict(f"session {key!r} is active; archive or delete it before bringing the archived one back")
            lives = self._taken(self._archived, key, "archived")
            self._active[key] = lives.pop()
            if lives:
                self._archived[key] = lives

    def delete(self, key: str) -> None:
        stem(key)
        with self._lock:
            self._active.pop(key, None)
            self._archived.pop(key, None)

    def compact(self, key: str, keep: Callable[[Past], set[int]]) -> bool:  # noqa: ARG002 - RAM has no cold file
        stem(key)
        return False

    def verify(self, key: str | None) -> Report:
        if key is not None:
            self._known(key)
        return Report()

    def repair(self, key: str) -> Receipt:
        kept = sum(len(life.records) for life in self._known(key))
        return Receipt(key=key, kept=kept, set_aside=0, quarantine=None)

    def _lives(self, key: str) -> list[_Life]:
        active = self._active.get(key)
        return self._archived.get(key, []) + ([active] if active is not None else [])

    def _known(self, key: str) -> list[_Life]:
        stem(key)
        lives = self._lives(key)
        if not lives:
            raise SessionNotFound(f"there is no session {key!r}")
        return lives

    def _taken(self, lives: dict[str, T], key: str, what: str) -> T:
        if key not in lives:
            raise SessionNotFound(f"there is no {what} session {key!r}")
        return lives.pop(key)
