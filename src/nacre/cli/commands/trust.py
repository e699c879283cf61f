"""nacre trust, permissions: which folders the agent may work in, and what is always allowed there."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.table import Column

_PERMISSIONS = (
    ("list what is always allowed in this folder", "nacre permissions"),
    ("in every folder", "nacre permissions list --all"),
    ("remove one rule", "nacre permissions revoke 'shell(git push)'"),
    ("remove all rules of a folder", "nacre permissions clear ~/project"),
)


# ---- trust


def _add_trust(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", nargs="?", help="the folder; default: the current one")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="list the folders that are trusted")
    what.add_argument("--revoke", action="store_true", help="stop trusting the folder")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _trust(args: Namespace, out: Out) -> int:
    from nacre.runtime.trust import TrustStore, find_root  # noqa: PLC0415 - loads the agent, which help does not need

    store = TrustStore()
    if args.list:
        if args.directory:
            raise Failure("usage", f"--list takes no {args.directory!r}", hint="it lists all of them")
        found = sorted(store.entries().items())
        if out.json:
            items = ({"path": path, "since": one.since, "accepted": sorted(one.accepted)} for path, one in found)
            return out.listing(items)
        columns = [Column("FOLDER", style=out.bold), Column("SINCE", style=out.dim), Column("ACCEPTED", shrinks=True)]
        rows = []
        for path, entry in found:
            names = [os.path.relpath(name, path) for name in sorted(entry.accepted)]
            rows.append((clean(path), entry.since[:10], clean(", ".join(names))))
        table.show(out, columns, rows)
        if not rows:
            out.note("no folder is trusted yet")
        return OK
    wanted = args.directory or "."
    folder = Path(os.path.realpath(Path(wanted).expanduser()))
    root = find_root(folder)
    if not args.revoke:
        if not folder.is_dir():
            raise Failure("not_found", f"there is no folder {wanted!r}")
        return _accept(folder, root, args, out)
    place = folder if str(folder) in store.entries() else root
    if str(place) not in store.entries():
        covering = store.covering(place)
        hint = f"it is covered by {covering[0]}" if covering else "`nacre trust --list` shows which are"
        raise Failure("not_found", f"{place} is not in the list of trusted folders", hint=hint)
    if not args.dry_run:
        store.revoke(place)
    text = f"{clean(str(place))} {'would be' if args.dry_run else 'is'} no longer trusted"
    return out.receipt({"operation": "revoke", "dry_run": args.dry_run, "path": str(place)}, text)


def _accept(folder: Path, root: Path, args: Namespace, out: Out) -> int:
    from nacre.config import load  # noqa: PLC0415 - loads the agent, which help does not need
    from nacre.runtime.folder import all_sources, digests  # noqa: PLC0415 - the same
    from nacre.runtime.trust import TrustStore, why_broad  # noqa: PLC0415 - the same
    from nacre.runtime.trust_question import describe  # noqa: PLC0415 - the same

    store = TrustStore()
    broad = why_broad(root)
    if broad and not args.directory:
        raise Failure("refused", f"{root}: {broad}", hint=f"if you mean it, name it: nacre trust {root}")
    found = all_sources(folder, root, load())
    covering = store.covering(root)
    # A folder below a trusted one needs no entry of its own.
    place = root if covering is None or args.directory else covering[0]
    if not args.dry_run:
        store.accept(place, digests(found))
    document = {"operation": "trust", "dry_run": args.dry_run, "path": str(place), "accepted": sorted(digests(found))}
    text = f"{clean(str(place))} {'would be' if args.dry_run else 'is'} trusted, with everything below it"
    out.receipt(document, "\n".join((text, *(f"  {describe(source, root)}" for source in found))))
    if broad and not out.json:
        out.warn(f"note: {broad}")
    return OK


trust = Command(
    _add_trust,
    _trust,
    ("trust the current folder (its git root)", "nacre trust"),
    ("trust a folder by name", "nacre trust ~/src/project"),
    ("the folders that are trusted", "nacre trust --list"),
    ("stop trusting a folder", "nacre trust --revoke ~/src/project"),
)


# ---- permissions


def _add_permissions(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "revoke", "clear"), nargs="?", default="list", help="default: list")
    parser.add_argument(
        "words", metavar="RULE DIR", nargs="*", help="revoke: the rule; then the folder (default: the current one)"
    )
    parser.add_argument("--all", action="store_true", help="list: every folder")


def _permissions(args: Namespace, out: Out) -> int:
    from nacre.runtime.permissions import PermissionStore  # noqa: PLC0415 - loads the agent, which help does not need
    from nacre.runtime.trust import find_root  # noqa: PLC0415 - the same

    store, words = PermissionStore(), list(args.words)
    if args.action == "revoke" and not words:
        raise Failure("usage", "say which rule to revoke", hint=_PERMISSIONS[2][1])
    rule = words.pop(0) if args.action == "revoke" else None
    if len(words) > 1 or (args.all and (args.action != "list" or words)):
        raise Failure("usage", "give one folder, or --all to list every folder", hint=_PERMISSIONS[1][1])
    if args.all:
        return _list_permissions(out, store.folders())
    # Rules are kept for the git root of a real path, else for the path.
    place = words[0] if words else "."
    root = str(find_root(Path(os.path.realpath(Path(place).expanduser()))))
    if args.action == "list":
        return _list_permissions(out, {root: store.folders().get(root, [])})
    gone = store.remove(root, None if rule is None else [rule])
    if rule is not None and not gone:
        raise Failure("not_found", f"{rule} is not always allowed in {root}", hint="`nacre permissions` lists what is")
    if out.json:
        return out.document({"folder": root, "revoked": gone})
    for one in gone:
        out.say(f"revoked {clean(one)}")
    if not gone:
        out.note(f"nothing is always allowed in {clean(root)}")
    return OK


def _list_permissions(out: Out, folders: dict[str, list[str]]) -> int:
    if out.json:
        return out.document({"folders": [{"folder": folder, "allow": rules} for folder, rules in folders.items()]})
    for folder, rules in folders.items():
        out.say(out.bold(clean(folder)))
        for rule in rules:
            out.say(f"  {clean(rule)}")
        if not rules:
            out.say(out.dim("  nothing is always allowed here"))
    if not folders:
        out.note("nothing is always allowed in any folder")
    return OK


permissions = Command(_add_permissions, _permissions, *_PERMISSIONS)
