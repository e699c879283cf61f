"""The slash commands of a conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from nacre.channels.file_parts import attach, split
from nacre.cli.chat.chat_session import Talk
from nacre.errors import NacreError
from nacre.history.replies import turn_starts
from nacre.messages import Stored
from nacre.runtime.chat_start import new_key

_MAX_LISTED = 20
_BAR = 36
"""Characters of the bar that shows a context; it fits a narrow terminal."""
_PREVIEW, _UNDO, _FILES = "--preview", "--undo", "--files"


class Leave(Exception):
    """The user wants to leave."""


class Command(Struct, frozen=True, kw_only=True):
    """A slash command; `takes` names its argument, `is_quiet` allows it while a turn runs."""

    run: Callable[[Talk, str], Awaitable[None]]
    meaning: str
    takes: str = ""
    is_quiet: bool = False


async def obey(talk: Talk, line: str) -> None:
    """Run a slash command; raises Leave, NacreError."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is not None:
        if talk.is_at_work and not command.is_quiet:
            raise NacreError(f"/{name} has to wait: a turn is running, Ctrl-C stops it")
        await command.run(talk, rest.strip())
    elif (prompt := talk.app.prompts.get(name)) is not None:
        text, images = await prompt.message(rest)
        talk.parts += images
        talk.say(text)
    elif name in talk.app.skills.names:
        talk.say(f"Use the skill {name}. {rest}".strip())
    else:
        near = get_close_matches(name, COMMANDS, n=1)
        meant = f"did you mean /{near[0]}?" if near else "/help lists them"
        raise NacreError(f"there is no command /{name}; {meant} (to send it as a message, put a space before the /)")


# ---- about the conversation


async def _help(talk: Talk, _: str) -> None:
    rows = [(f"/{name} {command.takes}".strip(), command.meaning) for name, command in COMMANDS.items()]
    rows += [(f"/{name} {prompt.takes}".strip(), prompt.meaning) for name, prompt in talk.app.prompts.items()]
    typed = [
        ("@FILE", "attach a file to the message; Tab completes its name"),
        ("!COMMAND", "run a command yourself, outside the sandbox; the model sees its output"),
        ("Enter", "send; while a turn runs, the model sees the message at its next step"),
        ("Alt-Enter", "new line; a \\ at the end of a line does the same"),
        ("Ctrl-X Ctrl-E", "write the message in $EDITOR"),
        ("Ctrl-R, ↑, ↓", "find earlier messages"),
        ("Ctrl-C", "stop the turn, or clear the line; twice to leave"),
        ("Ctrl-Z", "suspend; fg brings it back"),
        ("Ctrl-D", "leave"),
    ]
    talk.show(*talk.screen.rows(rows), "", *talk.screen.rows(typed), "")


async def _tools(talk: Talk, _: str) -> None:
    rows = [(name, tool.spec.description.partition("\n")[0]) for name, tool in talk.app.tools.items()]
    talk.show(*(talk.screen.rows(rows) if rows else ["the model has no tools"]), "")


async def _skills(talk: Talk, name: str) -> None:
    if name:
        talk.show(*talk.screen.safe(talk.app.skills.load(name)).split("\n"), "")
        return
    names = talk.app.skills.names
    talk.show(*(f"/{talk.screen.safe(name)}" for name in names), *([] if names else ["there are no skills"]), "")


async def _model(talk: Talk, name: str) -> None:
    if name:
        note = await talk.app.use(name)
        talk.hint(f"{talk.screen.safe(talk.app.model)} answers from now on. {talk.screen.safe(note)}".rstrip())
        return
    here = talk.app.model
    models = await talk.app.models()
    rows = [(model, "answers now" if model == here else "") for model in models]
    talk.show(*talk.screen.rows(rows if here in models else [(here, "answers now"), *rows]), "")


async def _compact(talk: Talk, words: str) -> None:
    compactor = talk.app.compactor
    if words == _UNDO:
        count = await compactor.undo(talk.key)
        talk.hint(f"the summary is removed: the model sees {count} messages again")
        return
    is_preview, focus = words.startswith(_PREVIEW), words.removeprefix(_PREVIEW).strip()
    if focus.startswith("--"):
        talk.hint(f"/compact takes {_PREVIEW} or {_UNDO}, not {focus.split()[0]}; nothing was summarised")
        return
    talk.hint("summarising …")
    draft = await (compactor.preview if is_preview else compactor.compact)(talk.key, focus)
    talk.show(*talk.screen.safe(draft.text).split("\n"), "")
    became = "would become" if is_preview else "became"
    talk.hint(f"about {draft.before} tokens {became} {draft.after}; nothing is deleted")


async def _context(talk: Talk, _: str) -> None:
    found = talk.app.filling(talk.key)
    parts = [
        ("S", "system prompt", found.system),
        ("K", "skills", found.skills),
        ("T", "tools", found.tools),
        ("B", "summary", found.summary),
        ("F", "recalled facts", found.facts),
        ("M", "messages", found.messages),
        ("R", "kept free for the reply", found.reply),
        (".", "free", found.free),
    ]
    # The bar has a letter for each part; a part that is there has at least one.
    total = max(sum(tokens for _, _, tokens in parts), 1)
    bar = "".join(letter * max(round(tokens * _BAR / total), 1) for letter, _, tokens in parts if tokens)
    rows = [(f"{letter} {name}", f"{tokens:,}") for letter, name, tokens in parts if tokens]
    talk.show(f"  {bar}", *talk.screen.rows(rows), "")
    for cut in found.cuts:
        talk.hint(talk.screen.safe(cut))
    talk.hint(f"about {found.used:,} of {found.limit:,} tokens; agent.max_context_tokens and the model set the limit")


async def _cost(talk: Talk, _: str) -> None:
    sessions = talk.app.sessions
    uses = [entry for entry in sessions.records(talk.key, "use") if isinstance(entry.data, dict)]
    if not uses:
        talk.show("no request so far", "")
        return
    said = list(sessions.records(talk.key, "msg"))
    starts = turn_starts(str(entry.data.get("role")) for entry in said)
    begin = said[starts[-1]].n if starts else 0
    turn = [entry.data for entry in uses if entry.n > begin]
    rows = [("this turn", _spent(talk, turn)), ("this session", _spent(talk, [entry.data for entry in uses]))]
    talk.show(*talk.screen.rows(rows), "")
    without = sorted({str(entry.data.get("model")) for entry in uses if talk.app.cost(entry.data) is None})
    if without:
        talk.hint(f"no price for {talk.screen.safe(', '.join(without))}: set it under [prices] in the configuration")


def _spent(talk: Talk, uses: Sequence[dict[str, Any]]) -> str:
    """The requests, tokens and money of `use` records; money only if all of them have a price."""
    given, cached, made = (sum(int(use.get(field, 0)) for use in uses) for field in ("prompt", "cached", "completion"))
    costs = [talk.app.cost(use) for use in uses]
    requests = "1 request" if len(uses) == 1 else f"{len(uses)} requests"
    tokens = f"{requests} · {given:,} tokens in ({cached:,} cached), {made:,} out"
    known = [cost for cost in costs if cost is not None]
    return f"{tokens} · ${sum(known):.4f}" if known and len(known) == len(costs) else tokens


async def _attach(talk: Talk, path: str) -> None:
    if not path:
        raise NacreError("name a file: /attach PATH")
    talk.parts.append(attach(path, talk.cwd))
    talk.hint(f"{talk.screen.safe(path)} is attached to your next message")


async def _exit(*_: object) -> None:
    raise Leave


# ---- other sessions


async def _new(talk: Talk, _: str) -> None:
    talk.enter(new_key())
    talk.hint(f"new session: {talk.key}")


async def _sessions(talk: Talk, words: str) -> None:
    found = talk.app.sessions.page(text=words, limit=_MAX_LISTED).items
    talk.show(*(talk.screen.session_rows(found) if found else ["no session found"]), "")


async def _resume(talk: Talk, ref: str) -> None:
    if ref:
        key: str | None = talk.screen.find(ref)
    elif talk.is_unfinished():
        key = talk.key
    else:
        key = await talk.screen.pick()
    if key is None:
        talk.hint("no session was chosen; /resume takes a key, a title or a number of /sessions")
        return
    if key != talk.key:
        talk.enter(key)
        show_past(talk)
        if origin := talk.screen.origin(key):
            talk.hint(origin)
    if talk.is_unfinished():
        talk.go_on()


async def _fork(talk: Talk, key: str) -> None:
    new = key or talk.app.sessions.free_key(talk.key)
    talk.app.sessions.fork(talk.key, new)
    before = talk.key
    talk.enter(new)
    talk.hint(f"forked: you are now in {talk.screen.safe(new)}; {talk.screen.safe(before)} is unchanged")


async def _archive(talk: Talk, _: str) -> None:
    talk.app.sessions.archive(talk.key)
    talk.hint(f"{talk.screen.safe(talk.key)} is archived; `nacre sessions unarchive` brings it back")
    await _new(talk, "")


async def _export(talk: Talk, path: str) -> None:
    talk.hint(talk.screen.safe(talk.screen.export(talk.key, path)))


# ---- back in time


async def _undo(talk: Talk, words: str) -> None:
    if words not in {"", _FILES}:
        raise NacreError(f"/undo takes {_FILES} or nothing, not {words!r}")
    turn = _last_turn(talk)
    if words == _FILES:
        lines = talk.app.file_history.restore(talk.key, turn.n)
        talk.show(*(f"  {talk.screen.safe(line)}" for line in lines or ["this turn wrote no files"]))
        _tell_of_commands(talk, turn, "cannot be undone")
    _go_back(talk, turn)


async def _diff(talk: Talk, _: str) -> None:
    turn = _last_turn(talk)
    changes = talk.app.file_history.changes(talk.key, turn.n)
    for change in changes:
        kind = "new" if change.before is None else "deleted" if change.after is None else "changed"
        talk.show(talk.screen.paint(f"{talk.screen.safe(change.path)} ({kind})", "1"), *talk.screen.change(change), "")
    if not changes:
        talk.show("the last turn left no changes in files that it wrote", "")
    _tell_of_commands(talk, turn, "are not shown")


def _last_turn(talk: Talk) -> Stored:
    turns = _turns(talk)
    if not turns:
        raise NacreError("there is nothing to undo yet: no turn in this session")
    return turns[-1]


def _tell_of_commands(talk: Talk, turn: Stored, what: str) -> None:
    """Say that changes by programs are not among those that are known; a refused call has changed nothing."""
    known = talk.app.tools
    started = {
        entry.data.get("call")
        for entry in talk.app.sessions.records(talk.key, "tool", after=turn.n)
        if isinstance(entry.data, dict)
    }
    ran = {
        call.name
        for one in talk.screen.history(talk.key)
        if one.n > turn.n
        for call in one.message.tool_calls or ()
        if call.id in started and (call.name not in known or known[call.name].effect == "run")
    }
    if ran:
        talk.hint(f"changes by {', '.join(sorted(map(talk.screen.safe, ran)))} {what}: only written files are copied")


async def _rewind(talk: Talk, where: str) -> None:
    if where == "back":
        _come_back(talk)
        return
    turns = _turns(talk)
    if not where:
        rows = [(f"#{one.n}", _words(one)) for one in turns]
        talk.show(*(talk.screen.rows(rows) if rows else ["there are no messages yet"]), "")
        talk.hint("/rewind N goes back to before message N, /rewind back undoes that")
        return
    found = [one for one in turns if str(one.n) == where.removeprefix("#")]
    if not found:
        raise NacreError(f"there is no message {where!r} of yours in this history; /rewind lists them")
    _go_back(talk, found[0])


def _turns(talk: Talk) -> list[Stored]:
    """The messages that began a turn; words that were said during one did not."""
    history = talk.screen.history(talk.key)
    return [history[at] for at in turn_starts(one.message.role for one in history)]


def _go_back(talk: Talk, to: Stored) -> None:
    """Go back to before a message; its words are there to be changed."""
    now = talk.app.sessions.snapshot(talk.key, last=0)
    talk.app.sessions.rewind(talk.key, before=to.n)
    # What was attached stays attached: the text alone would not attach it again.
    text, parts = split(to.message.content)
    talk.draft, talk.parts = text, [*parts, *talk.parts]
    talk.left.append((talk.key, now.n, parts))
    talk.look()
    talk.hint(f"The conversation is as it was before {_words(to)!r:.60}; /rewind back undoes this.")
    if parts:
        count = "1 attachment" if len(parts) == 1 else f"{len(parts)} attachments"
        talk.hint(f"Your next message has the {count} of that one.")


def _come_back(talk: Talk) -> None:
    while talk.left:
        key, n, restored = talk.left.pop()
        if key == talk.key:
            talk.app.sessions.rewind(key, n)
            talk.parts = [part for part in talk.parts if part not in restored]
            talk.look()
            talk.hint("the session is as it was before the rewind")
            return
    raise NacreError("there is no rewind to undo in this conversation")


def show_past(talk: Talk) -> None:
    """Show the last messages of the session, and whether another model answers now."""
    talk.show(*talk.screen.last_messages(talk.key), "")
    if before := talk.app.other_model_before(talk.key):
        talk.hint(
            f"this chat was answered by {talk.screen.safe(before)}; {talk.app.model} answers now "
            f"(/model {talk.screen.safe(before)} changes it back)"
        )


def _words(one: Stored) -> str:
    found = one.message.content
    parts = (
        [found]
        if isinstance(found, str)
        else [str(part.get("text", "")) for part in found or () if isinstance(part, dict)]
    )
    return " ".join(" ".join(parts[-1:]).split())


COMMANDS = {
    "help": Command(run=_help, meaning="show this help", is_quiet=True),
    "new": Command(run=_new, meaning="start a new session"),
    "sessions": Command(run=_sessions, meaning="list sessions", takes="[WORDS]", is_quiet=True),
    "resume": Command(run=_resume, meaning="resume a session, or finish an interrupted turn", takes="[REF]"),
    "fork": Command(run=_fork, meaning="continue in a copy of this session", takes="[KEY]"),
    "rewind": Command(run=_rewind, meaning="go back to before a message; `back` undoes it", takes="[N]"),
    "undo": Command(
        run=_undo, meaning="take back your last message and its answer; --files also what it wrote", takes="[--files]"
    ),
    "diff": Command(run=_diff, meaning="show what the last turn changed in files", is_quiet=True),
    "compact": Command(
        run=_compact,
        meaning="summarise all but the last turn; --preview only shows it, --undo removes it",
        takes="[FOCUS]",
    ),
    "context": Command(run=_context, meaning="show what fills the model's context", is_quiet=True),
    "cost": Command(run=_cost, meaning="show tokens, and money where [prices] are configured", is_quiet=True),
    "tools": Command(run=_tools, meaning="list the tools that the model has", is_quiet=True),
    "skills": Command(run=_skills, meaning="list skills, or show one", takes="[SKILL]", is_quiet=True),
    "model": Command(run=_model, meaning="list models, or change the model", takes="[MODEL]"),
    "attach": Command(run=_attach, meaning="attach a file to the next message", takes="PATH", is_quiet=True),
    "export": Command(run=_export, meaning="write the session to a file, .md or .html", takes="[PATH]", is_quiet=True),
    "archive": Command(run=_archive, meaning="archive this session and start a new one"),
    "exit": Command(run=_exit, meaning="leave", is_quiet=True),
}
