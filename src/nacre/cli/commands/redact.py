"""nacre sessions redact: erase the content of one message for good."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

import msgspec

from nacre.cli.failures import Failure
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find, refuse_internal
from nacre.cli.store_choice import open_store, root_of

if TYPE_CHECKING:
    from nacre.messages import Redaction
    from nacre.sessions import Sessions

EXAMPLES = (
    ("see the numbers of the messages, those of tool results too", "nacre sessions show --full telegram:42"),
    ("erase message 17", "nacre sessions redact telegram:42 17"),
    ("in a script", "nacre sessions redact telegram:42 17 --yes --json"),
)


def add(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument("n", metavar="N", type=int, nargs="?", help="number of the message, as `show --full` prints it")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def run(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        target = find(sessions, args.ref)
        n = args.n if args.n is not None else target.n
        if n is None:
            raise Failure(
                "usage",
                "name the message by its number",
                hint=f"as in `{EXAMPLES[1][1]}`; `nacre sessions show --full` has the numbers",
            )
        refuse_internal(target.key, allowed=False)
        document: dict[str, Any] = {"operation": "redact", "dry_run": args.dry_run, "key": target.key, "n": n}
        name = f"record {n} of {clean(target.key)}"
        if args.dry_run:
            if sessions.read(target.key, lambda view: view.find(n), generation=target.generation) is None:
                raise Failure("conflict", f"session {target.key!r} has no message {n}")
            return out.receipt(document, f"the content of {name} would be erased")
        out.confirm(f"Erase the content of {name} for good?", yes=args.yes)
        found, facts, note = _erase(args, sessions, target.key, n, target.generation)
    receipt = {**document, **msgspec.to_builtins(found), "facts": facts}
    code = out.receipt(receipt, _text(found, name, facts), note=note)
    if found.forks:
        share = "which shares it" if len(found.forks) == 1 else "which share it"
        out.note(f"it is still in {clean(', '.join(found.forks))}, {share}; `nacre sessions redact` erases it there")
    if found.summaries:
        numbers = ", ".join(map(str, found.summaries))
        records = "record" if len(found.summaries) == 1 else "records"
        out.note(f"summaries that cover it may have its words: {records} {numbers}; they can be erased like a message")
    for path in found.originals:
        out.note(f"the file that the session came from may have it: {clean(path)}")
    return code


def _text(found: Redaction, name: str, facts: int) -> str:
    if not (found.erased or found.payloads or found.quarantined):
        return f"{name}: nothing was left to erase"
    others = len(found.erased) - (found.n in found.erased)
    more = [
        several(count, one, many)
        for count, one, many in (
            (found.payloads, "large payload", ""),
            (others, "copy", "copies"),
            (found.quarantined, "piece in quarantine", "pieces in quarantine"),
            (facts, "line of memory", "lines of memory"),
        )
        if count
    ]
    return f"{name}: erased" + (f", with {', '.join(more)}" if more else "")


def _erase(args: Namespace, sessions: Sessions, key: str, n: int, generation: str) -> tuple[Redaction, int, str]:
    """Erase it, and what the agent learned from it if its packages are there; returns a note, too."""
    try:
        from nacre.memory.agent_memory import Memory  # noqa: PLC0415 - needs packages that a store does not
        from nacre.memory.home import home_of  # noqa: PLC0415 - the same
        from nacre.runtime.redaction import redact  # noqa: PLC0415 - the same
    except ImportError:
        return sessions.redact(key, n, generation=generation), 0, ""
    memory = Memory(sessions, home_of(root_of(args)))
    try:
        done = redact(sessions, memory, key, n, generation=generation)
    finally:
        memory.close()
    note = (
        ""
        if done.are_copies_gone
        else "the daemon erases its copies of answered messages (nacre:inbox) within the hour"
    )
    return done.redaction, done.facts, note
