"""nacre sessions backup: a copy of the whole store, also while it is written."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean, several, size
from nacre.cli.output import Out
from nacre.cli.store_choice import root_of
from nacre.opening import back_up

EXAMPLES = (
    ("into a new folder, while the daemon runs", "nacre sessions backup /backup/nacre-2026-11-17"),
    ("check it", "nacre --store /backup/nacre-2026-11-17 sessions verify"),
    ("bring it back, with the daemon stopped", "cp -a /backup/nacre-2026-11-17 ~/.local/share/nacre"),
)

_PARTIAL = ".partial"


def add(parser: ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder for the copy; it must not exist yet")


def run(args: Namespace, out: Out) -> int:
    root, goal = root_of(args), os.path.abspath(os.path.expanduser(args.folder))
    _check(root, goal)
    partial = goal + _PARTIAL
    try:
        with out.progress("copying", total=None, unit="files") as step:
            copied = back_up(root, goal, step=step)
    except OSError as error:
        detail = f"the store was not copied: {error.filename or partial}: {error.strerror or error}"
        raise Failure(
            "failed", detail, hint=f"the part that was copied is {partial}: remove it, and try again"
        ) from error
    if out.json:
        document = {"schema_version": 1, "ok": True, "operation": "backup", "store": root, "folder": goal}
        out.document({**document, "files": copied.files, "bytes": copied.bytes})
    else:
        out.note(f"{several(copied.files, 'file')}, {size(copied.bytes)}, copied to {clean(goal)}")
        out.note(f"check it with: nacre --store {clean(goal)} sessions verify")
    return OK


def _check(root: str, goal: str) -> None:
    """Raise Failure unless there is a store, and room for a copy outside of it."""
    if not os.path.isdir(f"{root}/sessions"):
        raise Failure("not_found", f"there is no store at {root}", hint="check --store")
    inside, outside = os.path.realpath(goal), os.path.realpath(root)
    if os.path.commonpath((inside, outside)) == outside:
        raise Failure("usage", f"{goal} is inside the store", hint="choose a folder elsewhere, best on another disk")
    if os.path.lexists(goal):
        raise Failure("conflict", f"{goal} exists already", hint="a copy is made into a new folder")
    if os.path.lexists(partial := goal + _PARTIAL):
        raise Failure(
            "conflict", f"{partial} is left of a copy that was interrupted", hint=f"remove it: rm -r {partial}"
        )
    if not os.path.isdir(os.path.dirname(goal)):
        raise Failure("not_found", f"there is no folder {os.path.dirname(goal)}", hint="create it first")
