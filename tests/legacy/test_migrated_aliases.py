"""Aliases that an earlier agent gave to a session lead to it after the migration."""

from __future__ import annotations

from pathlib import Path

import nacre
from nacre.history import alias_table
from nacre.history.session_state import RULES
from nacre.legacy import migrate
from nacre.storage.file_store import FileStore
from tests.legacy.earlier import line, meta
from tests.legacy.test_migration import files, put, said

KEY, ALIAS, MAIN, RESERVED = "sk_v1_0a", "agent:main:telegram:direct:42", "agent:main:main", "nacre:memory"


def migrated(tmp_path: Path) -> nacre.Sessions:
    put(
        tmp_path / "old",
        sk__jsonl=line("hello"),
        sk__meta__json=meta(KEY, aliases=[MAIN, KEY, ALIAS, RESERVED, 7, ""], scope={"channel": "telegram"}),
    )
    store = files(tmp_path / "store")
    assert migrate(store, tmp_path / "old").ok
    return nacre.Sessions(store)


def test_a_migrated_session_is_found_by_its_alias(tmp_path: Path) -> None:
    sessions = migrated(tmp_path)
    assert sessions.exists(ALIAS)
    assert (sessions.resolve(ALIAS), said(sessions, ALIAS)) == (KEY, ["hello"])
    assert [stored.message.content for stored in sessions.transcript(ALIAS)] == ["hello"]
    assert list(sessions.aliases(KEY)) == [ALIAS]


def test_the_main_session_is_not_an_alias_of_every_other(tmp_path: Path) -> None:
    assert not migrated(tmp_path).exists(MAIN)


def test_a_reserved_name_is_not_given(tmp_path: Path) -> None:
    sessions = migrated(tmp_path)
    assert sessions.resolve(RESERVED) == RESERVED
    assert RESERVED not in sessions.aliases(KEY)


def test_names_are_given_once(tmp_path: Path) -> None:
    sessions = migrated(tmp_path)
    count = len(list(sessions.records(alias_table.KEY)))
    (tmp_path / "old" / "sk.meta.json.migrated").rename(tmp_path / "old" / "sk.meta.json")
    (tmp_path / "old" / "sk.jsonl.migrated").rename(tmp_path / "old" / "sk.jsonl")
    assert migrate(files(tmp_path / "store"), tmp_path / "old").ok
    assert len(list(sessions.records(alias_table.KEY))) == count


def test_a_table_that_is_lost_is_made_anew_from_the_sessions(tmp_path: Path) -> None:
    sessions = migrated(tmp_path)
    sessions.add_message("other", "user", "x")
    sessions.delete(alias_table.KEY)
    assert not sessions.exists(ALIAS)
    assert migrate(files(tmp_path / "store"), tmp_path / "old").ok
    assert sessions.exists(ALIAS)


def test_names_that_the_table_has_lost_come_back_from_active_and_archived_sessions(tmp_path: Path) -> None:
    sessions = migrated(tmp_path)
    for key in ("open", "closed"):
        sessions.add_message(key, "user", "x")
        sessions.add_alias(key, f"name-of-{key}")
    sessions.archive("closed")
    sessions.delete(alias_table.KEY)
    sessions.add_alias("open", "newer")
    assert migrate(files(tmp_path / "store"), tmp_path / "old").ok
    found = {name: sessions.resolve(name) for name in (ALIAS, "name-of-open", "name-of-closed", "newer")}
    assert list(found.values()) == [KEY, "open", "closed", "open"]


def test_a_fork_does_not_take_the_names_of_what_it_grew_from(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"), rules=RULES, compact_at=1)
    sessions = nacre.Sessions(store)
    sessions.add_message("one", "user", "x")
    sessions.add_alias("one", "uno")
    sessions.fork("one", "two")
    sessions.add_alias("two", "due")
    for _ in range(50):
        sessions.add_message("two", "user", "y")
    sessions.truncate_history("two", 1)
    sessions.save("two")
    sessions.delete(alias_table.KEY)
    (tmp_path / "old").mkdir()
    assert migrate(store, tmp_path / "old").ok
    assert (sessions.resolve("uno"), sessions.resolve("due")) == ("one", "two")
