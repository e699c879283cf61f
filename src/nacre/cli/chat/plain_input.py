"""Line editing with Python's own `input`: one line, then its answer."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType
from typing import IO

from nacre.cli.chat.input_history import Recall
from nacre.cli.chat.questions import Read
from nacre.cli.chat.reader import About, Line
from nacre.cli.chat.ticker import Ticker

_ROWS_BELOW = 5


class Plain:
    """Reads lines while nothing else happens; `safe` makes a text safe to print."""

    reads_ahead = False
    is_released = False

    def __init__(
        self,
        status: Callable[[], str],
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
        self._ticker = Ticker(status)
        with contextlib.suppress(ImportError):
            import readline  # noqa: PLC0415 - not every Python has it, and importing it changes input()

            for line in recall.lines:
                readline.add_history(line.replace("\n", " "))

    def held(self) -> contextlib.AbstractContextManager[None]:
        """Leave the keyboard as it is."""
        return contextlib.nullcontext()

    def released(self) -> contextlib.AbstractContextManager[None]:
        """Leave the keyboard as it is."""
        return contextlib.nullcontext()

    def resume(self) -> None:
        """Do nothing: the next line is drawn by `input`."""

    async def read(self, draft: str = "") -> Line:
        """Read the next message or command; raises EOFError when the user leaves, by Ctrl-C twice too.

        Typed and pasted text cannot be distinguished here, so all of it counts as pasted.
        """
        if draft:
            self.show([f"(your draft: {self._safe(draft)})"])
        interrupted = False
        while True:
            try:
                # A line that ends with a backslash goes on in the next one.
                with _interruptible():
                    lines = [self._read("> ")]
                    while lines[-1].endswith("\\"):
                        lines[-1] = lines[-1][:-1]
                        lines.append(self._read("  "))
            except KeyboardInterrupt:
                self.show([""])
                if interrupted:
                    raise EOFError from None
                interrupted = True
                continue
            text = "\n".join(lines)
            self._recall.add(text)
            return Line(text, (text,))

    async def ask(self, question: str, answers: Collection[str], about: About | None = None) -> str:
        """Ask until one of the answers is given; no answer at all is a no."""
        self._ticker.clear()
        return await asker(self.show, read=self._read)(question, answers, about)

    def show(self, lines: Sequence[str]) -> None:
        self._ticker.clear()
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()

    def alert(self, text: str) -> None:
        """Do nothing: a terminal that cannot do more than this may not have a bell."""

    def refresh(self) -> None:
        self._ticker.tick()


def asker(show: Callable[[Sequence[str]], None], *, read: Callable[[str], str] = input) -> Read:
    """Make a function that asks by `read` until one of the answers is given; no answer at all is a no."""

    async def ask(question: str, answers: Collection[str], about: About | None = None) -> str:
        if about is not None:
            show(about(max(shutil.get_terminal_size().lines - _ROWS_BELOW, 1)))
        with _interruptible():
            try:
                while (answer := read(question).strip().lower()) not in answers:
                    continue
            except (EOFError, KeyboardInterrupt):
                return "no"
        return answer

    return ask


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C and the end of the terminal interrupt reading, since the event loop does not run meanwhile."""

    def leave(number: int, _: FrameType | None) -> None:
        raise EOFError(signal.Signals(number).name)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: leave, signal.SIGHUP: leave}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
