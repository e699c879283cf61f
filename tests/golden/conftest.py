"""Golden files: what nacre prints and serves, compared with what it printed and served before."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

FILES = Path(__file__).parent / "files"
STORE = FILES / "store"
NAME = "/golden/room/of/a/test"
"""What golden files call the folder of a test; it is as long as the folder's own name, since tables depend on that."""
_VARIABLES = ("ANTHROPIC_", "CLICOLOR", "COLORTERM", "FORCE_COLOR", "NACRE_", "OLLAMA_", "OPENAI_", "PYTHONUNBUFFERED")


class Golden:
    """The golden files; `--write-golden` writes them anew instead of comparing."""

    def __init__(self, *, is_writing: bool) -> None:
        self.is_writing = is_writing

    def check(self, name: str, found: str | bytes) -> None:
        """Fail, with a diff, if a file of this name does not hold exactly this."""
        path, data = FILES / name, found.encode() if isinstance(found, str) else found
        if self.is_writing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return
        before = path.read_bytes() if path.exists() else None
        if before == data:
            return
        if before is None:
            told = "there is no such file"
        else:
            lines = _readable(before), _readable(data)
            told = "\n".join(difflib.unified_diff(*lines, "golden", "now", lineterm="", n=2))
        pytest.fail(
            f"{name} is not what it was:\n{told or 'only blanks and escapes differ'}\n"
            "If this is meant: pytest tests/golden --write-golden",
            pytrace=False,
        )

    def check_names(self, folder: str, names: Iterable[str]) -> None:
        """Fail if a folder has files that no test compares; `--write-golden` removes them."""
        wanted, there = set(names), {path.name for path in (FILES / folder).iterdir()}
        if self.is_writing:
            for name in there - wanted:
                (FILES / folder / name).unlink()
        else:
            assert sorted(there) == sorted(wanted)


def _readable(data: bytes) -> list[str]:
    """A text in lines that one can compare: JSON is indented, HTML is broken between its tags."""
    lines: list[str] = []
    for line in data.decode(errors="backslashreplace").splitlines():
        try:
            lines += json.dumps(json.loads(line), indent=1, ensure_ascii=False).splitlines()
        except ValueError:
            lines += line.replace("><", ">\n<").splitlines() or [""]
    return lines


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The golden files; the store comes first if they are written anew, since all others tell of it."""
    found = Golden(is_writing=bool(request.config.getoption("--write-golden")))
    if found.is_writing:
        shutil.rmtree(STORE, ignore_errors=True)
        for name, data in make_store(tmp_path_factory.mktemp("golden") / "store").items():
            found.check(f"store/{name}", data)
    return found


def make_store(root: Path) -> dict[str, bytes]:
    """Make the store of these tests; gives its files."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(root.parent)}
    command = [sys.executable, str(FILES.with_name("make_store.py")), str(root)]
    subprocess.run(command, env=variables, check=True, capture_output=True, timeout=60)
    return files_of(root)


def files_of(root: Path) -> dict[str, bytes]:
    """Every file of a store but locks, and marks, which only help others to look less."""
    found = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".lock" and path.name != "marks")
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


class Room:
    """A home directory with the golden store in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("home", "cache", "config/nacre", "data", "state", "work"):
            (path / name).mkdir(parents=True)
        self.config("")
        self.store = shutil.copytree(STORE, path / "store")
        for file in (self.store, *self.store.rglob("*")):
            # What git checks out may be read by others, and nacre would say so.
            file.chmod(0o700 if file.is_dir() else 0o600)
        self._link_equal_files()

    def _link_equal_files(self) -> None:
        """Make the hard links that git does not keep: of a payload, and of the log that a fork came from."""
        seen: dict[bytes, Path] = {}
        for file in sorted(path for path in self.store.rglob("*") if path.is_file()):
            first = seen.setdefault(file.read_bytes(), file)
            if first is not file:
                file.unlink()
                file.hardlink_to(first)

    def config(self, text: str) -> None:
        """Write the configuration: no model can be reached, and none is looked for in this environment."""
        places = '[agent]\nprovider = "ollama"\nmodel = "gemma4:e4b"\n[sandbox]\nkind = "off"\n'
        (self.path / "config/nacre/config.toml").write_text(
            f'{places}[memory]\nembeddings = "off"\n[search]\nembeddings = "off"\n{text}'
        )

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a process that runs here; the zone of its clock is UTC."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(_VARIABLES)}
        for name in ("COLUMNS", "EDITOR", "LINES", "NO_COLOR", "NOTIFY_SOCKET", "PAGER", "VISUAL"):
            kept.pop(name, None)
        places = {f"XDG_{name.upper()}_HOME": str(self.path / name) for name in ("cache", "config", "data", "state")}
        ours = {"HOME": str(self.path / "home"), "NACRE_HOME": str(self.store), "OLLAMA_HOST": "127.0.0.1:9"}
        return {**kept, **places, **ours, "COLUMNS": "100", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def without_path(self, text: str) -> str:
        """A text with this place's name made the same for every run."""
        return text.replace(str(self.path), NAME)


@pytest.fixture(scope="session")
def shared_room(golden: Golden) -> Iterator[Room]:
    """A room that several tests share, which only read."""
    yield from _make_room()


@pytest.fixture
def room(golden: Golden) -> Iterator[Room]:
    """A room for one test."""
    yield from _make_room()


def _make_room() -> Iterator[Room]:
    """A folder whose name has always the same length, in RAM where there is such a place."""
    is_in_ram = os.access("/dev/shm", os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="room-" if is_in_ram else "gold-room", dir="/dev/shm" if is_in_ram else "/tmp"))
    assert len(str(path)) == len(NAME)
    yield Room(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def at_home(room: Room, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    """This process in a room of its own."""
    for name in set(os.environ) - set(room.variables):
        monkeypatch.delenv(name)
    for name, text in room.variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(room.path / "work")
    time.tzset()
    yield room
    monkeypatch.undo()
    time.tzset()
