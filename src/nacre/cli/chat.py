"""nacre chat: talk to the agent."""

from __future__ import annotations

import os
import stat
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from nacre.cli.failures import OK, Failure, alone
from nacre.cli.flags import default_place
from nacre.cli.output import Out
from nacre.cli.text import clean

if TYPE_CHECKING:
    from nacre.agent.actor import Ask
    from nacre.agent.ports import Event
    from nacre.channels.terminal.ports import App, Desk, Reader
    from nacre.channels.terminal.talk import Talk
    from nacre.entries import Message, SessionInfo
    from nacre.render.terminal import Sheet

EXAMPLES = (
    ("talk", "nacre chat"),
    ("one question, one answer", "nacre chat 'what is in this folder?'"),
    ("about what another program printed", "git diff | nacre chat 'what does this change?'"),
    ("one more question in the newest session", "nacre chat -c 'and why?'"),
    ("go on with a session", "nacre chat -r 'Tax return'"),
    ("for scripts", "nacre chat --json 'say hello' | jq -r .answer"),
    ("leave no trace", "nacre chat --incognito"),
)

_SIGNALLED = 128
_SHOWN = 6


def add(parser: ArgumentParser) -> None:
    parser.add_argument("words", metavar="PROMPT", nargs="*", help="answer this once; else what stdin has, else talk")
    parser.add_argument("-c", dest="newest", metavar="TEXT", nargs="?", const="", help="in the newest session")
    parser.add_argument("-r", "--resume", dest="ref", metavar="REF", help="in this session")
    parser.add_argument("--model", metavar="NAME", help="which model answers")
    parser.add_argument("--incognito", action="store_true", help="keep nothing: the session is in memory only")


def run(args: Namespace, out: Out) -> int:
    if args.newest is not None and args.ref:
        raise Failure("usage", "-c is the newest session and -r another one: leave one of them out")
    if args.incognito and (args.newest is not None or args.ref):
        raise Failure("usage", "--incognito begins with nothing: leave -c and -r out")
    prompt = _prompt(args)
    if prompt is None and out.json:
        raise Failure("usage", "--json answers once: say what to answer", hint="nacre chat --json 'say hello'")
    import anyio  # noqa: PLC0415 - not needed to be told how it is used

    try:
        return anyio.run(_talked, args, out, prompt)
    except BaseExceptionGroup as group:
        raise alone(group) from group


def _prompt(args: Namespace) -> str | None:
    """What to answer once: the words and what is piped in; None to talk."""
    words = " ".join([*([args.newest] if args.newest else []), *args.words]).strip()
    piped = _piped(has_words=bool(words))
    if piped is None:
        return words or None
    whole = "\n\n".join(text for text in (words, piped.strip()) if text)
    if not whole:
        raise Failure("usage", "there is nothing to answer: stdin is empty", hint="nacre chat 'a question'")
    return whole


def _piped(*, has_words: bool) -> str | None:
    """What stdin has for us; None if it is a terminal, or, with words to answer, nothing that surely ends."""
    if sys.stdin is None or sys.stdin.closed:
        return None if has_words else ""
    if sys.stdin.isatty() and (has_words or sys.stdout.isatty()):
        return None
    if has_words and not _surely_ends():
        return None
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _surely_ends() -> bool:
    """Tell whether stdin is a pipe or a file: whatever else a service starts us with may never end."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _running(args: Namespace) -> AbstractAsyncContextManager[App]:
    """The agent, as the settings say."""
    from nacre import app, config  # noqa: PLC0415 - everything that an agent is made of

    settings = config.load()
    chosen = app.Options(store=args.store, agent=args.agent, incognito=args.incognito, model=args.model)
    return app.running(settings, chosen)


async def _talked(args: Namespace, out: Out, prompt: str | None) -> int:
    from nacre.cli.notices import tell_warnings  # noqa: PLC0415 - the same
    from nacre.errors import ProviderError  # noqa: PLC0415 - the same

    tell_warnings()
    async with AsyncExitStack() as stack:
        try:
            app = await stack.enter_async_context(_running(args))
        except ProviderError as error:
            first, _, rest = str(error).partition("\n")
            raise Failure("failed", first, hint=rest.strip()) from error
        key = _key(app, args, out)
        if prompt is None:
            return await _conversed(app, args, out, key)
        return await _answered(app, args, out, key=key, prompt=prompt)


# ---- which session


def _key(app: App, args: Namespace, out: Out) -> str:
    from nacre.channels.terminal.talk import new_key  # noqa: PLC0415 - with the rest

    if args.ref:
        return _opened(app, args.ref, out)
    if args.newest is None:
        return new_key()
    newest = max(app.sessions.list(), key=lambda info: info.updated, default=None)
    if newest is None:
        out.note("there is no session yet; this is the first")
    return newest.key if newest is not None else new_key()


def _opened(app: App, ref: str, out: Out) -> str:
    """The key of a session that people name; an archived one is opened again."""
    from nacre.cli.place import is_active  # noqa: PLC0415 - with the rest
    from nacre.cli.refs import find  # noqa: PLC0415 - the same

    if app.sessions.location == ":memory:":
        key = ref
        if not app.sessions.exists(ref):
            raise Failure("not_found", f"there is no session {ref!r}")
        return key
    key = find(app.sessions, ref).key
    if not is_active(app.sessions, key):
        app.sessions.unarchive(key)
        out.note(f"{clean(key)} was archived; it is open again")
    return key


def _hint_at_resuming(app: App, args: Namespace, out: Out, key: str) -> None:
    if args.incognito:
        out.note("nothing of this was kept")
    elif app.sessions.exists(key):
        out.note(f"go on with: {_how_to_resume(args, key)}")


def _how_to_resume(args: Namespace, key: str) -> str:
    import shlex  # noqa: PLC0415 - beside its only use

    inside = f"/agents/{args.agent}"
    root = (args.store or "").removesuffix(inside)
    place = f" --store {shlex.quote(root)}" if root and root != default_place() else ""
    who = f" --agent {args.agent}" if (args.store or "").endswith(inside) else ""
    return f"nacre chat{place}{who} -r {shlex.quote(clean(key))}"


# ---- one answer


async def _answered(app: App, args: Namespace, out: Out, *, key: str, prompt: str) -> int:
    from nacre.agent.actor import Inbound  # noqa: PLC0415 - with the rest
    from nacre.channels.terminal.once import Once  # noqa: PLC0415 - the same
    from nacre.channels.terminal.talk import entitle  # noqa: PLC0415 - the same
    from nacre.channels.terminal.ticker import Ticker  # noqa: PLC0415 - the same

    show = _Show(out)
    show.ticker = Ticker(lambda: show.drawing.doing if not out.quiet else "")
    for note in app.notes:
        out.note(clean(note))
    before = app.sessions.snapshot(key, last=0).n
    inbound = Inbound(key=key, content=prompt, sender="terminal")
    outcome = await Once(app.kernel, inbound, emit=show.emit, ask=_ask(out, show), ticker=show.ticker).run()
    show.end()
    if outcome.answer is not None:
        entitle(app, key, prompt)
        _tell(app, args, out, _Answer(key, before, outcome.answer, show.calls))
    if not out.json and sys.stderr.isatty():
        _hint_at_resuming(app, args, out, key)
    return _SIGNALLED + outcome.signal if outcome.signal else OK


class _Answer:
    """An answer, and what it took."""

    def __init__(self, key: str, before: int, message: Message, calls: list[dict[str, Any]]) -> None:
        self.key = key
        self.before = before
        self.text = message.content if isinstance(message.content, str) else ""
        self.calls = calls

    def usage(self, app: App) -> dict[str, int]:
        """What the requests of the turn cost together."""
        total = {"requests": 0, "prompt": 0, "completion": 0, "cached": 0}
        last = app.sessions.snapshot(self.key, last=0).n
        entries = app.sessions.follow(self.key, after=self.before)
        while self.before < last:
            entry = next(entries)
            self.before = entry.n
            if entry.kind == "use":
                total["requests"] += 1
                for field in ("prompt", "completion", "cached"):
                    total[field] += int(entry.data.get(field, 0))
        entries.close()
        return total


def _tell(app: App, args: Namespace, out: Out, answer: _Answer) -> None:
    if out.json:
        told = {"schema_version": 1, "ok": True, "answer": answer.text, "model": app.model}
        kept = None if args.incognito else answer.key
        out.document({**told, "session": kept, "usage": answer.usage(app), "calls": answer.calls})
    elif not out.is_terminal:
        out.say(clean(answer.text, lines=True))


class _Show:
    """What is seen of one turn: on a terminal all of it, in a pipe only the answer, which comes at the end."""

    def __init__(self, out: Out) -> None:
        from nacre.channels.terminal.ticker import Ticker  # noqa: PLC0415 - with the rest
        from nacre.render.turn import Turn  # noqa: PLC0415 - the same

        self.drawing = Turn(lambda: _sheet(out))
        self.calls: list[dict[str, Any]] = []
        self.ticker = Ticker(str)
        self._out = out

    def emit(self, event: Event) -> None:
        from nacre.agent.ports import Returned  # noqa: PLC0415 - with the rest

        if isinstance(event, Returned):
            self.calls.append({"name": event.call.name, "failed": event.output.failed})
        self.print(self.drawing.take(event))

    def end(self) -> None:
        lines = self.drawing.end()
        self.print(lines[:-1] if lines and not lines[-1] else lines)

    def print(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        self.ticker.clear()
        if self._out.is_terminal and not self._out.json:
            self._out.write("".join(f"{line}\n" for line in lines))
            self._out.flush()


def _ask(out: Out, show: _Show) -> Ask | None:
    """Whom to ask about a call: whoever sits at the terminal, if somebody does."""
    if out.json or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from nacre.channels.terminal.asking import asked  # noqa: PLC0415 - with the rest
    from nacre.channels.terminal.plain import put  # noqa: PLC0415 - the same
    from nacre.render.turn import question as drawn  # noqa: PLC0415 - the same

    def tell(lines: Sequence[str]) -> None:
        show.end()
        show.ticker.clear()
        out.warn("\n".join(lines))

    return asked(lambda tool, call, most: drawn(tool, call, _sheet(out), most=most), tell, put)


# ---- a conversation


async def _conversed(app: App, args: Namespace, out: Out, key: str) -> int:
    from nacre.channels.terminal.recall import Recall, place  # noqa: PLC0415 - with the rest
    from nacre.channels.terminal.repl import Repl  # noqa: PLC0415 - the same
    from nacre.channels.terminal.talk import Talk  # noqa: PLC0415 - the same

    recall = Recall(None if args.incognito else place())
    talk = Talk(app, _desk(app, out), key=key, make_reader=_reader(app, out, recall))
    _greet(app, args, out)
    code = await Repl(talk).run()
    _hint_at_resuming(app, args, out, talk.key)
    return _SIGNALLED + code if code else OK


def _greet(app: App, args: Namespace, out: Out) -> None:
    from nacre import __version__  # noqa: PLC0415 - beside its only use

    kept = ", incognito: nothing is kept" if args.incognito else ""
    out.say(f"{out.bold(f'nacre {__version__}')} · {clean(app.model)}{kept}")
    out.say(out.dim("/help lists the commands, Ctrl-C stops a turn, Ctrl-D leaves"))
    out.say()
    out.flush()


def _reader(app: App, out: Out, recall: Any) -> Callable[[Talk], Reader]:
    """The best line editor that there is."""

    def make(talk: Talk) -> Reader:
        if os.environ.get("TERM", "dumb") != "dumb":
            try:
                from nacre.channels.terminal.completion import Completion  # noqa: PLC0415 - only in a conversation
                from nacre.channels.terminal.editor import Editor  # noqa: PLC0415 - the same

                choices = Completion(app)
                return Editor(talk, recall=recall, choices=choices, stream=sys.stdout, has_colour=out.color)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != "prompt_toolkit":
                    raise
                out.note('line editing is plain: pip install "nacre[agent]" has more')
        from nacre.channels.terminal.plain import Plain  # noqa: PLC0415 - the same

        return Plain(talk, recall=recall, stream=sys.stdout, safe=talk.desk.safe)

    return make


def _desk(app: App, out: Out) -> Desk:
    from nacre.channels.terminal.ports import Desk  # noqa: PLC0415 - with the rest
    from nacre.cli.show import live_view  # noqa: PLC0415 - the same
    from nacre.render.turn import Turn, question  # noqa: PLC0415 - the same

    def sheet() -> Sheet:
        return _sheet(out)

    return Desk(
        find=lambda ref: _told(lambda: _opened(app, ref, out)),
        history=lambda key: live_view(app.sessions, key).stored if app.sessions.exists(key) else [],
        past=lambda key: _past(app, out, key),
        export=lambda key, path: _told(lambda: _exported(app, key, path)),
        listed=lambda infos: _listed(app, out, infos),
        drawing=lambda: Turn(sheet),
        question=lambda tool, call, most: question(tool, call, sheet(), most=most),
        rows=lambda rows: _rows(rows, sheet()),
        safe=lambda text: clean(text, lines=True),
        paint=lambda text, sgr: sheet().paint(text, sgr),
    )


def _told(do: Callable[[], str]) -> str:
    """Do something; a failure of the command line is an error like any other inside a conversation."""
    from nacre.errors import NacreError  # noqa: PLC0415 - with the rest

    try:
        return do()
    except Failure as failure:
        candidates = "".join(f"\n{clean(key)}  {clean(title)}" for key, title in failure.candidates)
        raise NacreError(f"{failure.message}{f'; {failure.hint}' if failure.hint else ''}{candidates}") from failure


def _past(app: App, out: Out, key: str) -> list[str]:
    """The end of a session, as it would be shown."""
    from nacre.cli.show import live_view  # noqa: PLC0415 - with the rest
    from nacre.render import terminal  # noqa: PLC0415 - the same

    view = live_view(app.sessions, key, last=_SHOWN)
    sheet = _sheet(out)
    head = terminal.cover(view.cover, sheet, when=out.when)
    return [*head, *terminal.conversation(view.parts(), sheet, when=out.when)]


def _listed(app: App, out: Out, infos: Sequence[SessionInfo]) -> list[str]:
    """Sessions as rows, numbered so that @3 names one."""
    from nacre.cli import rows  # noqa: PLC0415 - with the rest

    rows.remember(app.sessions.location, [info.key for info in infos])
    cells = [
        (f"@{n} {info.key}", " · ".join(filter(None, (out.when(info.updated), info.title))))
        for n, info in enumerate(infos, 1)
    ]
    return _rows(cells, _sheet(out))


def _rows(rows: Sequence[tuple[str, str]], sheet: Sheet) -> list[str]:
    """Words with what they mean beside them, in two columns."""
    from nacre.render.text import clip, one_line, pad, width  # noqa: PLC0415 - with the rest

    left = min(max((width(one_line(word)) for word, _ in rows), default=0), sheet.columns * 2 // 3)
    return [
        f"  {sheet.paint(pad(clip(one_line(word), left), left), '1')}  "
        f"{clip(one_line(meaning), max(sheet.columns - left - 4, 8))}".rstrip()
        for word, meaning in rows
    ]


def _exported(app: App, key: str, path: str) -> str:
    """Write a session to a file that is not there yet; gives a sentence about it."""
    from pathlib import Path  # noqa: PLC0415 - with the rest

    from nacre.cli.export import write  # noqa: PLC0415 - the same
    from nacre.cli.show import live_view  # noqa: PLC0415 - the same
    from nacre.render.document import document  # noqa: PLC0415 - the same
    from nacre.render.page import page  # noqa: PLC0415 - the same

    if not app.sessions.exists(key):
        raise Failure("not_found", "there is nothing to export yet")
    place = Path(path).expanduser() if path else Path(f"{key}.md")
    view = live_view(app.sessions, key)
    form = page if place.suffix.lower() in {".html", ".htm"} else document
    count = write(place, (piece.encode() for piece in form(view.cover, view.parts())), force=False)
    return f"{place}: {count:,} bytes"


def _sheet(out: Out) -> Sheet:
    """What is printed on, as wide as it is now."""
    from nacre.render.terminal import Sheet  # noqa: PLC0415 - with the rest

    columns = out.width
    if out.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        columns = max(os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else columns, 40)
    return Sheet(columns=columns, has_colour=out.color)
