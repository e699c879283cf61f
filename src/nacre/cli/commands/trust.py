"""nacre trust: which folders the agent may work in, and whose instructions it follows."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.table import Column

if TYPE_CHECKING:
    from nacre.runtime.trust import TrustStore

EXAMPLES = (
    ("trust the current folder (its git root)", "nacre trust"),
    ("trust a folder by name", "nacre trust ~/src/project"),
    ("the folders that are trusted", "nacre trust --list"),
    ("stop trusting a folder", "nacre trust --revoke ~/src/project"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", help="the folder; default: the current one")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the folders that are trusted")
    what.add_argument("--revoke", action="store_true", help="stop trusting the folder")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    from nacre.runtime.trust import TrustStore, find_root  # noqa: PLC0415 - loads the agent, which help does not need

    store = TrustStore()
    if args.list:
        if args.directory:
            raise Failure("usage", f"--list takes no {args.directory!r}", hint="it lists all of them")
        return _list(store, out)
    wanted = args.directory or "."
    path = Path(os.path.realpath(Path(wanted).expanduser()))
    root = find_root(path)
    if args.revoke:
        return _revoke(store, path if str(path) in store.entries() else root, args, out)
    if not path.is_dir():
        raise Failure("not_found", f"there is no folder {wanted!r}")
    return _accept(store, path, root, args, out)


def _list(store: TrustStore, out: Out) -> int:
    found = sorted(store.entries().items())
    if out.json:
        out.listing({"path": path, "since": entry.since, "accepted": sorted(entry.accepted)} for path, entry in found)
        return OK
    columns = [Column("FOLDER", style=out.bold), Column("SINCE", style=out.dim), Column("ACCEPTED", shrinks=True)]
    rows = []
    for path, entry in found:
        names = [os.path.relpath(name, path) for name in sorted(entry.accepted)]
        rows.append((clean(path), entry.since[:10], clean(", ".join(names))))
    table.show(out, columns, rows)
    if not rows:
        out.note("no folder is trusted yet")
    return OK


def _accept(store: TrustStore, path: Path, root: Path, args: Namespace, out: Out) -> int:
    from nacre.cli.chat.questions import describe  # noqa: PLC0415 - the same
    from nacre.config import load  # noqa: PLC0415 - the same
    from nacre.runtime.folder import all_sources, digests  # noqa: PLC0415 - as above
    from nacre.runtime.trust import why_broad  # noqa: PLC0415 - the same

    broad = why_broad(root)
    if broad and not args.directory:
        raise Failure("refused", f"{root}: {broad}", hint=f"if you mean it, name it: nacre trust {root}")
    found = all_sources(path, root, load())
    covering = store.covering(root)
    # A folder below a trusted one needs no entry of its own.
    place = root if covering is None or args.directory else covering[0]
    if not args.dry_run:
        store.accept(place, digests(found))
    if out.json:
        told = {"schema_version": 1, "ok": True, "operation": "trust", "dry_run": args.dry_run, "path": str(place)}
        out.document({**told, "accepted": sorted(digests(found))})
        return OK
    out.say(f"{clean(str(place))} {'would be' if args.dry_run else 'is'} trusted, with everything below it")
    for source in found:
        out.say(f"  {describe(source, root)}")
    if broad:
        out.warn(f"note: {broad}")
    return OK


def _revoke(store: TrustStore, place: Path, args: Namespace, out: Out) -> int:
    covering = store.covering(place)
    if str(place) not in store.entries():
        hint = f"it is covered by {covering[0]}" if covering else "`nacre trust --list` shows which are"
        raise Failure("not_found", f"{place} is not in the list of trusted folders", hint=hint)
    if not args.dry_run:
        store.revoke(place)
    if out.json:
        out.document(
            {"schema_version": 1, "ok": True, "operation": "revoke", "dry_run": args.dry_run, "path": str(place)}
        )
    else:
        out.say(f"{clean(str(place))} {'would be' if args.dry_run else 'is'} no longer trusted")
    return OK
