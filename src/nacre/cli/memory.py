"""nacre memory: list, search, add, edit and forget what the agent remembers."""

from __future__ import annotations

import os
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
from nacre.errors import NacreError, install_command

if TYPE_CHECKING:
    from nacre.memory.lines import Line
    from nacre.memory.memory import Memory
    from nacre.sessions import Sessions

EXAMPLES = (
    ("list the facts", "nacre memory list"),
    ("search them", "nacre memory search database"),
    ("where a fact comes from", "nacre memory why 'lives in Lisbon'"),
    ("add a fact", "nacre memory add 'The user lives in Lisbon.' --subject user"),
    ("forget all facts of a session", "nacre memory forget --session telegram:42 --yes"),
    ("change a fact", "nacre memory edit 3f2a 'The user lives in Porto.'"),
    ("edit all of them in $EDITOR", "nacre memory edit"),
)

_ACTIONS = ("list", "search", "why", "add", "forget", "edit")
_MOST_NAMED = 10


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, nargs="?", default="list", help="default: list")
    what = "search: a query; add: the fact; why, forget, edit: the id or text of a fact; edit: then its new text"
    parser.add_argument("words", metavar="TEXT", nargs="*", help=what)
    parser.add_argument("--subject", metavar="NAME", help="add: who or what the fact is about")
    parser.add_argument("--session", metavar="REF", help="forget: all facts learned in this session")
    parser.add_argument("--days", action="store_true", help="list: the notes of each day instead of the facts")
    parser.add_argument(
        "-n", "--limit", type=int, default=20, metavar="N", help="search: maximum number of results (20)"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="forget: do not ask for confirmation")
    parser.add_argument(
        "--dry-run", action="store_true", help="add, forget, edit: show what would be done, and do nothing"
    )


def run(args: Namespace, out: Out) -> int:
    _check(args)
    changes = args.action in {"add", "forget", "edit"} and not args.dry_run
    with opened(args, create=args.action == "add" and changes) as sessions:
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
    """Refuse arguments and options that an action does not take."""
    if args.subject is not None and args.action != "add":
        raise Failure("usage", f"`nacre memory {args.action}` takes no --subject", hint="add does")
    if args.session and args.action != "forget":
        raise Failure("usage", f"`nacre memory {args.action}` takes no --session", hint="forget does")
    if args.action == "list" and args.words:
        raise Failure("usage", f"`nacre memory list` takes no {args.words[0]!r}", hint="use search")
    if args.action in {"search", "why", "add"} and not " ".join(args.words).strip():
        raise Failure("usage", f"`nacre memory {args.action}` needs a text", hint=_example(args.action))
    if args.action == "forget" and bool(args.words) == bool(args.session):
        raise Failure("usage", "name the facts to forget, or a session with --session", hint=_example("forget"))
    if args.limit < 1:
        raise Failure("usage", f"--limit is 1 or more, not {args.limit}")


def _example(action: str) -> str:
    return next(command for _, command in EXAMPLES if command.startswith(f"nacre memory {action} "))


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
        out.note("there are no facts yet")
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
        out.say("written by you" if not line.is_ours else "added on request")
    else:
        out.say(f"learned in {out.cyan(clean(f'{line.source.key}@{line.source.n}'))}")
    if found.turn is not None:
        _quote(out, "user", found.turn.asked)
        _quote(out, "assistant", found.turn.answered)
    elif line.source is not None:
        out.note("that turn no longer exists")
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
        raise Failure(kind, str(error), hint="`nacre memory list` shows all facts") from error


# ---- changing


def _add(args: Namespace, out: Out, place: _Place) -> int:
    text = " ".join(args.words)
    known = {line.id for line in place.memory.list()}
    line = None if args.dry_run else place.memory.remember(text, subject=args.subject or "")
    is_new = line is None or line.id not in known
    if out.json:
        document = {"ok": True, "operation": "add", "dry_run": args.dry_run, "added": is_new}
        out.document({**document, **(_shape(line) if line is not None else {"text": text, "subject": args.subject})})
    else:
        out.say(clean(text if line is None else line.text))
        out.note("would be added" if line is None else "added" if is_new else "this fact was known already")
    return OK


def _forget(args: Namespace, out: Out, place: _Place) -> int:
    memory = place.memory
    if args.session:
        key = _session(args.session, place)
        doomed = memory.learned_from(key)
    else:
        key = ""
        doomed = [_named(memory, what) for what in args.words]
    if not args.dry_run and doomed:
        out.confirm(f"Erase {_counted(doomed)} permanently?", yes=args.yes)
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
    """The key of a session by reference; one that was deleted is named by its full key."""
    if place.memory.learned_from(ref):
        return ref
    return find(place.sessions, ref).key


def _edit(args: Namespace, out: Out, place: _Place) -> int:
    if not args.words:
        return _edit_page(args, out, place)
    if len(args.words) == 1:
        raise Failure("usage", "edit needs a fact and its new text", hint=_example("edit"))
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
    """Open the page of facts in the editor, and read it again."""
    from nacre.channels.terminal.external import find_editor, run_editor  # noqa: PLC0415 - only to edit

    path = place.memory.page
    before = {line.id for line in place.memory.list()}
    if args.dry_run:
        out.say(f"{clean(path)} would be opened with {clean(find_editor())}")
        return OK
    if not os.path.exists(path):
        raise Failure("not_found", "there are no facts yet, so there is no page", hint=_example("add"))
    try:
        run_editor(path)
    except NacreError as error:
        raise Failure("failed", str(error), hint="saved changes are read next time") from error
    place.memory.settle()
    after = {line.id for line in place.memory.list()}
    if out.json:
        out.document({"ok": True, "operation": "edit", "added": len(after - before), "removed": len(before - after)})
    else:
        out.note(f"{several(len(after - before), 'line')} added or changed, {len(before - after)} removed or replaced")
    return OK


_RUN: dict[str, Callable[[Namespace, Out, _Place], int]] = {
    "list": _list,
    "search": _search,
    "why": _why,
    "add": _add,
    "forget": _forget,
    "edit": _edit,
}
