"""Sessions in RAM, where they are not what the contract asks of every store."""

from __future__ import annotations

import os

import pytest

import nacre
from nacre.codec import encode_text
from nacre.history import session_state
from nacre.history.session_state import RULES
from nacre.records import Operation, Record, Records, RecordStamp, Rules, State, Transaction
from nacre.storage.memory_store import MemoryStore
from nacre.storage.system import System
from nacre.storage.transaction import WINDOW
from nacre.storage.watch import MemoryWatch


@pytest.fixture
def store() -> MemoryStore:
    """A store with one session of two messages."""
    store = MemoryStore(rules=RULES)
    for text in "ab":
        store.run("k", Transaction((encode_text("user", text),)))
    return store


def test_a_closed_store_refuses_to_write(store: MemoryStore) -> None:
    store.close()
    with pytest.raises(nacre.StoreError, match="the store is closed"):
        store.run("k", Transaction((encode_text("user", "c"),)))


def test_there_is_nothing_to_repair_in_ram(store: MemoryStore) -> None:
    receipt = store.repair("k")
    assert (receipt.key, receipt.kept, receipt.set_aside, receipt.quarantine) == ("k", 3, 0, None)
    assert store.verify("k").ok


def test_repairing_or_verifying_an_unknown_session_says_so(store: MemoryStore) -> None:
    with pytest.raises(nacre.SessionNotFound):
        store.repair("other")
    with pytest.raises(nacre.SessionNotFound):
        store.verify("other")


def test_records_are_read_back_to_the_first(store: MemoryStore) -> None:
    assert store.read("k", lambda view: [record.n for record in view.back(2)]) == [2, 1]


def test_what_cannot_be_stored_is_told_through_the_future(store: MemoryStore) -> None:
    assert isinstance(store.submit("k", Transaction((), expect=9)).exception(0), nacre.Conflict)
    assert store.submit("k", Transaction((encode_text("user", "c"),))).result(0) == 4


def test_following_a_session_that_is_not_there_waits_for_its_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(rules=RULES)
    sessions = nacre.Sessions(store)
    monkeypatch.setattr(MemoryWatch, "wait", lambda _: sessions.add_message("k", "user", "a"))
    assert next(sessions.follow("k")).kind == "open"
    assert sessions.exists("k")


def test_ram_has_nothing_in_quarantine() -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_message("k", "user", "hello")
        assert sessions.quarantine() == sessions.quarantine("k") == []
        for settle in (sessions.restore, sessions.discard):
            assert settle("k") == nacre.Settlement(key="k")
            with pytest.raises(nacre.SessionNotFound):
                settle("k", 1)


@pytest.mark.parametrize("way", ["run", "submit"])
def test_a_write_in_the_middle_of_a_write_is_refused(way: str) -> None:
    def apply(operation: Operation, stamp: RecordStamp, state: State, view: Records) -> Record | None:
        with pytest.raises(nacre.Refused, match="in the middle of another write"):
            getattr(store, way)("other", Transaction((encode_text("user", "b"),)))
        return session_state.apply(operation, stamp, state, view)

    store = MemoryStore(rules=Rules(apply=apply, replay=session_state.replay))
    assert store.run("k", Transaction((encode_text("user", "a"),))) == 2
    assert [listed.key for listed in store.each(archived=False)] == ["k"]


def test_who_watches_is_told_that_a_message_was_erased() -> None:
    sessions = nacre.open(":memory:")
    n = sessions.add_message("k", "user", "hello")
    watch = sessions.watch()
    # Not to wait for a change that is not reported.
    os.set_blocking(watch.fd, False)
    sessions.redact("k", n)
    assert watch.changed() == {watch.name("k")}
    watch.close()


def test_the_fingerprint_of_an_erased_message_is_forgotten_also_if_ids_are_kept() -> None:
    sessions = nacre.open(":memory:")
    sessions.set_meta("k", keep_ids=True)
    n = sessions.add_message("k", "user", "hello", id="i")
    sessions.add_messages("k", [{"role": "user", "content": "more"}] * WINDOW)
    assert sessions.add_message("k", "user", "hello", id="i") == n
    sessions.redact("k", n)
    assert sessions.add_message("k", "user", "another", id="i") == n


def test_a_generation_says_when_it_was_archived(store: MemoryStore) -> None:
    sessions = nacre.Sessions(store)
    active = sessions.generation("k")
    assert active is not None
    assert active.changed == active.updated
    sessions.archive("k")
    archived = sessions.generation("k", active.generation)
    assert archived is not None
    assert archived.changed > archived.updated == active.updated


def test_the_room_in_ram_is_that_of_records_and_payloads(store: MemoryStore) -> None:
    sessions = nacre.Sessions(store)
    sessions.add_message("large", "tool", "x" * 100_000)
    sessions.archive("large")
    small = sessions.log_size("k")
    sessions.move_to_trash("k")
    folders = sessions.disk_usage(["k"]).folders
    assert (folders["sessions"], folders["blobs"], folders["trash"]) == (0, 100_000, small)
    assert 0 < folders["archive"] < 1_000
    assert sessions.disk_usage(["k", "large"]).sessions == {"k": 0, "large": folders["archive"]}


def test_ram_has_no_files(store: MemoryStore) -> None:
    sessions = nacre.Sessions(store)
    assert (sessions.key_of_file("sessions/k.jsonl"), sessions.remove_leftovers()) == (None, [])
    assert not sessions.is_durable


def test_a_redaction_in_ram_is_never_cut_short(store: MemoryStore) -> None:
    sessions = nacre.Sessions(store)
    store.resume_redaction(sessions.redact("k", 2))
    sessions.finish_redactions()
    assert store.begun_redactions() == []


def test_a_journal_in_ram_has_one_holder(store: MemoryStore) -> None:
    sessions = nacre.Sessions(store)
    with sessions.journal("task"), pytest.raises(nacre.SessionBusy, match="already"), sessions.journal("task"):
        pass
    with sessions.journal("task"):
        pass


class StoppedClock(System):
    def now(self) -> float:
        return 1.0


def test_a_session_that_was_removed_twice_at_once_is_in_the_trash_twice() -> None:
    with nacre.Sessions(MemoryStore(rules=RULES, system=StoppedClock())) as sessions:
        for text in "ab":
            sessions.add_message("k", "user", text)
            sessions.move_to_trash("k")
        assert len({trashed.id for trashed in sessions.list_trash()}) == 2


def test_what_comes_back_from_the_trash_is_known_by_its_ids_again() -> None:
    with nacre.open(":memory:") as sessions:
        user = [{"role": "user", "content": "a"}]
        first = sessions.add_messages("k", user, id="1")
        sessions.archive("k")
        sessions.add_message("k", "user", "b")
        uid = sessions.transcript("k")[0].generation
        sessions.move_to_trash("k", generation=uid)
        sessions.restore_from_trash(sessions.list_trash()[0].id)
        assert sessions.add_messages("k", user, id="1") == first
        sessions.move_to_trash("k", generation=uid)
        assert sessions.add_messages("k", user, id="1") > first
        assert sessions.read_generations("k", lambda view: view.is_newest) == [True]


def test_who_has_a_turn_in_ram_is_this_process(store: MemoryStore) -> None:
    turn, other = store.hold("k"), store.hold("k")
    assert other.holder() == 0
    turn.take()
    assert (turn.holder(), other.holder()) == (os.getpid(), os.getpid())
    turn.close()
    assert other.holder() == 0


def test_a_document_that_relies_on_a_lost_lease_is_not_set_aside() -> None:
    with nacre.open(":memory:") as sessions:
        lost = sessions.hold("k")
        lost.take()
        document = sessions.with_internal_keys(held=lost).document("cursor")
        document.write(b"1")
        sessions.hold("k").take_over()
        with pytest.raises(nacre.LeaseLost):
            document.set_aside()
        assert sessions.document("cursor").read() == b"1"
