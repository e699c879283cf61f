"""nacre memory: list, search, add, edit, confirm, restore and forget what the agent remembers."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nacre.cli import table
from nacre.cli.failures import FAILED, OK, Failure
from nacre.cli.one_line import clean, several, wrap
from nacre.cli.output import Out
from nacre.cli.refs import find
from nacre.cli.store_choice import opened, root_of
from nacre.cli.table import Column
from nacre.errors import NacreError, install_command

if TYPE_CHECKING:
    from nacre.memory.agent_memory import Memory, Version
    from nacre.memory.store import Line
    from nacre.sessions import Sessions

EXAMPLES = (
    ("list the facts", "nacre memory list"),
    ("search them", "nacre memory search database"),
    ("where a fact comes from", "nacre memory why 'lives in Lisbon'"),
    ("add a fact", "nacre memory add 'The user lives in Lisbon.' --subject user"),
    ("earlier versions of a fact", "nacre memory history 'lives in Lisbon'"),
    ("bring an earlier version back", "nacre memory restore 'lives in Berlin'"),
    ("let a fact from pasted text hold", "nacre memory confirm 3f2a"),
    ("forget all facts of a session", "nacre memory forget --session telegram:42 --yes"),
    ("change a fact", "nacre memory edit 3f2a 'The user lives in Porto.'"),
    ("edit all of them in $EDITOR", "nacre memory edit"),
)

_ACTIONS = ("list", "search", "why", "history", "add", "confirm", "edit", "restore", "forget")
_CHANGES = frozenset(("add", "confirm", "edit", "restore", "forget"))
_MOST_NAMED = 10


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, nargs="?", default="list", help="default: list")
    what = "search: a query; add: the fact; otherwise the id or text of a fact; edit: then its new text"
    parser.add_argument("words", metavar="TEXT", nargs="*", help=what)
    parser.add_argument("--subject", metavar="NAME", help="add: who or what the fact is about")
    parser.add_argument("--both", action="store_true", help="restore: keep what holds now as well")
    parser.add_argument("--session", metavar="REF", help="forget: all facts learned in this session")
    parser.add_argument("--days", action="store_true", help="list: the notes of each day instead of the facts")
    parser.add_argument(
        "-n", "--limit", type=int, default=20, metavar="N", help="search: maximum number of results (20)"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="forget: do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what would be changed, and do nothing")


def run(args: Namespace, out: Out) -> int:
    _check(args)
    changes = args.action in _CHANGES and not args.dry_run
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
    if args.both and args.action != "restore":
        raise Failure("usage", f"`nacre memory {args.action}` takes no --both", hint="restore does")
    if args.action == "list" and args.words:
        raise Failure("usage", f"`nacre memory list` takes no {args.words[0]!r}", hint="use search")
    if args.action in {"search", "why", "add", "confirm", "restore"} and not " ".join(args.words).strip():
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
        from nacre.memory.agent_memory import Memory  # noqa: PLC0415 - it may be missing
        from nacre.memory.home import home_of, open_home  # noqa: PLC0415 - the same
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
    waiting = [] if args.days else place.memory.pending()
    if out.json:
        out.listing(map(_shape, [*lines, *waiting]))
        return OK
    if lines:
        _show(out, lines, days=args.days)
    elif not waiting:
        out.note("there are no facts yet")
    if waiting:
        for line in wrap("Not in force: from text that you pasted. Is it what you want?", out.width):
            out.say(out.bold(line))
        _show(out, waiting)
        out.note("`nacre memory confirm ID` lets one hold, `nacre memory forget ID` erases it")
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


def _history(args: Namespace, out: Out, place: _Place) -> int:
    """Show the versions of a fact, or without one all facts that no longer hold."""
    from nacre.memory.agent_memory import NoSuchFact  # noqa: PLC0415 - it is there, or nobody came here

    try:
        versions = place.memory.history(" ".join(args.words)) if args.words else place.memory.changes()
    except NoSuchFact as error:
        raise _unknown(error) from error
    if out.json:
        out.listing({**_shape(version.line), **_fate(version)} for version in versions)
    elif versions:
        columns = [Column("ID", style=out.dim), Column("FACT", wraps=wrap), Column("SINCE"), Column("STATE")]
        rows = [
            (version.line.id[:8], clean(version.line.text), version.line.at[:10], _fate(version)["state"])
            for version in versions
        ]
        with out.pager():
            table.show(out, columns, rows)
    else:
        out.note("no fact was replaced, edited or forgotten")
    return OK


def _fate(version: Version) -> dict[str, str]:
    """What became of a version, and the id of the one that took its place."""
    if version.strike is None:
        return {"state": "waiting" if version.line.pending else "holds", "replaced_by": ""}
    return {"state": version.strike.why, "replaced_by": version.strike.by}


def _quote(out: Out, who: str, text: str) -> None:
    out.say(out.dim(f"{who}:"))
    for line in clean(text, lines=True).splitlines():
        for piece in wrap(line, max(20, out.width - 4)) or [""]:
            out.say(f"    {piece}")


def _show(out: Out, lines: Sequence[Line], *, days: bool = False) -> None:
    columns = [Column("ID", style=out.dim), Column("FACT", wraps=wrap), Column("FROM", style=out.cyan, shrinks=True)]
    rows: list[tuple[str, ...]] = [(line.id[:8], clean(line.text), _from(line)) for line in lines]
    if days:
        columns[1:2] = [Column("DAY"), Column("NOTE", wraps=wrap)]
        rows = [(row[0], clean(PurePath(line.page).stem), *row[1:]) for row, line in zip(rows, lines, strict=True)]
    with out.pager():
        table.show(out, columns, rows)


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
        "pending": line.pending,
    }


def _named(memory: Memory, what: str, *, struck: bool = False) -> Line:
    from nacre.memory.agent_memory import NoSuchFact  # noqa: PLC0415 - it is there, or nobody came here

    try:
        return memory.find(what, struck=struck)
    except NoSuchFact as error:
        raise _unknown(error) from error


def _unknown(error: NacreError) -> Failure:
    kind = "ambiguous" if "may mean" in str(error) else "not_found"
    return Failure(kind, str(error), hint="`nacre memory list` shows all facts, `nacre memory history` what they were")


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


def _confirm(args: Namespace, out: Out, place: _Place) -> int:
    """Let facts hold that wait for it."""
    act = place.memory.find_pending if args.dry_run else place.memory.confirm
    return _each(args, out, act, "confirmed")


def _restore(args: Namespace, out: Out, place: _Place) -> int:
    """Let earlier versions hold again."""
    memory = place.memory
    ended: list[str] = []

    def act(what: str) -> Line:
        line = memory.find_struck(what)
        if not args.both:
            versions = memory.history(line.id)
            ended.extend(one.line.text for one in versions if one.strike is None and not one.line.pending)
        return line if args.dry_run else memory.restore(line.id, both=args.both)

    return _each(args, out, act, "restored", ended)


def _each(args: Namespace, out: Out, act: Callable[[str], Line], done: str, ended: Sequence[str] = ()) -> int:
    """Do something with each fact that is named; `ended` are those that no longer hold then."""
    from nacre.memory.agent_memory import NoSuchFact  # noqa: PLC0415 - it is there, or nobody came here

    try:
        lines = [act(what) for what in args.words]
    except NoSuchFact as error:
        raise _unknown(error) from error
    if out.json:
        told = {"ok": True, "operation": args.action, "dry_run": args.dry_run}
        out.document({**told, "items": [_shape(line) for line in lines]})
        return OK
    for line in lines:
        out.say(clean(line.text))
    for text in ended:
        out.say(out.dim(f"instead of: {clean(text)}"))
    out.note(f"{several(len(lines), 'fact')} {f'would be {done}' if args.dry_run else done}")
    return OK


def _forget(args: Namespace, out: Out, place: _Place) -> int:
    memory = place.memory
    if args.session:
        key = _session(args.session, place)
        doomed = memory.lines_from(key)
    else:
        key = ""
        doomed = [_named(memory, what, struck=True) for what in args.words]
        doomed += memory.belonging([line.id for line in doomed])
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
    if len(doomed) == 1:
        return repr(clean(doomed[0].text))
    shown = "; ".join(repr(clean(line.text)) for line in doomed[:_MOST_NAMED])
    return f"{several(len(doomed), 'line')} ({shown}{'; …' if len(doomed) > _MOST_NAMED else ''})"


def _session(ref: str, place: _Place) -> str:
    """The key of a session by reference; one that was deleted is named by its full key."""
    if place.memory.lines_from(ref):
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
    from nacre.cli.chat.external_editor import find_editor, run_editor  # noqa: PLC0415 - only to edit

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
    "history": _history,
    "add": _add,
    "confirm": _confirm,
    "edit": _edit,
    "restore": _restore,
    "forget": _forget,
}
