"""A session with a message to erase that is in many places, and a child that erases it with a fault on the way."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import nacre
from nacre.storage.paths import SessionPaths
from tests.crash.warm import Say

KEY = "k"
SECRET = 'the launch code is "4711" and the door that it opens is blue'  # noqa: S105 - said by somebody
PIECE = SECRET[20:]
LARGE = f"{SECRET} " * 2_000


def begin(
    sessions: nacre.Sessions,
    key: str,
    *,
    damage: Callable[[str, bytes], object],
    read: Callable[[str], bytes],
) -> None:
    """Say something that is then in a log, a payload, the quarantine, and elsewhere as the key says."""
    say = nacre.Message(
        role="user",
        content=SECRET,
        media=(LARGE,),
        extra={"origin": {"id": "i", "sender": "s"}},
    )
    sessions.add_message(key, "user", "one")
    sessions.add_messages(key, [say, nacre.Message(role="assistant", content="two")], id="i")
    sessions.set_meta(key, title=SECRET)
    sessions.add_message(key, "user", "three")
    # Damage after it, with a part of it: a write that went wrong, in the eyes of who finds it.
    place = SessionPaths.of(sessions.location, key)
    lines = read(place.log).split(b"\n")
    lines.insert(5, b'{"v":1,"n":99,"t":"msg","m":{"content":"' + PIECE.replace('"', '\\"').encode() + b'"}')
    lines.insert(5, b"other damage that stays")
    damage(place.log, b"\n".join(lines))
    sessions.repair(key)
    sessions.discard(key)
    if key in ("cold", "fork"):
        source = "source" if key == "fork" else key
        if key == "fork":
            sessions.fork(key, "source")
            sessions.delete(key)
        sessions.truncate_history(source, 1)
        sessions.save(source)
        if key == "fork":
            sessions.fork(source, key)
            sessions.delete(source)
    if key == "archived":
        sessions.archive(key)


def read_rest(sessions: nacre.Sessions, key: str) -> list[Any]:
    """Everything that is not erased: all records, and what is set aside."""
    entries = [entry for entry in sessions.records(key) if entry.n != 3 and entry.kind != "mark"]
    # A title that repeats it goes with it, and so does its fingerprint.
    plain = [(entry.n, entry.kind, {} if entry.kind in ("meta", "ids") else entry.data) for entry in entries]
    return [plain, [(aside.n, aside.bytes, aside.settled) for aside in sessions.quarantine(key, settled=True)]]


def redact_with_fault(say: Say, base: str, fault: list[Any]) -> None:
    """The child: search, so that there is an index; then erase, and die on the way."""
    os.environ["XDG_CACHE_HOME"] = f"{base}/cache"
    with nacre.open(f"{base}/store") as sessions:
        say(found=len(sessions.search("launch")))
        shim = ctypes.CDLL(None)
        call, *numbers = fault
        shim.failnth_arm(base.encode(), 0, call.encode(), *numbers)
        sessions.redact(KEY, 3)
    say(fired=shim.failnth_fired(0))
