"""How one turn is printed while it runs: drawn on a terminal, as plain text, as JSON lines, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nacre.agent.ports import Called, ChildReturned, Event, Notice, Output, Returned, Text, Thought
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.messages import ToolCall
from nacre.render.conversation import arguments_of
from nacre.render.text import clip, one_line
from nacre.render.turn import Turn

_MAX_CALL = 100


class TurnOutput:
    """Prints the events of one turn: here nothing on stdout, notices and refused calls on stderr.

    `status` is what happens now, for a line on stderr; "" while none may be drawn. `live` are lines that may still
    change, for a terminal; they are erased before anything is printed.
    """

    def __init__(self, out: Out) -> None:
        self._out = out

    @property
    def status(self) -> str:
        return "working"

    @property
    def live(self) -> list[str]:
        return []

    def begin(self, session: Mapping[str, Any], notes: Sequence[str]) -> None:  # noqa: ARG002 - only some print it
        """Say which session this is, and what a person should know at the start."""
        for note in notes:
            self._out.note(clean(note))

    def take(self, event: Event) -> None:
        """Print an event."""
        match event:
            case Notice(text):
                self._out.note(f"nacre: {clean(text)}")
            case Returned(call, output) if output.is_refused:
                self._out.warn(f"nacre: {refusal(call, output)}")

    def end(self) -> None:
        """Print what is left of the text; the next event may still come."""

    def pause(self) -> None:
        """Print what is left of the text before a question; a call that runs goes on."""
        self.end()


class DrawnOutput(TurnOutput):
    """Everything that happens, drawn for a terminal; `erase` removes the live lines from the screen."""

    def __init__(self, out: Out, erase: Callable[[], None]) -> None:
        super().__init__(out)
        self._erase = erase
        self._turn = Turn(out.sheet)

    @property
    def status(self) -> str:
        return self._turn.doing

    @property
    def live(self) -> list[str]:
        return self._turn.live

    def take(self, event: Event) -> None:
        self._print(self._turn.take(event))

    def end(self) -> None:
        lines = self._turn.end()
        self._print(lines[:-1] if lines and not lines[-1] else lines)

    def pause(self) -> None:
        self._print(self._turn.pause())

    def _print(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        self._erase()
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


class PlainOutput(TurnOutput):
    """The text of the model on stdout, each piece as it comes; notices and refused calls on stderr."""

    def __init__(self, out: Out) -> None:
        super().__init__(out)
        self._line_is_open = self._needs_gap = False
        self._held = ""

    @property
    def status(self) -> str:
        return "" if self._line_is_open else "working"

    def take(self, event: Event) -> None:
        if isinstance(event, Called | Returned):
            self.end()
        if not isinstance(event, Text):
            super().take(event)
            return
        # A line break of two characters may come in two pieces; seen alone, its first half would be made visible.
        text = self._held + event.text
        self._held = "\r" if text.endswith("\r") else ""
        text = clean(text.removesuffix("\r"), lines=True)
        if not text:
            return
        if self._needs_gap:
            self._out.say()
            self._needs_gap = False
        self._out.write(text)
        self._out.flush()
        self._line_is_open = not text.endswith("\n")

    def end(self) -> None:
        if self._line_is_open:
            self._out.say()
            self._out.flush()
            self._line_is_open, self._needs_gap = False, True


class JsonLinesOutput(TurnOutput):
    """One JSON object per event; the last one, `done` or `error`, is printed by the caller, who knows how it ended."""

    def __init__(self, out: Out) -> None:
        super().__init__(out)
        # By their sessions: a delegated one may use the id of a call that runs.
        self._running: set[tuple[str, str]] = set()

    @property
    def status(self) -> str:
        return ""

    def begin(self, session: Mapping[str, Any], notes: Sequence[str]) -> None:
        self._print("session", **session)
        for note in notes:
            self._print("notice", text=note)

    def take(self, event: Event) -> None:
        match event:
            case Text(text):
                self._print("text", text=text)
            case Thought(text):
                self._print("thinking", text=text)
            case Called(call):
                self._start(call, "")
            case Returned(call, output, session):
                if (session, call.id) not in self._running:
                    self._start(call, session)
                self._running.discard((session, call.id))
                result = {"text": output.text, "failed": output.failed, "refused": output.is_refused}
                self._print("tool_result", **_name(call, session), **result)
            case ChildReturned():
                pass
            case Notice(text):
                self._print("notice", text=text)

    def _start(self, call: ToolCall, session: str) -> None:
        self._running.add((session, call.id))
        self._print("tool_call", **_name(call, session), arguments=call.arguments)

    def _print(self, kind: str, **fields: Any) -> None:
        self._out.line({"schema_version": 1, "type": kind, **fields})


def _name(call: ToolCall, session: str) -> dict[str, str]:
    """The fields that say which call it is; `session` is that of a delegated task."""
    return {"id": call.id, "name": call.name, **({"session": session} if session else {})}


def refusal(call: ToolCall, output: Output) -> str:
    """One line that says which call was refused, and why."""
    shown = clip(f"{one_line(call.name)}({one_line(arguments_of(call))})", _MAX_CALL)
    # The first sentence is the reason; the rest tells the model what to do instead.
    reason = one_line(output.text).partition(". ")[0].rstrip(".").removeprefix(f"{call.name} was not run: ")
    return f"refused {shown}: {reason}"
