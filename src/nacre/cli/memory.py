"""nacre memory: what the agent remembers, where it learned it, and how to change or erase it."""

from __future__ import annotations

import os
import shlex
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nacre.cli import table
from nacre.cli.failures import FAILED, OK, Failure
from nacre.cli.output import Out
from nacre.cli.place import opened, root_of
from nacre.cli.refs import find
from nacre.cli.table import Column
from nacre.cli.text import clean, several, wrap
from nacre.errors import install_command

if TYPE_CHECKING:
    from nacre.memory.lines import Line
    from nacre.memory.memory import Memory
    from nacre.sessions import Sessions

EXAMPLES = (
    ("what the agent remembers", "nacre memory list"),
    ("what it knows of something", "nacre memory search database"),
    ("where it learned that", "nacre memory why 'lives in Lisbon'"),
    ("erase all that it learned in a session", "nacre memory forget --session telegram:42 --yes"),
    ("let a fact say something else", "nacre memory edit 3f2a 'The user lives in Porto.'"),
    ("edit all of them as a page, in $EDITOR", "nacre memory edit"),
)

_ACTIONS = ("list", "search", "why", "forget", "edit")
_MOST_NAMED = 10


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, nargs="?", default="list", help="list if nothing is said")
    what = "search: words; why, forget, edit: a fact's id, the beginning of it, or its words; edit: then the new words"
    parser.add_argument("words", metavar="WORDS", nargs="*", help=what)
    parser.add_argument("--session", metavar="REF", help="forget: all that was learned in this session")
    parser.add_argument("--days", action="store_true", help="list: the lines of each day instead of the facts")
    parser.add_argument("-n", "--limit", type=int, default=20, metavar="N", help="search: at most so many (20)")
    parser.add_argument("-y", "--yes", action="store_true", help="forget: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="forget, edit: only say what would be done")


def run(args: Namespace, out: Out) -> int:
    _check(args)
    changes = args.action in {"forget", "edit"} and not args.dry_run
    with opened(args) as sessions:
        memory = _memory(args, out, sessions, changes=changes)
        try:
            if changes and os.path.isdir(sessions.location):
                memory.settle()
            return _RUN[args.action](args, out, _Place(sessions, memory))
        finally:
            memory.close()


class _Place:
    """The sessions and the memory of a store."""

    def __init__(self, sessions: Sessions, memory: Memory) -> None:
        self.sessions = sessions
        self.memory = memory


def _check(args: Namespace) -> None:
    """Refuse words and options that an action has no use for."""
    if args.session and args.action != "forget":
        raise Failure("usage", f"`nacre memory {args.action}` takes no --session", hint="forget does")
    if args.action == "list" and args.words:
        raise Failure("usage", f"`nacre memory list` takes no {args.words[0]!r}", hint="search finds words")
    if args.action in {"search", "why"} and not args.words:
        raise Failure("usage", f"`nacre memory {args.action}` needs words", hint=EXAMPLES[1][1])
    if args.action == "forget" and bool(args.words) == bool(args.session):
        raise Failure("usage", "say what to forget: facts, or --session and a session", hint=EXAMPLES[3][1])
    if args.limit < 1:
        raise Failure("usage", f"--limit is 1 or more, not {args.limit}")


def _memory(args: Namespace, out: Out, sessions: Sessions, *, changes: bool) -> Memory:
    from nacre import config  # noqa: PLC0415 - help does not need it

    try:
        from nacre.memory.home import home_of, open_home  # noqa: PLC0415 - the same
        from nacre.memory.memory import Memory  # noqa: PLC0415 - it may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("nacre"):
            raise
        raise Failure("unavailable", f"memory needs {error.name}", hint=install_command("agent")) from error
    root = root_of(args)
    if not changes or not os.path.isdir(root):
        return Memory(sessions, home_of(root))
    home, notes = open_home(root, configured=config.load().for_agent(args.agent).text("agent.workspace"))
    for note in notes:
        out.note(clean(note))
    return Memory(sessions, home)


# ---- looking


def _list(args: Namespace, out: Out, place: _Place) -> int:
    lines = place.memory.days() if args.days else place.memory.list()
    if out.json:
        out.listing(map(_shape, lines))
    elif lines:
        _show(out, lines)
    else:
        out.note("nothing is remembered yet")
    return OK


def _search(args: Namespace, out: Out, place: _Place) -> int:
    lines = place.memory.search(" ".join(args.words), limit=args.limit)
    if out.json:
        out.listing(map(_shape, lines))
    elif lines:
        _show(out, lines)
    else:
        out.note("nothing found")
    return OK if lines else FAILED


def _why(args: Namespace, out: Out, place: _Place) -> int:
    line = _named(place.memory, " ".join(args.words))
    found = place.memory.why(line.id)
    if out.json:
        turn = found.turn
        said = None if turn is None else {"asked": turn.asked, "answered": turn.answered, "at": turn.at}
        out.document({**_shape(line), "turn": said})
        return OK
    out.say(out.bold(clean(line.text)))
    if line.source is None:
        out.say("written by a person" if not line.is_ours else "told to be remembered")
    else:
        out.say(f"learned in {out.cyan(clean(f'{line.source.key}@{line.source.n}'))}")
    if found.turn is not None:
        _quote(out, "user", found.turn.asked)
        _quote(out, "assistant", found.turn.answered)
    elif line.source is not None:
        out.note("what was said there is gone")
    return OK


def _quote(out: Out, who: str, text: str) -> None:
    out.say(out.dim(f"{who}:"))
    for line in clean(text, lines=True).splitlines():
        for piece in wrap(line, max(20, out.width - 4)) or [""]:
            out.say(f"    {piece}")


def _show(out: Out, lines: Sequence[Line]) -> None:
    columns = [Column("ID", style=out.dim), Column("FACT", wraps=True), Column("FROM", style=out.cyan, shrinks=True)]
    with out.pager():
        table.show(out, columns, [(line.id[:8], clean(line.text), _from(line)) for line in lines])


def _from(line: Line) -> str:
    if line.source is not None:
        return clean(f"{line.source.key}@{line.source.n}")
    return "" if line.is_ours else "you"


def _shape(line: Line) -> dict[str, Any]:
    source = line.source
    return {
        "id": line.id,
        "text": line.text,
        "subject": line.subject,
        "page": line.page,
        "session": source.key if source is not None else None,
        "n": source.n if source is not None else None,
        "at": line.at,
        "by": "nacre" if line.is_ours else "person",
    }


def _named(memory: Memory, what: str) -> Line:
    from nacre.memory.memory import NoSuchFact  # noqa: PLC0415 - it is there, or nobody came here

    try:
        return memory.named(what)
    except NoSuchFact as error:
        kind = "ambiguous" if "may mean" in str(error) else "not_found"
        raise Failure(kind, str(error), hint="`nacre memory list` shows what there is") from error


# ---- changing


def _forget(args: Namespace, out: Out, place: _Place) -> int:
    memory = place.memory
    if args.session:
        key = _session(args.session, place)
        doomed = memory.learned_from(key)
    else:
        key = ""
        doomed = [_named(memory, what) for what in args.words]
    if not args.dry_run and doomed:
        out.confirm(f"Erase {_counted(doomed)} for good?", yes=args.yes)
        count = memory.forget_session(key) if key else memory.erase(line.id for line in doomed)
    else:
        count = len(doomed)
    if out.json:
        told = {"ok": True, "operation": "forget", "dry_run": args.dry_run, "erased": count}
        out.document({**told, "items": [_shape(line) for line in doomed]})
        return OK
    for line in doomed[:_MOST_NAMED]:
        out.say(clean(line.text))
    out.note(f"{several(count, 'line')} {'would be erased' if args.dry_run else 'erased'}")
    return OK


def _counted(doomed: Sequence[Line]) -> str:
    return repr(clean(doomed[0].text)) if len(doomed) == 1 else several(len(doomed), "line")


def _session(ref: str, place: _Place) -> str:
    """The session that is meant; one that is gone can be named by its whole key."""
    if place.memory.learned_from(ref):
        return ref
    return find(place.sessions, ref).key


def _edit(args: Namespace, out: Out, place: _Place) -> int:
    if not args.words:
        return _edit_page(args, out, place)
    if len(args.words) == 1:
        raise Failure("usage", "say which fact, and what it is to say", hint=EXAMPLES[4][1])
    old = _named(place.memory, args.words[0])
    text = " ".join(args.words[1:])
    new = old if args.dry_run else place.memory.edit(old.id, text)
    if out.json:
        told = {"ok": True, "operation": "edit", "dry_run": args.dry_run, "before": old.text}
        out.document({**told, "after": text if args.dry_run else new.text, "id": new.id})
    else:
        out.say(f"{out.dim(clean(old.text))} → {clean(text if args.dry_run else new.text)}")
    return OK


def _edit_page(args: Namespace, out: Out, place: _Place) -> int:
    """Let a person edit the page of facts, and take in what they did."""
    path = place.memory.page
    before = {line.id for line in place.memory.list()}
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    if args.dry_run:
        out.say(f"{clean(path)} would be opened in {clean(editor)}")
        return OK
    if not os.path.exists(path):
        raise Failure("not_found", "nothing is remembered yet, so there is no page", hint=f"write {path} yourself")
    try:
        status = subprocess.run([*shlex.split(editor), path], check=False).returncode  # noqa: S603 - the user's own editor
    except OSError as error:
        raise Failure("failed", f"{editor!r} cannot be run: {error}", hint="set EDITOR") from error
    if status:
        raise Failure("failed", f"{editor!r} ended with status {status}", hint="what was saved is taken in next time")
    place.memory.settle()
    after = {line.id for line in place.memory.list()}
    if out.json:
        out.document({"ok": True, "operation": "edit", "added": len(after - before), "removed": len(before - after)})
    else:
        out.note(
            f"{several(len(after - before), 'line')} added or changed, {len(before - after)} taken out or replaced"
        )
    return OK


_RUN: dict[str, Callable[[Namespace, Out, _Place], int]] = {
    "list": _list,
    "search": _search,
    "why": _why,
    "forget": _forget,
    "edit": _edit,
}
