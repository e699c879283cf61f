"""Write a text in the user's own editor."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from nacre.errors import NacreError

_USUAL = ("editor", "nano", "vi")


def edit(text: str) -> str:
    """Let the user change a text in their editor; blocks until they close it. Raises NacreError."""
    handle, name = tempfile.mkstemp(prefix="nacre-", suffix=".md")
    file = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as draft:
            draft.write(text)
        run_editor(name)
        return file.read_text("utf-8", "replace").rstrip("\n")
    finally:
        file.unlink(missing_ok=True)


def find_editor() -> str:
    """The user's editor: $VISUAL, $EDITOR, or a usual one that is installed; raises NacreError if there is none."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or next(filter(shutil.which, _USUAL), "")
    if not chosen:
        raise NacreError("no editor found: set EDITOR, for example to nano")
    return chosen


def run_editor(path: str) -> None:
    """Open a file in the user's editor, and wait until it is closed; raises NacreError."""
    chosen = find_editor()
    try:
        code = subprocess.run([*shlex.split(chosen), path], check=False).returncode  # noqa: S603 - the user set it
    except (OSError, ValueError) as error:
        raise NacreError(f"the editor {chosen!r} cannot be started: {error}; set EDITOR") from error
    if code:
        raise NacreError(f"the editor {chosen!r} ended with exit code {code}")
