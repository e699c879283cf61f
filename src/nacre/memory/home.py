"""The agent's own folder: `home` in its store, with its persona, memory, skills and tools, apart from any project.

Version 0.1.0 kept these files in the workspace. They are brought here once, at the first start: moved from the
store's own workspace, copied from one that was configured. `.moved` says that this is done; before it is there,
every start goes through the same steps, each of which may have been done already.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from filecmp import cmp
from pathlib import Path

from nacre.errors import ConfigError

_PERSONA, _MEMORY_PAGE, _TOOLS = "PERSONA.md", "MEMORY.md", "tools"
_OURS = (_PERSONA, _MEMORY_PAGE, "memory", "skills", _TOOLS)
_COPIED = tuple(name for name in _OURS if name != _TOOLS)
_DONE, _PART = ".moved", ".part"


def home_of(store: str) -> Path:
    """Where the agent with a store keeps its own files."""
    return Path(store) / "home"


def open_home(store: str, *, configured: str = "") -> tuple[Path, list[str]]:
    """The agent's own folder, made and filled if that was not done yet; and what to report to a person.

    `configured` is the workspace that is configured, if any. Raises ConfigError.
    """
    home = home_of(store)
    notes: list[str] = []
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (home / _DONE).exists():
            return home.resolve(), []
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / _DONE).exists():
                notes = _fill(home, Path(store), Path(configured).expanduser() if configured else None)
                (home / _DONE).touch(mode=0o600)
                os.fsync(lock)
        finally:
            os.close(lock)
    except OSError as error:
        raise ConfigError(f"the agent's folder {home} cannot be created: {error}; is the store writable?") from error
    return home.resolve(), notes


def _fill(home: Path, store: Path, configured: Path | None) -> list[str]:
    """Bring what is ours from the workspaces of an earlier version."""
    notes: list[str] = []
    # 1. From the configured workspace, which was the one in use: copied, since it may be a project.
    #    An earlier version made all five names; where one is missing, it never worked there.
    if configured is not None and (store / "sessions").is_dir() and all((configured / name).exists() for name in _OURS):
        copied = [name for name in _COPIED if _copy(configured / name, home / name)]
        if copied:
            notes.append(f"the agent's own files were copied from {configured} to {home}: {', '.join(copied)}")
        if any((configured / _TOOLS).glob("*.py")):
            # They may be a project's, and tools run as part of this program.
            tools = f"{configured / _TOOLS}/*.py"
            notes.append(f"{tools} are no longer loaded; copy those that are yours to {home / _TOOLS}")
    # 2. From the store's own workspace: moved.
    old = store / "workspace"
    present = [name for name in _OURS if os.path.lexists(old / name)]
    kept = [left for name in present for left in _move(old / name, home / name)]
    if present:
        notes.append(f"the agent's own files are now in {home}, no longer in {old}")
    if kept:
        names = ", ".join(str(path) for path in kept)
        notes.append(f"not moved, because {home} has files of the same name: {names}")
    return notes


def _move(source: Path, target: Path) -> list[Path]:
    """Move a file or folder without replacing anything; gives what had to stay."""
    if not os.path.lexists(target):
        try:
            source.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(source, target)
            _remove(source)
        return []
    if source.is_dir() and not source.is_symlink() and target.is_dir():
        left = [path for child in sorted(source.iterdir()) for path in _move(child, target / child.name)]
        with suppress(OSError):
            source.rmdir()
        return left
    if source.is_file() and target.is_file() and (cmp(source, target, shallow=False) or not source.stat().st_size):
        source.unlink()
        return []
    return [source]


def _copy(source: Path, target: Path) -> bool:
    """Copy a file or folder whole, by a rename at the end; False if there is one at the target, or nothing to copy."""
    if os.path.lexists(target) or not (any(source.iterdir()) if source.is_dir() else source.stat().st_size):
        return False
    part = target.with_name(f".{target.name}{_PART}")
    _remove(part)
    if source.is_dir():
        shutil.copytree(source, part, symlinks=True)
    else:
        shutil.copy2(source, part)
    part.rename(target)
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
