"""Verbs that change a session: rename, tag, untag, pin, unpin, archive, unarchive, fork, move-folder, summarize."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.refs import add_internal, add_ref, changeable, find, find_active, refuse_internal
from nacre.cli.store_choice import is_active, open_store
from nacre.history.overview import MAX_TAGS, labels, tags_in
from nacre.history.session_state import after as record_after
from nacre.keys import INTERNAL

if TYPE_CHECKING:
    from nacre.runtime.summarizer import Draft
    from nacre.sessions import Sessions


def _add(parser: ArgumentParser, *, words: tuple[str, str] | None = None) -> None:
    """Add the sessions, or one session and the words for it, and what most of these verbs take."""
    add_ref(parser, many=words is None)
    if words is not None:
        name, what = words
        parser.add_argument(name, metavar=name.upper().removesuffix("S"), nargs="+", help=what)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


# ---- labels


def _rename(args: Namespace, out: Out) -> int:
    title = " ".join(args.title).strip()
    with open_store(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key, internal=args.internal)
        before = sessions.get_meta(key).get("title", "")
        if not args.dry_run:
            sessions.set_labels(key, title=title)
    would = "would be " if args.dry_run else ""
    text = f"{clean(key)}: {would}renamed to {clean(title)}" if title else f"{clean(key)}: title {would}removed"
    document = {"operation": "rename", "dry_run": args.dry_run, "key": key, "title": title, "previous": before}
    return out.receipt(document, text)


def _tag(args: Namespace, out: Out, *, adds: bool) -> int:
    given = tags_in(",".join(args.tags))
    if not given:
        raise Failure("usage", "a tag needs at least one character that is not a space or a comma")
    with open_store(args) as sessions:
        key = changeable(sessions, find(sessions, args.ref).key, internal=args.internal)
        before = list(labels(sessions.get_meta(key)).tags)
        after = list(dict.fromkeys((*before, *given))) if adds else [tag for tag in before if tag not in given]
        if len(after) > max(MAX_TAGS, len(before)):
            hint = "`nacre sessions untag` removes tags"
            raise Failure("conflict", f"the session would have {len(after)} tags; the limit is {MAX_TAGS}", hint=hint)
        if after != before and not args.dry_run:
            sessions.set_labels(key, tags=after)
    status = "would be" if args.dry_run else "is now" if after != before else "is"
    tags = f"tagged {clean(', '.join(after))}" if after else "untagged"
    document = {"operation": "tag" if adds else "untag", "dry_run": args.dry_run, "key": key, "tags": after}
    return out.receipt({**document, "previous": before}, f"{clean(key)}: {status} {tags}")


def _pin(args: Namespace, out: Out, *, pinned: bool) -> int:
    verb, status, unchanged = ("pin", "pinned", "already pinned") if pinned else ("unpin", "unpinned", "was not pinned")
    with open_store(args) as sessions:

        def set_pin(key: str) -> Done:
            changeable(sessions, key, internal=args.internal)
            if labels(sessions.get_meta(key)).pinned == pinned:
                return Done(key, status, words=unchanged)
            if not args.dry_run:
                sessions.set_labels(key, pinned=pinned)
            return Done(key, status)

        return each(out, verb, keys_of(sessions, args.refs, internal=args.internal), set_pin, dry_run=args.dry_run)


rename = Command(
    partial(_add, words=("title", "the new title; empty removes it")),
    _rename,
    ("name the newest session", "nacre sessions rename @last 'Tax return'"),
    ("remove a title", "nacre sessions rename telegram:42 ''"),
)
tag = Command(
    partial(_add, words=("tags", "the tags to add; commas also separate tags")),
    partial(_tag, adds=True),
    ("tag the newest session", "nacre sessions tag @last work taxes"),
    ("list the sessions with a tag", "nacre sessions list --tag work"),
)
untag = Command(
    partial(_add, words=("tags", "the tags to remove; commas also separate tags")),
    partial(_tag, adds=False),
    ("remove a tag from the newest session", "nacre sessions untag @last work"),
    ("see what would be done", "nacre sessions untag telegram:42 work taxes --dry-run"),
)
pin = Command(
    _add,
    partial(_pin, pinned=True),
    ("pin the newest session", "nacre sessions pin @last"),
    ("list pinned sessions", "nacre sessions list --pinned"),
)
unpin = Command(
    _add,
    partial(_pin, pinned=False),
    ("list pinned sessions", "nacre sessions list --pinned"),
    ("remove the pin from the first of that list", "nacre sessions unpin @1"),
)


# ---- archive and unarchive


def _archive(args: Namespace, out: Out, *, is_back: bool) -> int:
    """Archive sessions, or make archived ones active again."""
    with open_store(args) as sessions:

        def move(key: str) -> Done:
            if is_active(sessions, key) == is_back:
                state = "active" if is_back else "archived already"
                hint = "archive the active one first to bring an earlier one back" if is_back else ""
                raise Failure("conflict", f"session {key!r} is {state}", hint=hint)
            if not args.dry_run:
                (sessions.unarchive if is_back else sessions.archive)(key)
            return Done(key, "active again" if is_back else "archived")

        keys = keys_of(sessions, args.refs, internal=args.internal)
        return each(out, "unarchive" if is_back else "archive", keys, move, dry_run=args.dry_run)


archive = Command(
    _add,
    partial(_archive, is_back=False),
    ("archive the newest session", "nacre sessions archive @last"),
    ("archive several sessions; first see what would happen", "nacre sessions archive @1 @2 telegram:42 --dry-run"),
)
unarchive = Command(
    _add,
    partial(_archive, is_back=True),
    ("list archived sessions", "nacre sessions list --archived"),
    ("make the first of that list active again", "nacre sessions unarchive @1"),
)


# ---- fork


def _add_fork(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument(
        "key", metavar="KEY", nargs="?", help="the new session's key (default: the old one and a number)"
    )
    parser.add_argument("--name", metavar="TITLE", help="the new session's title")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    add_internal(parser)


def _fork(args: Namespace, out: Out) -> int:
    with open_store(args) as sessions:
        source = find_active(sessions, args.ref)
        refuse_internal(source.key, allowed=args.internal)
        at = source.n
        if at is not None:
            # What was said up to a record ends with the last record that was stored together with it.
            at = sessions.read(source.key, partial(record_after, n=at)) or at
        key = args.key or sessions.free_key(source.key.removeprefix(INTERNAL))
        refuse_internal(key, allowed=args.internal)
        if sessions.exists(key):
            raise Failure("conflict", f"there is a session {key!r} already", hint="choose another key")
        if not args.dry_run:
            target = sessions.with_internal_keys() if args.internal else sessions
            target.fork(source.key, key, at=at)
            if args.name:
                sessions.set_meta(key, title=args.name)
    where = f"{clean(source.key)}@{at}" if at is not None else clean(source.key)
    document = {"operation": "fork", "dry_run": args.dry_run, "source": source.key, "at": at, "key": key}
    return out.receipt(document, f"{clean(key)}: {'would be ' if args.dry_run else ''}forked from {where}")


fork = Command(
    _add_fork,
    _fork,
    ("continue in a new session", "nacre sessions fork @last"),
    ("from record 17, with its own key and title", "nacre sessions fork telegram:42@17 try-2 --name 'Second try'"),
)


# ---- move-folder


def _add_move_folder(parser: ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="where the folder was")
    parser.add_argument("new", metavar="NEW", help="where it is now")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _move_folder(args: Namespace, out: Out) -> int:
    old, new = (os.path.realpath(os.path.expanduser(path)) for path in (args.old, args.new))
    if not os.path.isdir(new):
        raise Failure("not_found", f"there is no folder {new}", hint="move the folder first, then run this")
    with open_store(args) as sessions:
        # The active sessions of the folder and of those below it, newest first: key, folder before, folder after.
        moved: list[tuple[str, str, str]] = []
        for info in sessions.list():
            cwd = sessions.get_meta(info.key).get("cwd")
            if isinstance(cwd, str) and (cwd == old or cwd.startswith(f"{old.rstrip('/')}/")):
                moved.append((info.key, cwd, os.path.normpath(new + cwd[len(old.rstrip("/")) :])))
        if not moved:
            hint = "`nacre chat -r` shows the folder of each session; archived sessions are not changed"
            raise Failure("not_found", f"no session was started in {old} or below it", hint=hint)
        if not args.dry_run:
            # The oldest first, so that the newest stays the newest: a change of meta counts as one of the session.
            for key, _, cwd in reversed(moved):
                sessions.set_meta(key, cwd=cwd)
    items = [{"key": key, "from": before, "to": after} for key, before, after in moved]
    document = {"operation": "move-folder", "dry_run": args.dry_run, "count": len(items), "items": items}
    lines = [f"{clean(key)}: {clean(before)} → {clean(after)}" for key, before, after in moved]
    note = f"{several(len(moved), 'session')} {'would be moved' if args.dry_run else 'moved'}"
    out.receipt(document, "\n".join(lines), note=note)
    if not out.json:
        _suggest_trust(old, new, out)
    return OK


def _suggest_trust(old: str, new: str, out: Out) -> None:
    """Say how to move trust along: it is given by people, so it does not move by itself."""
    from nacre.runtime.trust import TrustStore, find_root  # noqa: PLC0415 - loads the agent, which help does not need

    store = TrustStore()
    if store.covering(find_root(Path(new))) is None:
        out.note(f"{clean(new)} is not trusted yet: nacre trust {shlex.quote(clean(new))}")
    if old in store.entries() and not os.path.isdir(old):
        revoke = f"nacre trust --revoke {shlex.quote(clean(old))}"
        out.note(f"{clean(old)} is still in the list of trusted folders: {revoke}")


move_folder = Command(
    _add_move_folder,
    _move_folder,
    ("after `mv ~/work/shop ~/shop`", "nacre sessions move-folder ~/work/shop ~/shop"),
    ("see which sessions would change", "nacre sessions move-folder ~/work/shop ~/shop --dry-run"),
)


# ---- summarize


def _add_summarize(parser: ArgumentParser) -> None:
    add_ref(parser)
    parser.add_argument("--focus", metavar="TEXT", default="", help="subject to keep in full")
    parser.add_argument("--model", metavar="NAME", help="model that writes the summary")
    parser.add_argument("--dry-run", action="store_true", help="show the summary, and store nothing")
    parser.add_argument("--undo", action="store_true", help="undo the last summary, without a model")
    add_internal(parser)


def _summarize(args: Namespace, out: Out) -> int:
    if args.undo and (args.focus or args.dry_run):
        raise Failure("usage", "--undo removes a summary: leave out --focus and --dry-run")
    import anyio  # noqa: PLC0415 - not needed for help

    with open_store(args) as sessions:
        key = find(sessions, args.ref).key
        refuse_internal(key, allowed=args.internal)
        if not is_active(sessions, key):
            hint = "`nacre sessions unarchive` makes it active again"
            raise Failure("conflict", f"session {key!r} is archived", hint=hint)
        if args.undo:
            count = anyio.run(_undo_summary, sessions, key)
            document = {"operation": "summarize", "undo": True, "key": key, "live_again": count}
            text = f"{clean(key)}: the last summary was undone; {count} messages are live again"
            return out.receipt(document, text)
        with out.progress("summarising"):
            draft = anyio.run(_draft_summary, sessions, key, args)
    covered, kept = len(draft.plan.covered), draft.plan.kept
    verb = "would be summarised" if args.dry_run else "are summarised"
    tokens = f"about {draft.before} → {draft.after} tokens"
    line = out.dim(f"{clean(key)}: {covered} messages {verb}, {kept} stay as they are; {tokens}")
    document = {"operation": "summarize", "dry_run": args.dry_run, "key": key, "upto": draft.plan.upto}
    counts = {"covered": covered, "kept": kept, "tokens_before": draft.before, "tokens_after": draft.after}
    return out.receipt({**document, **counts, "summary": draft.text}, f"{clean(draft.text, lines=True)}\n\n{line}")


async def _undo_summary(sessions: Sessions, key: str) -> int:
    from nacre.runtime.summarizer import Compactor  # noqa: PLC0415 - brings the agent along

    return await Compactor(sessions, lambda _: None).undo(key)  # type: ignore[arg-type, return-value] # no model is asked


async def _draft_summary(sessions: Sessions, key: str, args: Namespace) -> Draft:
    from nacre.config import load  # noqa: PLC0415 - not needed for help
    from nacre.runtime import model_chain  # noqa: PLC0415 - brings the agent along
    from nacre.runtime.summarizer import Compactor  # noqa: PLC0415 - the same
    from nacre.summaries.plan import Limits  # noqa: PLC0415 - the same

    settings = load().for_agent(args.agent)
    tokens, messages = settings.number("agent.max_context_tokens"), settings.number("agent.max_history_messages")
    provider = await model_chain.provider_for(settings, args.model)
    try:
        if model_chain.local_model_before(provider, settings, lambda last: sessions.get_history(key, last=last)):
            problem = f"session {key!r} was answered by a local model, and {provider.model} is remote: nothing was sent"
            raise Failure("model_not_allowed", problem, hint="set agent.allow_remote = true, or name a local --model")
        compactor = Compactor(sessions, lambda _: provider, limits=lambda _: Limits(tokens=tokens, messages=messages))
        return await (compactor.preview if args.dry_run else compactor.compact)(key, args.focus)
    finally:
        await provider.close()


summarize = Command(
    _add_summarize,
    _summarize,
    ("the newest session", "nacre sessions summarize @last"),
    ("keep everything about one subject", "nacre sessions summarize @last --focus 'the invoice'"),
    ("see the summary without storing it", "nacre sessions summarize @last --dry-run"),
    ("undo the last summary", "nacre sessions summarize @last --undo"),
)
