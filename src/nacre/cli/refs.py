"""How people name a session: by key, uid, title, alias, row or path, and a record of it by `@n`.

Internal sessions (`nacre:…`) are found by their exact key or path only.
"""

from __future__ import annotations

import os
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from nacre.cli.failures import Failure
from nacre.cli.store_choice import is_active, is_url, recall_rows
from nacre.errors import InvalidKey
from nacre.history import alias_table
from nacre.keys import is_internal

if TYPE_CHECKING:
    from nacre.messages import SessionInfo
    from nacre.sessions import Sessions

_SCHEDULE = "schedule:"
_MIN_PREFIX = 4
_MAX_CANDIDATES = 20
_LAST = re.compile(r"@last(?:~(\d{1,6}))?\Z")
_ROW = re.compile(r"@(\d{1,9})\Z")
_POINT = re.compile(r"(.+)@(?:([0-9a-f]{32})/)?(\d{1,15})\Z", re.DOTALL)
_UID = re.compile(r"[0-9a-f]{4,32}\Z")


class Target(NamedTuple):
    """The session, and perhaps the record, that a reference names; `generation` if it is in an archived one."""

    key: str
    n: int | None = None
    generation: str = ""


def add_ref(parser: ArgumentParser, *, many: bool = False, required: bool = True, point: bool = False) -> None:
    """Add the argument that names a session: `ref`, or `refs` for several."""
    what = "a session: key, prefix, uid, title, @last, @3 or a path"
    if many:
        what = what.replace("a session", "sessions")
        parser.add_argument("refs", metavar="REF", nargs="+" if required else "*", help=what)
    elif required:
        parser.add_argument("ref", metavar="REF[@N]" if point else "REF", help=what)
    else:
        parser.add_argument("ref", metavar="REF[@N]" if point else "REF", nargs="?", default="", help=what)


def add_internal(parser: ArgumentParser) -> None:
    """Add the flag that a verb needs to change one of nacre's own sessions."""
    parser.add_argument("--internal", action="store_true", help="allow changes to nacre's own sessions (nacre:…)")


def refuse_internal(key: str, *, allowed: bool) -> None:
    """Raise Failure for one of nacre's own sessions, unless changing it was allowed by --internal."""
    if is_internal(key) and not allowed:
        hint = "add --internal if you mean it; reading it needs no flag"
        raise Failure("usage", f"session {key!r} belongs to nacre and is protected against changes", hint=hint)


def changeable(sessions: Sessions, key: str, *, internal: bool) -> str:
    """The key of a session whose meta may be changed; raises Failure for an archived one, which would begin again."""
    refuse_internal(key, allowed=internal)
    if not is_active(sessions, key):
        hint = "`nacre sessions unarchive` makes it active again"
        raise Failure("conflict", f"session {key!r} is archived and cannot be changed", hint=hint)
    return key


def find(sessions: Sessions, ref: str) -> Target:
    """The session that a reference names; raises Failure where that is none or not only one."""
    if not ref:
        raise Failure("usage", "the name of the session is empty", hint="`nacre sessions list` shows the sessions")
    if (key := _look_up(sessions, ref)) is not None:
        return Target(key)
    if point := _POINT.match(ref):
        try:
            key = _look_up(sessions, point[1])
            return Target(_search(sessions, point[1]) if key is None else key, int(point[3]), point[2] or "")
        except Failure as failure:
            if failure.kind != "not_found":
                raise
    return Target(_search(sessions, ref))


def find_active(sessions: Sessions, ref: str) -> Target:
    """The session that a reference names; raises Failure also for a record of an archived generation."""
    target = find(sessions, ref)
    if target.generation:
        hint = "`nacre sessions show` reads it"
        raise Failure("usage", f"{ref!r} is in an archived generation of session {target.key!r}", hint=hint)
    return target


class Choice(NamedTuple):
    """Something that a reference may name: one of several sessions that are not in the list."""

    key: str
    title: str
    uids: tuple[str, ...]


def choose(ref: str, choices: Iterable[Choice], *, hint: str, where: str = "") -> str:
    """The key that a reference means among these: a key, a title, or what a key or a uid starts or ends with."""
    known = list(choices)
    is_uid = bool(_UID.match(ref))
    matches: tuple[Callable[[Choice], bool], ...] = (
        lambda one: one.key == ref,
        lambda one: one.title.casefold() == ref.casefold(),
        lambda one: len(ref) >= _MIN_PREFIX and one.key.startswith(ref),
        lambda one: is_uid and any(uid.startswith(ref) or uid.endswith(ref) for uid in one.uids),
    )
    for match in matches:
        found = {one.key: (one.key, one.title) for one in known if match(one)}
        if found:
            return _single(ref, list(found.values()))
    raise _missing(ref, hint, where)


def is_key(sessions: Sessions, ref: str) -> bool:
    """Tell whether a key has a log, without opening it: opening a damaged one repairs it, and `verify` must not."""
    try:
        return bool(sessions.status(ref))
    except InvalidKey:
        return False


def missing(sessions: Sessions, key: str) -> Failure:
    """The error for a session that cannot be read: there is none, or its log has lost everything."""
    if sessions.status(key) == "emptied":
        hint = f"restore it from a backup, or note the loss: `nacre sessions repair {shlex.quote(key)}`"
        return Failure("damaged", f"the log of session {key!r} is empty (0 bytes); what was in it is gone", hint=hint)
    return Failure("not_found", f"there is no session {key!r}", hint="`nacre sessions list --all` shows all sessions")


def talks(sessions: Sessions, *, folder: str | None = None) -> Iterator[SessionInfo]:
    """The active sessions in which a person talks, newest first, all or those of a folder and below it.

    Those of schedules and of delegated tasks are skipped. No more are read than are taken.
    """
    cursor: str | None = None
    while True:
        page = sessions.page(folder=folder, cursor=cursor)
        for info in page.items:
            # By its meta a session works for another; people may choose keys that look like that.
            parent = info.meta.get("parent")
            is_delegate = isinstance(parent, str) and info.key.startswith(f"{parent}/")
            if not is_delegate and not info.key.startswith(_SCHEDULE):
                yield info
        if page.cursor is None:
            return
        cursor = page.cursor


def _look_up(sessions: Sessions, ref: str) -> str | None:
    """The key that a reference means without a search; None if it is none of that kind."""
    if is_key(sessions, ref):
        return ref
    if found := _LAST.match(ref):
        # The newest session in which a person talks, or one of those before it.
        back, count = int(found[1] or 0), 0
        for count, info in enumerate(talks(sessions), 1):
            if count > back:
                return info.key
        what = f"there are only {count} active sessions" if count else "there is no session yet"
        raise Failure("not_found", what, hint="`nacre sessions list --all` shows archived sessions too")
    if found := _ROW.match(ref):
        row, keys = int(found[1]), recall_rows(sessions.location)
        if 1 <= row <= len(keys):
            return keys[row - 1]
        what = f"the last list had {len(keys)} rows" if keys else "this store has not been listed yet"
        raise Failure("not_found", f"there is no row {row}: {what}", hint="`nacre sessions list` numbers the sessions")
    if not (ref.endswith(".jsonl") and os.path.isfile(ref)):
        return None
    path = os.path.realpath(ref)
    root = os.path.dirname(os.path.dirname(path))
    if is_url(sessions.location) or root != os.path.realpath(sessions.location):
        raise Failure("not_found", f"{path} is not in the store at {sessions.location}", hint=f"add --store {root}")
    key = sessions.key_of_file(path)
    if key is None:
        hint = "`nacre sessions verify` reports what is wrong"
        raise Failure("damaged", f"{path} does not name its session", hint=hint)
    return key


def _search(sessions: Sessions, ref: str) -> str:
    """The key of the session with this title, other name, or beginning of the key or uid; raises Failure if none."""
    infos = [*sessions.list(), *sessions.list(archived=True)]
    found = [info for info in infos if info.title.casefold() == ref.casefold()]
    if not found and not is_internal(ref):
        # Sessions that have this other name are not opened, for `is_key`'s reason.
        tables = (sessions.read(table, alias_table.read) for table in alias_table.TABLES)
        named = alias_table.join(table for table in tables if table is not None).keys.get(ref, ())
        if keys := [key for key in named if is_key(sessions, key)]:
            return _single(ref, [(key, "") for key in keys])
    if not found and len(ref) >= _MIN_PREFIX:
        found = [info for info in infos if info.key.startswith(ref)]
        if _UID.match(ref):
            found += [info for info in infos if info.generation.startswith(ref) or info.generation.endswith(ref)]
    if not found:
        raise _missing(ref, "`nacre sessions list --all` shows every session")
    # Each key once: generations of a session are one session.
    return _single(ref, list({info.key: (info.key, info.title) for info in found}.values()))


def _single(ref: str, found: list[tuple[str, str]]) -> str:
    if len(found) == 1:
        return found[0][0]
    more = len(found) - _MAX_CANDIDATES
    raise Failure(
        "ambiguous",
        f"{ref!r} matches {len(found)} sessions",
        hint=f"… and {more} more; be more specific" if more > 0 else "be more specific, or use the key",
        candidates=sorted(found)[:_MAX_CANDIDATES],
    )


def _missing(ref: str, hint: str, where: str = "") -> Failure:
    short = f" (a prefix has at least {_MIN_PREFIX} characters)" if len(ref) < _MIN_PREFIX else ""
    return Failure("not_found", f"there is no session {ref!r}{where}{short}", hint=hint)
