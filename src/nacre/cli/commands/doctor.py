"""nacre doctor: check the store, the settings, the model and the machine, and say what to do."""

from __future__ import annotations

import json
import os
import shlex
import stat as modes
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from nacre.cli.commands.diagnostics import Check, check_seal, print_checks, settings_checks
from nacre.cli.commands.housekeeping import MEANINGS
from nacre.cli.failures import FAILED, OK, Failure
from nacre.cli.one_line import several, size
from nacre.cli.output import Out
from nacre.cli.store_choice import count_logs, emptied_logs, is_url, open_store, root_of, show, store_of
from nacre.errors import ConfigError, NacreError
from nacre.keys import OWN_KEYS, is_internal
from nacre.render.conversation import notices
from nacre.user_files import has_standby, standby_folder, state_folder

if TYPE_CHECKING:
    from nacre.sessions import Sessions

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
_MAX_NAMED = 3


def add(parser: ArgumentParser) -> None:
    """It takes no arguments of its own."""


def run(args: Namespace, out: Out) -> int:
    root = root_of(args)
    try:
        store = store_of(args)
    except ConfigError:
        # The checks of the configuration say what is wrong with it.
        store = ""
    found = print_checks(_checks(args, out, root, store), out)
    bad = any(check.status == "fail" for check in found)
    if out.json:
        checks = [check._asdict() for check in found]
        out.document({"ok": not bad, "store": show(store), "checks": checks})
    return FAILED if bad else OK


def _checks(args: Namespace, out: Out, root: str, store: str) -> Iterator[Check]:
    """What there is of the store, then what is on this machine besides."""
    if is_url(store):
        from nacre.cli.commands.database_checks import database_checks  # noqa: PLC0415 - only for a database

        hint = "`nacre store` shows which database it is"
        checks = list(
            database_checks(store, lambda count: _check_store(args, "store", lambda sessions, _: count(sessions), hint))
        )
        yield from checks
        if checks[0].status == "ok":
            yield _check_store(args, "quarantine", _check_quarantine, hint)
    elif store:
        yield from _folder_checks(args, root)
    yield _check_space(root)
    if not is_url(store):
        yield _check_index(root)
    yield from _check_state_files()
    for check in settings_checks(args, out):
        # What is above says more about the store.
        if check.name != "store" or (not is_url(store) and check.status != "ok" and check.detail not in _said_of(root)):
            yield check


def _said_of(root: str) -> list[str]:
    """What the checks of a store in a folder say of writing to it."""
    return [check.detail for check in _check_writing(root)]


def _folder_checks(args: Namespace, root: str) -> Iterator[Check]:
    """The checks of a store in a folder."""
    if os.path.isdir(root):
        hint = "the store is a directory of yours; choose another with --store"
        yield _check_store(args, "store", _check_sessions, hint)
        yield from _check_files(root)
        yield _check_store(args, "leftovers", _check_leftovers, "check the permissions of the store")
        yield _check_store(args, "quarantine", _check_quarantine, "check the permissions of the store")
        emptied = emptied_logs(root)
        if emptied:
            hint = "restore them from a backup, or note the loss with `nacre sessions repair KEY`"
            yield Check("logs", "warn", f"{several(len(emptied), 'log')} empty (0 bytes): {_name_few(emptied)}", hint)
    elif os.path.lexists(root):
        hint = "move it away, or choose another store with --store"
        yield Check("store", "fail", f"{root} is not a directory", hint)
    else:
        hint = "the first message creates it; is --store or --agent right?"
        yield Check("store", "warn", f"{root} does not exist yet", hint)
    if has_standby(root):
        # Sessions that were written while the store could not be used.
        where = f"messages that were written without the store wait in {standby_folder(root)}"
        yield Check("standby", "warn", where, "the next `nacre chat` or `nacre serve` brings them into the store")


def _name_few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (" …" if len(names) > _MAX_NAMED else "")


# ---- the store


def _check_store(args: Namespace, name: str, check: Callable[[Sessions, str], Check], hint: str) -> Check:
    try:
        with open_store(args) as sessions:
            return check(sessions, root_of(args))
    except (NacreError, Failure, OSError) as error:
        return Check(name, "fail", str(error), hint)


def _check_sessions(sessions: Sessions, root: str) -> Check:
    infos = [*sessions.list(internal=True), *sessions.list(archived=True, internal=True)]
    shown = [info for info in infos if not is_internal(info.key)]
    archived = sum(info.archived for info in shown)
    detail = f"{root}: {several(len(shown) - archived, 'session')}, {archived:,} archived"
    detail += f", {len(infos) - len(shown):,} internal"
    reserved = sorted({info.key for info in infos if is_internal(info.key)} - OWN_KEYS)
    if reserved:
        hint = "they stay readable by their key; `nacre sessions fork --internal KEY NEW_KEY` gives one another key"
        return Check("store", "warn", f"{detail}; reserved keys, hidden from lists: {_name_few(reserved)}", hint)
    lost = count_logs(f"{root}/sessions") - sum(not info.archived for info in infos)
    if lost > 0:
        detail += f", {several(lost, 'log')} without a session"
        return Check("store", "warn", detail, "`nacre sessions verify` shows why")
    return Check("store", "ok", detail)


def _check_leftovers(sessions: Sessions, _: str) -> Check:
    found = sessions.remove_leftovers(dry_run=True)
    if not found:
        return Check("leftovers", "ok", "none")
    detail = f"{several(len(found), 'leftover file')}, {size(sum(left.bytes for left in found))}"
    return Check("leftovers", "warn", detail, "`nacre sessions gc` removes them")


def _check_quarantine(sessions: Sessions, _: str) -> Check:
    """What was damaged and set aside, until somebody settles it."""
    found = notices(sessions.quarantine())
    if not found:
        return Check("quarantine", "ok", "nothing in quarantine; `nacre sessions verify` reads everything")
    named = "; ".join(f"{key}: {notice.text}" for key, notice in list(found.items())[:_MAX_NAMED])
    more = f" and {several(len(found) - _MAX_NAMED, 'more session')}" if len(found) > _MAX_NAMED else ""
    hint = "`nacre sessions quarantine` shows them; restore or discard settles them"
    return Check("quarantine", "warn", f"{named}{more}", hint)


def _check_files(root: str) -> Iterator[Check]:
    """Everything that nacre makes is private; another program made or changed what others may read."""
    walks = (os.walk(f"{root}/{folder}") for folder in MEANINGS)
    paths = (one for walk in walks for path, _, files in walk for one in (path, *(f"{path}/{name}" for name in files)))
    found = [path for path in paths if _is_open_to_others(path)]
    if found:
        named = ", ".join(os.path.relpath(path, root) for path in found[:_MAX_NAMED])
        more = f" and {len(found) - _MAX_NAMED:,} more" if len(found) > _MAX_NAMED else ""
        yield Check("permissions", "warn", f"others may read {named}{more}", f"chmod -R go= {root}")
    else:
        yield Check("permissions", "ok", "only you can read the sessions")
    yield from _check_writing(root)


def _check_writing(root: str) -> Iterator[Check]:
    if sealed := check_seal("writing", root):
        yield sealed
    elif all(os.access(folder, os.W_OK | os.X_OK) for folder in (root, f"{root}/sessions")):
        yield Check("writing", "ok", "new messages can be written")
    else:
        hint = f"chmod u+rwx {root} {root}/sessions; or is the disk read-only?"
        yield Check("writing", "fail", f"{root} cannot be written", hint)


def _is_open_to_others(path: str) -> bool:
    try:
        mode = os.stat(path, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    return not modes.S_ISLNK(mode) and bool(mode & _OTHERS)


# ---- the machine and the user's files


def _check_space(root: str) -> Check:
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


def _check_index(root: str) -> Check:
    try:
        from sqlite3 import Error, connect  # noqa: PLC0415 - a Python may have been built without it

        from nacre.index.warm import folder_of  # noqa: PLC0415 - the same
    except ImportError as error:
        return Check("index", "warn", f"no index, so lists read every log: {error}", "use a Python that has sqlite3")
    folder = folder_of(root, None)
    path = f"{folder}/index.sqlite"
    if not os.path.exists(path):
        return Check("index", "ok", "not built yet; the first list or search builds it")
    try:
        with closing(connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=1)) as database:
            database.execute("SELECT count(*) FROM words WHERE words MATCH 'probe'").fetchone()
    except Error as error:
        return Check("index", "warn", f"{path}: {error}", f"it is rebuilt automatically; if not: rm -r {folder}")
    return Check("index", "ok", f"{size(os.path.getsize(path))}, {path}")


def _check_state_files() -> Iterator[Check]:
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
        if _is_open_to_others(path):
            yield Check(name, "warn", f"others may read or write {path}", f"chmod 600 {path}")
        elif gone:
            hint = f"nacre trust --revoke {shlex.quote(gone[0])}" if name == "trust" else ""
            detail = f"{path} lists {several(len(gone), 'missing folder')}: {_name_few(gone)}"
            yield Check(name, "warn", detail, hint)
        else:
            yield Check(name, "ok", f"{several(len(folders), 'folder')} in {path}")
