"""Line editing with what Python brings along: one line, then its answer."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType
from typing import IO, Protocol

from nacre.channels.terminal.recall import Recall
from nacre.channels.terminal.ticker import Ticker


class Face(Protocol):
    """What is happening."""

    @property
    def status(self) -> str: ...


class Plain:
    """Reads lines while nothing else happens; `safe` makes a text safe to print."""

    reads_ahead = False

    def __init__(
        self,
        face: Face,
        *,
        recall: Recall,
        stream: IO[str],
        safe: Callable[[str], str],
        read: Callable[[str], str] = input,
    ) -> None:
        self._recall = recall
        self._stream = stream
        self._safe = safe
        self._read = read
        self._face = face
        self._ticker = Ticker(lambda: face.status)
        for line in recall.lines:
            _add_history(line)

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Leave the keyboard as it is."""
        return contextlib.nullcontext()

    async def read(self, draft: str = "") -> str:
        """The next message or command; raises EOFError when somebody leaves, by Ctrl-C twice too."""
        if draft:
            self.show([f"(it was: {self._safe(draft)})"])
        interrupted = False
        while True:
            try:
                text = self._message()
            except KeyboardInterrupt:
                self.show([""])
                if interrupted:
                    raise EOFError from None
                interrupted = True
                continue
            self._recall.add(text)
            return text

    async def ask(self, question: str, answers: Collection[str]) -> str:
        """The answer to a question; whoever gives none says no."""
        self._ticker.clear()
        return await put(question, answers, self._read)

    def show(self, lines: Sequence[str]) -> None:
        self._ticker.clear()
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()

    def refresh(self) -> None:
        self._ticker.tick()

    def _message(self) -> str:
        """A line, and the next as long as each ends with a backslash."""
        lines: list[str] = []
        with _undisturbed():
            lines.append(self._read("> "))
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
                lines.append(self._read("  "))
        return "\n".join(lines)


async def put(question: str, answers: Collection[str], read: Callable[[str], str] = input) -> str:
    """The answer to a question, one of those that there are; whoever gives none says no."""
    with _undisturbed():
        try:
            while (answer := read(question).strip().lower()) not in answers:
                continue
        except (EOFError, KeyboardInterrupt):
            return "no"
    return answer


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C and the end of the terminal interrupt reading; the event loop stands still meanwhile."""

    def leave(number: int, _: FrameType | None) -> None:
        raise EOFError(signal.Signals(number).name)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: leave, signal.SIGHUP: leave}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _add_history(line: str) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: PLC0415 - not every Python has it, and importing it changes input()

        readline.add_history(line.replace("\n", " "))
