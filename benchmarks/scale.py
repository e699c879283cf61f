"""What must not grow with the session: each operation on a long session against a short one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

import nacre
from benchmarks import measure
from benchmarks.rows import Row, at_most, micros, plain, shown
from benchmarks.scene import LONG, SHORT, Scene, converse, logs, progress, words
from nacre.web.api import queries
from nacre.web.api.schemas import ReadQuery

_REWINDS = 10
_DEAD = 10_000
_LIVE = 5
_LAST = 50
_SUMMARY = "They talked about the weather."


def flat(scene: Scene) -> Iterator[Row]:
    """Writes and the count on an open handle."""
    store = scene.copy(scene.long, "flat")
    with nacre.open(store) as sessions, measure.awake():
        places = {key: _Place(sessions=sessions, key=key, ends=scene.ends[key]) for key in (SHORT, LONG)}
        for what, (operation, share) in _OPERATIONS.items():
            samples = measure.interleave(
                {key: partial(operation, place) for key, place in places.items()},
                rounds=scene.sizes.pairs // share,
                warm=1,
                before=lambda key: places[key].restore(),
            )
            yield _row(scene, what, samples, bar=1.5)


def cold(scene: Scene) -> Iterator[Row]:
    """The last messages, and the first append of a process that has just opened the store."""
    store = scene.copy(scene.long, "cold")
    with measure.awake():
        with nacre.open(store) as sessions:
            warm = measure.interleave(
                {key: partial(_read_last, sessions, key) for key in (SHORT, LONG)},
                rounds=scene.sizes.pairs,
                warm=5,
            )
            noted = measure.interleave(
                {key: partial(_read_last_record, sessions, key) for key in (SHORT, LONG)},
                rounds=scene.sizes.pairs,
                warm=5,
            )
        yield _row(scene, f"last {_LAST}, open handle", warm, bar=2)
        yield _row(scene, "last record of a kind, open handle", noted, bar=1.5)
        yield _row(scene, f"last {_LAST}, cold handle", _fresh(scene, store, _read_last), bar=2)
        yield _row(scene, "append, cold handle", _fresh(scene, store, _say), bar=2)


def rewinds(scene: Scene) -> Iterator[Row]:
    """The last messages where they lie in pieces, far apart, against where they are adjacent."""
    torn = scene.copy(scene.long, "rewinds")
    with nacre.open(torn) as sessions:
        _tear(sessions)
    with nacre.open(scene.long) as whole, nacre.open(torn) as pieces, measure.awake():
        samples = measure.interleave(
            {
                "whole": partial(_read_last, whole, LONG),
                "pieces": partial(_read_last, pieces, LONG),
            },
            rounds=scene.sizes.pairs,
            warm=5,
        )
    yield at_most(
        f"last {_LAST} across {_REWINDS} rewinds at {scene.sizes.long:,} messages against without",
        measure.p50(samples["pieces"]) / measure.p50(samples["whole"]),
        4,
        absolute=f"{micros(measure.p50(samples['whole']))}, {micros(measure.p50(samples['pieces']))}",
    )


def whole_pages(scene: Scene) -> Iterator[Row]:
    """A page of all that was ever said, as the HTTP API gives it: the newest one, and one in the middle."""
    sizes = {SHORT: scene.sizes.short, LONG: scene.sizes.paged}
    with nacre.open(scene.room("whole pages"), durability="relaxed") as sessions:
        for key, size in sizes.items():
            progress(f"building a session of {size:,} messages")
            converse(sessions, key, size)
        newest = {key: ReadQuery(scope="whole", limit=_LAST) for key in sizes}
        middle = {key: _before_middle(sessions, key, size) for key, size in sizes.items()}
        (new_short, new_long), (mid_short, mid_long) = (
            _time_pages(scene, sessions, wanted) for wanted in (newest, middle)
        )
    what = f"page of {_LAST} of the whole session, at {sizes[LONG]:,} messages against {sizes[SHORT]:,}"
    yield at_most(what, new_long / new_short, 2, absolute=f"{micros(new_short)}, {micros(new_long)}")
    absolute = f"{micros(mid_short)}, {micros(mid_long)}"
    yield plain(f"{what}: one from the middle", shown(mid_long / mid_short), absolute=absolute)


def record_bytes(scene: Scene) -> Iterator[Row]:
    """Bytes of a record beyond its message, where record numbers are long."""
    store = scene.copy(scene.long, "bytes")
    text = words(200)
    sizes: dict[str, int] = {}
    with nacre.open(store) as sessions:
        log = _longest(store)
        sessions.add_message(LONG, "user", text)
        sizes["by itself"] = _beyond(log)
        sessions.set_summary(LONG, "They talked.")
        sessions.set_meta(LONG, title="A talk")
        sessions.add_message(LONG, "user", text)
        sizes["with a summary and a title"] = _beyond(log)
        plain_record = max(sizes.values())
        waiting = [sessions.submit(LONG, [nacre.Message(role="user", content=text)]) for _ in range(64)]
        for stored in waiting:
            stored.result()
        sizes["the same in a shared batch"] = _beyond(log)
        sessions.add_messages(LONG, [nacre.Message(role="user", content=text)] * 2)
        sizes["the same in a group of two"] = _beyond(log)
    yield at_most(
        f"bytes of a record beyond its message, worst plain record at {scene.sizes.long:,} messages",
        plain_record,
        160,
        unit="",
        absolute="; ".join(f"{what} {size}" for what, size in sizes.items()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """One session, and the numbers at which its groups end."""

    sessions: nacre.Sessions
    key: str
    ends: list[int]

    @property
    def middle(self) -> int:
        return self.ends[len(self.ends) // 2]

    def restore(self) -> None:
        """The history as it was built, whatever was done to it since."""
        self.sessions.rewind(self.key, self.ends[-1])


def _before_middle(sessions: nacre.Sessions, key: str, size: int) -> ReadQuery:
    """A query for the page before the message in the middle."""
    (last,) = queries.read(sessions, key, ReadQuery(scope="whole", limit=1)).items
    return ReadQuery(scope="whole", limit=_LAST, cursor=f"{last.generation}/{last.n - size // 2}")


def _time_pages(scene: Scene, sessions: nacre.Sessions, wanted: dict[str, ReadQuery]) -> tuple[float, float]:
    """The median time of a page of the short session, and of one of the long."""
    actions = {key: partial(_read_page, sessions, key, query) for key, query in wanted.items()}
    samples = measure.interleave(actions, rounds=scene.sizes.pairs // 10, warm=1)
    return measure.p50(samples[SHORT]), measure.p50(samples[LONG])


def _read_page(sessions: nacre.Sessions, key: str, query: ReadQuery) -> None:
    page = queries.read(sessions, key, query)
    if page.count != _LAST:
        raise RuntimeError(f"a page of {key!r} has {page.count} messages, not {_LAST}")


def _append(place: _Place) -> None:
    _say(place.sessions, place.key)


def _truncate(place: _Place) -> None:
    place.sessions.truncate_history(place.key, 500)


def _rewind_near(place: _Place) -> None:
    place.sessions.rewind(place.key, place.ends[-2])


def _rewind_far(place: _Place) -> None:
    place.sessions.rewind(place.key, place.middle)


def _summarise(place: _Place) -> None:
    place.sessions.set_summary(place.key, _SUMMARY)


def _summarise_most(place: _Place) -> None:
    place.sessions.set_summary(place.key, _SUMMARY, upto=place.ends[-1] - _LAST)


def _summarise_half(place: _Place) -> None:
    place.sessions.set_summary(place.key, _SUMMARY, upto=place.middle)


def _count(place: _Place) -> None:
    found = next(iter(place.sessions.list(prefix=place.key)))
    if found.messages < 1:
        raise RuntimeError(f"{place.key!r} is listed with {found.messages} messages")


# Each with the share of the samples it gets: what may walk half a session gets few.
_OPERATIONS: dict[str, tuple[Callable[[_Place], None], int]] = {
    "append": (_append, 1),
    "truncate": (_truncate, 1),
    "rewind to the last group": (_rewind_near, 1),
    "rewind to the middle": (_rewind_far, 1),
    "summary": (_summarise, 1),
    f"summary upto all but the last {_LAST}": (_summarise_most, 1),
    "summary upto the middle": (_summarise_half, 20),
    "count (list of one key)": (_count, 1),
}


def _read_last(sessions: nacre.Sessions, key: str) -> None:
    found = len(sessions.get_history(key, last=_LAST))
    if found != _LAST:
        raise RuntimeError(f"read {found} messages of {key!r}, not {_LAST}")


def _read_last_record(sessions: nacre.Sessions, key: str) -> None:
    found = [entry.kind for entry in sessions.records(key, "msg", last=1)]
    if found != ["msg"]:
        raise RuntimeError(f"read {found} of {key!r}, not its last message")


def _say(sessions: nacre.Sessions, key: str) -> None:
    sessions.add_message(key, "user", words(200))


def _fresh(scene: Scene, store: Path, action: Callable[[nacre.Sessions, str], None]) -> dict[str, list[float]]:
    """Time an action on a store that was opened just before; opening and closing are not timed."""
    opened = [nacre.open(store)]

    def reopen(_: str) -> None:
        opened.pop().close()
        opened.append(nacre.open(store))

    def act(key: str) -> None:
        action(opened[0], key)

    samples = measure.interleave(
        {key: partial(act, key) for key in (SHORT, LONG)},
        rounds=scene.sizes.pairs,
        warm=5,
        before=reopen,
    )
    opened.pop().close()
    return samples


def _tear(sessions: nacre.Sessions) -> None:
    """Leave the last messages in pieces: a few live ones, many dead ones, again and again."""
    live = [nacre.Message(role="user", content=words(200))] * _LIVE
    dead = [nacre.Message(role="user", content=words(200))] * (_DEAD // 10)
    for _ in range(_REWINDS):
        last = sessions.add_messages(LONG, live)
        for _ in range(10):
            sessions.add_messages(LONG, dead)
        sessions.rewind(LONG, last)


def _row(scene: Scene, what: str, samples: dict[str, list[float]], *, bar: float) -> Row:
    short, long = measure.p50(samples[SHORT]), measure.p50(samples[LONG])
    return at_most(
        f"{what}, at {scene.sizes.long:,} messages against {scene.sizes.short:,}",
        long / short,
        bar,
        absolute=f"{micros(short)}, {micros(long)}",
    )


class _Line(msgspec.Struct):
    m: msgspec.Raw


def _beyond(log: Path) -> int:
    """Bytes of the last line, its newline included, that are not its message."""
    with log.open("rb") as file:
        file.seek(-4_096, 2)
        line = file.read().splitlines(keepends=True)[-1]
    return len(line) - len(bytes(msgspec.json.decode(line, type=_Line).m))


def _longest(store: Path) -> Path:
    return max(logs(store), key=lambda log: log.stat().st_size)
