"""Which folders the user trusts, and what of them was accepted: kept in the user's state directory."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from nacre.errors import ConfigError
from nacre.user_files import locked, state_folder, write_whole

_FILE = "trust.json"
_SCHEMA = 1
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - places where everybody may write


def find_root(path: Path) -> Path:
    """The folder that trust is asked for: the git root of a real path, else the path itself.

    It is found by looking for `.git`, since git runs programs that a repository names. A home directory, a
    temporary directory or another user's folder above the path is not taken for its root.
    """
    for place in (path, *path.parents):
        if place != path and why_broad(place):
            break
        if os.path.lexists(place / ".git"):
            return place
    return path


def why_broad(place: Path) -> str:
    """Why a folder is trusted only when it is named: it holds everything, or others can write it; "" if not so."""
    if place == Path("/"):
        return "it is the root of the file system"
    if place == Path(os.path.realpath(Path.home())):
        return "it is your home directory"
    if str(place) in {os.path.realpath(name) for name in (*_TEMPORARY, tempfile.gettempdir())}:
        return "it is a directory for temporary files"
    try:
        status = place.stat()
    except OSError as error:
        return f"it cannot be examined ({error.strerror})"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "everybody can write to it" if status.st_mode & stat.S_IWOTH else ""


class Entry(Struct, frozen=True, kw_only=True):
    """A trusted folder: since when, and the digest of each file or skill that was accepted, by its path."""

    since: str
    accepted: dict[str, str] = {}


class _Document(Struct, frozen=True, kw_only=True):
    schema_version: int = _SCHEMA
    folders: dict[str, Entry] = {}


class TrustStore:
    """The trusted folders of a user; every change is one atomic replacement of `trust.json`.

    A folder is covered by its own entry or by that of a folder above. A repository needs its own, and
    so does every folder that is trusted only by name (`why_broad`).
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(state_folder())

    @property
    def file(self) -> Path:
        return self._folder / _FILE

    def entries(self) -> dict[str, Entry]:
        """Every trusted folder by its path; raises ConfigError if the file cannot be read."""
        return self._read().folders

    def covering(self, root: Path) -> tuple[Path, Entry] | None:
        """The entry that covers a folder, and the path it was made for; None if the folder is not trusted."""
        entries = self.entries()
        for place in (root, *root.parents):
            entry = entries.get(str(place))
            if entry is not None:
                return place, entry
            if os.path.lexists(place / ".git") or why_broad(place):
                return None
        return None

    def accept(self, place: Path, digests: Mapping[str, str]) -> None:
        """Trust a folder, and accept these contents of it besides those that were accepted before."""
        with self._changing() as folders:
            before = folders.get(str(place))
            since = datetime.now(UTC).isoformat(timespec="seconds") if before is None else before.since
            known = {} if before is None else before.accepted
            folders[str(place)] = Entry(since=since, accepted={**known, **digests})

    def revoke(self, place: Path) -> bool:
        """Trust a folder no longer; False if it was not trusted by its own name."""
        with self._changing() as folders:
            return folders.pop(str(place), None) is not None

    def _read(self) -> _Document:
        try:
            document = msgspec.json.decode(self.file.read_bytes(), type=_Document)
        except FileNotFoundError:
            return _Document()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{self.file} cannot be read: {error}; fix it, or remove it and trust again") from error
        if document.schema_version > _SCHEMA:
            version = document.schema_version
            raise ConfigError(f"{self.file} was written by a newer nacre (schema_version {version}): upgrade nacre")
        return document

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Entry]]:
        """The entries, to be changed by one process at a time, and written when the block ends."""
        try:
            with locked(self._folder):
                folders = dict(self._read().folders)
                before = dict(folders)
                yield folders
                if folders != before:
                    write_whole(self.file, msgspec.json.encode(_Document(folders=folders)))
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be written: {error}; is XDG_STATE_HOME right?") from error


class Notices:
    """Notices that a person got once and need not get again; where that cannot be kept, they get them again."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = (folder or Path(state_folder())) / "notices.json"

    def is_new(self, text: str) -> bool:
        """Tell whether this was never said before, and remember it."""
        try:
            said = msgspec.json.decode(self._file.read_bytes(), type=list[str])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            said = []
        if text in said:
            return False
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._file, msgspec.json.encode([*said, text]))
        return True
