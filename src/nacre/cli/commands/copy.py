"""nacre sessions copy, unseal: all sessions in another store, and the end of the old one, or its return."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nacre.cli.failures import DAMAGED, FAILED, OK, PARTIAL, Failure
from nacre.cli.loading import Command
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.store_choice import given_url, is_url, show

if TYPE_CHECKING:
    from nacre.opening import Move
    from nacre.storage.transfer import Outcome

_DAEMON = "nacre:inbox"
"""Whose turn a daemon has for as long as it runs."""
_MAX_NAMED = 20


# ---- copy


def _add_copy(parser: ArgumentParser) -> None:
    parser.add_argument("source", metavar="SRC", help="store to copy from: a folder or postgresql://HOST/NAME")
    parser.add_argument(
        "target",
        metavar="DST",
        help="store to copy to; a folder is created, a database needs `nacre store init` before",
    )
    parser.add_argument(
        "--finish",
        action="store_true",
        help="then seal SRC, which refuses every write from then on and says where the sessions are, and copy what was "
        "written until then",
    )
    parser.add_argument("--force", action="store_true", help="with --finish: also while a daemon runs on SRC")


def _copy(args: Namespace, out: Out) -> int:
    from nacre.opening import Move  # noqa: PLC0415 - help does not need it

    source, target = _existing(args.source, "SRC"), _place_of(args.target)
    if source == target:
        raise Failure("usage", f"{show(source)} cannot be copied to itself")
    with Move(source, target) as move:
        if args.finish and not args.force:
            _refuse_daemon(move, source)
        # 1. While both are used.
        outcomes = _copy_all(move, out, "copying")
        is_sealed, others = False, []
        if args.finish and all(one.ok for one in outcomes):
            # 2. What was acknowledged before the seal is there then, and nothing follows: copy that, and compare all.
            move.seal()
            is_sealed = True
            before = {(one.key, one.generation): one.result for one in outcomes}
            outcomes = _copy_all(move, out, "comparing")
            move.copy_documents()
            others = move.only_in_target()
            results = [before.get((one.key, one.generation), one.result) for one in outcomes]
        else:
            results = [one.result for one in outcomes]
    failed = sum(not one.ok for one in outcomes)
    document = {"ok": not failed, "operation": "copy", "source": show(source), "target": show(target)}
    document |= {"sealed": is_sealed, "records": sum(one.records for one in outcomes), "only_in_target": others}
    if out.json:
        _print_json(out, document, outcomes, results)
    else:
        _print(out, document, outcomes, results)
        if any(one.result == "conflict" for one in outcomes):
            erase = "`nacre sessions rm KEY --permanent` in the other store"
            out.warn(f"nacre: keep one of the two versions to settle a conflict: {erase}")
        if args.finish and not is_sealed:
            out.warn(f"nacre: {clean(show(source))} was not sealed: settle what could not be copied, and run it again")
    if failed:
        return FAILED if failed == len(outcomes) else PARTIAL
    return DAMAGED if any(one.lost for one in outcomes) else OK


def _place_of(given: str) -> str:
    """A store as it was named on the command line; raises ConfigError for an address with a password."""
    return given_url(given) if is_url(given) else os.path.abspath(os.path.expanduser(given))


def _existing(given: str, name: str) -> str:
    """A store that is there; `name` is that of the argument."""
    place = _place_of(given)
    if not is_url(place) and not os.path.isdir(f"{place}/sessions"):
        raise Failure("not_found", f"there is no store at {place}", hint=f"check {name}")
    return place


def _refuse_daemon(move: Move, source: str) -> None:
    holder = move.holder_of(_DAEMON)
    if holder:
        who = f"a daemon (process {holder})" if holder > 0 else "a daemon"
        hint = "stop it first, and start it again on the new store; --force seals the store under it"
        raise Failure("locked", f"{who} runs on {show(source)}", hint=hint)


def _copy_all(move: Move, out: Out, what: str) -> list[Outcome]:
    outcomes = []
    with out.progress(what, unit="sessions") as step:
        for one in move.copy():
            outcomes.append(one)
            step()
    return outcomes


def _print_json(out: Out, document: dict[str, Any], outcomes: Sequence[Outcome], results: Sequence[str]) -> None:
    items = []
    for one, result in zip(outcomes, results, strict=True):
        item = {"key": one.key, "generation": one.generation, "status": one.status, "ok": one.ok, "result": result}
        item |= {"records": one.records, "digest": one.digest}
        more = {"detail": one.detail, "lost": one.lost}
        items.append({**item, **{name: text for name, text in more.items() if text}})
    if out.jsonl:
        for item in items:
            out.line({"type": "session", **item})
        out.line({"type": "done", **document})
    else:
        out.document({**document, "results": items})


def _print(out: Out, document: dict[str, Any], outcomes: Sequence[Outcome], results: Sequence[str]) -> None:
    for one in outcomes:
        if not one.ok:
            out.warn(f"nacre: {clean(one.key)}: {one.result}: {clean(one.detail)}")
        elif one.lost:
            out.warn(f"nacre: {clean(one.key)}: {clean(one.lost)}; the rest was copied")
    others = document["only_in_target"]
    if others:
        names = ", ".join(clean(key) for key in others[:_MAX_NAMED])
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        out.warn(f"nacre: only in {clean(document['target'])}, perhaps deleted in the other one since: {names}{more}")
    counts = Counter(results)
    parts = ", ".join(f"{counts[result]:,} {result}" for result in counts)
    sessions = several(len({one.key for one in outcomes}), "session")
    seal = f"; {clean(document['source'])} is sealed" if document["sealed"] else ""
    many = f", {several(len(outcomes), 'generation')}" if len(outcomes) > len({one.key for one in outcomes}) else ""
    out.say(f"{sessions}{many}: {parts or 'nothing to copy'}; {several(document['records'], 'record')} verified{seal}")
    if document["sealed"]:
        out.note("from now on use the new store: --store, NACRE_STORE_URL or store.url, or NACRE_HOME for a folder")


copy = Command(
    _add_copy,
    _copy,
    (
        "try it, as often as you like, while both are used",
        "nacre sessions copy ./store postgresql://db.example/nacre",
    ),
    ("move for good", "nacre sessions copy ./store postgresql://db.example/nacre --finish"),
    ("and back into files", "nacre sessions copy postgresql://db.example/nacre ./files --finish"),
)


# ---- unseal


def _add_unseal(parser: ArgumentParser) -> None:
    parser.add_argument("place", metavar="STORE", help="the store whose sessions were moved")


def _unseal(args: Namespace, out: Out) -> int:
    from nacre.opening import unseal as unseal_store  # noqa: PLC0415 - help does not need it

    place = _existing(args.place, "STORE")
    was_sealed = unseal_store(place)
    document = {"operation": "unseal", "store": show(place), "was_sealed": was_sealed}
    what = "accepts writes again" if was_sealed else "was not sealed; nothing was changed"
    return out.receipt(document, f"{clean(show(place))}: {what}")


unseal = Command(
    _add_unseal,
    _unseal,
    ("use the old store again", "nacre sessions unseal ~/.local/share/nacre"),
)
