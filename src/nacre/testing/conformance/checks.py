"""The checks: each is a function that tries the store in a directory, and says what it saw.

A check returns a sentence when the store keeps the promise, and raises `Broken` with a sentence when it does not.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
        _compare(child.read(SESSION), [Sent(text) for text in TEXTS])
        _compare(child.read(OTHER), [Sent(f"other {number}") for number in range(len(TEXTS))])
        child.append(SESSION, "after reopening", "c")
        _compare(child.read(SESSION), [Sent(text) for text in (*TEXTS, "after reopening")])
        child.close()
    return f"{2 * len(TEXTS)} messages of 2 sessions came back as they were written"


def crash_inside(setting: Setting, room: Path) -> str:
    """The writer is killed at steps inside an append: before and after calls that change files."""
    with Child(setting, room) as child:
        child.ask("watch")
        for number in range(3):
            child.append(SESSION, f"first {number}", f"first-{number}")
        # The first append of a process does more than the others: dying in both is tried.
        count: int = child.ask("count", SESSION, "counted", "counted")
        child.close()
    if not count:
        raise NotApplicable("its append makes no call from Python that changes files, so there is no step to die at")
    sent = [*(Sent(f"first {number}") for number in range(3)), Sent("counted")]
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
            found = _read(child, f"after a kill at step {step} of {count} inside an append")
            _compare(found, sent, f"after a kill at step {step} of {count} inside an append, ")
            # Whether the unacknowledged one is there is decided now: it must not come or go later.
            sent = [Sent(text) for text in found]
            child.close()
    if not deaths:
        raise NotApplicable("its append ended before any step at which it should have died")
    return f"killed {deaths} times inside an append ({count} steps): everything acknowledged is there, once, in order"


def crash_while_writing(setting: Setting, room: Path) -> str:
    """The writer is killed at any time while it appends as fast as it can."""
    chance = random.Random(20)  # noqa: S311 - repeatable, not secret
    sent: list[Sent] = []
    acknowledged = 0
    for turn in range(setting.kills):
        with Child(setting, room) as child:
            found = _read(child, "after a kill while it wrote")
            _compare(found, sent, "after a kill while it wrote, ")
            sent = [Sent(text) for text in found]
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
        _compare(_read(child, "after a kill while it wrote"), sent, "after a kill while it wrote, ")
        child.close()
    return (
        f"killed {setting.kills} times while it wrote: {acknowledged} acknowledged messages are there, once, in order"
    )


def two_processes(setting: Setting, room: Path) -> str:
    """Two processes have the store open and append to one session: in turns, then both as fast as they can."""
    writers = ("one", "two")
    sent: dict[str, list[Sent]] = {writer: [] for writer in writers}
    failures: list[str] = []
    with Child(setting, room) as one, Child(setting, room) as two:
        children = dict(zip(writers, (one, two), strict=True))
        for child in children.values():
            child.open()
            child.read(SESSION)
        for number in range(10):
            for writer, child in children.items():
                text = f"{writer} in turns {number}"
                try:
                    child.append(SESSION, text, text)
                    sent[writer].append(Sent(text))
                except AppendRefused:
                    sent[writer].append(Sent(text, acknowledged=False))
                except StoreFailed as error:
                    failures.append(str(error))
                    sent[writer].append(Sent(text, acknowledged=False))
        refused_in_turns = {writer: len(child.refusals) for writer, child in children.items()}
        for writer, child in children.items():
            child.begin_flood(SESSION, f"{writer} at once", past_refusals=True)
        ended = time.monotonic() + 60
        acknowledged: dict[str, set[int]] = {writer: set() for writer in writers}
        for writer, child in children.items():
            # A refusal ends nothing: a store that refuses some appends may lose others.
            try:
                while len(acknowledged[writer]) <= 40 and len(child.refusals) < 1000 and time.monotonic() < ended:
                    with suppress(AppendRefused):
                        acknowledged[writer].add(child.next_acknowledged())
            except StoreFailed as error:
                failures.append(str(error))
        for writer, child in children.items():
            acknowledged[writer].update(child.kill())
            answered = len(acknowledged[writer]) + len(child.refusals) - refused_in_turns[writer]
            sent[writer] += [
                Sent(f"{writer} at once {number}", acknowledged=number in acknowledged[writer])
                for number in range(answered + 1)
            ]
        refusals = [*failures, *one.refusals, *two.refusals]
    with Child(setting, room) as child:
        found = _read(child, "after two processes wrote")
        child.close()
    for writer in writers:
        own = [text for text in found if text.startswith(f"{writer} ")]
        _compare(own, sent[writer], f"of process {writer}, ")
        if not any(message.acknowledged for message in sent[writer]):
            raise Broken(f"process {writer} could not append while the other had the store open: {refusals[0]}")
    total = sum(message.acknowledged for writer in writers for message in sent[writer])
    refused = f"; {len(refusals)} refused, the first with {refusals[0]}" if refusals else ""
    return f"{total} acknowledged messages of two processes are there, once, each writer's in order{refused}"


def idempotent_retry(setting: Setting, room: Path) -> str:
    """An append that is tried again with its id is stored once: at once, later, elsewhere, and after a crash."""
    with Child(setting, room) as child:
        child.append(SESSION, "paid", "order-1")
        child.append(SESSION, "paid", "order-1")
        _compare(child.read(SESSION), [Sent("paid")], "after a retry at once, ")
        child.append(SESSION, "paid", "order-2")
        _compare(child.read(SESSION), [Sent("paid"), Sent("paid")], "after the same text with another id, ")
        for number in range(20):
            child.append(SESSION, f"more {number}", f"more-{number}")
        child.append(SESSION, "paid", "order-1")
        child.close()
    sent = [Sent("paid"), Sent("paid"), *(Sent(f"more {number}") for number in range(20))]
    with Child(setting, room) as child:
        child.append(SESSION, "paid", "order-1")
        _compare(child.read(SESSION), sent, "after a retry in another process, ")
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
            _compare(child.read(SESSION), sent, f"after a retry of an append killed at step {step} of {count}, ")
            child.close()
    return f"retries at once, later, in another process and after {len(steps)} kills stored each message once"


def torn_tail(setting: Setting, room: Path) -> str:
    """The last bytes that the last append wrote are missing, as after a power cut."""
    original = room / "original"
    sent: list[Sent] = []
    with Child(setting, original) as child:
        for number in range(8):
            child.append(SESSION, f"whole {number}", f"whole-{number}")
            sent.append(Sent(f"whole {number}"))
        # Some stores have room left in their file: append until it grows.
        grown: dict[Path, int] = {}
        while not grown and len(sent) < 200:
            before = _sizes(original)
            text = f"whole {len(sent)}"
            child.append(SESSION, text, f"whole-{len(sent)}")
            sent.append(Sent(text))
            grown = {path: size - before.get(path, 0) for path, size in _sizes(original).items()}
            grown = {path: growth for path, growth in grown.items() if growth > 0}
        child.kill()
    if not grown:
        raise NotApplicable("200 appends made no file grow, so there is no tail to cut")
    newest = max(grown, key=lambda path: (grown[path], str(path)))
    growth = grown[newest]
    sent[-1] = sent[-1]._replace(acknowledged=False)  # it is what is torn: it may be there, or reported and missing
    cuts = sorted({1, (growth + 1) // 2, max(growth - 1, 1)})
    for cut in cuts:
        where = f"after {cut} of the last {growth} bytes of {newest.name} were cut off, "
        damaged = room / f"cut-{cut}"
        shutil.copytree(original, damaged)
        with (damaged / newest).open("r+b") as file:
            file.truncate((damaged / newest).stat().st_size - cut)
        with Child(setting, damaged) as child:
            found = _read(child, where.rstrip(", "))
            _compare(found, sent, where)
            try:
                child.append(SESSION, "next", "next")
            except StoreFailed as error:
                raise Broken(f"{where}nothing can be appended: {error}") from error
            child.close()
        with Child(setting, damaged) as child:
            _compare(
                _read(child, f"{where}and one append,"),
                [*(Sent(text) for text in found), Sent("next")],
                f"{where}and one append, ",
            )
            child.close()
    return f"with up to {cuts[-1]} bytes cut off, the earlier messages are there and the next append is too"


CHECKS: dict[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (reopen, crash_inside, crash_while_writing, two_processes, idempotent_retry, torn_tail)
}


def _read(child: Child, when: str) -> list[str]:
    """Read the session; an error here is a broken promise, not an accident."""
    try:
        return child.read(SESSION)
    except StoreFailed as error:
        raise Broken(f"{when} it cannot be read: {error}") from error


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
    return {path.relative_to(room): path.stat().st_size for path in room.rglob("*") if path.is_file()}
