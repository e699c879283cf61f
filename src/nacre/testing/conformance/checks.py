"""The checks: each is a function that tries the store in a directory, and says what it saw.

A check returns a sentence when the store keeps the promise, and raises `Broken` with a sentence when it does not.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nacre.testing.conformance.process import AppendRefused, Child, Setting, StoreFailed

SESSION = "conformance"
OTHER = "conformance-2"
TEXTS = (
    "hello",
    "several\nlines\r\nand a tab\t",
    'quotes " and \\ and {"json": [1]}',
    "Grüße, 你好, \U0001f41a, \u2028 and \u0085",
    "long " * 20_000,
    "hello",  # a person says the same thing twice, and both are messages
    "last",
)


class Broken(Exception):
    """The store does not keep the promise; the message says what was seen."""


class NotApplicable(Exception):
    """The check cannot be asked of this store; the message says why."""


Check: TypeAlias = Callable[[Setting, Path], str]


class Sent(NamedTuple):
    """A message that was given to the store; `acknowledged` if its append returned."""

    text: str
    acknowledged: bool = True


def reopen(setting: Setting, room: Path) -> str:
    """What was appended is there in another process after a close, as it was written, each session by itself."""
    with Child(setting, room) as child:
        for number, text in enumerate(TEXTS):
            child.append(SESSION, text, f"a{number}")
            child.append(OTHER, f"other {number}", f"b{number}")
        child.close()
    with Child(setting, room) as child:
        _check(child, [Sent(text) for text in TEXTS])
        _check(child, [Sent(f"other {number}") for number in range(len(TEXTS))], session=OTHER)
        child.append(SESSION, "after reopening", "c")
        _check(child, [Sent(text) for text in (*TEXTS, "after reopening")])
        child.close()
    return f"{2 * len(TEXTS)} messages of 2 sessions came back as they were written"


def crash_inside(setting: Setting, room: Path) -> str:
    """The writer is killed at steps inside an append: before and after calls that change files.

    Each time, another session is read and appended to as well: what mends one must not harm the others.
    """
    with Child(setting, room) as child:
        child.ask("watch")
        for number in range(3):
            child.append(SESSION, f"first {number}", f"first-{number}")
            child.append(OTHER, f"other {number}", f"other-{number}")
        # The first append of a process does more than the others: dying in both is tried.
        count: int = child.ask("count", SESSION, "counted", "counted")
        child.close()
    if not count:
        raise NotApplicable("its append makes no call from Python that changes files, so there is no step to die at")
    sent = [*(Sent(f"first {number}") for number in range(3)), Sent("counted")]
    others = [Sent(f"other {number}") for number in range(3)]
    deaths = 0
    for turn, step in enumerate(_spread(count, setting.kills)):
        with Child(setting, room) as child:
            child.ask("watch")
            if turn % 2:
                child.append(SESSION, f"before {turn}", f"before-{turn}")
                sent.append(Sent(f"before {turn}"))
            text = f"torn {turn}"
            returned = child.die_inside(step, SESSION, text, f"torn-{turn}")
            deaths += not returned
            sent.append(Sent(text, acknowledged=returned))
        with Child(setting, room) as child:
            when = f"after a kill at step {step} of {count} inside an append"
            # Whether the unacknowledged one is there is decided now: it must not come or go later.
            sent = _check(child, sent, when)
            _check(child, others, when, session=OTHER)
            child.append(OTHER, f"after {turn}", f"after-{turn}")
            others.append(Sent(f"after {turn}"))
            child.close()
    with Child(setting, room) as child:
        _check(child, others, "after kills inside an append", session=OTHER)
        child.close()
    if not deaths:
        raise NotApplicable("its append ended before any step at which it should have died")
    return f"killed {deaths} times inside an append ({count} steps): everything acknowledged is there, once, in order"


def crash_while_writing(setting: Setting, room: Path) -> str:
    """The writer is killed at any time while it appends as fast as it can; another session has messages too."""
    chance = random.Random(20)  # noqa: S311 - repeatable, not secret
    sent: list[Sent] = []
    others: list[Sent] = []
    acknowledged = 0
    for turn in range(setting.kills):
        with Child(setting, room) as child:
            sent = _check(child, sent, "after a kill while it wrote")
            _check(child, others, "after a kill while it wrote", session=OTHER)
            child.append(OTHER, f"other {turn}", f"other-{turn}")
            others.append(Sent(f"other {turn}"))
            child.begin_flood(SESSION, f"turn {turn}")
            child.next_acknowledged()
            began = time.perf_counter()
            last = 0
            for _ in range(chance.randint(3, 20)):
                last = child.next_acknowledged()
            time.sleep(chance.random() * 2 * (time.perf_counter() - began) / max(last, 1))
            last = max([last, *child.kill()])
        sent += [Sent(f"turn {turn} {number}") for number in range(last + 1)]
        sent.append(Sent(f"turn {turn} {last + 1}", acknowledged=False))
        acknowledged += last + 1
    with Child(setting, room) as child:
        _check(child, sent, "after a kill while it wrote")
        _check(child, others, "after a kill while it wrote", session=OTHER)
        child.close()
    return (
        f"killed {setting.kills} times while it wrote: {acknowledged} acknowledged messages are there, once, in order"
    )


def two_processes(setting: Setting, room: Path) -> str:
    """Two processes have the store open and append to one session: in turns, then both as fast as they can.

    While they take turns, each reads what the other had acknowledged.
    """
    with Child(setting, room) as one, Child(setting, room) as two:
        children = {"one": one, "two": two}
        for child in children.values():
            child.open()
            child.read(SESSION)
        sent = _take_turns(setting, room, children)
        flooded = _flood(children, {writer: f"{writer} at once" for writer in children}, wanted=41)
        for writer in children:
            sent[writer] += flooded[writer]
        refusals = [*one.refusals, *two.refusals]
    with Child(setting, room) as child:
        _check_writers(child, sent)
        child.close()
    for writer, messages in sent.items():
        if not any(message.acknowledged for message in messages):
            raise Broken(f"process {writer} could not append while the other had the store open: {refusals[0]}")
    total = sum(message.acknowledged for messages in sent.values() for message in messages)
    refused = f"; {len(refusals)} refused, the first with {refusals[0]}" if refusals else ""
    return f"{total} acknowledged messages of two processes are there, once, each writer's in order{refused}"


def _take_turns(setting: Setting, room: Path, children: Mapping[str, Child]) -> dict[str, list[Sent]]:
    """Append in turns; what each process was given. An append may be refused, and what is acknowledged is seen."""
    sent: dict[str, list[Sent]] = {writer: [] for writer in children}
    for number in range(10):
        for writer, child in children.items():
            text = f"{writer} in turns {number}"
            try:
                child.append(SESSION, text, text)
                sent[writer].append(Sent(text))
            except AppendRefused:
                sent[writer].append(Sent(text, acknowledged=False))
            # First without reading, because to read may refresh what an append does not; then every time, because a
            # process may see what was there at its first read, and nothing later.
            for reader in children if number >= 5 else ():
                try:
                    _check_writers(children[reader], sent)
                except Broken as error:
                    with Child(setting, room) as third:  # what this does not see either is lost
                        _check_writers(third, sent)
                    raise Broken(
                        f"process {reader} has the store open, and does not read what a new process reads: {error}"
                    ) from error
    return sent


def _check_writers(child: Child, sent: Mapping[str, Sequence[Sent]]) -> None:
    """Raise Broken unless what each process appended is there, in its order; theirs may be mixed."""
    for writer, messages in sent.items():
        _check(child, messages, f"of process {writer}", only=f"{writer} ")


def _flood(children: Mapping[str, Child], labels: Mapping[str, str], *, wanted: int) -> dict[str, list[Sent]]:
    """Let all append at once until so many are acknowledged by each, and kill them; what each was given."""
    earlier = {writer: len(child.refusals) for writer, child in children.items()}
    acknowledged: dict[str, set[int]] = {writer: set() for writer in children}
    for writer, child in children.items():
        child.begin_flood(SESSION, labels[writer], past_refusals=True)
    ended = time.monotonic() + 60
    unfinished = list(children)
    while unfinished and time.monotonic() < ended:
        for writer in list(unfinished):
            child = children[writer]
            try:
                acknowledged[writer].add(child.next_acknowledged())
            except AppendRefused:
                pass  # this ends nothing: a store that refuses some appends may lose others
            except StoreFailed as error:
                child.refusals.append(str(error))
                unfinished.remove(writer)
                continue
            if len(acknowledged[writer]) >= wanted or len(child.refusals) - earlier[writer] >= 1000:
                unfinished.remove(writer)
    given = {}
    for writer, child in children.items():
        acknowledged[writer].update(child.kill())
        answers = len(acknowledged[writer]) + len(child.refusals) - earlier[writer]
        given[writer] = [
            Sent(f"{labels[writer]} {number}", acknowledged=number in acknowledged[writer])
            for number in range(answers + 1)  # it may have begun one more
        ]
    return given


def idempotent_retry(setting: Setting, room: Path) -> str:
    """An append that is tried again with its id is stored once: at once, later, elsewhere, and after a crash.

    Also if two processes try the same ids at the same time.
    """
    with Child(setting, room) as child:
        child.append(SESSION, "paid", "order-1")
        child.append(SESSION, "paid", "order-1")
        _check(child, [Sent("paid")], "after a retry at once")
        child.append(SESSION, "paid", "order-2")
        _check(child, [Sent("paid"), Sent("paid")], "after the same text with another id")
        for number in range(20):
            child.append(SESSION, f"more {number}", f"more-{number}")
        child.append(SESSION, "paid", "order-1")
        child.close()
    sent = [Sent("paid"), Sent("paid"), *(Sent(f"more {number}") for number in range(20))]
    with Child(setting, room) as child:
        child.append(SESSION, "paid", "order-1")
        _check(child, sent, "after a retry in another process")
        child.ask("watch")
        count: int = child.ask("count", SESSION, "counted", "counted")
        child.close()
    sent.append(Sent("counted"))
    steps = _spread(count, max(setting.kills // 2, 2)) if count else []
    for turn, step in enumerate(steps):
        text = f"again {turn}"
        with Child(setting, room) as child:
            child.ask("watch")
            child.die_inside(step, SESSION, text, f"again-{turn}")
        with Child(setting, room) as child:
            child.append(SESSION, text, f"again-{turn}")
            sent.append(Sent(text))
            _check(child, sent, f"after a retry of an append killed at step {step} of {count}")
            child.close()
    kept = f"retries at once, later, in another process and after {len(steps)} kills stored each message once"
    with Child(setting, room) as one, Child(setting, room) as two:
        one.open()
        try:
            two.open()
        except AppendRefused as error:
            return f"{kept}; no two processes can retry at the same time: {error}"
        # The slower one finds its ids known, which is fast, and so catches up with the other again and again.
        given = _flood({"one": one, "two": two}, {"one": "same", "two": "same"}, wanted=200)
    texts = {message.text for messages in given.values() for message in messages}
    acknowledged = {message.text for messages in given.values() for message in messages if message.acknowledged}
    with Child(setting, room) as child:
        # In no order: where one is refused, it goes on with the next, and the other may come later.
        found = sorted(text for text in child.read(SESSION) if text in texts)
        tried = [Sent(text, acknowledged=text in acknowledged) for text in sorted(texts)]
        _compare(found, tried, "after two processes tried the same ids at the same time, ")
        child.close()
    return f"{kept}, and so did {len(acknowledged)} that two processes tried at the same time"


def torn_tail(setting: Setting, room: Path) -> str:
    """The last bytes that the last append wrote are missing, as after a power cut; another session is whole."""
    largest = 0
    for share in (0.0, 0.5, 1.0):
        # Each time the store is written again where it is tried: a copy has other paths, and cannot have everything
        # that may be in a directory, such as a socket.
        place = room / f"cut-{share:g}"
        with Child(setting, place) as child:
            others = [Sent(f"other {number}") for number in range(3)]
            for message in others:
                child.append(OTHER, message.text, message.text)
            sent, newest, growth = _append_until_a_file_grows(child, place)
            child.kill()
        cut = min(max(round(growth * share), 1), max(growth - 1, 1))
        largest = max(largest, cut)
        try:
            os.truncate(newest, newest.stat().st_size - cut)
        except OSError as error:
            raise NotApplicable(f"{newest.name} cannot be cut: {error.strerror}") from error
        sent[-1] = sent[-1]._replace(acknowledged=False)  # it is what is torn: it may be there, or reported and missing
        when = f"after {cut} of the last {growth} bytes of {newest.name} were cut off"
        with Child(setting, place) as child:
            sent = _check(child, sent, when)
            _check(child, others, when, session=OTHER)
            try:
                child.append(SESSION, "next", "next")
            except StoreFailed as error:
                raise Broken(f"{when}, nothing can be appended: {error}") from error
            sent.append(Sent("next"))
            child.close()
        with Child(setting, place) as child:
            _check(child, sent, f"{when}, and one append")
            _check(child, others, f"{when}, and one append", session=OTHER)
            child.close()
    return f"with up to {largest} bytes cut off, the earlier messages are there and the next append is too"


def _append_until_a_file_grows(child: Child, place: Path) -> tuple[list[Sent], Path, int]:
    """Append at least nine messages; gives them, the file that the last one made grow, and by how much."""
    sent: list[Sent] = []
    # Some stores have room left in their file: append until it grows.
    for number in range(200):
        before = _sizes(place)
        text = f"whole {number}"
        child.append(SESSION, text, f"whole-{number}")
        sent.append(Sent(text))
        growths = {path: size - before.get(path, 0) for path, size in _sizes(place).items()}
        newest = max(growths, key=lambda path: (growths[path], str(path)), default=place)
        if number >= 8 and growths.get(newest, 0) > 0:
            return sent, newest, growths[newest]
    raise NotApplicable("200 appends made no file grow, so there is no tail to cut")


CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (reopen, crash_inside, crash_while_writing, two_processes, idempotent_retry, torn_tail)
}


def _check(child: Child, sent: Sequence[Sent], when: str = "", *, session: str = SESSION, only: str = "") -> list[Sent]:
    """Read a session, or `only` what begins so, and raise Broken unless it is what was sent; gives what is there."""
    if session == OTHER:
        when = f"{when}, in another session" if when else "in another session"
    try:
        found = [text for text in child.read(session) if text.startswith(only)]
    except StoreFailed as error:
        # An error here is a broken promise, not an accident.
        raise Broken(f"{when}, it cannot be read: {error}".removeprefix(", ")) from error
    _compare(found, sent, f"{when}, ".removeprefix(", "))
    return [Sent(text) for text in found]


def _compare(found: Sequence[str], sent: Sequence[Sent], when: str = "") -> None:
    """Raise Broken unless what was found is what was sent, with or without what was not acknowledged."""
    expected = [message.text for message in sent]
    allowed = iter(sent)
    for text in found:
        skipped = next((message for message in allowed if message.acknowledged or message.text == text), None)
        if skipped is None or skipped.text != text:
            break
    else:
        if not any(message.acknowledged for message in allowed):
            return
    have, want = Counter(found), Counter(expected)
    lost = Counter(message.text for message in sent if message.acknowledged) - have
    if lost:
        acknowledged = sum(message.acknowledged for message in sent)
        raise Broken(f"{when}{lost.total()} of {acknowledged} acknowledged messages are lost, such as {_short(lost)}")
    if doubled := Counter({text: count for text, count in (have - want).items() if text in want}):
        raise Broken(f"{when}{doubled.total()} messages are there more than once, such as {_short(doubled)}")
    if foreign := have - want:
        raise Broken(f"{when}{foreign.total()} messages are there that nobody wrote, such as {_short(foreign)}")
    raise Broken(f"{when}the messages are in another order than they were acknowledged in")


def _short(texts: Counter[str]) -> str:
    text = next(iter(texts))
    return repr(text if len(text) < 60 else text[:60] + "…")


def _spread(count: int, wanted: int) -> list[int]:
    """Steps from 1 to count, evenly spread, at most as many as wanted."""
    if count <= wanted:
        return list(range(1, count + 1))
    return sorted({1 + round(turn * (count - 1) / (wanted - 1)) for turn in range(wanted)})


def _sizes(room: Path) -> dict[Path, int]:
    """The sizes of all files; no links, and nothing that the store removes at this moment."""
    found = {}
    for directory, _, names in os.walk(room):
        for name in names:
            with suppress(FileNotFoundError):
                status = Path(directory, name).lstat()
                if stat.S_ISREG(status.st_mode):
                    found[Path(directory, name)] = status.st_size
    return found
