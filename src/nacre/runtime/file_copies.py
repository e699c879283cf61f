"""Copies of files before the agent changes them: kept with the session, for `/diff` and `/undo --files`.

A copy is a record of its own kind (`x.file`), which history does not read: the model never sees it. A large one is
stored as a blob, and all are erased with the session. Writes of a delegated task are kept with the session that a
person is in, so that its turn can be undone as a whole.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable

import msgspec
from msgspec import Struct

from nacre.agent.ports import Change
from nacre.errors import ToolError
from nacre.history.replies import turn_starts
from nacre.sessions import Sessions
from nacre.tools.files.file_writer import MAX_COPY
from nacre.tools.files.workspace import Workspace

KIND = "x.file"
_RECENT = 256


class Copy(Struct, frozen=True, kw_only=True):
    """A file before a write.

    `turn` is the number of the message that began the turn, `root` the folder and `path` where in it the file is.
    `before` is its content (None: there was no file), as text or in Base64; `after` the SHA-256 of what was written.
    """

    turn: int
    root: str
    path: str
    before: str | None = None
    is_base64: bool = False
    is_too_large: bool = False
    after: str = ""

    @property
    def content(self) -> bytes | None:
        if self.before is None:
            return None
        return base64.b64decode(self.before) if self.is_base64 else self.before.encode()


class FileHistory:
    """What turns did to the files of a workspace, and how to take it back."""

    def __init__(self, sessions: Sessions, outermost: Callable[[str], str]) -> None:
        self._sessions, self._outermost = sessions, outermost
        self.workspace: Workspace | None = None

    def keep(self, key: str, path: str, before: bytes | None, after: bytes) -> None:
        """Keep a copy of a file, durably, before it is written."""
        if self.workspace is None:
            return
        session, root = self._outermost(key), self.workspace.root
        is_too_large, is_base64, text = before is not None and len(before) > MAX_COPY, False, None
        if before is not None and not is_too_large:
            # As text if JSON keeps it as it is.
            try:
                text = before.decode()
            except UnicodeDecodeError:
                text, is_base64 = base64.b64encode(before).decode(), True
        copy = Copy(
            turn=self._turn(session),
            root=root,
            path=os.path.relpath(os.path.realpath(os.path.join(root, path)), root),  # noqa: PTH118 - as a link leads
            before=text,
            is_base64=is_base64,
            is_too_large=is_too_large,
            after=_digest(after),
        )
        self._sessions.append(session, KIND, msgspec.to_builtins(copy))

    def changes(self, key: str, turn: int) -> list[Change]:
        """The files that a turn changed, as they were before it and as they are now."""
        found = []
        for first, _ in self._copies(key, turn):
            if first.is_too_large:
                found.append(Change(path=first.path, before="", after="(too large to keep a copy; it was written)\n"))
                continue
            try:
                now = self._content(first.path)[0]
            except ToolError as error:
                found.append(Change(path=first.path, before=_as_text(first.content), after=f"({error})\n"))
                continue
            if now != first.content:
                found.append(Change(path=first.path, before=_as_text(first.content), after=_as_text(now)))
        return found

    def restore(self, key: str, turn: int) -> list[str]:
        """Restore the files that a turn changed; returns a line about each.

        A file that was changed by somebody else since is left as it is.
        """
        return [self._restore(first, last) for first, last in self._copies(key, turn)]

    def _restore(self, first: Copy, last: Copy) -> str:
        path, workspace = first.path, self.workspace
        if first.is_too_large:
            return f"{path}: not changed, it was too large to copy"
        try:
            now, status = self._content(path)
            if now == first.content:
                return f"{path}: already as it was"
            if workspace is None or now is None or status is None or _digest(now) != last.after:
                return f"{path}: not changed, it was changed after this turn"
            if first.content is None:
                workspace.remove(path, expected=status)
                return f"{path}: removed, it was new"
            workspace.replace(path, first.content, expected=status)
        except ToolError as error:
            return f"{path}: not changed, {error}"
        return f"{path}: restored"

    def _copies(self, key: str, turn: int) -> list[tuple[Copy, Copy]]:
        """The first and the last copy of each file of a turn, in this folder."""
        found: dict[str, tuple[Copy, Copy]] = {}
        root = self.workspace.root if self.workspace is not None else ""
        for entry in self._sessions.records(self._outermost(key), KIND, after=turn):
            copy = msgspec.convert(entry.data, Copy)
            if copy.turn == turn and copy.root == root:
                found[copy.path] = (found.get(copy.path, (copy, copy))[0], copy)
        return list(found.values())

    def _content(self, path: str) -> tuple[bytes | None, os.stat_result | None]:
        if self.workspace is None:
            return None, None
        try:
            fd = self.workspace.read(path)
        except ToolError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None, None
            raise
        with os.fdopen(fd, "rb") as file:
            return file.read(), os.fstat(file.fileno())

    def _turn(self, key: str) -> int:
        """The number of the message that began the turn that runs."""
        for last in (_RECENT, None):
            now = self._sessions.snapshot(key, last=last)
            starts = turn_starts(message.role for message in now.messages)
            if starts:
                return now.numbers[starts[-1]]
        return 0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _as_text(data: bytes | None) -> str | None:
    if data is None:
        return None
    return "[not text]" if b"\0" in data else data.decode("utf-8", "replace")
