"""nacre permissions: what you allowed always in a folder, and how to take it back."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out

EXAMPLES = (
    ("list what is always allowed in this folder", "nacre permissions"),
    ("in every folder", "nacre permissions list --all"),
    ("remove one rule", "nacre permissions revoke 'shell(git push)'"),
    ("remove all rules of a folder", "nacre permissions clear ~/project"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "revoke", "clear"), nargs="?", default="list", help="default: list")
    parser.add_argument(
        "words", metavar="RULE DIR", nargs="*", help="revoke: the rule; then the folder (default: the current one)"
    )
    parser.add_argument("--all", action="store_true", help="list: every folder")


def run(args: Namespace, out: Out) -> int:
    from nacre.runtime.permissions import PermissionStore  # noqa: PLC0415 - loads the agent, which help does not need

    store, words = PermissionStore(), list(args.words)
    if args.action == "revoke" and not words:
        raise Failure("usage", "say which rule to revoke", hint=EXAMPLES[2][1])
    rule = words.pop(0) if args.action == "revoke" else None
    if len(words) > 1 or (args.all and (args.action != "list" or words)):
        raise Failure("usage", "give one folder, or --all to list every folder", hint=EXAMPLES[1][1])
    if args.all:
        return _show(out, store.folders())
    root = _root(words[0] if words else ".")
    if args.action == "list":
        return _show(out, {root: store.folders().get(root, [])})
    gone = store.remove(root, None if rule is None else [rule])
    if rule is not None and not gone:
        raise Failure("not_found", f"{rule} is not always allowed in {root}", hint="`nacre permissions` lists what is")
    if out.json:
        out.document({"schema_version": 1, "folder": root, "revoked": gone})
    else:
        for one in gone:
            out.say(f"revoked {clean(one)}")
        if not gone:
            out.note(f"nothing is always allowed in {clean(root)}")
    return OK


def _show(out: Out, folders: dict[str, list[str]]) -> int:
    if out.json:
        items = [{"folder": folder, "allow": rules} for folder, rules in folders.items()]
        out.document({"schema_version": 1, "folders": items})
        return OK
    for folder, rules in folders.items():
        out.say(out.bold(clean(folder)))
        for rule in rules:
            out.say(f"  {clean(rule)}")
        if not rules:
            out.say(out.dim("  nothing is always allowed here"))
    if not folders:
        out.note("nothing is always allowed in any folder")
    return OK


def _root(place: str) -> str:
    """The folder that rules are kept for: the git root of a real path, else the path."""
    from nacre.runtime.trust import find_root  # noqa: PLC0415 - the same

    return str(find_root(Path(os.path.realpath(Path(place).expanduser()))))
