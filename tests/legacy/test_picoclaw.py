"""The export for picoclaw: what it reads is what is live here, and what comes back is the same session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nacre
from nacre.legacy.formats import LINES, META, Exported, export, file_of
from tests.legacy.picoclaw import Picoclaw


def exported(sessions: nacre.Sessions, key: str, *, dropped: bool = False) -> Exported:
    found = sessions._store.read(key, lambda view: export(view, key, dropped=dropped))
    assert found is not None
    return found


def put(folder: Path, key: str, files: Exported) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file_of(key)}{LINES}").write_bytes(files.lines)
    (folder / f"{file_of(key)}{META}").write_bytes(files.meta)


@pytest.fixture
def talk(root: Path) -> nacre.Sessions:
    sessions = nacre.open(root)
    sessions.add_messages("telegram:42", [{"role": "user", "content": text} for text in "abc"])
    sessions.set_summary("telegram:42", "So far.", upto=2)
    sessions.set_meta("telegram:42", title="T", aliases=["agent:main:direct:42"], scope={"version": 1})
    return sessions


def test_picoclaw_reads_what_is_live_and_the_summary(talk: nacre.Sessions, tmp_path: Path) -> None:
    put(tmp_path, "telegram:42", exported(talk, "telegram:42"))
    agent = Picoclaw(tmp_path)
    assert (agent.get_history("telegram:42"), agent.get_summary("telegram:42")) == (["b", "c"], "So far.")


def test_what_is_no_longer_live_is_there_to_be_skipped(talk: nacre.Sessions, tmp_path: Path) -> None:
    put(tmp_path, "telegram:42", exported(talk, "telegram:42", dropped=True))
    agent = Picoclaw(tmp_path)
    assert (agent.get_history("telegram:42"), agent.kept("telegram:42")) == (["b", "c"], ["a", "b", "c"])
    agent.compact("telegram:42")
    assert agent.kept("telegram:42") == ["b", "c"]


def test_metadata_has_what_picoclaw_knows(talk: nacre.Sessions) -> None:
    meta = json.loads(exported(talk, "telegram:42").meta)
    assert set(meta) == {"key", "summary", "skip", "count", "created_at", "updated_at", "aliases", "scope"}
    assert (meta["key"], meta["skip"], meta["count"]) == ("telegram:42", 0, 2)
    assert (meta["aliases"], meta["scope"]) == (["agent:main:direct:42"], {"version": 1})


@pytest.mark.parametrize("dropped", [False, True])
def test_an_export_that_is_migrated_is_the_same_session(talk: nacre.Sessions, tmp_path: Path, *, dropped: bool) -> None:
    put(tmp_path / "sessions", "telegram:42", exported(talk, "telegram:42", dropped=dropped))
    with nacre.open(tmp_path) as again:
        assert again.get_history("telegram:42") == talk.get_history("telegram:42")
        assert again.get_summary("telegram:42") == "So far."
        said = [stored.message for stored in talk.transcript("telegram:42")]
        assert [stored.message for stored in again.transcript("telegram:42")] == (said if dropped else said[1:])


def test_an_export_into_the_same_store_adds_nothing(talk: nacre.Sessions, root: Path) -> None:
    put(root / "sessions", "telegram:42", exported(talk, "telegram:42"))
    before = talk.transcript("telegram:42")
    talk.close()
    with nacre.open(root) as again:
        assert again.transcript("telegram:42") == before
        assert len(list(again.list())) == 1
    assert sorted(path.name for path in (root / "sessions").glob("telegram_42*")) == [
        "telegram_42.jsonl.migrated",
        "telegram_42.meta.json.migrated",
    ]


def test_an_exported_session_that_was_archived_since_is_not_imported_again(talk: nacre.Sessions, root: Path) -> None:
    put(root / "sessions", "telegram:42", exported(talk, "telegram:42", dropped=True))
    talk.archive("telegram:42")
    talk.close()
    with nacre.open(root) as again:
        assert [stored.message.content for stored in again.transcript("telegram:42")] == ["a", "b", "c"]
        assert list(again.list()) == []


def test_a_message_that_picoclaw_cannot_read_is_refused(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "x" * (10 * 1024 * 1024))
        with pytest.raises(nacre.InvalidMessage, match="record 2 is longer than picoclaw can read"):
            exported(sessions, "k")
