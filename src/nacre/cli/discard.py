"""The trash: where the files of removed sessions wait, and how they come back.

`trash/<name>.<uid>.<µs>.jsonl` is a log, with `.archived` before the ending if the session was archived; its cold and
quarantine files follow it under the same beginning. The log goes first and comes back last, so that a crash at any
point leaves a session that is either in the trash or not, and the rest is done by doing it again.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from nacre.cli.failures import Failure
from nacre.cli.refs import Choice, choose, head_of
from nacre.errors import StoreError
from nacre.history import live
from nacre.log import blobs
from nacre.log.keylock import KeyLock
from nacre.log.marks import Marks
from nacre.log.names import key_of, stem
from nacre.log.ops import Ops
from nacre.log.place import Place, make_folder, settle_names, uids_in, unlink_if_there
from nacre.log.plain import path_now
from nacre.log.reader import reading

if TYPE_CHECKING:
    from nacre.sessions import Sessions

OPS = Ops()
_NAME = re.compile(r"([^.]+)\.([0-9a-f]{32})\.(\d{1,18})(\.archived)?\.jsonl\Z")


class Item(NamedTuple):
    """One session in the trash: its logs, and when it was put there."""

    key: str
    name: str
    stamp: str
    logs: tuple[str, ...]
    bytes: int

    @property
    def removed(self) -> datetime:
        return datetime.fromtimestamp(int(self.stamp) / 1_000_000, UTC)


class _Trashed(Place):
    """The paths of a session in the trash; `archived` is all of the log's name that follows the session's."""

    __slots__ = ()

    @property
    def folder(self) -> str:
        return f"{self.root}/trash"


def discard(sessions: Sessions, key: str, *, is_active: bool, ops: Ops = OPS) -> None:
    """Move every generation of a session to the trash, durably."""
    place = Place.of(sessions.location, key)
    stamp = str(int(ops.now() * 1_000_000))
    before = set(uids_in(ops, f"{place.root}/archive", place.name))
    if is_active:
        sessions.archive(key)
    make_folder(ops, f"{place.root}/trash")
    with KeyLock(ops, place):
        for uid in uids_in(ops, f"{place.root}/archive", place.name):
            _discard(ops, place._replace(archived=uid), stamp, was_archived=uid in before)


def discard_archived(place: Place) -> None:
    """Move one archived generation to the trash, durably; others of its session stay where they are."""
    make_folder(OPS, f"{place.root}/trash")
    with KeyLock(OPS, place):
        _discard(OPS, place, str(int(OPS.now() * 1_000_000)), was_archived=True)


def items(root: str) -> list[Item]:
    """What is in the trash, the last removed first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for log in sorted(_listed(f"{root}/trash")):
        if found := _NAME.match(log):
            groups.setdefault((found[1], found[3]), []).append(log)
    found_items = [_item(root, name, stamp, logs) for (name, stamp), logs in groups.items()]
    return sorted(found_items, key=lambda item: int(item.stamp), reverse=True)


def named(root: str, ref: str) -> Item:
    """The session in the trash that a key, a title, a uid, or `@last` means; of one key the last removed."""
    found = items(root)
    if ref == "@last" and found:
        return found[0]
    choices = {item: Choice(item.key, title_of(root, item), tuple(map(_uid, item.logs))) for item in found}
    key = choose(ref, choices.values(), "session in the trash", hint="`nacre sessions trash list` shows them")
    # A title may be that of an earlier one with the same key.
    same = [item for item in found if item.key == key]
    return next((item for item in same if choices[item].title.casefold() == ref.casefold()), same[0])


def title_of(root: str, item: Item) -> str:
    """The title of a session in the trash; "" if it has none, or if its log cannot be read."""
    name, _, rest = item.logs[-1].removesuffix(".jsonl").partition(".")
    try:
        with reading(OPS, _Trashed(root, item.key, name, rest)) as found:
            title = live.meta(found.past, found.past.state).get("title") if found.past is not None else ""
    except (OSError, StoreError):
        return ""
    return title if isinstance(title, str) else ""


def restore(root: str, item: Item, *, ops: Ops = OPS) -> None:
    """Bring a session back to where it was; raises Failure if its key has an active session by now."""
    with KeyLock(ops, _home(root, item, item.logs[0])):
        for log in item.logs:
            _refuse_taken(f"{root}/trash/{log}", _home(root, item, log))
        for log in item.logs:
            place, path = _home(root, item, log), f"{root}/trash/{log}"
            make_folder(ops, place.folder)
            for aside, home in _followers(place, _uid(log), item.stamp):
                _move(ops, aside, home)
            _come_back(ops, path, place)


def empty(root: str, item: Item, *, ops: Ops = OPS) -> None:
    """Erase a session in the trash for good; another one of the same key stays as it is."""
    with KeyLock(ops, _home(root, item, item.logs[0])):
        for log in item.logs:
            place, path = _home(root, item, log), f"{root}/trash/{log}"
            if not _is_same(path, place.log):
                # Otherwise it is back already, and only its name in the trash was left by a crash.
                _erase_followers(ops, place, _uid(log), item.stamp)
            unlink_if_there(ops, path)
            settle_names(ops, f"{root}/trash")


def _home(root: str, item: Item, log: str) -> Place:
    """Where a log in the trash came from."""
    return Place(root, item.key, item.name, _uid(log) if log.endswith(".archived.jsonl") else "")


def _uid(log: str) -> str:
    return log.split(".")[1]


def _erase_followers(ops: Ops, place: Place, uid: str, stamp: str) -> None:
    """Remove what follows a log, in the trash and, if a crash left it there, at home; and the past of a fork."""
    paths = [path for names in _followers(place, uid, stamp) for path in names]
    beginning = f"{place.name}.{uid}."
    paths += [f"{place.root}/base/{file}" for file in _listed(f"{place.root}/base") if file.startswith(beginning)]
    for path in paths:
        unlink_if_there(ops, path)
    for link in [f"{place.blobs}/{file}" for file in _listed(place.blobs) if file.startswith(beginning)]:
        blobs.release(ops, link)
        paths.append(link)
    for folder in {os.path.dirname(path) for path in paths}:
        if os.path.isdir(folder):
            settle_names(ops, folder)


# ---- into the trash


def _discard(ops: Ops, place: Place, stamp: str, *, was_archived: bool) -> None:
    goal = f"{place.root}/trash/{place.name}.{place.archived}.{stamp}{'.archived' if was_archived else ''}.jsonl"
    _rename(ops, place, goal)
    settle_names(ops, f"{place.root}/trash")
    settle_names(ops, place.folder)
    for aside, home in _followers(place, place.archived, stamp):
        _move(ops, home, aside)


def _rename(ops: Ops, place: Place, goal: str) -> None:
    """Give a log its name in the trash while nobody else is at it, and mark that for the index."""
    fd = ops.open(place.log, os.O_RDWR | os.O_NOFOLLOW)
    try:
        ops.flock(fd, wait=True)
        held, named_ = ops.fstat(fd), ops.stat(place.log)
        if (held.st_dev, held.st_ino) != (named_.st_dev, named_.st_ino):
            raise Failure("locked", f"{place.log} was changed meanwhile", hint="try again")
        Marks(ops, place.root).leave(place.path)
        ops.rename(place.log, goal)
    finally:
        ops.close(fd)


def _followers(place: Place, uid: str, stamp: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The names of what follows a log, in the trash and at home."""
    aside = f"{place.root}/trash/{place.name}.{uid}.{stamp}"
    return (f"{aside}.cold.zst", place.cold(uid)), (f"{aside}.quarantine", place.quarantine(uid))


def _move(ops: Ops, old: str, new: str) -> None:
    """Move a file that may not be there, or may have been moved before a crash."""
    try:
        make_folder(ops, os.path.dirname(new))
        ops.rename(old, new)
    except FileNotFoundError:
        return
    settle_names(ops, os.path.dirname(new))
    settle_names(ops, os.path.dirname(old))


# ---- and back


def _refuse_taken(path: str, place: Place) -> None:
    taken = path_now(OPS, place)
    if taken and not _is_same(path, taken):
        hint = "archive or remove that one first"
        raise Failure("conflict", f"there is now an active session {place.key!r}", hint=hint)


def _come_back(ops: Ops, path: str, place: Place) -> None:
    try:
        ops.link(path, place.log)
    except FileExistsError:
        # An earlier try may have come this far.
        _refuse_taken(path, place)
    # Behind the change: whoever takes the mark finds the log.
    Marks(ops, place.root).leave(place.path)
    settle_names(ops, place.folder)
    ops.unlink(path)
    settle_names(ops, os.path.dirname(path))


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except FileNotFoundError:
        return False


# ---- looking


def _item(root: str, name: str, stamp: str, logs: list[str]) -> Item:
    key = head_of(f"{root}/trash/{logs[-1]}").sid
    if key is None or stem(key) != name:
        key = key_of(name) or name
    beginnings = tuple(f"{name}.{_uid(log)}.{stamp}." for log in logs)
    files = [file for file in _listed(f"{root}/trash") if file.startswith(beginnings)]
    return Item(key, name, stamp, tuple(logs), sum(_size(f"{root}/trash/{file}") for file in files))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
