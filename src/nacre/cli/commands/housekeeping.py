"""nacre sessions compact: move what is no longer live out of the log."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.one_line import size
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref
from nacre.cli.store_choice import is_active, opened

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
    before = sessions.log_size(key)
    if dry_run:
        return _looked_at(key, before, max(0, before - sessions.log_size(key, kept=True)))
    sessions.save(key)
    after = sessions.log_size(key)
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
