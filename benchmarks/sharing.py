"""What sessions share: a fork's past, and a payload that many turns, compactions and forks have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros
from benchmarks.scene import LONG, Scene, fill, words

_SMALL = "bench:small"
_IMAGE = 5_000_000
_TURNS, _COMPACTIONS, _FORKS = 1_000, 10, 10


def forks(scene: Scene) -> Iterator[Row]:
    """A fork of a large session against a fork of a small one, and the data that it adds."""
    store = scene.giant
    numbers = count()
    with nacre.open(store) as sessions, measure.awake():
        fill(sessions, _SMALL, 2**20 // 4_096, text=words(4_096))
        before = _disk(store)
        samples = measure.interleave(
            {key: partial(_fork, sessions, key, numbers) for key in (_SMALL, LONG)},
            rounds=scene.sizes.pairs // 4,
            warm=2,
        )
        made = next(numbers)
        added = (_disk(store) - before) / made
    small, large = measure.p50(samples[_SMALL]), measure.p50(samples[LONG])
    absolute = f"{micros(small)}, {micros(large)}"
    yield at_most(
        f"fork of a session of {scene.sizes.giant >> 20} MB against of 1 MB", large / small, 2, absolute=absolute
    )
    yield at_most("new data of a fork, kB", added / 1_000, 4, unit=" kB")


def images(scene: Scene) -> Iterator[Row]:
    """The same image in every turn of a session that is compacted and forked again and again."""
    store = scene.room("images")
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * _IMAGE}}]
    with nacre.open(store) as sessions:
        for turn in range(1, _TURNS + 1):
            sessions.add_full_message("k", {"role": "user", "content": parts})
            if turn % (_TURNS // _COMPACTIONS) == 0:
                sessions.truncate_history("k", 1)
                sessions.save("k")
                sessions.fork("k", f"fork:{turn}")
    what = (
        f"a {_IMAGE // 1_000_000} MB image in {_TURNS:,} turns, {_COMPACTIONS} compactions, {_FORKS} forks, MB on disk"
    )
    yield at_most(what, _disk(store) / 1_000_000, 6, unit=" MB")


def _fork(sessions: nacre.Sessions, key: str, numbers: Iterator[int]) -> None:
    sessions.fork(key, f"fork:{next(numbers)}")


def _disk(store: Path) -> int:
    """Bytes of a store's files, each counted once however many names it has."""
    files = {found.st_ino: found for path in store.rglob("*") if path.is_file() and (found := path.stat())}
    return sum(found.st_size for found in files.values())
