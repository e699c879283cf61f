"""One question, one answer: what `nacre chat PROMPT` prints."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from nacre.agent.actor import Inbound
from nacre.agent.ports import Ask, Event, Returned
from nacre.channels.terminal.asking import asked
from nacre.channels.terminal.once import Once
from nacre.channels.terminal.plain import put
from nacre.channels.terminal.ports import App
from nacre.channels.terminal.talk import entitle
from nacre.channels.terminal.ticker import Ticker
from nacre.cli.failures import OK, SIGNALLED
from nacre.cli.output import Out
from nacre.cli.resume import tell_how_to_resume
from nacre.cli.text import clean
from nacre.entries import Message
from nacre.render.turn import Turn, question


async def answer(app: App, args: Namespace, out: Out, *, key: str, prompt: str) -> int:
    """Answer once; returns the exit code."""
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
        tell_how_to_resume(app, args, out, key)
    return SIGNALLED + outcome.signal if outcome.signal else OK


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
        self.drawing = Turn(out.sheet)
        self.calls: list[dict[str, Any]] = []
        self.ticker = Ticker(str)
        self._out = out

    def emit(self, event: Event) -> None:
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

    def tell(lines: Sequence[str]) -> None:
        show.end()
        show.ticker.clear()
        out.warn("\n".join(lines))

    return asked(lambda approval, most: question(approval, out.sheet(), most=most), tell, put)
