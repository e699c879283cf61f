"""What a write expects of a log, where logs are not as RAM is: half created, damaged, or deleted meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from tests.damage.lines import header, resealed
from tests.paths import log_of
from tests.simulated import said, say


def test_a_log_with_only_a_header_is_a_session_without_a_version(tmp_path: Path) -> None:
    log = log_of(tmp_path, "k")
    log.parent.mkdir(parents=True)
    log.write_bytes(header("k"))
    with nacre.open(tmp_path) as sessions:
        with pytest.raises(nacre.Conflict, match="at no record, not at record 1 of generation"):
            sessions.add_message("k", "user", "a", expect=nacre.Version(1, "0" * 32))
        assert sessions.snapshot("k").version == nacre.Version()
        assert sessions.add_message("k", "user", "a", expect=nacre.Version()) == 2


def test_a_record_that_is_lost_may_have_been_any(tmp_path: Path) -> None:
    with nacre.Sessions(FileStore(str(tmp_path), rules=RULES, compact_at=1)) as sessions:
        say(sessions, "a", "b")
        seen = sessions.snapshot("k").version
        for _ in range(9):
            sessions.append("k", "x.note", "moved out")
        sessions.save("k")
        for moved_out in (tmp_path / "cold").iterdir():
            moved_out.unlink()
        with pytest.raises(nacre.Conflict):
            sessions.add_message("k", "user", "c", expect=seen)
        assert said(sessions) == ["a", "b"]


def test_a_deletion_that_another_process_has_finished_is_not_as_expected(lasting_place: str) -> None:
    with nacre.open(lasting_place) as one, nacre.open(lasting_place) as two:
        say(one, "a")
        seen = one.snapshot("k").version
        two.delete("k")
        with pytest.raises(nacre.Conflict):
            one.delete("k", expect=seen)
        one.delete("k", expect=nacre.Version())


def test_meta_that_an_earlier_version_stored_under_an_id_cannot_be_compared(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.set_meta("k", title="T", id="once")
    log = log_of(tmp_path, "k")
    first, meta, _ = log.read_bytes().split(b"\n")
    log.write_bytes(first + b"\n" + resealed(meta, set=None))
    with nacre.open(tmp_path) as sessions:
        for title in "TU":
            with pytest.raises(nacre.Conflict, match="id 'once' was used for other content"):
                sessions.set_meta("k", title=title, id="once")
        assert sessions.get_meta("k") == {"title": "T"}


def test_a_version_without_a_generation_is_named_so(place: str) -> None:
    with nacre.open(place) as sessions:
        say(sessions, "a")
        with pytest.raises(nacre.Conflict, match="not at record 2 of generation ''; nothing was stored"):
            sessions.add_message("k", "user", "b", expect=nacre.Version(2))
