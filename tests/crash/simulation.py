"""Random work on a simulated disk, every crash it may suffer, and what must be true afterwards."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import nacre
from nacre.codec import encode_message
from nacre.history.session_state import RULES
from nacre.records import Operation, Rewind, Summarise, Transaction
from nacre.storage import blobs
from nacre.storage.file_store import FileStore
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.transaction import PendingCommit
from nacre.testing import Disk, Fault, Killed, Process, Snapshot, images

KEY = "telegram:7/Ä"
ROOT = "/store"
SETTLING = ("say", "replace", "summary", "cover", "rewind", "title", "note", "archive", "delete")
_LARGEST = blobs.LARGEST
SIZES = (5, 40, 500, 1500, 5000)


class Violation(AssertionError):
    """A promise was broken."""


class Life(NamedTuple):
    """What one generation of a session should hold."""

    history: tuple[str, ...] = ()
    summary: str = ""
    title: str = ""
    said: tuple[str, ...] = ()


class World(NamedTuple):
    """What the store should hold for the session."""

    archived: tuple[Life, ...] = ()
    active: Life | None = None

    def view(self) -> Life:
        lives = [*self.archived, *([self.active] if self.active is not None else [])]
        said = tuple(text for life in lives for text in life.said)
        return lives[-1]._replace(said=said) if lives else Life()


Op = tuple[str, Any]


def after(world: World, op: Op, marks: dict[int, Life] | None = None) -> World:
    """What the store should hold after an operation."""
    kind, value = op
    life = world.active
    if kind == "archive":
        return World((*world.archived, life)) if life is not None else world
    if kind == "unarchive":
        return World(world.archived[:-1], world.archived[-1]) if life is None and world.archived else world
    if kind == "delete":
        return World()
    if kind in ("save", "reopen") or (life is None and kind in ("truncate", "clear", "pop")):
        return world
    return world._replace(active=_changed(life or Life(), kind, value, marks or {}))


def _changed(life: Life, kind: str, value: Any, marks: dict[int, Life]) -> Life:
    match kind:
        case "say":
            return life._replace(history=(*life.history, *value), said=(*life.said, *value))
        case "replace":
            return life._replace(history=tuple(value), said=(*life.said, *value))
        case "summary":
            return life._replace(summary=value)
        case "cover":
            return life._replace(summary="covered", history=life.history[value:])
        case "truncate":
            return life._replace(history=life.history[len(life.history) - value :] if value else ())
        case "clear":
            return life._replace(history=(), summary="")
        case "pop":
            return life._replace(history=life.history[:-1])
        case "rewind":
            return life._replace(history=marks[value].history, summary=marks[value].summary)
        case "title":
            return life._replace(title=value)
        case _:
            return life


def blobs_from(seed: int) -> None:
    """Let texts that a simulated session has be large enough for a blob, in every other campaign."""
    blobs.LARGEST = 1000 if seed % 2 else _LARGEST


class Work:
    """A session on a disk, worked on through the library, and what it should hold by then."""

    def __init__(self, disk: Disk, *, durability: Any = "commit") -> None:
        self.disk = disk
        self.durability = durability
        self.process = disk.process()
        self.sessions = opened(self.process, durability)
        self.world = World()
        self.marks: dict[int, Life] = {}

    def plan(self, rng: random.Random, count: int) -> Iterator[Op]:
        """Operations that make sense where the session stands when each is asked for."""
        for step in range(count):
            yield self._planned(rng, step)

    def _planned(self, rng: random.Random, step: int) -> Op:
        def texts(least: int, most: int) -> tuple[str, ...]:
            return tuple(f"{step}.{i}:" + "z" * rng.choice(SIZES) for i in range(rng.randint(least, most)))

        kept = len(self.world.active.history) if self.world.active is not None else 0
        kinds = {
            "say": 10, "group": 4, "replace": 2, "summary": 2, "cover": 3 if kept > 1 else 0,
            "truncate": 3 if kept > 1 else 0, "clear": 1, "pop": 2 if kept else 0, "rewind": 3 if self.marks else 0,
            "title": 1, "note": 1, "save": 4, "reopen": 2, "archive": 1, "unarchive": 1, "delete": 1,
        }  # fmt: skip
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        values: dict[str, Callable[[], Any]] = {
            "say": lambda: texts(1, 1),
            "group": lambda: texts(2, 4),
            "replace": lambda: texts(0, 3),
            "summary": lambda: f"S{step}" * rng.choice((1, 300)),
            "cover": lambda: rng.randint(1, kept),
            "truncate": lambda: rng.randint(0, kept - 1),
            "rewind": lambda: rng.choice(list(self.marks)),
            "title": lambda: f"T{step}",
        }
        value = values[kind]() if kind in values else None
        return ("say" if kind == "group" else kind, value)

    def expected(self, op: Op) -> World:
        return after(self.world, op, self.marks)

    def do(self, op: Op) -> None:
        """Carry an operation out; when it returns it is acknowledged."""
        goal = self.expected(op)
        number = self._done(*op)
        self.world = goal
        if op[0] in ("archive", "unarchive", "delete"):
            self.marks = {}
        elif number is not None and goal.active is not None:
            self.marks[number] = goal.active

    def look(self, candidates: list[World]) -> None:
        """After an operation of which it is not known whether it was done: see which it was."""
        got = observed(self.sessions)
        is_active = any(True for _ in self.sessions.list())
        found = [world for world in candidates if world.view() == got and (world.active is not None) == is_active]
        if not found:
            raise Violation(f"{_short(got)} is none of {_shorts(candidates)}")
        self.world = found[0]

    def _done(self, kind: str, value: Any) -> int | None:
        sessions = self.sessions
        match kind:
            case "say":
                return sessions.add_messages(KEY, [{"role": "user", "content": text} for text in value])
            case "replace":
                sessions.set_history(KEY, [{"role": "user", "content": text} for text in value])
            case "summary":
                sessions.set_summary(KEY, value)
            case "cover":
                sessions.set_summary(KEY, "covered", upto=self._live_number(value - 1))
            case "truncate":
                sessions.truncate_history(KEY, value)
            case "clear":
                sessions.clear(KEY)
            case "pop":
                sessions.pop(KEY)
            case "rewind":
                sessions.rewind(KEY, value)
            case "title":
                sessions.set_meta(KEY, title=value)
            case "note":
                sessions.append(KEY, "x.note", {"a": 1})
            case "save":
                sessions.save(KEY)
            case "reopen":
                sessions.close()
                self.sessions = opened(self.process, self.durability)
            case "archive":
                if self.world.active is not None:
                    sessions.archive(KEY)
            case "unarchive":
                if self.world.active is None and self.world.archived:
                    sessions.unarchive(KEY)
            case "delete":
                sessions.delete(KEY)
            case _:
                raise ValueError(kind)
        return None

    def _live_number(self, place: int) -> int:
        """The record number of a live message, by its text: no two are alike."""
        assert self.world.active is not None
        numbers = {stored.message.content: stored.n for stored in self.sessions.transcript(KEY)}
        return numbers[self.world.active.history[place]]


def opened(process: Process, durability: Any = "commit") -> nacre.Sessions:
    return nacre.Sessions(
        FileStore(ROOT, rules=RULES, system=process, durability=durability, compact_at=1, max_open=2, marks=False)
    )


def observed(sessions: nacre.Sessions) -> Life:
    """What the store gives back."""
    return Life(
        history=tuple(str(message.content) for message in sessions.get_history(KEY)),
        summary=sessions.get_summary(KEY),
        title=sessions.get_meta(KEY).get("title", ""),
        said=tuple(str(stored.message.content) for stored in sessions.transcript(KEY)),
    )


def check(disk: Disk, allowed: list[World], where: str) -> Life:
    """Open what a crash left and see that it is one of the allowed worlds, and that work can go on."""
    process = disk.process()
    try:
        sessions = opened(process)
        got = observed(sessions)
        _must(got in [world.view() for world in allowed], where, f"{_short(got)} is none of {_shorts(allowed)}")
        sessions.add_message(KEY, "user", "post")
        again = observed(sessions)
        _must(again.history[-1:] == ("post",) and again.said == (*got.said, "post"), where, "an append is lost")
        _must(again.history[:-1] in (got.history, ()), where, f"an append changed history: {_short(again)}")
        _settle(sessions, where)
        sessions.close()
        sessions = opened(disk.process())
        _must(observed(sessions) == again, where, "reading again gives something else")
        sessions.delete(KEY)
        _must(not (left := files(disk)), where, f"not erased: {left}")
    except nacre.NacreError as error:
        raise Violation(f"{where}: recovery raised {error!r}") from error
    return again


def files(disk: Disk) -> list[str]:
    """Every file in the folders of the store."""
    process = disk.process()
    folders = [f"{ROOT}/{folder}" for folder in process.listdir(ROOT) if "." not in folder]
    return [f"{folder}/{file}" for folder in folders for file in process.listdir(folder)]


def _settle(sessions: nacre.Sessions, where: str) -> None:
    """A power cut may leave what cannot be told from rot, which is reported; nothing else is wrong, nor after that."""
    findings = [finding for finding in sessions.verify().findings if finding.kind != "quarantine"]
    _must(not findings, where, f"damage after recovery: {findings}")
    sessions.discard(KEY)
    _must(sessions.verify().ok, where, f"reported after it was settled: {sessions.verify().findings}")


def _must(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise Violation(f"{where}: {what}")


def _short(life: Life) -> str:
    texts = [text[:8] for text in life.history]
    return f"(history {texts}, {life.summary[:8]!r}, {life.title!r}, said {len(life.said)})"


def _shorts(worlds: list[World]) -> list[str]:
    return [_short(world.view()) for world in worlds]


# ---- campaigns


def power_cuts(seed: int, *, steps: int = 8, budget: int = 3, nested: float = 0.05) -> int:
    """Cut the power before every call of random work, and sometimes again while it recovers; returns images tried."""
    blobs_from(seed)
    rng = random.Random(seed)
    disk = Disk(seed)
    points: list[tuple[Snapshot, list[World], str]] = []
    work: Work | None = None
    flying: list[World] = []

    def note(call: str, _: tuple[Any, ...]) -> None:
        acked = [work.world] if work is not None else [World()]
        points.append((disk.snapshot(), [*acked, *flying], call))

    disk.before = note
    work = Work(disk)
    for op in work.plan(rng, steps):
        flying = [work.expected(op)]
        work.do(op)
        flying = []
    disk.before = None
    points.append((disk.snapshot(), [work.world], "end"))
    if observed(work.sessions) != work.world.view():
        raise Violation(f"seed {seed}: {_short(observed(work.sessions))} instead of {_short(work.world.view())}")
    tried = 0
    for snapshot, allowed, call in points:
        for image in images(snapshot, rng, budget):
            tried += 1
            where = f"seed {seed}, power cut before {call}"
            if rng.random() < nested:
                tried += _nested(image, allowed, rng, where)
            else:
                check(image, allowed, where)
    return tried


def _nested(image: Disk, allowed: list[World], rng: random.Random, where: str) -> int:
    """Cut the power again at every call of the recovery and of the first append after it."""
    inner: list[tuple[Snapshot, int]] = []
    count = [0]
    image.before = lambda call, _: inner.append((image.snapshot(), count[0]))
    sessions = opened(image.process())
    got = observed(sessions)
    _must(got in [world.view() for world in allowed], where, f"{_short(got)} is none of {_shorts(allowed)}")
    sessions.add_message(KEY, "user", "post")
    image.before = None
    posted = [after(world, ("say", ("post",))) for world in allowed if world.view() == got]
    tried = 0
    for snapshot, _ in inner:
        for second in images(snapshot, rng, 1):
            tried += 1
            check(second, [*allowed, *posted], f"{where}, and again in recovery")
    for third in images(image.snapshot(), rng, 1):
        tried += 1
        check(third, posted, f"{where}, recovered, appended, and cut again")
    return tried


def kills(seed: int, *, steps: int = 7, share: float = 0.4) -> int:
    """Kill the process at a call; another one goes on and acknowledges; then the power is cut."""
    blobs_from(seed)
    rng = random.Random(seed)
    disk = Disk(seed)
    points: list[tuple[Disk, list[World], str]] = []
    work: Work | None = None
    flying: list[World] = []

    def note(call: str, _: tuple[Any, ...]) -> None:
        if rng.random() < share:
            acked = [work.world] if work is not None else [World()]
            points.append((disk.clone(), [*acked, *flying], call))

    disk.before = note
    work = Work(disk)
    for op in work.plan(rng, steps):
        flying = [work.expected(op)]
        work.do(op)
        flying = []
    return sum(_continued(left, allowed, rng, f"seed {seed}, killed before {call}") for left, allowed, call in points)


def _continued(left: Disk, allowed: list[World], rng: random.Random, where: str) -> int:
    """Let another process append to what a killed one left, and cut the power at each of its calls and afterwards."""
    sessions = opened(left.process())
    got = observed(sessions)
    _must(got in [world.view() for world in allowed], where, f"{_short(got)} is none of {_shorts(allowed)}")
    post = "post" + "q" * rng.choice(SIZES)
    posted = [after(world, ("say", (post,))) for world in allowed if world.view() == got]
    points: list[tuple[Snapshot, list[World]]] = []
    left.before = lambda *_: points.append((left.snapshot(), [*allowed, *posted]))
    sessions.add_message(KEY, "user", post)
    points.append((left.snapshot(), posted))
    tried = 0
    for snapshot, worlds in points:
        for image in images(snapshot, rng, 2):
            tried += 1
            check(image, worlds, f"{where}, continued by another process, then power cut")
    return tried


def failing_calls(seed: int, faults: Iterable[Fault], *, steps: int = 6, budget: int = 2) -> int:
    """Fail calls of random work; what was refused must not be there, what was acknowledged must."""
    return sum(_failing(seed, fault, steps, budget) for fault in faults)


def calls(seed: int, *, steps: int = 6) -> int:
    """How many calls the work of a seed makes that can fail."""
    blobs_from(seed)
    disk = Disk(seed)
    work = Work(disk)
    for op in work.plan(random.Random(seed), steps):
        work.do(op)
    return disk.ticks


def _failing(seed: int, fault: Fault, steps: int, budget: int) -> int:
    blobs_from(seed)
    rng, disk = random.Random(seed), Disk(seed)
    disk.fail(fault)
    where = f"seed {seed}, {fault}"
    allowed, flying = [World()], [World()]
    try:
        work = Work(disk)
        for op in work.plan(rng, steps):
            goal = work.expected(op)
            flying = [*allowed, goal]
            allowed = _after_trying(work, op, goal, allowed, where)
    except Killed:
        allowed = flying
    except nacre.Refused:
        _must(allowed == [World()], where, "a store that could not be opened")
    disk.heal()
    tried = 0
    for image in images(disk.snapshot(), rng, budget):
        tried += 1
        check(image, allowed, where)
    return tried


def _after_trying(work: Work, op: Op, goal: World, allowed: list[World], where: str) -> list[World]:
    """Do an operation that may fail; returns the worlds that a crash may then leave."""
    before = work.world
    try:
        work.do(op)
    except nacre.DurabilityUnknown:
        work.look([*allowed, goal])
        return [*allowed, goal]
    except nacre.StoreError:
        got = observed(work.sessions)
        _must(got == work.world.view(), where, f"{op[0]} was refused and yet {_short(got)}")
        return allowed
    if op[0] == "archive" and before.active is None:
        # There was nothing to archive, so the store was not asked.
        return allowed
    return [goal] if op[0] in SETTLING or goal != before else allowed


# ---- several callers in one batch


def torn_batches(seed: int, *, budget: int = 12) -> int:
    """Cut the power while units of several callers are in one batch: any of them may be there, each only whole."""
    blobs_from(seed)
    rng, disk = random.Random(seed), Disk(seed)
    process = disk.process()
    place = SessionPaths.of(ROOT, KEY)
    opened(process).add_message(KEY, "user", "first")
    log = Log(process, place, rules=RULES)
    points: list[tuple[Snapshot, list[World]]] = []
    done = [after(World(), ("say", ("first",)))]
    for step in range(3):
        operations = [_small(rng, f"{step}.{unit}") for unit in range(rng.randint(2, 4))]
        allowed = _subsets(done[-1], operations)
        disk.before = lambda *_, allowed=allowed: points.append((disk.snapshot(), allowed))
        commits = [PendingCommit(Transaction(operations=_operations(op))) for op in operations]
        log.writer.commit(commits)
        if any(commit.error is not None for commit in commits):
            raise Violation(f"seed {seed}: a transaction was refused: {commits[0].error}")
        done.append(reduce(after, operations, done[-1]))
    disk.before = None
    points.append((disk.snapshot(), done[-1:]))
    tried = 0
    for snapshot, allowed in points:
        for image in images(snapshot, rng, budget):
            tried += 1
            check(image, allowed, f"seed {seed}, power cut in a batch")
    return tried


def refused_batches(seed: int) -> int:
    """Fail the write of a batch of several callers half-way, then cut the power: none of them may be there."""
    blobs_from(seed)
    rng, disk = random.Random(seed), Disk(seed)
    process = disk.process()
    opened(process).add_message(KEY, "user", "first")
    log = Log(process, SessionPaths.of(ROOT, KEY), rules=RULES)
    log.writer.commit([PendingCommit(Transaction(operations=_operations(("say", ("second",)))))])
    disk.fail(Fault(call="write", errno=errno.ENOSPC, mode="short"))
    operations: list[Op] = [("say", (f"{unit}:" + "z" * rng.choice(SIZES),)) for unit in range(4)]
    with suppress(nacre.Refused):
        log.writer.commit([PendingCommit(Transaction(operations=_operations(op))) for op in operations])
    disk.heal()
    tried = 0
    for image in images(disk.snapshot(), rng, 8):
        tried += 1
        check(image, [after(World(), ("say", ("first", "second")))], f"seed {seed}, refused half-way")
    return tried


def _small(rng: random.Random, name: str) -> Op:
    texts = tuple(f"{name}.{i}:" + "z" * rng.choice(SIZES) for i in range(rng.randint(1, 3)))
    return rng.choice([("say", texts), ("say", texts), ("replace", texts), ("clear", None), ("summary", f"S{name}")])


def _operations(op: Op) -> list[Operation]:
    kind, value = op
    match kind:
        case "say":
            return [encode_message({"role": "user", "content": text}) for text in value]
        case "replace":
            return [
                Rewind(0, keeps_summary=True),
                *(encode_message({"role": "user", "content": text}) for text in value),
            ]
        case "clear":
            return [Rewind(0)]
        case _:
            return [Summarise(value)]


def _subsets(world: World, operations: list[Op]) -> list[World]:
    """What may be there when any of the units, in their order, reached the disk."""
    chosen = (subset for size in range(len(operations) + 1) for subset in combinations(operations, size))
    return [reduce(after, subset, world) for subset in chosen]


# ---- relaxed


def relaxed_cuts(seed: int, *, steps: int = 8, budget: int = 4) -> int:
    """Cut the power on a relaxed session: what `save` or `close` flushed is there, and of the rest whole units."""
    blobs_from(seed)
    rng, disk = random.Random(seed), Disk(seed)
    work = Work(disk, durability="relaxed")
    worlds = [work.world]
    points: list[tuple[Snapshot, list[World]]] = []
    for step in range(steps):
        op: Op = rng.choice(
            [("say", (f"{step}:" + "z" * rng.choice(SIZES),)), _small(rng, str(step)), ("reopen", None)]
        )
        allowed = [*worlds, work.expected(op)]
        disk.before = lambda *_, allowed=allowed: points.append((disk.snapshot(), allowed))
        work.do(op)
        worlds = [work.world] if op[0] == "reopen" else [*worlds, work.world]
    disk.before = None
    points.append((disk.snapshot(), worlds))
    tried = 0
    for snapshot, allowed in points:
        for image in images(snapshot, rng, budget):
            tried += 1
            _check_relaxed(image, allowed, f"seed {seed}, power cut on a relaxed session")
    return tried


def _check_relaxed(disk: Disk, allowed: list[World], where: str) -> None:
    """What was flushed is there; every unit is whole or not there at all."""
    got = observed(opened(disk.process()))
    flushed, latest = allowed[0].view(), allowed[-1].view()
    _must(got.said[: len(flushed.said)] == flushed.said, where, f"flushed messages are lost: {_short(got)}")
    units = _units(latest.said)
    found = set(got.said)
    _must(found <= set(latest.said), where, "something was made up")
    for unit in units.values():
        _must(not (found & unit) or unit <= found, where, f"half a unit: {sorted(found & unit)}")
    sessions = opened(disk.process())
    sessions.add_message(KEY, "user", "post")
    _must(observed(sessions).said == (*got.said, "post"), where, "an append is lost")
    _settle(sessions, where)


def _units(said: tuple[str, ...]) -> dict[str, set[str]]:
    units: dict[str, set[str]] = {}
    for text in said:
        units.setdefault(text.split(":")[0].split(".")[0], set()).add(text)
    return units


# ---- single scenes


def two_writers() -> tuple[str, ...]:
    """One process rewrites the log while another has it open; both write."""
    disk = Disk()
    one, two = opened(disk.process()), opened(disk.process())
    one.add_message(KEY, "user", "x" * 5000)
    two.add_message(KEY, "user", "y" * 5000)
    one.set_history(KEY, [{"role": "user", "content": "a"}])
    one.save(KEY)
    two.add_message(KEY, "user", "b")
    one.add_message(KEY, "user", "c")
    return observed(opened(disk.process())).history


def retried_after_compaction() -> tuple[str, ...]:
    """A retry under the same id, after the first try was moved out."""
    sessions = opened(Disk().process())
    sessions.add_messages(KEY, [{"role": "user", "content": "once"}], id="a")
    sessions.add_message(KEY, "user", "z" * 5000)
    sessions.clear(KEY)
    sessions.save(KEY)
    sessions.add_messages(KEY, [{"role": "user", "content": "once"}], id="a")
    return tuple(text for text in observed(sessions).said if text == "once")


def evicted_while_relaxed() -> None:
    """A relaxed log that is pushed out by work on others has been flushed by then."""
    disk = Disk()
    sessions = opened(disk.process(), "relaxed")
    for key in (KEY, "b", "c", "d", "e"):
        sessions.add_message(key, "user", "said")
    for image in images(disk.snapshot(), random.Random(0), 20):
        got = observed(opened(image.process())).history
        _must(got == ("said",), "evicted while relaxed", str(got))


def flipped_bit(seed: int) -> int:
    """Rot in the middle of a message: its text must not come back changed."""
    disk = Disk(seed)
    texts = ("a" * 40, "b" * 40, "c" * 40)
    opened(disk.process()).add_messages(KEY, [{"role": "user", "content": text} for text in texts])
    path = SessionPaths.of(ROOT, KEY).log
    data = bytearray(disk.read(path))
    data[data.index(b"bbbb") + seed % 32] ^= 1
    disk.write_durable(path, bytes(data))
    got = observed(opened(disk.process())).said
    _must(set(got) <= set(texts), f"seed {seed}, a flipped bit", f"a changed text was taken for good: {got}")
    return 1
