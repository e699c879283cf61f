"""One message, without conditions, to a log that is as its writer left it: stored the short way, as the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from nacre.codec import encode_message, encode_text
from nacre.errors import LeaseLost
from nacre.history.session_state import RULES
from nacre.messages import Message
from nacre.records import Operation, Pop, Rewind, SetMeta, Summarise, TakeOver, Transaction, Truncate
from nacre.storage import blobs
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.transaction import PendingCommit
from nacre.testing import Disk
from tests.histories import messages
from tests.simulated import LOG, ROOT, opened, said, say

NOW = 1_700_000_000.007
LARGE = "x" * 70_000
# What is larger goes to a file of its own: these texts fall on both sides.
LARGEST = 1000
TEXTS = ("hello", "", "好 \u2028\x7f\u202e\x9b", '{"v":1,"n":7,"t":"msg"}', '",0,0]}', "x" * 850, "x" * 950, "x" * 1050)
BYTES: tuple[Any, ...] = ([{"type": "image", "data": b"\x00\xff"}], [{"type": "text", "$bytes": "x"}])


def appended() -> SearchStrategy[Operation]:
    """What appends one message."""
    return st.one_of(
        st.sampled_from(TEXTS).map(lambda text: encode_text("user", text)),
        st.sampled_from((*BYTES, "a lone \ud800")).map(
            lambda content: encode_message(Message(role="user", content=content))
        ),
        messages().map(encode_message),
    )


def _message(content: Any) -> Operation:
    return encode_message(Message(role="user", content=content))


def changes() -> SearchStrategy[Operation]:
    """What leads to another state."""
    numbers = st.integers(0, 12)
    return st.one_of(
        numbers.map(Rewind),
        numbers.map(Truncate),
        st.builds(Summarise, st.just("a summary"), st.one_of(st.none(), numbers)),
        st.sampled_from((Pop(), SetMeta({"title": "shells"}), TakeOver("another"))),
    )


def log_on(disk: Disk, *, is_fork: bool, is_relaxed: bool) -> Log:
    """A log of one message, or a fork of it; its clock stands still."""
    sessions = opened(disk)
    say(sessions, "a", key="other" if is_fork else "k")
    if is_fork:
        sessions.fork("other", "k")
    sessions.close()
    process = disk.process()
    process.now = lambda: NOW  # type: ignore[method-assign]
    return Log(process, SessionPaths.of(ROOT, "k"), rules=RULES, relaxed=is_relaxed)


def store_the_long_way(log: Log, commit: PendingCommit) -> None:
    with log.writer.hold(create=True):
        log.writer.settle()
        log.writer.append([commit])


@given(
    writes=st.lists(
        st.tuples(st.one_of(appended(), appended(), changes()), st.sampled_from((None, 0, 0, 1, 2))),
        min_size=1,
        max_size=12,
    ),
    is_fork=st.booleans(),
    is_relaxed=st.booleans(),
)
def test_the_short_way_and_the_long_one_store_the_same_bytes(
    writes: list[tuple[Operation, int | None]],
    is_fork: bool,
    is_relaxed: bool,
) -> None:
    short, long = Disk(), Disk()
    log, other = (log_on(disk, is_fork=is_fork, is_relaxed=is_relaxed) for disk in (short, long))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "LARGEST", LARGEST)
        for operation, fence in writes:
            commit, same = (PendingCommit(Transaction((operation,), fence=fence)) for _ in range(2))
            log.writer.commit([commit])
            store_the_long_way(other, same)
            assert (commit.number, repr(commit.error)) == (same.number, repr(same.error))
            assert (log.writer.n, log.writer.state) == (other.writer.n, other.writer.state)
    assert short.read(LOG) == long.read(LOG)


@pytest.mark.parametrize("text", ["b", LARGE])
def test_a_message_to_a_log_that_another_process_wrote_follows_what_is_there(text: str) -> None:
    disk = Disk()
    one, other = opened(disk), opened(disk)
    say(one, "a")
    say(other, "-")
    say(one, text)
    assert [record.n for record in other.records("k")] == [1, 2, 3, 4]
    assert one.verify().ok


def test_a_message_of_which_rules_make_nothing_is_not_stored() -> None:
    disk = Disk()
    say(opened(disk), "a")
    rules = RULES.__class__(apply=lambda *_: None, replay=RULES.replay)
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=rules)
    commits = [PendingCommit(Transaction((encode_text("user", "b"),))) for _ in range(2)]
    for commit in commits:
        log.writer.commit([commit])
    assert [commit.number for commit in commits] == [0, 0]
    assert len(list(opened(disk).records("k"))) == 2


@pytest.mark.parametrize("is_known", [False, True], ids=["by-another-process", "here"])
def test_a_message_of_a_turn_is_stored_until_another_takes_the_turn_over(is_known: bool) -> None:
    disk = Disk()
    say(opened(disk), "a")
    log, other = (Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=RULES) for _ in range(2))

    def store(text: str) -> PendingCommit:
        commit = PendingCommit(Transaction((encode_text("user", text),), fence=0))
        log.writer.commit([commit])
        return commit

    assert [store(text).number for text in ("b", "c")] == [3, 4]
    (log if is_known else other).writer.commit([PendingCommit(Transaction((TakeOver("another"),)))])
    for _ in range(2):
        lost = store("d")
        assert isinstance(lost.error, LeaseLost)
        assert not lost.number
    assert said(opened(disk)) == ["a", "b", "c"]
