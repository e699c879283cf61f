"""write_file and edit_file: changes to a workspace, each whole or not at all."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Mapping
from difflib import SequenceMatcher
from typing import Any

from nacre.agent.ports import Change, Scene
from nacre.entries import ToolCall
from nacre.errors import ToolError
from nacre.tools.functions import Function
from nacre.tools.workspace import Workspace

_MOST_EDITED = 10_000_000
_MOST_LINES_COMPARED = 20_000
_MOST_COMPARED = 2_000
_LIKE = 0.6
LARGEST_COPY = 20_000_000
"""The largest file, in bytes, of which a copy is kept before it is overwritten."""
_PLACES_SHOWN = 10


Keep = Callable[[str, str, bytes | None, bytes], None]
"""Keep a copy before a write: session, path, the content before (None for a new file), the content after."""


def _keep_nothing(*_: object) -> None:
    """Keep no copy."""


class Writer:
    """The writing tools of a workspace; `keep` gets a copy of each file before it is changed."""

    def __init__(self, workspace: Workspace, keep: Keep = _keep_nothing) -> None:
        self._workspace = workspace
        self._keep = keep

    def write_file(self, path: str, content: str, scene: Scene) -> str:
        """Write a text file of the workspace, whole; one that is there is replaced, missing directories are made.

        Args:
            path: the file, relative to the workspace
            content: all of the text that the file will have
        """
        data = _encoded(content)
        before, status = self._copy(path)
        self._keep(scene.key, path, before, data)
        is_new = self._workspace.replace(path, data, expected=status)
        return f"{'wrote' if is_new else 'replaced'} {path} ({len(data):,} bytes)"

    def edit_file(self, path: str, old_text: str, new_text: str, scene: Scene, all: bool = False) -> str:  # noqa: FBT001, FBT002 - a model passes it by name
        """Replace an exact piece of text in a file of the workspace by another.

        Args:
            path: the file, relative to the workspace
            old_text: the text to replace, exactly as the file has it, with enough around it to be there only once
            new_text: what to put in its place; empty to delete it
            all: replace every occurrence of old_text
        """
        if not old_text:
            raise ToolError("old_text is empty: give the text to replace, or use write_file for a whole file")
        if old_text == new_text:
            raise ToolError("old_text and new_text are the same: nothing would change")
        before, status = self._read(path)
        after, lines = _edited(before, old_text, new_text, path=path, every=all)
        data = after.encode("utf-8", "surrogateescape")
        self._keep(scene.key, path, before.encode("utf-8", "surrogateescape"), data)
        self._workspace.replace(path, data, expected=status)
        return f"edited {path}: {len(lines)} place{'s' * (len(lines) != 1)} (line {_numbers(lines)})"

    def preview(self, call: ToolCall) -> Change | None:
        """What a call would do to a file; None if it is not a write of text, or would fail."""
        given: Mapping[str, Any] = call.arguments if isinstance(call.arguments, Mapping) else {}
        path, wanted = given.get("path"), [given.get(name) for name in ("content", "old_text", "new_text")]
        try:
            match call.name, path, wanted:
                case "write_file", str(), [str(content), _, _]:
                    before, _ = self._copy(path)
                    return Change(path=path, before=None if before is None else before.decode(), after=content)
                case "edit_file", str(), [_, str(old), str(new)]:
                    text, _ = self._read(path)
                    after, _ = _edited(text, old, new, path=path, every=given.get("all") in {True, "true"})
                    return Change(path=path, before=text, after=after)
                case _:
                    return None
        except (ToolError, UnicodeDecodeError):
            return None

    def _copy(self, path: str) -> tuple[bytes | None, os.stat_result | None]:
        """The content of a file and its status; None if there is none yet. Raises ToolError if it is no plain file."""
        try:
            fd = self._workspace.read(path)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None, None
            raise
        with os.fdopen(fd, "rb") as file:
            return file.read(LARGEST_COPY + 1), os.fstat(file.fileno())

    def _read(self, path: str) -> tuple[str, os.stat_result]:
        """The text of a file; bytes that are no text come back as they were when it is written."""
        with os.fdopen(self._workspace.read(path), "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_MOST_EDITED + 1)
        if len(data) > _MOST_EDITED:
            raise ToolError(f"{path!r} has more than {_MOST_EDITED:,} bytes: too large to edit, use a program")
        if b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ToolError(f"{path!r} is not UTF-8 text: it cannot be edited")
        return data.decode("utf-8", "surrogateescape"), status


def writing_tools(workspace: Workspace, keep: Keep = _keep_nothing) -> tuple[Function, ...]:
    """The tools that change files; `keep` gets a copy of each file before it is changed."""
    writer = Writer(workspace, keep)
    return (Function(writer.write_file, effect="write"), Function(writer.edit_file, effect="write"))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"content has a lone surrogate at character {error.start:,}: it is not text") from error


def _edited(text: str, old: str, new: str, *, path: str, every: bool) -> tuple[str, list[int]]:
    """The text after the edit, and the lines that it touched; line ends stay what they were."""
    wanted = re.escape(_plain(old)).replace("\\\n", "\n").replace("\n", "\r?\n")
    # Looked ahead for, so that places that overlap are seen for what they are.
    places = [match.start() for match in re.finditer(f"(?={wanted})", text)]
    if not places:
        raise ToolError(f"old_text is not in {path!r}. {_why(text, _plain(old))}")
    lines = [text.count("\n", 0, place) + 1 for place in places]
    if len(places) > 1 and not every:
        raise ToolError(
            f"old_text is in {path!r} {len(places)} times (lines {_numbers(lines)}): "
            "put more of the text around it in old_text, or set all"
        )
    put = _plain(new).replace("\n", _line_end(text))
    pieces = list(re.finditer(wanted, text))
    changed = re.sub(wanted, lambda _: put, text)
    return changed, [text.count("\n", 0, piece.start()) + 1 for piece in pieces]


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def _line_end(text: str) -> str:
    """The line end that most lines of a text have."""
    windows = text.count("\r\n")
    return "\r\n" if windows and windows * 2 >= text.count("\n") else "\n"


def _numbers(lines: list[int]) -> str:
    more = len(lines) - _PLACES_SHOWN
    return ", ".join(map(str, lines[:_PLACES_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _why(text: str, old: str) -> str:
    """What is nearest to the text that was not found."""
    lines = _plain(text).split("\n")[:_MOST_LINES_COMPARED]
    wanted = old.strip("\n").split("\n")
    windows = ["\n".join(lines[at : at + len(wanted)]) for at in range(max(len(lines) - len(wanted) + 1, 1))]
    for at, window in enumerate(windows):
        if _squeezed(window) == _squeezed(old):
            return f"Line {at + 1} has it with different whitespace or line breaks; it reads:\n{window}"
    score, at = _nearest(windows, old)
    if score < _LIKE:
        return "Nothing in the file is similar: read the file again."
    return f"Line {at + 1} is the most similar; it reads:\n{windows[at]}"


def _nearest(windows: list[str], old: str) -> tuple[float, int]:
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(old[:_MOST_COMPARED])
    best = (0.0, 0)
    for at, window in enumerate(windows):
        matcher.set_seq1(window[:_MOST_COMPARED])
        if matcher.real_quick_ratio() > best[0] and matcher.quick_ratio() > best[0]:
            best = max(best, (matcher.ratio(), at), key=lambda found: found[0])
    return best


def _squeezed(text: str) -> str:
    return " ".join(text.split())
