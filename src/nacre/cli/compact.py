"""nacre sessions compact: move what is no longer live out of the log."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.output import Out
from nacre.cli.place import is_active, opened
from nacre.cli.refs import add_internal, add_ref
from nacre.cli.show import backend
from nacre.cli.text import size
from nacre.entries import Past
from nacre.history import live
from nacre.log.ops import Ops
from nacre.log.past import LogPast
from nacre.log.place import Place
from nacre.log.recovery import Survey

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("one session", "nacre sessions compact telegram:42"),
    ("every session where it saves space", "nacre sessions compact --all"),
)

# Below that the store finds it not worth its while.
_LEAST = 256 * 1024


def add(parser: ArgumentParser) -> None:
    add_ref(parser, many=True, required=False)
    parser.add_argument("--all", action="store_true", help="every active session")
    parser.add_argument("--dry-run", action="store_true", help="show what could be saved, and do nothing")
    add_internal(parser)


def run(args: Namespace, out: Out) -> int:
    if bool(args.refs) == args.all:
        raise Failure("usage", "name the sessions, or use --all", hint="`nacre sessions compact --help` has examples")
    with opened(args) as sessions:
        keys: dict[str, str | Failure] = {info.key: info.key for info in sessions.list(internal=True)}
        if not args.all:
            keys = keys_of(sessions, args.refs, internal=args.internal)
        with out.progress("compacting", total=len(keys), unit="sessions") as step:

            def compact(key: str) -> Done:
                step()
                return _compacted(sessions, key, dry_run=args.dry_run)

            return each(out, "compact", keys, compact, dry_run=args.dry_run)


def _compacted(sessions: Sessions, key: str, *, dry_run: bool) -> Done:
    if not is_active(sessions, key):
        raise Failure(
            "conflict", f"session {key!r} is archived", hint="`nacre sessions unarchive` makes it active again"
        )
    before = _size(sessions, key)
    if dry_run:
        return _looked_at(key, before, before - _live(sessions, key, before))
    sessions.save(key)
    after = _size(sessions, key)
    more = {"bytes_before": before, "bytes_after": after}
    if after >= before:
        return Done(key, "unchanged", more, words="nothing to save")
    return Done(key, "compacted", more, words=f"{size(before)} → {size(after)}; the moved records can still be read")


def _looked_at(key: str, before: int, gain: int) -> Done:
    more = {"bytes_before": before, "bytes_not_live": gain}
    if gain < max(_LEAST, before - gain):
        return Done(key, "unchanged", more, words="nothing to save")
    return Done(
        key, "compacted", more, words=f"would be compacted: {size(gain)} of {size(before)} would move out of the log"
    )


def _live(sessions: Sessions, key: str, size: int) -> int:
    """How many bytes of a log are of records that stay."""

    def get(past: Past) -> int:
        return Survey(past.lines).size_of(live.keep(past)) if isinstance(past, LogPast) else size

    found = backend(sessions).read(key, get)
    return size if found is None else min(found, size)


def _size(sessions: Sessions, key: str) -> int:
    try:
        return Ops().stat(Place.of(sessions.location, key).log).st_size
    except FileNotFoundError:
        return 0
