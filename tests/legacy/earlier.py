"""A directory as earlier agents left it, on a simulated disk; what must come of it; and every crash on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import nacre
from nacre.history.session_state import RULES
from nacre.legacy import Migration, fallback, migrate_at_start
from nacre.storage.file_store import FileStore
from nacre.storage.paths import log_stem
from nacre.testing import Disk, Killed, Process, Snapshot, images

ROOT = "/agent"
TORN = b'{"role":"assistant","content":"tw'
STRANGERS = {
    "config.json": b'{"model":"x"}',
    "lone.meta.json": b'{"key":"nobody"}',
    "sessions/events.jsonl": b'{"event":"start"}\n{"role":"user","content":"no"}\n',
    "sessions/index.db": b"SQLite format 3\0",
}


class Violation(AssertionError):
    """A promise was broken."""


class Held(NamedTuple):
    """What a session should hold."""

    live: tuple[str, ...]
    said: tuple[str, ...]
    summary: str = ""
    is_archived: bool = False


def line(text: str, role: str = "user", **fields: Any) -> bytes:
    return json.dumps({"role": role, "content": text, **fields}).encode() + b"\n"


def document(key: str, *texts: str, summary: str = "", **fields: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    times = {"created": "2026-01-02T03:04:05.678Z", "updated": "2026-02-03T04:05:06+08:00"}
    return json.dumps({"key": key, "messages": messages, "summary": summary, **times, **fields}, indent=2).encode()


def meta(key: str, **fields: Any) -> bytes:
    return json.dumps({"key": key, "count": 3, "created_at": "2026-03-01T00:00:00Z", **fields}).encode()


class World(NamedTuple):
    """Files of earlier agents, the sessions they must become, and pieces that must be set aside."""

    files: dict[str, bytes]
    sessions: dict[str, Held]
    bad: int = 0


def worlds(seed: int) -> World:
    """Some of the layouts, with texts that no other has."""
    rng = random.Random(seed)

    def texts(name: str) -> tuple[str, ...]:
        return tuple(f"{name}{n}:{'z' * rng.choice((1, 40, 700))}" for n in range(rng.randint(1, 3)))

    made = [_documents, _plain, _archived, _beside, _same_name, _nanobot]
    files: dict[str, bytes] = {}
    sessions: dict[str, Held] = {}
    for make in rng.sample(made, rng.randint(2, 3)):
        more, held = make(texts)
        files |= more
        sessions |= held
    return World(files, sessions, bad=sum(data.count(TORN) for data in files.values()))


Texts = Callable[[str], tuple[str, ...]]
Made = tuple[dict[str, bytes], dict[str, Held]]


def _documents(texts: Texts) -> Made:
    said, other = texts("d"), texts("e")
    files = {
        "telegram_1.json": document("telegram:1", *said, summary="So far."),
        "sessions/telegram_1.json": document("telegram:1", *other),
    }
    return files, {"telegram:1": Held(said, said, "So far."), "telegram:1 (2)": Held(other, other)}


def _plain(texts: Texts) -> Made:
    said = texts("p")
    return {"sessions/plain.jsonl": b"".join(map(line, said[:1])) + TORN + b"\n" + b"".join(map(line, said[1:]))}, {
        "plain": Held(said, said)
    }


def _archived(texts: Texts) -> Made:
    old, new = texts("o"), texts("n")
    files = {"sessions/gone.jsonl.archived": b"".join(map(line, old)), "gone.jsonl": b"".join(map(line, new))}
    return files, {"gone": Held(new, (*old, *new))}


def _beside(texts: Texts) -> Made:
    said = (*texts("m"), "last")
    files = {
        "sessions/tg_2.jsonl": b"".join(map(line, said)),
        "sessions/tg_2.meta.json": meta("tg:2", skip=1, summary="One went.", aliases=["tg_old"]),
    }
    return files, {"tg:2": Held(said[1:], said, "One went.")}


def _nanobot(texts: Texts) -> Made:
    said = texts("b")
    about = {"_type": "metadata", "key": "cli:direct", "created_at": "2026-09-01T10:00:00", "metadata": {"title": "T"}}
    return {"sessions/Y2xpOmRpcmVjdA.jsonl": json.dumps(about).encode() + b"\n" + b"".join(map(line, said))}, {
        "cli:direct": Held(said, said)
    }


def _same_name(texts: Texts) -> Made:
    """One session's file has the plain name of another session, and one the name that its own log needs."""
    said, other, third = texts("s"), texts("u"), texts("v")
    log = log_stem("box_5")
    files = {"sessions/box_3.jsonl": b"".join(map(line, said)), "sessions/box_3.meta.json": meta("box:3")}
    files |= {f"sessions/{log}.jsonl": b"".join(map(line, third)), f"sessions/{log}.meta.json": meta("box_5")}
    files["b.json"] = document("box_3", *other)
    return files, {"box:3": Held(said, said), "box_3": Held(other, other), "box_5": Held(third, third)}


def planted(world: World, seed: int) -> Disk:
    disk = Disk(seed)
    for name, data in (world.files | STRANGERS).items():
        disk.write_durable(f"{ROOT}/{name}", data)
    return disk


def store(process: Process) -> FileStore:
    return FileStore(ROOT, rules=RULES, system=process, compact_at=1, max_open=2, marks=False)


def migrated(disk: Disk) -> Migration:
    """Start an agent on the disk."""
    files = store(disk.process())
    found = migrate_at_start(files)
    files.close()
    return found


def check(disk: Disk, world: World, where: str) -> None:
    """Start again what a crash left, and see that everything is there, once, and that the originals are kept."""
    report = migrated(disk)
    _must(report.ok, where, str(report))
    sessions = nacre.Sessions(store(disk.process()))
    for key, held in world.sessions.items():
        _must(_seen(sessions, key) == held, where, f"{key!r} is {_seen(sessions, key)}, not {held}")
    if "tg:2" in world.sessions:
        _must(sessions.exists("tg_old"), where, "the alias of a session is lost")
    active = {info.key for info in sessions.list()}
    _must(active == set(world.sessions), where, f"the sessions are {sorted(active)}")
    # What was no message is in quarantine until it is settled; after a power cut a log that was not finished may look
    # like one that was emptied.
    told = {"quarantine", "emptied"} if "power cut" in where else {"quarantine"}
    findings = [one for one in sessions.verify().findings if one.key != "events" and one.kind not in told]
    _must(not findings, where, str(findings))
    for name, data in STRANGERS.items():
        _must(disk.read(f"{ROOT}/{name}") == data, where, f"{name} was touched")
    for name, data in world.files.items():
        _must(disk.read(f"{ROOT}/{name}.migrated") == data, where, f"{name} was not kept")
    _must(_set_aside(disk) == world.bad, where, f"{_set_aside(disk)} pieces were set aside")
    _must(not migrated(disk).report, where, "it is not done once and for all")


def _seen(sessions: nacre.Sessions, key: str) -> Held:
    return Held(
        live=tuple(str(message.content) for message in sessions.get_history(key)),
        said=tuple(str(stored.message.content) for stored in sessions.transcript(key)),
        summary=sessions.get_summary(key),
    )


def _set_aside(disk: Disk) -> int:
    process = disk.process()
    try:
        names = process.listdir(f"{ROOT}/quarantine")
    except FileNotFoundError:
        return 0
    lines = [line for name in names for line in disk.read(f"{ROOT}/quarantine/{name}").split(b"\n")]
    return sum(_is_whole_note(line) for line in lines)


def _is_whole_note(line: bytes) -> bool:
    """Tell a piece of an earlier file from a note that a crash tore, and from what a log set aside."""
    try:
        return bool(json.loads(line)["raw"] == TORN.decode())
    except (ValueError, KeyError):
        return False


def _must(holds: bool, where: str, what: str) -> None:
    if not holds:
        raise Violation(f"{where}: {what}")


# ---- crashes


def moments(disk: Disk, work: Callable[[], object]) -> list[tuple[Snapshot, Disk, str]]:
    """The disk before each call that some work makes: as it may be after a power cut, and after a kill."""
    found: list[tuple[Snapshot, Disk, str]] = []
    disk.before = lambda call, _: found.append((disk.snapshot(), disk.clone(), call))
    work()
    disk.before = None
    return [*found, (disk.snapshot(), disk.clone(), "end")]


def crashes(disk: Disk, work: Callable[[], object], rng: random.Random, budget: int) -> Iterator[tuple[Disk, str]]:
    """Every disk that a kill, or a power cut, may leave of some work."""
    for place, (snapshot, killed, call) in enumerate(moments(disk, work)):
        yield killed, f"killed before call {place}, {call}"
        migrated(again := killed.clone())
        for image in images(again.snapshot(), rng, 0):
            yield image, f"killed before call {place}, {call}, done again, then power cut"
        for image in images(snapshot, rng, budget):
            yield image, f"power cut before call {place}, {call}"


def interrupted(seed: int, *, budget: int = 1, nested: float = 0.04) -> int:
    """Crash a migration at every call, and sometimes the one after it; returns how many crashes were tried."""
    rng, world = random.Random(seed), worlds(seed)
    disk = planted(world, seed)
    tried = 0
    for left, where in crashes(disk, lambda: migrated(disk), rng, budget):
        tried += 1
        if rng.random() < nested:
            again = left.clone()
            for second, then in crashes(again, lambda again=again: migrated(again), rng, 0):  # type: ignore[misc]
                tried += 1
                check(second, world, f"seed {seed}, {where}, and {then}")
        check(left, world, f"seed {seed}, {where}")
    return tried


def continued(seed: int, *, budget: int = 1) -> int:
    """Crash the migration of what the fallback wrote behind a migrated session; returns how many were tried."""
    rng = random.Random(seed)
    disk = Disk(seed)
    disk.write_durable(f"{ROOT}/a.json", document("k", "one", "two", "three"))
    migrated(disk)
    standby = fallback(ROOT, OSError("no"), system=disk.process())
    standby.add_message("k", "user", "four")
    kept = rng.choice((4, 2))
    if kept == 2:
        standby.set_summary("k", "Two went.")
        standby.truncate_history("k", kept)
    standby.save("k")
    said = ("one", "two", "three", "four")
    world = World({}, {"k": Held(said[-kept:], said, "Two went." if kept == 2 else "")})
    for name, data in STRANGERS.items():
        disk.write_durable(f"{ROOT}/{name}", data)
    tried = 0
    for left, where in crashes(disk, lambda: migrated(disk), rng, budget):
        tried += 1
        check(left, world, f"seed {seed}, {where}")
    return tried


def failing(seed: int, faults: Callable[[int], Any]) -> int:
    """Fail the migration at every call; what it raises or reports, the next start puts right."""
    world = worlds(seed)
    count = len(moments(disk := planted(world, seed), lambda: migrated(disk)))
    for nth in range(1, count):
        disk = planted(world, seed)
        disk.fail(faults(nth))
        with suppress(nacre.StoreError, Killed):
            migrated(disk)
        disk.heal()
        check(disk, world, f"seed {seed}, call {nth} failed")
    return count - 1
