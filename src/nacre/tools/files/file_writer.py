"""write_file and edit_file: changes to a workspace, each whole or not at all."""

from __future__ import annotations

import codecs
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import accumulate, islice
from typing import Any

from nacre.agent.ports import Change, Scene
from nacre.errors import ToolError
from nacre.messages import ToolCall
from nacre.tools.files.workspace import Workspace
from nacre.tools.functions import Function

_MAX_EDITED = 10_000_000
_MAX_LINES_COMPARED = 20_000
_MAX_BLOCKS_COMPARED = 8
_MAX_LENGTH_COMPARED = 400
_WORD = re.compile(r"\w+")
_MIN_LIKENESS = 0.6
MAX_COPY = 20_000_000
"""The largest file, in bytes, of which a copy is kept before it is overwritten."""
_PLACES_SHOWN = 10
_MAX_PLACES = 100_000


Keep = Callable[[str, str, bytes | None, bytes], None]
"""Keep a copy before a write: session, path, the content before (None for a new file), the content after."""


class Writer:
    """The writing tools of a workspace; `keep` gets a copy of each file before it is changed."""

    def __init__(self, workspace: Workspace, keep: Keep = lambda *_: None) -> None:
        self._workspace = workspace
        self._keep = keep

    def write_file(self, path: str, content: str, scene: Scene) -> str:
        """Write a text file of the workspace, whole; one that is there is replaced, missing directories are made.

        Args:
            path: the file, relative to the workspace
            content: all of the text that the file will have
        """
        data = _encode(content)
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
        _encode(new_text)
        before, status = self._read(path)
        after, lines = _edit(before, old_text, new_text, path=path, every=all)
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
                    after, _ = _edit(text, old, new, path=path, every=given.get("all") in {True, "true"})
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
            return file.read(MAX_COPY + 1), os.fstat(file.fileno())

    def _read(self, path: str) -> tuple[str, os.stat_result]:
        """The text of a file; bytes that are no text come back as they were when it is written."""
        with os.fdopen(self._workspace.read(path), "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_MAX_EDITED + 1)
        if len(data) > _MAX_EDITED:
            raise ToolError(f"{path!r} has more than {_MAX_EDITED:,} bytes: too large to edit, use a program")
        if b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ToolError(f"{path!r} is not UTF-8 text: it cannot be edited")
        return data.decode("utf-8", "surrogateescape"), status


def writing_tools(workspace: Workspace, keep: Keep = lambda *_: None) -> tuple[Function, ...]:
    """The tools that change files; `keep` gets a copy of each file before it is changed."""
    writer = Writer(workspace, keep)
    return (Function(writer.write_file, effect="write"), Function(writer.edit_file, effect="write"))


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the text has a lone surrogate at character {error.start:,}: it is not text") from error


def _edit(text: str, old: str, new: str, *, path: str, every: bool) -> tuple[str, list[int]]:
    """The text after the edit, and the lines that it touched; line ends stay what they were.

    Time grows with the length of the text, not with that of both: a model may send any pair of them.
    """
    plain, wanted = _unify_line_ends(text), _unify_line_ends(old)
    # Places that overlap are seen for what they are: more than one.
    places = list(islice(_find(plain, wanted, step=1), _PLACES_SHOWN + 1))
    if not places:
        raise ToolError(f"old_text is not in {path!r}. {_explain_missing(plain, wanted)}")
    if len(places) > 1 and not every:
        more = "at least " if len(places) > _PLACES_SHOWN else ""
        raise ToolError(
            f"old_text is in {path!r} {more}{len(places)} times (lines {_numbers(_lines_at(plain, places))}): "
            "put more of the text around it in old_text, or set all"
        )
    places = list(islice(_find(plain, wanted, step=len(wanted)), _MAX_PLACES + 1))
    if len(places) > _MAX_PLACES:
        raise ToolError(f"old_text is in {path!r} more than {_MAX_PLACES:,} times: too often to edit, use a program")
    # The new lines end as most lines of the text do.
    windows = text.count("\r\n")
    line_end = "\r\n" if windows and windows * 2 >= text.count("\n") else "\n"
    put = _unify_line_ends(new).replace("\n", line_end)
    if len(text) + len(places) * (len(put) - len(wanted)) > _MAX_EDITED:
        raise ToolError(f"{path!r} would have more than {_MAX_EDITED:,} characters: too large to edit, use a program")
    # Where in the plain text a line break was two characters: so many more stand before it in the file.
    breaks = [match.start() - at for at, match in enumerate(re.finditer("\r\n", text))]
    pieces: list[str] = []
    end = 0
    for place in places:
        pieces += (text[end : place + bisect_left(breaks, place)], put)
        end = place + len(wanted) + bisect_left(breaks, place + len(wanted))
    return "".join((*pieces, text[end:])), _lines_at(plain, places)


def _find(text: str, wanted: str, *, step: int) -> Iterator[int]:
    """Where a text is in another, each place at least `step` after the one before it."""
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + step)


def _lines_at(text: str, places: Sequence[int]) -> list[int]:
    """The numbers of the lines in which places are; the places are in order."""
    found: list[int] = []
    line, before = 1, 0
    for place in places:
        line += text.count("\n", before, place)
        before = place
        found.append(line)
    return found


def _unify_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n")


def _numbers(lines: list[int]) -> str:
    more = len(lines) - _PLACES_SHOWN
    return ", ".join(map(str, lines[:_PLACES_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _explain_missing(text: str, old: str) -> str:
    """What is nearest to the text that was not found."""
    lines = text.split("\n")[:_MAX_LINES_COMPARED]
    height = old.strip("\n").count("\n") + 1

    def block(at: int) -> str:
        return "\n".join(lines[at : at + height])

    # 1. Where it is if white space is ignored but for its being there.
    words = [(word, at) for at, line in enumerate(lines) for word in line.split()]
    spaced, wanted = " ".join(word for word, _ in words), " ".join(old.split())
    place = f" {spaced} ".find(f" {wanted} ") if wanted else -1
    if place >= 0:
        at = words[spaced.count(" ", 0, place)][1]
        return f"Line {at + 1} has it with different whitespace or line breaks; it reads:\n{block(at)}"

    # 2. The most similar block: only the few that share the most words are compared character by character.
    names = set(_WORD.findall(old))
    sums = [0, *accumulate(len(names.intersection(_WORD.findall(line))) for line in lines)]
    starts = range(max(len(lines) - height + 1, 1))
    promising = nlargest(_MAX_BLOCKS_COMPARED, starts, key=lambda at: sums[min(at + height, len(lines))] - sums[at])
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(old[:_MAX_LENGTH_COMPARED])
    score, best = 0.0, 0
    for at in sorted(promising):
        matcher.set_seq1(block(at)[:_MAX_LENGTH_COMPARED])
        if (ratio := matcher.ratio()) > score:
            score, best = ratio, at
    if score < _MIN_LIKENESS:
        return "Nothing in the file is similar: read the file again."
    return f"Line {best + 1} is the most similar; it reads:\n{block(best)}"
