"""nacre doctor: check the store, the settings, the model and the machine, and say what to do."""

from __future__ import annotations

import json
import os
import shlex
import stat as modes
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

from nacre.cli.commands.diagnostics import Check, print_checks, settings_checks
from nacre.cli.commands.housekeeping import MEANINGS
from nacre.cli.failures import FAILED, OK, Failure
from nacre.cli.one_line import several, size
from nacre.cli.output import Out
from nacre.cli.store_choice import emptied_logs, opened, root_of
from nacre.errors import NacreError
from nacre.keys import OWN_KEYS, is_internal
from nacre.render.conversation import notices
from nacre.user_files import has_standby, standby_folder, state_folder

EXAMPLES = (
    ("check everything", "nacre doctor"),
    (
        "for a script: exit code 0 if nothing failed",
        "nacre doctor --quiet --json | jq '.checks[] | select(.status != \"ok\")'",
    ),
)

_LITTLE, _TOO_LITTLE = 1_000_000_000, 50_000_000
_FEW_FILES = 1000
_OTHERS = 0o077
_MOST_NAMED = 3


def add(parser: ArgumentParser) -> None:
    """It takes no arguments of its own."""


def run(args: Namespace, out: Out) -> int:
    root = root_of(args)
    found = print_checks(_checks(args, out, root), out)
    bad = any(check.status == "fail" for check in found)
    if out.json:
        checks = [check._asdict() for check in found]
        out.document({"schema_version": 1, "ok": not bad, "store": root, "checks": checks})
    return FAILED if bad else OK


def _checks(args: Namespace, out: Out, root: str) -> Iterator[Check]:
    if os.path.isdir(root):
        yield _opens(args, root)
        yield _permissions(root)
        yield _writable(root)
        yield _unfinished(args)
        yield _quarantine(args)
        yield from _emptied(root)
    elif os.path.lexists(root):
        hint = "move it away, or choose another store with --store"
        yield Check("store", "fail", f"{root} is not a directory", hint)
    else:
        hint = "the first message creates it; is --store or --agent right?"
        yield Check("store", "warn", f"{root} does not exist yet", hint)
    yield from _standby(root)
    yield _space(root)
    yield _index(root)
    yield from _state_files()
    # What is above says more about the store.
    yield from (check for check in settings_checks(args, out) if not _is_told(check, root))


def _is_told(check: Check, root: str) -> bool:
    """Tell whether a check of the settings is about the store that was looked at, or finds nothing wrong with one."""
    return check.name == "store" and (check.status == "ok" or check.detail == f"{root} cannot be written")


def _state_files() -> Iterator[Check]:
    """Whether the files that say what the user trusts and allows can be read, and by nobody else."""
    for name, file in (("trust", "trust.json"), ("rules", "permissions.json")):
        path = f"{state_folder()}/{file}"
        try:
            with open(path, "rb") as stream:
                folders = json.loads(stream.read()).get("folders", {})
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError, AttributeError) as error:
            yield Check(name, "fail", f"{path} cannot be read: {error}", f"correct it, or remove it: rm {path}")
            continue
        gone = [place for place in folders if not os.path.isdir(place)]
        if _is_open(path):
            yield Check(name, "warn", f"others may read or write {path}", f"chmod 600 {path}")
        elif gone:
            named = ", ".join(gone[:_MOST_NAMED]) + (" …" if len(gone) > _MOST_NAMED else "")
            hint = f"nacre trust --revoke {shlex.quote(gone[0])}" if name == "trust" else ""
            yield Check(name, "warn", f"{path} lists {several(len(gone), 'missing folder')}: {named}", hint)
        else:
            yield Check(name, "ok", f"{several(len(folders), 'folder')} in {path}")


def _opens(args: Namespace, root: str) -> Check:
    try:
        with opened(args) as sessions:
            infos = [*sessions.list(internal=True), *sessions.list(archived=True, internal=True)]
    except (NacreError, Failure, OSError) as error:
        return Check("store", "fail", str(error), "the store is a directory of yours; choose another with --store")
    shown = [info for info in infos if not is_internal(info.key)]
    archived = sum(info.archived for info in shown)
    detail = f"{root}: {several(len(shown) - archived, 'session')}, {archived:,} archived"
    detail += f", {len(infos) - len(shown):,} internal"
    reserved = sorted({info.key for info in infos if is_internal(info.key)} - OWN_KEYS)
    if reserved:
        named = ", ".join(reserved[:_MOST_NAMED]) + (" …" if len(reserved) > _MOST_NAMED else "")
        hint = "they stay readable by their key; `nacre sessions fork --internal KEY NEW_KEY` gives one another key"
        return Check("store", "warn", f"{detail}; reserved keys, hidden from lists: {named}", hint)
    lost = _logs(f"{root}/sessions") - sum(not info.archived for info in infos)
    if lost > 0:
        return Check(
            "store", "warn", f"{detail}, {several(lost, 'log')} without a session", "`nacre sessions verify` shows why"
        )
    return Check("store", "ok", detail)


def _quarantine(args: Namespace) -> Check:
    """What was damaged and set aside, until somebody settles it."""
    try:
        with opened(args) as sessions:
            found = notices(sessions.quarantine())
    except (NacreError, Failure, OSError) as error:
        return Check("quarantine", "fail", str(error), "check the permissions of the store")
    if not found:
        return Check("quarantine", "ok", "nothing in quarantine; `nacre sessions verify` reads everything")
    named = "; ".join(f"{key}: {notice.text}" for key, notice in list(found.items())[:_MOST_NAMED])
    more = f" and {several(len(found) - _MOST_NAMED, 'more session')}" if len(found) > _MOST_NAMED else ""
    hint = "`nacre sessions quarantine` shows them; restore or discard settles them"
    return Check("quarantine", "warn", f"{named}{more}", hint)


def _emptied(root: str) -> Iterator[Check]:
    """Logs that have lost everything."""
    found = emptied_logs(root)
    if found:
        named = ", ".join(found[:_MOST_NAMED]) + (" …" if len(found) > _MOST_NAMED else "")
        hint = "restore them from a backup, or note the loss with `nacre sessions repair KEY`"
        yield Check("logs", "warn", f"{several(len(found), 'log')} empty (0 bytes): {named}", hint)


def _logs(folder: str) -> int:
    try:
        return sum(name.endswith(".jsonl") for name in os.listdir(folder))
    except OSError:
        return 0


def _permissions(root: str) -> Check:
    """Everything that nacre makes is private; another program made or changed what others may read."""
    open_to_others = [path for path in _paths(root) if _is_open(path)]
    if not open_to_others:
        return Check("permissions", "ok", "only you can read the sessions")
    named = ", ".join(os.path.relpath(path, root) for path in open_to_others[:_MOST_NAMED])
    more = f" and {len(open_to_others) - _MOST_NAMED:,} more" if len(open_to_others) > _MOST_NAMED else ""
    return Check("permissions", "warn", f"others may read {named}{more}", f"chmod -R go= {root}")


def _paths(root: str) -> Iterator[str]:
    for folder in MEANINGS:
        for path, _, files in os.walk(f"{root}/{folder}"):
            yield path
            yield from (f"{path}/{file}" for file in files)


def _is_open(path: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return not modes.S_ISLNK(found.st_mode) and bool(found.st_mode & _OTHERS)


def _writable(root: str) -> Check:
    if os.access(root, os.W_OK | os.X_OK) and os.access(f"{root}/sessions", os.W_OK | os.X_OK):
        return Check("writing", "ok", "new messages can be written")
    return Check(
        "writing", "fail", f"{root} cannot be written", f"chmod u+rwx {root} {root}/sessions; or is the disk read-only?"
    )


def _unfinished(args: Namespace) -> Check:
    try:
        with opened(args) as sessions:
            found = sessions.remove_leftovers(dry_run=True)
    except (NacreError, Failure, OSError) as error:
        return Check("leftovers", "fail", str(error), "check the permissions of the store")
    if not found:
        return Check("leftovers", "ok", "none")
    room = size(sum(left.bytes for left in found))
    return Check(
        "leftovers", "warn", f"{several(len(found), 'leftover file')}, {room}", "`nacre sessions gc` removes them"
    )


def _standby(root: str) -> Iterator[Check]:
    """Sessions that were written while the store could not be used."""
    if has_standby(root):
        where = f"messages that were written without the store wait in {standby_folder(root)}"
        yield Check("standby", "warn", where, "the next `nacre chat` or `nacre serve` brings them into the store")


def _space(root: str) -> Check:
    while not os.path.exists(root):
        root = os.path.dirname(root)
    found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    detail = f"{size(free)} free"
    if free < _TOO_LITTLE:
        return Check("space", "fail", detail, "free some space: `nacre sessions du`, `compact --all`, `trash empty`")
    if found.f_files and found.f_favail < _FEW_FILES:
        return Check("space", "fail", f"room for {found.f_favail} more files", "remove small files from this disk")
    if free < _LITTLE:
        return Check("space", "warn", detail, "`nacre sessions du` shows what takes the space")
    return Check("space", "ok", detail)


def _index(root: str) -> Check:
    try:
        from sqlite3 import Error, connect  # noqa: PLC0415 - a Python may have been built without it

        from nacre.index.warm import folder_of  # noqa: PLC0415
    except ImportError as error:
        return Check("index", "warn", f"no index, so lists read every log: {error}", "use a Python that has sqlite3")
    path = f"{folder_of(root, None)}/index.sqlite"
    if not os.path.exists(path):
        return Check("index", "ok", "not built yet; the first list or search builds it")
    try:
        with closing(connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=1)) as database:
            database.execute("SELECT count(*) FROM words WHERE words MATCH 'probe'").fetchone()
    except Error as error:
        return Check(
            "index", "warn", f"{path}: {error}", f"it is rebuilt automatically; if not: rm -r {folder_of(root, None)}"
        )
    return Check("index", "ok", f"{size(os.path.getsize(path))}, {path}")
