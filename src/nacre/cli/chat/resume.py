"""Which session a chat is in, which ones can be resumed, and how to come back to it."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from nacre import config
from nacre.channels.channel import channel_of
from nacre.cli.chat.plain_input import asker
from nacre.cli.chat.reader import Bell, Candidate, Look, Theme
from nacre.cli.failures import Failure
from nacre.cli.one_line import clean, cut
from nacre.cli.output import Out
from nacre.cli.refs import Choice, choose, find, refuse_internal, talks
from nacre.cli.store_choice import is_active, open_store
from nacre.cli.verbs import MAIN, default_place
from nacre.errors import StoreError
from nacre.history.message_text import first_text
from nacre.runtime.chat_start import new_key
from nacre.sessions import Sessions

if TYPE_CHECKING:
    from nacre.runtime.app import App

_MAX_FIRST_WORDS = 200
_MAX_SHOWN = 20
_MEANWHILE = (
    "only sessions that began meanwhile can be resumed; `nacre chat` starts one, which is brought into the store "
    "once it can be used"
)


# ---- which session


async def session_key(app: App, args: Namespace, out: Out) -> str:
    """The session that the arguments name: -r, -c, or a new one."""
    if args.ref:
        return open_session(app, args.ref, out, internal=args.internal)
    if args.ref is not None:
        return await _pick(app, args.folder, out)
    if args.newest is None:
        return new_key()
    found = newest_here(app.sessions, args.folder)
    if found is not None:
        return found
    if _is_interactive(out) and any(candidates(app.sessions, limit=1)):
        out.note(f"there is no chat session of {clean(str(args.folder))} to continue")
        return await _pick(app, args.folder, out)
    raise _none_here(app, args.folder)


def open_session(app: App, ref: str, out: Out, *, internal: bool = False) -> str:
    """Find a session by reference and return its key; an archived one is opened again."""
    if not app.sessions.is_durable or app.trouble:
        return _find_without_store(app, ref, internal=internal)
    key = find(app.sessions, ref).key
    refuse_internal(key, allowed=internal)
    if not is_active(app.sessions, key):
        app.sessions.unarchive(key)
        out.note(f"{clean(key)} was archived; it is open again")
    return key


def _find_without_store(app: App, ref: str, *, internal: bool) -> str:
    """Find a session in RAM, or one of what stands in for a store that cannot be used: nothing can be unarchived."""
    refuse_internal(ref, allowed=internal)
    if app.sessions.exists(ref):
        return app.sessions.resolve(ref)
    known = (Choice(info.key, info.title, ()) for info in app.sessions.list())
    hint = f"{app.trouble}; {_MEANWHILE}" if app.trouble else "`nacre chat -r` lists the sessions"
    return choose(ref, known, hint=hint)


def newest_here(sessions: Sessions, folder: Path) -> str | None:
    """The newest chat session of a folder; only chats record one, and those that work for another do not count."""
    return next((info.key for info in talks(sessions, folder=str(folder)) if Path(info.cwd) == folder), None)


def _none_here(app: App, folder: Path) -> Failure:
    elsewhere = next((info for info in talks(app.sessions) if info.cwd), None)
    if app.trouble:
        # There may well be one, in the store.
        return Failure("not_found", f"no chat session of {folder} can be continued: {app.trouble}", hint=_MEANWHILE)
    if elsewhere is None:
        hint = "start one with `nacre chat`; `nacre chat -r` lists the sessions of channels and of earlier versions"
    else:
        name = f" ({elsewhere.title})" if elsewhere.title else ""
        hint = f"the newest elsewhere is {elsewhere.key}{name} in {elsewhere.cwd}: nacre chat -r {elsewhere.key}"
    return Failure("not_found", f"there is no chat session of {folder} to continue", hint=hint)


def describe_origin(sessions: Sessions, key: str, folder: Path) -> str:
    """Say that a session belongs to another folder, or to a channel; "" if it is a chat of this folder."""
    cwd = sessions.get_meta(key).get("cwd")
    if isinstance(cwd, str) and cwd:
        is_here = Path(cwd) == folder
        return "" if is_here else f"this session was started in {clean(cwd)}; this run works in {clean(str(folder))}"
    channel = channel_of(key)
    if not channel:
        return ""
    name = {"api": "the HTTP interface", "web": "the web page"}.get(channel, f"the channel {clean(channel)}")
    return f"this session belongs to {name}; what you write is stored there too, but nobody there is notified"


# ---- choosing one


def candidates(sessions: Sessions, *, folder: Path | None = None, limit: int = 200) -> list[Candidate]:
    """The sessions that a person can resume, newest first; at most `limit` are read, a few records of each."""
    found: list[Candidate] = []
    for info in talks(sessions):
        if len(found) == limit:
            break
        try:
            first_words = " ".join((sessions.read(info.key, first_text) or "").split())[:_MAX_FIRST_WORDS]
        except StoreError:
            # One that cannot be read is not offered; `verify` reports what is wrong with it.
            continue
        is_here = bool(info.cwd) and folder is not None and Path(info.cwd) == folder
        made = Candidate(
            key=info.key,
            title=info.title,
            updated=info.updated,
            cwd=info.cwd,
            first_words=first_words,
            is_here=is_here,
        )
        found.append(made)
    return found


async def _pick(app: App, folder: Path, out: Out) -> str:
    """Let the person at the terminal choose a session; raises Failure if they choose none."""
    found = candidates(app.sessions, folder=folder)
    if not found and app.trouble:
        raise Failure("not_found", f"no session can be resumed: {app.trouble}", hint=_MEANWHILE)
    if not found:
        raise Failure("not_found", "there is no session to resume yet", hint="`nacre chat` starts one")
    key = await pick(found, out)
    if key is None:
        raise Failure("declined", "no session was chosen", hint="`nacre chat` starts a new one")
    return key


async def pick_other(app: App, folder: Path, out: Out) -> str | None:
    """Let the person in a conversation choose another session; None if they choose none, or nobody can choose."""
    found = candidates(app.sessions, folder=folder)
    return await pick(found, out) if found and _is_interactive(out) else None


def require_terminal(args: Namespace, out: Out) -> None:
    """Raise Failure with the sessions that -r could resume, unless there is somebody to choose one."""
    if _is_interactive(out):
        return
    with open_store(args) as sessions:
        found = candidates(sessions, folder=args.folder, limit=_MAX_SHOWN) if sessions.is_durable else []
    shown = [(one.key, one.title or one.first_words) for one in found]
    folders = {one.key: one.cwd for one in found if one.cwd}
    hint = "nacre chat -r KEY; `nacre sessions list` shows all sessions"
    problem = "-r needs a session to resume, or a terminal to choose one"
    raise Failure("usage", problem, hint=hint, candidates=shown, folders=folders)


async def pick(found: Sequence[Candidate], out: Out) -> str | None:
    """Let the person at the terminal choose one of these; by its number where there is no line editor."""
    if os.environ.get("TERM", "dumb") != "dumb":
        try:
            from nacre.cli.chat.picker import Picker  # noqa: PLC0415 - prompt_toolkit is optional
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "prompt_toolkit":
                raise
        else:
            out.flush()
            return await Picker(found, when=out.when, safe=clean, look=make_look(out)).run()
    for number, one in enumerate(found[:_MAX_SHOWN], 1):
        name = cut(clean(one.title or one.first_words or one.key), 50)
        place = "" if one.is_here else f"  {clean(one.cwd) or 'no folder'}"
        out.say(f"{number:>3}  {name}  {out.when(one.updated)}{place}")
    out.flush()
    numbers = [str(number) for number in range(1, min(len(found), _MAX_SHOWN) + 1)]
    ask = asker(lambda lines: out.warn("\n".join(lines)))
    answer = await ask("Resume which session? ", (*numbers, "", "no"))
    return found[int(answer) - 1].key if answer in numbers else None


def make_look(out: Out) -> Look:
    """How the terminal looks and sounds, by the configuration."""
    settings = config.load()
    sheet, bell = out.sheet(), cast("Bell", settings.text("cli.bell"))
    theme = cast("Theme", sheet.theme)
    return Look(has_colour=sheet.has_colour, theme=theme, bell=bell, bell_after=settings.number("cli.bell_after"))


def _is_interactive(out: Out) -> bool:
    return not out.json and out.is_terminal and sys.stdin is not None and sys.stdin.isatty()


# ---- coming back


def tell_how_to_resume(app: App, args: Namespace, out: Out, key: str) -> None:
    """Print the command that resumes the session."""
    if args.incognito:
        out.note("nothing was stored")
    elif app.sessions.exists(key):
        out.note(f"Resume with: {resume_command(args, key)}")


def resume_command(args: Namespace, key: str) -> str:
    """The command that resumes a session."""
    place = f" --store {shlex.quote(args.store)}" if args.store and args.store != default_place() else ""
    who = f" --agent {args.agent}" if args.agent != MAIN else ""
    return f"nacre chat{place}{who} -r {shlex.quote(clean(key))}"
