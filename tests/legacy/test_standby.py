from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.legacy import Migration, SessionManager, fallback, migrate_at_start
from nacre.storage.file_store import FileStore
from nacre.testing import Disk, images
from tests.legacy.earlier import document, line
from tests.paths import log_of


def sessions_at(root: Path) -> tuple[Migration, nacre.Sessions]:
    store = FileStore(str(root), rules=RULES)
    return migrate_at_start(store), nacre.Sessions(store)


def standby_at(root: Path) -> SessionManager:
    return fallback(root, nacre.Refused("no room"))


def said(store: nacre.SessionStore, key: str = "k") -> list[object]:
    return [message.content for message in store.get_history(key)]


def filled(root: Path, *texts: str) -> None:
    with sessions_at(root)[1] as sessions:
        for text in texts:
            sessions.add_message("k", "user", text)


def test_it_says_that_the_store_cannot_be_used(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    standby_at(root)
    assert "the store cannot be used" in caplog.text


def test_sessions_in_logs_stay_visible(root: Path) -> None:
    filled(root, "a", "b")
    with sessions_at(root)[1] as sessions:
        sessions.set_summary("k", "S")
        sessions.add_message("old", "user", "o")
        sessions.archive("old")
    standby = standby_at(root)
    assert (said(standby), standby.get_summary("k"), said(standby, "old")) == (["a", "b"], "S", ["o"])
    assert not list(root.glob("*.json"))


def test_earlier_sessions_that_were_never_migrated_are_visible(root: Path) -> None:
    (root / "sessions").mkdir(parents=True)
    (root / "sessions" / "plain.jsonl").write_bytes(line("p"))
    (root / "sessions" / "d.json").write_bytes(document("doc:1", "d"))
    standby = standby_at(root)
    assert (said(standby, "plain"), said(standby, "doc:1")) == (["p"], ["d"])
    standby.add_message("plain", "user", "q")
    standby.save("plain")
    found, sessions = sessions_at(root)
    assert ([migrated.outcome for migrated in found.report], said(sessions, "plain")) == (
        ["migrated", "appended", "migrated"],
        ["p", "q"],
    )


def test_what_it_wrote_is_appended_to_the_session_by_the_next_start(root: Path) -> None:
    filled(root, "a", "b")
    standby = standby_at(root)
    standby.add_message("k", "user", "c")
    standby.save("k")
    found, sessions = sessions_at(root)
    assert [(migrated.key, migrated.outcome, migrated.messages) for migrated in found.report] == [("k", "appended", 1)]
    assert [stored.message.content for stored in sessions.transcript("k")] == ["a", "b", "c"]


def test_what_it_dropped_and_summarised_is_dropped_and_summarised(root: Path) -> None:
    filled(root, "a", "b", "c")
    standby = standby_at(root)
    standby.add_message("k", "user", "d")
    standby.set_summary("k", "S", upto=2)
    standby.save("k")
    standby_at(root).save("k")
    _, sessions = sessions_at(root)
    assert (said(sessions), sessions.get_summary("k")) == (["c", "d"], "S")
    assert [stored.message.content for stored in sessions.transcript("k")] == ["a", "b", "c", "d"]


def test_a_history_that_it_replaced_is_replaced(root: Path) -> None:
    filled(root, "a", "b")
    standby = standby_at(root)
    standby.set_history("k", [{"role": "user", "content": "x"}])
    standby.save("k")
    _, sessions = sessions_at(root)
    assert said(sessions) == ["x"]
    assert [stored.message.content for stored in sessions.transcript("k")] == ["a", "b", "x"]


def test_what_both_wrote_is_kept(root: Path) -> None:
    filled(root, "a")
    standby = standby_at(root)
    standby.add_message("k", "user", "theirs")
    standby.truncate_history("k", 1)
    filled(root, "ours")
    standby.save("k")
    _, sessions = sessions_at(root)
    assert said(sessions) == ["a", "ours", "theirs"]


def test_what_it_wrote_is_flushed_in_a_relaxed_store_too() -> None:
    disk = Disk(0)
    disk.write_durable("/agent/a.json", document("k", "a"))
    store = FileStore("/agent", rules=RULES, system=disk.process(), durability="relaxed")
    migrate_at_start(store)
    disk.write_durable("/agent/a.json", document("k", "a", "b"))
    migrate_at_start(store)
    after = next(images(disk.snapshot(), Random(0), 0))
    assert said(nacre.Sessions(FileStore("/agent", rules=RULES, system=after.process()))) == ["a", "b"]


def test_a_new_session_of_its_own_is_migrated(root: Path) -> None:
    standby = standby_at(root)
    standby.add_message("new:1", "user", "n")
    standby.save("new:1")
    _, sessions = sessions_at(root)
    assert said(sessions, "new:1") == ["n"]


def test_a_log_that_cannot_be_read_is_not_an_empty_session(root: Path) -> None:
    log_of(root, "k").mkdir(parents=True)
    with pytest.raises(nacre.StoreError):
        standby_at(root).get_history("k")
