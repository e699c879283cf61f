"""nacre memory: list, search, add, edit, confirm, restore and forget what the agent remembers."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nacre.cli import table
from nacre.cli.failures import FAILED, OK, Failure, require_extra
from nacre.cli.one_line import clean, several, wrap
from nacre.cli.output import Out
from nacre.cli.refs import find
from nacre.cli.store_choice import open_store, root_of
from nacre.cli.table import Column
from nacre.errors import NacreError

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

_CHANGES = frozenset(("add", "confirm", "edit", "restore", "forget"))
_MAX_NAMED = 10


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_RUN), nargs="?", default="list", help="default: list")
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
    with open_store(args, create=args.action == "add" and changes) as sessions:
        memory = _open_memory(args, out, sessions, changes=changes)
        try:
            if changes and sessions.is_durable:
                memory.settle()
            if args.session and not memory.lines_from(args.session):
                # One that was deleted is named by its full key.
                args.session = find(sessions, args.session).key
            return _RUN[args.action](args, out, memory)
        finally:
            memory.close()


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


def _open_memory(args: Namespace, out: Out, sessions: Sessions, *, changes: bool) -> Memory:
    from nacre import config  # noqa: PLC0415 - help does not need it

    with require_extra("agent", "memory needs"):
        from nacre.memory.agent_memory import Memory  # noqa: PLC0415 - it may be missing
        from nacre.memory.home import home_of, open_home  # noqa: PLC0415 - the same
    root = root_of(args)
    if not changes or not sessions.is_durable:
        return Memory(sessions, home_of(root))
    home, notes = open_home(root, configured=config.load().for_agent(args.agent).text("agent.workspace"))
    for note in notes:
        out.note(clean(note))
    return Memory(sessions, home)


# ---- looking


def _list(args: Namespace, out: Out, memory: Memory) -> int:
    lines = memory.days() if args.days else memory.list()
    waiting = [] if args.days else memory.pending()
    if out.json:
        return out.listing(map(_shape, [*lines, *waiting]))
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


def _search(args: Namespace, out: Out, memory: Memory) -> int:
    lines = memory.search(" ".join(args.words), limit=args.limit)
    if out.json:
        out.listing(map(_shape, lines))
    elif lines:
        _show(out, lines)
    else:
        out.note("nothing found")
    return OK if lines else FAILED


def _why(args: Namespace, out: Out, memory: Memory) -> int:
    line = _find(memory, " ".join(args.words))
    turn = memory.why(line.id).turn
    if out.json:
        document = None if turn is None else {"asked": turn.asked, "answered": turn.answered, "at": turn.at}
        return out.document({**_shape(line), "turn": document})
    out.say(out.bold(clean(line.text)))
    if line.source is None:
        out.say("written by you" if not line.is_ours else "added on request")
    else:
        out.say(f"learned in {out.cyan(clean(f'{line.source.key}@{line.source.n}'))}")
    if turn is not None:
        for who, text in (("user", turn.asked), ("assistant", turn.answered)):
            out.say(out.dim(f"{who}:"))
            for row in clean(text, lines=True).splitlines():
                for piece in wrap(row, max(20, out.width - 4)) or [""]:
                    out.say(f"    {piece}")
    elif line.source is not None:
        out.note("that turn no longer exists")
    return OK


def _history(args: Namespace, out: Out, memory: Memory) -> int:
    """Show the versions of a fact, or without one all facts that no longer hold."""
    with _unknown_facts():
        versions = memory.history(" ".join(args.words)) if args.words else memory.changes()
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


def _show(out: Out, lines: Sequence[Line], *, days: bool = False) -> None:
    columns = [Column("ID", style=out.dim), Column("FACT", wraps=wrap), Column("FROM", style=out.cyan, shrinks=True)]
    if days:
        columns[1:2] = [Column("DAY"), Column("NOTE", wraps=wrap)]
    rows: list[tuple[str, ...]] = []
    for line in lines:
        source = "" if line.is_ours else "you"
        if line.source is not None:
            source = clean(f"{line.source.key}@{line.source.n}")
        day = [clean(PurePath(line.page).stem)] if days else []
        rows.append((line.id[:8], *day, clean(line.text), source))
    with out.pager():
        table.show(out, columns, rows)


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


def _find(memory: Memory, what: str, *, struck: bool = False) -> Line:
    with _unknown_facts():
        return memory.find(what, struck=struck)


@contextmanager
def _unknown_facts() -> Iterator[None]:
    """Turn the error for a fact that does not exist, or may be several, into a Failure."""
    from nacre.memory.agent_memory import NoSuchFact  # noqa: PLC0415 - memory is open, so it is installed

    try:
        yield
    except NoSuchFact as error:
        kind = "ambiguous" if "may mean" in str(error) else "not_found"
        hint = "`nacre memory list` shows all facts, `nacre memory history` what they were"
        raise Failure(kind, str(error), hint=hint) from error


# ---- changing


def _add(args: Namespace, out: Out, memory: Memory) -> int:
    text = " ".join(args.words)
    known = {line.id for line in memory.list()}
    line = None if args.dry_run else memory.remember(text, subject=args.subject or "")
    is_new = line is None or line.id not in known
    document = {"operation": "add", "dry_run": args.dry_run, "added": is_new}
    document |= _shape(line) if line is not None else {"text": text, "subject": args.subject}
    note = "would be added" if line is None else "added" if is_new else "this fact was known already"
    return out.receipt(document, clean(text if line is None else line.text), note=note)


def _confirm(args: Namespace, out: Out, memory: Memory) -> int:
    """Let facts hold that wait for it."""
    act = memory.find_pending if args.dry_run else memory.confirm
    return _each(args, out, act, "confirmed")


def _restore(args: Namespace, out: Out, memory: Memory) -> int:
    """Let earlier versions hold again."""
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
    with _unknown_facts():
        lines = [act(what) for what in args.words]
    texts = [*(clean(line.text) for line in lines), *(out.dim(f"instead of: {clean(text)}") for text in ended)]
    document = {"operation": args.action, "dry_run": args.dry_run, "items": [_shape(line) for line in lines]}
    note = f"{several(len(lines), 'fact')} {f'would be {done}' if args.dry_run else done}"
    return out.receipt(document, "\n".join(texts), note=note)


def _forget(args: Namespace, out: Out, memory: Memory) -> int:
    if args.session:
        doomed = memory.lines_from(args.session)
    else:
        doomed = [_find(memory, what, struck=True) for what in args.words]
        doomed += memory.belonging([line.id for line in doomed])
    count = len(doomed)
    if not args.dry_run and doomed:
        named = "; ".join(repr(clean(line.text)) for line in doomed[:_MAX_NAMED])
        if count > 1:
            named = f"{several(count, 'line')} ({named}{'; …' if count > _MAX_NAMED else ''})"
        out.confirm(f"Erase {named} permanently?", yes=args.yes)
        count = memory.forget_session(args.session) if args.session else memory.erase(line.id for line in doomed)
    document = {"operation": "forget", "dry_run": args.dry_run, "erased": count}
    document["items"] = [_shape(line) for line in doomed]
    note = f"{several(count, 'line')} {'would be erased' if args.dry_run else 'erased'}"
    return out.receipt(document, "\n".join(clean(line.text) for line in doomed[:_MAX_NAMED]), note=note)


def _edit(args: Namespace, out: Out, memory: Memory) -> int:
    if not args.words:
        return _edit_page(args, out, memory)
    if len(args.words) == 1:
        raise Failure("usage", "edit needs a fact and its new text", hint=_example("edit"))
    old = _find(memory, args.words[0])
    text = " ".join(args.words[1:])
    new = old if args.dry_run else memory.edit(old.id, text)
    after = text if args.dry_run else new.text
    document = {"operation": "edit", "dry_run": args.dry_run, "before": old.text, "after": after, "id": new.id}
    return out.receipt(document, f"{out.dim(clean(old.text))} → {clean(after)}")


def _edit_page(args: Namespace, out: Out, memory: Memory) -> int:
    """Open the page of facts in the editor, and read it again."""
    from nacre.cli.chat.external_editor import find_editor, run_editor  # noqa: PLC0415 - only to edit

    before = {line.id for line in memory.list()}
    if args.dry_run:
        out.say(f"{clean(memory.page)} would be opened with {clean(find_editor())}")
        return OK
    if not os.path.exists(memory.page):
        raise Failure("not_found", "there are no facts yet, so there is no page", hint=_example("add"))
    try:
        run_editor(memory.page)
    except NacreError as error:
        raise Failure("failed", str(error), hint="saved changes are read next time") from error
    memory.settle()
    after = {line.id for line in memory.list()}
    added, removed = len(after - before), len(before - after)
    note = f"{several(added, 'line')} added or changed, {removed} removed or replaced"
    return out.receipt({"operation": "edit", "added": added, "removed": removed}, note=note)


_RUN: dict[str, Callable[[Namespace, Out, Memory], int]] = {
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
