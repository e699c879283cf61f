"""What a verb prints: lines for people or JSON for programs on stdout, everything else on stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partialmethod
from typing import IO, TYPE_CHECKING, Any

from nacre import config as settings
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean, clean_json, cut, pad, short_path, width
from nacre.cli.progress import Progress
from nacre.cli.verbs import Flags
from nacre.errors import ConfigError
from nacre.render.colours import choose_theme, sgr_for
from nacre.render.text import ago, rfc3339

if TYPE_CHECKING:
    from nacre.render.terminal import Sheet

_DEFAULT_WIDTH = 80
_NARROWEST = 40
_MINUTE, _MONTH = timedelta(minutes=1), 30 * 24 * 60
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SCALARS = frozenset((str, int, bool, float, type(None)))


class Out:
    """Where a verb prints, and how it was asked to."""

    def __init__(self, flags: Flags) -> None:
        self.jsonl = flags.jsonl
        self.json = flags.json or flags.jsonl
        self.quiet = flags.quiet
        self.iso = flags.iso
        self._flags = flags
        self._stream: IO[str] = sys.stdout
        self._now = datetime.now(UTC)
        self._agos: dict[int, str] = {}
        self.is_terminal = sys.stdout.isatty()
        self.color = not self.json and _wants_color(flags.color, is_terminal=self.is_terminal)
        self.theme = _theme(flags.color) if self.color else "none"
        self.color = self.color and self.theme != "none"
        self.has_width = self.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        self.width = _width()

    # ---- for people

    def say(self, text: str = "") -> None:
        """Print a line; what is in it of people's words must be clean."""
        self._stream.write(f"{text}\n")

    def write(self, text: str) -> None:
        """Print a text without ending the line."""
        self._stream.write(text)

    def raw(self, data: bytes) -> None:
        """Print bytes as they are."""
        self._stream.flush()
        self._stream.buffer.write(data)  # type: ignore[attr-defined] # text streams of files have one

    def flush(self) -> None:
        """Let everything printed so far go out."""
        self._stream.flush()

    def when(self, moment: datetime) -> str:
        """A moment for people: how long ago, or exactly with --iso."""
        if self.iso:
            return rfc3339(moment)
        if moment > self._now:
            self._now = datetime.now(UTC)
            self._agos = {}
        minutes = (self._now - moment) // _MINUTE
        if not 0 <= minutes < _MONTH:
            return ago(moment, self._now)
        if minutes not in self._agos:
            self._agos[minutes] = ago(moment, self._now)
        return self._agos[minutes]

    # ---- for programs

    def document(self, value: Any) -> int:
        """Print a JSON document; every one carries the version of its schema. Returns the exit code."""
        if isinstance(value, Mapping) and "schema_version" not in value:
            value = {"schema_version": 1, **value}
        self._stream.write(_json(_plain(value)) + "\n")
        return OK

    def line(self, value: Any) -> None:
        """Print one JSON record, at once."""
        self.document(value)
        self._stream.flush()

    def receipt(self, document: Mapping[str, Any], text: str = "", *, note: str = "") -> int:
        """Say what was done: a JSON document for a program, else lines on stdout and a note; returns the exit code."""
        if self.json:
            return self.document({"ok": True, **document})
        if text:
            self.say(text)
        if note:
            self.note(note)
        return OK

    def listing(
        self, items: Iterable[Any], *, total: int | None = None, cursor: str | None = None, has_more: bool = False
    ) -> int:
        """Print a list: with --jsonl a record per line, else the envelope that every list has; returns the exit code.

        `has_more` is for a list that goes on without a cursor; its `total` is not known.
        """
        if self.jsonl:
            for item in items:
                self.line(item)
            return OK
        found = list(items)
        known = total if total is not None or has_more else len(found)
        more = {"has_more": has_more or cursor is not None, "next_cursor": cursor}
        return self.document({"schema_version": 1, "count": len(found), "total": known, **more, "items": found})

    # ---- on stderr

    def note(self, text: str) -> None:
        """Print a hint on stderr, unless nobody wants hints."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print on stderr; on a terminal, lines that are too long are broken at blanks."""
        if sys.stderr is not None:
            self._stream.flush()
            lines = _break_lines(text, self.width) if sys.stderr.isatty() else [text]
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()

    def progress(self, what: str, *, total: int | None = None, unit: str = "bytes") -> Progress:
        """Say how far a long piece of work has come."""
        return Progress(what, total=total, unit=unit, shown=not self.quiet)

    @property
    def can_ask(self) -> bool:
        """Whether somebody can be asked: questions are on stderr, answers on stdin, and no program reads the output."""
        return not self.json and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask once before what cannot be undone; raises Failure unless the answer is yes."""
        if yes:
            return
        if self.json or sys.stdin is None or not sys.stdin.isatty():
            what = f"{question} This needs a confirmation, and there is nobody to ask."
            raise Failure("usage", what, hint="add --yes to confirm")
        if self.ask(f"{question} [y/N] ") not in {"y", "yes"}:
            raise Failure("declined", "nothing was done")

    def ask(self, question: str) -> str:
        """Ask on stderr, and read one line of an answer, in lower case."""
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower()

    @contextmanager
    def pager(self) -> Iterator[None]:
        """Send what is printed meanwhile through the pager, on a terminal; leaving the pager early is no error."""
        if not self.is_terminal or self.json or self._flags.no_pager or os.environ.get("TERM") == "dumb":
            yield
            return
        before = self._stream
        with open_pager(before) as stream:
            self._stream = stream
            try:
                yield
            finally:
                self._stream = before

    # ---- style

    def sheet(self) -> Sheet:
        """What conversations are drawn on, as wide as the terminal is now."""
        from nacre.render.terminal import Sheet  # noqa: PLC0415 - few verbs draw

        columns = self.width
        if self.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
            columns = max(os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else columns, 40)
        return Sheet(columns=columns, has_colour=self.color, theme=self.theme)

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{sgr_for(self.theme, code)}m{text}\x1b[0m" if self.color else text

    bold = partialmethod(_style, "1")
    dim = partialmethod(_style, "2")
    red = partialmethod(_style, "31")
    green = partialmethod(_style, "32")
    yellow = partialmethod(_style, "33")
    cyan = partialmethod(_style, "36")


@contextmanager
def open_pager(otherwise: IO[str]) -> Iterator[IO[str]]:
    """Where to print so that the pager shows it; the stream that is given if there is no pager."""
    import subprocess  # noqa: PLC0415 - only on a terminal

    command = settings.value_of("cli.pager") or os.environ.get("PAGER", "")
    if not command and any(os.access(os.path.join(folder, "less"), os.X_OK) for folder in os.get_exec_path()):
        command = "less -FRX"
    if command in {"", "cat"}:
        yield otherwise
        return
    otherwise.flush()
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    # The user's own words, run as the shell would run them: PAGER may hold arguments.
    process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment)  # noqa: S602
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    try:
        # Who leaves the pager early has seen enough.
        with suppress(BrokenPipeError):
            yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        # Until the pager is left, Ctrl-C is its own affair.
        while process.returncode is None:
            with suppress(KeyboardInterrupt):
                process.wait()


def report(error: Failure, flags: Flags) -> None:
    """Print a failure: as JSON on stdout if that was asked for, else on stderr."""
    if flags.json or flags.jsonl:
        kind = {"type": "error"} if flags.jsonl else {}
        document = {"schema_version": 1, **kind, "ok": False, "error": error.to_mapping(), **error.details}
        sys.stdout.write(_json(_plain(document)) + "\n")
        return
    sys.stdout.flush()
    if sys.stderr is None:
        return
    sys.stderr.write(f"nacre: {clean(error.message)}\n")
    for line in candidate_lines(error):
        sys.stderr.write(f"{line}\n")
    for line in error.hint.splitlines():
        sys.stderr.write(f"  {clean(line.strip())}\n")


def _break_lines(text: str, columns: int) -> Iterator[str]:
    """Lines no wider than a terminal; a word that is wider, such as an address, stays whole, so that it can be copied.

    Colours take no room. A line that is continued is indented as its beginning is.
    """
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        current = ""
        for word in line[len(indent) :].split(" "):
            longer = f"{current} {word}" if current else f"{indent}{word}"
            if current and width(_COLOUR.sub("", longer)) > columns:
                yield current
                longer = f"{indent}{word}"
            current = longer
        yield current


def candidate_lines(error: Failure) -> list[str]:
    """What a reference may mean, a line each: keys whole, titles as far as they fit."""
    keys = [clean(key) for key, _ in error.candidates]
    widest = max(map(width, keys), default=0)
    room = max(_NARROWEST // 2, _DEFAULT_WIDTH - widest - 4)
    lines = []
    for key, title in error.candidates:
        folder = f"  ({short_path(error.folders[key])})" if key in error.folders else ""
        shown = cut(clean(title), max(room - width(folder), _NARROWEST // 2))
        lines.append(f"  {pad(clean(key), widest)}  {shown}{folder}".rstrip())
    return lines


def _json(value: Any) -> str:
    import msgspec  # noqa: PLC0415 - only where JSON is asked for

    return clean_json(msgspec.json.encode(value).decode())


def _plain(value: Any) -> Any:
    """A value whose moments are written as the contract says."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


def _wants_color(chosen: str, *, is_terminal: bool) -> bool:
    environment = os.environ.get
    if not chosen and environment("NO_COLOR"):
        return False
    if not chosen and (environment("FORCE_COLOR") or environment("CLICOLOR_FORCE")):
        return True
    chosen = chosen or _setting("cli.color")
    return chosen == "always" or (chosen == "auto" and is_terminal and environment("TERM") != "dumb")


def _setting(key: str) -> str:
    """A setting of the output; `auto` if the file cannot be read, so that the commands that correct it can run."""
    try:
        return settings.value_of(key)
    except ConfigError:
        return "auto"


def _theme(chosen: str) -> str:
    """The theme for output in colour; `--color always` has colours whatever NO_COLOR and cli.theme say."""
    wanted = _setting("cli.theme")
    if chosen != "always":
        return choose_theme(wanted, os.environ)
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return choose_theme("auto" if wanted == "none" else wanted, environ)


def _width() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        return max(_NARROWEST, int(given))
    try:
        return max(_NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return _DEFAULT_WIDTH
