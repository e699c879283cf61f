"""Moving sessions to another store: generation by generation, while both are used, and compared afterwards.

A generation is written whole or not at all, with its uid, its numbers and its lines. What a store does by itself about
room is left out of the comparison: in headers the lengths of other files and `holes`, in holes what fills them up.

1. Compare what the other store has with the source, record by record. Other records under the same numbers, or later
   ones than the source has, are never overwritten.
2. Write what is missing, on the condition that the other store is still as it was compared.
3. Read it there again: count and digest must be those of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from nacre.codec import timestamp
from nacre.errors import Conflict, StoreError
from nacre.records import Record, View
from nacre.storage import blobs
from nacre.storage.format import fields
from nacre.storage.quarantine import IN_PLACE, Aside
from nacre.storage.seal import unseal_command
from nacre.storage.system import System

T = TypeVar("T")

HeldAs = Literal["active", "archived", "trash"]
Keep = Callable[[View], set[int]]
"""(session) -> the records that are needed to go on with it, which a log should hold itself."""
Result = Literal["copied", "updated", "unchanged", "newer", "conflict", "failed"]

# One that is archived or removed makes room for the next active one of its key.
_ORDER: tuple[HeldAs, ...] = ("trash", "archived", "active")
_PHYSICAL = frozenset(("cold", "high", "kept", "moved", "holes"))
_PHYSICAL_BASE = frozenset(("levels", "moved"))
_TRIES = 5


class Held(NamedTuple):
    """A generation of a session, and how a store holds it.

    One in the trash has the id of what was removed together, the time of that, and where it was before.
    """

    key: str
    uid: str
    status: HeldAs
    trash: str = ""
    removed: str = ""
    was_archived: bool = False


class Unreadable(NamedTuple):
    """Something in a store that should be a session, and cannot be read."""

    key: str
    reason: str


class Changed(Conflict):
    """The generation is not as it was compared: look again."""


class Transferable(Protocol):
    """A store that sessions can be moved from and to."""

    @property
    def location(self) -> str:
        """Where it is, for people."""

    def each(self, status: HeldAs) -> Iterator[Held | Unreadable]:
        """Every generation of a kind, also of internal sessions."""

    def find(self, key: str, uid: str) -> Held | None:
        """How a generation is held; None if it is not there."""

    def read(self, held: Held, get: Callable[[View], T]) -> T | None:
        """Read a generation, only what is durable, after what is damaged was set aside; None if it is not there."""

    def write(self, held: Held, view: View, *, after: int, erased: Collection[int], keep: Keep) -> None:
        """Write a generation as it is in another store, whole or not at all.

        The records up to `after` are here already, 0 if none are; of these `erased` have lost their content in the
        other store. Raises Changed if it has another last record by now, Conflict if its place is taken.
        """

    def asides(self, held: Held) -> list[Aside]:
        """What is in quarantine of a generation, settled entries too."""

    def add_asides(self, held: Held, asides: Collection[Aside]) -> None:
        """Add entries to the quarantine of a generation, but for those that it has."""

    def orphans(self) -> list[Held]:
        """Generations that are lost but for what is in quarantine of them."""

    def documents(self) -> dict[str, bytes]:
        """The documents of the store by name: how far channels have read, for example."""

    def write_document(self, name: str, data: bytes) -> None:
        """Replace a document, durably."""

    def sealed_to(self) -> str:
        """Where the sessions were moved; "" if they were not."""

    def seal(self, to: str) -> None:
        """Refuse every write from now on, with where the sessions went; when it returns, none is under way."""

    def unseal(self) -> bool:
        """Accept writes again; False if they were accepted."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one generation: its records, their digest, and what could not be read of it."""

    key: str
    generation: str = ""
    status: str = ""
    result: Result
    records: int = 0
    digest: str = ""
    detail: str = ""
    lost: str = ""

    @property
    def ok(self) -> bool:
        """Whether the other store has all that could be read."""
        return self.result not in ("conflict", "failed")


def copy(source: Transferable, target: Transferable, *, keep: Keep) -> Iterator[Outcome]:
    """Copy every generation that the target does not have, and what is new in the others; both may be in use."""
    if to := target.sealed_to():
        raise Conflict(
            f"{target.location} is sealed, its sessions were moved to {to}: take that back with "
            f"`{unseal_command(target.location)}` first"
        )
    for status in _ORDER:
        for held in source.each(status):
            if isinstance(held, Unreadable):
                yield Outcome(key=held.key, status=status, result="failed", detail=held.reason)
            elif (outcome := _copy_one(source, target, held, keep)) is not None:
                yield outcome
    for held in source.orphans():
        target.add_asides(held, source.asides(held))


def copy_documents(source: Transferable, target: Transferable) -> None:
    """Copy the documents that the target does not have; one that it has may have been written there since."""
    known = target.documents()
    for name, data in source.documents().items():
        if name not in known:
            target.write_document(name, data)


def seal(source: Transferable, target: Transferable) -> None:
    """Let the source refuse writes and say where its sessions go; what was acknowledged before is there to be copied.

    Raises Conflict if they went elsewhere before.
    """
    to = source.sealed_to()
    if to not in ("", target.location):
        raise Conflict(
            f"the sessions of {source.location} were moved to {to} already: take that back with "
            f"`{unseal_command(source.location)}` first"
        )
    # Also if it was sealed before: that may have been cut short.
    source.seal(target.location)


def only_in(target: Transferable, source: Transferable) -> list[Held]:
    """The generations that the target has and the source has not: others, or some that were deleted in the source."""
    return [
        held
        for status in _ORDER
        for held in target.each(status)
        if isinstance(held, Held) and source.find(held.key, held.uid) is None
    ]


def _copy_one(
    source: Transferable, target: Transferable, held: Held, keep: Keep, *, tries: int = _TRIES
) -> Outcome | None:
    """Copy one generation; None if it was deleted meanwhile."""
    try:
        return _copy_now(source, target, held, keep)
    except Conflict as error:
        if isinstance(error, Changed) and tries > 1:
            return _copy_one(source, target, held, keep, tries=tries - 1)
        return _outcome(held, "conflict", str(error))
    except (StoreError, OSError, UnicodeError) as error:
        return _outcome(held, "failed", str(error))


def _copy_now(source: Transferable, target: Transferable, held: Held, keep: Keep) -> Outcome | None:
    now: Held | None = held
    while now is not None:
        found = source.read(now, _Copying(source, target, now, keep))
        if found is not None:
            return found
        # It was moved between the looks, or deleted.
        now = source.find(held.key, held.uid)
    return None


def _outcome(held: Held, result: Result, detail: str) -> Outcome:
    return Outcome(key=held.key, generation=held.uid, status=held.status, result=result, detail=detail)


class _Copying:
    """Copies one generation, as its view shows it."""

    def __init__(self, source: Transferable, target: Transferable, held: Held, keep: Keep) -> None:
        self._source, self._target, self._held, self._keep = source, target, held, keep

    def __call__(self, view: View) -> Outcome:
        target, held = self._target, self._held
        # 1. Compare.
        there = target.find(held.key, held.uid)
        compared = compare(view, None)
        if there is not None:
            found = target.read(there, lambda other: compare(view, other))
            if found is None:
                raise Changed(f"session {held.key!r} is being moved in {target.location}; run it again")
            compared = found
        if compared.conflict:
            raise Conflict(f"{compared.conflict} in {target.location}; nothing of it was copied")
        # 2. Write.
        result: Result = "newer" if compared.after > view.n else "unchanged"
        is_elsewhere = there is not None and _where(there) != _where(held)
        if compared.after < view.n or compared.erased or (is_elsewhere and result == "unchanged"):
            result = "updated" if there is not None else "copied"
            target.write(held, view, after=compared.after, erased=compared.erased, keep=self._keep)
            # 3. Read it there.
            digest = target.read(held, lambda other: digest_of(other, upto=view.n))
            if digest != compared.digest:
                raise StoreError(f"session {held.key!r} is not the same in {target.location}: {digest}")
        # 4. What went wrong with it stays visible.
        losses = view.losses
        asides = self._source.asides(held)
        if losses:
            detail = f"{losses.text} in {self._source.location}, from which it was copied"
            ts = timestamp(System().now())
            asides.append(Aside(0, held.uid, held.key, IN_PLACE, detail, ts, (), ""))
        if asides:
            target.add_asides(held, asides)
        records, text = compared.digest
        return Outcome(
            key=held.key,
            generation=held.uid,
            status=held.status,
            result=result,
            records=records,
            digest=text,
            lost=losses.text,
        )


def _where(held: Held) -> tuple[str, bool]:
    return held.status, held.was_archived


# ---- comparing


class Comparison(NamedTuple):
    """How a generation differs in two stores: up to which record the other one has it, and which were erased since.

    `digest` is that of the source, with the number of its records. `conflict` says why nothing may be written.
    """

    after: int
    digest: tuple[int, str]
    erased: tuple[int, ...] = ()
    conflict: str = ""


class _Digest:
    """The number of records, and a SHA-256 over what they are and over the payloads that they name."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._hash = sha256()
        self._count = 0

    def add(self, record: Record, what: bytes) -> None:
        self._count += 1
        self._hash.update(b"%d:" % len(what) + what)
        for name in blobs.names(record) if record.blobs is not None else ():
            self._hash.update(b"lost" if self._view.payload(name) is None else name.encode())

    @property
    def value(self) -> tuple[int, str]:
        return self._count, self._hash.hexdigest()


def digest_of(view: View, *, upto: int) -> tuple[int, str]:
    """The number of records up to one, and their digest."""
    digest = _Digest(view)
    for record, line in lines_of(view):
        if record.n <= upto:
            digest.add(record, essence(record, line))
    return digest.value


def lines_of(view: View) -> Iterator[tuple[Record, bytes]]:
    """Every record of a generation with its line; not what a log that lost its end has moved out of that."""
    return ((record, line) for record, line in view.all_lines() if record.n <= view.n)


def essence(record: Record, line: bytes) -> bytes:
    """What a line says, without what only its own store needs."""
    if record.t != "open" and record.gone is None:
        return line
    found = fields(line[:-1])
    if record.gone is not None:
        found["gone"] = ""
    if record.t == "open":
        found = {name: value for name, value in found.items() if name not in _PHYSICAL}
        if record.base is not None:
            found["base"] = {name: value for name, value in record.base.items() if name not in _PHYSICAL_BASE}
    return msgspec.json.encode(found, order="sorted")


def compare(source: View, target: View | None) -> Comparison:
    """Compare a generation in two stores, record by record."""
    digest = _Digest(source)
    others = lines_of(target) if target is not None else iter(())
    other = next(others, None)
    erased: list[int] = []
    conflict = ""
    for record, line in lines_of(source):
        mine = essence(record, line)
        digest.add(record, mine)
        if other is None or conflict:
            continue
        theirs = essence(*other)
        if other[0].n != record.n:
            conflict = f"session {source.key!r} has no record {record.n}, but record {other[0].n},"
        elif _is_erased(record, other[0]):
            erased.append(record.n)
        elif mine != theirs:
            conflict = f"record {record.n} of session {source.key!r} is another one"
        other = next(others, None)
    return Comparison(target.n if target is not None else 0, digest.value, tuple(erased), conflict)


def _is_erased(mine: Record, theirs: Record) -> bool:
    """Tell whether a record has lost its content since it was copied."""
    about = (mine.n, mine.t, mine.ts, mine.p, mine.st)
    return (
        mine.gone is not None and theirs.gone is None and about == (theirs.n, theirs.t, theirs.ts, theirs.p, theirs.st)
    )
