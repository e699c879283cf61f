"""A folder with many sessions: what a list and a search in a new process cost after another process has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from msgspec.structs import replace

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros
from benchmarks.scene import Scene, progress, words
from nacre.storage.format import seal, unseal
from nacre.storage.paths import stem

_SHOWN = 50
_APPENDED = 10
_COMMAND = "import sys; from nacre.cli import main; sys.exit(main())"
_CHANGE = """
import random, sys, nacre
store, word, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(word)
with nacre.open(store) as sessions:
    for number in chance.sample(range(total), 10):
        sessions.add_message(f"bench:{number}", "user", f"the word is {word}")
    sessions.add_message(f"bench:new:{word}", "user", f"the word is {word}")
    sessions.delete(f"bench:extra:{word}")
"""
_LIBRARY = """
import sys, time, nacre
sessions = nacre.open(sys.argv[1])
began = time.perf_counter()
page = sessions.page(limit=50)
took = time.perf_counter() - began
assert sum("bench:" in info.key for info in page.items) == 50
print(took)
"""


def many(scene: Scene) -> Iterator[Row]:
    """A list of 50 and a search, with many sessions against a hundredth of them."""
    large = scene.sizes.folder
    small = large // 100
    stores = {size: _Store(scene, size) for size in (small, large)}
    asked: dict[str, Callable[[_Store], float]] = {
        f"list of {_SHOWN}, nacre sessions list": _Store.list_by_command,
        f"list of {_SHOWN}, the library's page": _Store.page,
        "search, nacre sessions search": _Store.search_by_command,
    }
    for what, ask in asked.items():
        samples: dict[int, list[float]] = {size: [] for size in stores}
        for turn in range(scene.sizes.runs * 2 + 1):
            for size, store in sorted(stores.items(), reverse=bool(turn % 2)):
                store.change()
                took = ask(store)
                if turn:
                    samples[size].append(took)
        yield at_most(
            f"{what} in a new process, {large:,} sessions against {small:,}, after another process wrote to "
            f"{_APPENDED}, made one and deleted one",
            measure.p50(samples[large]) / measure.p50(samples[small]),
            3,
            absolute=f"{micros(measure.p50(samples[small]))}, {micros(measure.p50(samples[large]))}",
        )


class _Store:
    """A store with many small sessions and an index that knows them."""

    def __init__(self, scene: Scene, size: int) -> None:
        self._root = scene.room(f"folder-{size}")
        self._size = size
        self._cache = scene.room(f"folder-cache-{size}")
        self._words = map("zyzzyva{}".format, count())
        self._word = ""
        self._made = 0
        progress(f"making {size:,} sessions")
        _fill(self._root, size)
        progress(f"indexing {size:,} sessions")
        self._run(_COMMAND, "sessions", "search", "--store", str(self._root), "weather")

    def change(self) -> None:
        """Let another process write to some sessions, make one and delete one that was there before."""
        self._word = next(self._words)
        _copy(self._root, [f"bench:extra:{self._word}"])
        self._run(_COMMAND, "sessions", "list", "-n", "1", "--store", str(self._root))
        self._run(_CHANGE, str(self._root), self._word, str(self._size))

    def list_by_command(self) -> float:
        began = measure.now()
        out = self._run(_COMMAND, "sessions", "list", "-n", str(_SHOWN), "--json", "--store", str(self._root))
        took = measure.now() - began
        document = json.loads(out)
        newest = [item["key"] for item in document["items"]]
        is_right = f"bench:new:{self._word}" in newest[: _APPENDED + 1] and f"bench:extra:{self._word}" not in newest
        self._made += 1
        if not is_right or document["total"] != self._size + self._made:
            raise RuntimeError(f"the list is wrong: {newest[:12]}, {document['total']}")
        return took

    def page(self) -> float:
        return float(self._run(_LIBRARY, str(self._root)))

    def search_by_command(self) -> float:
        began = measure.now()
        out = self._run(_COMMAND, "sessions", "search", self._word, "--json", "--store", str(self._root))
        took = measure.now() - began
        if json.loads(out)["count"] != _APPENDED + 1:
            raise RuntimeError(f"the search is wrong: {out[:500]}")
        return took

    def _run(self, program: str, *words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NACRE")}
        clean["XDG_CACHE_HOME"] = str(self._cache)
        command = [sys.executable, "-c", program, *words]
        done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{words} failed: {done.stderr}")
        return done.stdout


def _fill(root: Path, size: int) -> None:
    with nacre.open(root) as sessions:
        sessions.add_messages("bench:0", [nacre.Message(role="user", content=words(200))] * 2)
        sessions.set_meta("bench:0", title="A talk about the weather")
    _copy(root, map("bench:{}".format, range(1, size)))


def _copy(root: Path, keys: Iterator[str] | list[str]) -> None:
    """Make sessions like the first one, under other keys: many times as quick as writing them one by one."""
    folder = root / "sessions"
    first, rest = (folder / f"{stem('bench:0')}.jsonl").read_bytes().split(b"\n", 1)
    header = unseal(first)
    if header is None:
        raise RuntimeError("the first session has no header")
    for key in keys:
        line = seal(replace(header, sid=key, uid=os.urandom(16).hex()))
        fd = os.open(f"{folder}/{stem(key)}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, line + rest)
        os.close(fd)
