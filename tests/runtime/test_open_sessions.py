"""The sessions of a run: the store, what stands in for it, and what is never hidden by that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nacre
from nacre.runtime.assembly import open_sessions
from nacre.user_files import standby_places


def test_a_store_that_can_be_used_is_opened(home: Path) -> None:
    opened = open_sessions(str(home / "store"), incognito=False)
    assert (opened.sessions.location, opened.notes, opened.trouble) == (str(home / "store"), [], "")
    opened.sessions.close()


def test_nothing_is_written_incognito(home: Path) -> None:
    (home / "store").write_text("x")
    assert open_sessions(str(home / "store"), incognito=True).sessions.location == ":memory:"


def test_a_store_that_cannot_be_used_is_named_with_the_place_of_the_documents(home: Path) -> None:
    (home / "store").write_text("x")
    opened = open_sessions(str(home / "store"), incognito=False)
    (place,) = standby_places(str(home / "store"))
    assert opened.sessions.location == place
    assert all(text in opened.notes[0] for text in ("CANNOT BE USED", "is not a directory", place))
    assert opened.trouble.startswith("the store cannot be used: ")
    opened.sessions.close()


def test_what_cannot_be_brought_home_stays_and_is_said(home: Path) -> None:
    (home / "store").write_text("x")
    opened = open_sessions(str(home / "store"), incognito=False)
    opened.sessions.add_message("k", "user", "a")
    place = Path(opened.sessions.location)
    opened.sessions.close()
    (place / "bad.json").write_text("{")
    (home / "store").unlink()
    again = open_sessions(str(home / "store"), incognito=False)
    assert again.notes[0] == "1 messages that were written while the store could not be used are in it now: k"
    assert "bad.json could not be brought into the store" in again.notes[1]
    assert [path.name for path in place.glob("*.json*")] == ["bad.json"]
    again.sessions.close()


def test_a_lock_that_cannot_be_had_is_said(home: Path) -> None:
    (home / "store").write_text("x")
    opened = open_sessions(str(home / "store"), incognito=False)
    opened.sessions.add_message("k", "user", "a")
    opened.sessions.close()
    (home / "store").unlink()
    (home / "store").mkdir(mode=0o700)
    (home / "store" / "migrating.lock").symlink_to("nowhere")
    again = open_sessions(str(home / "store"), incognito=False)
    assert "is not in it yet" in again.notes[0]
    assert again.sessions.get_history("k") == []
    again.sessions.close()


def test_a_store_that_can_only_be_read_is_closed_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[nacre.Sessions] = []
    opening = nacre.open

    def watched(place: str) -> nacre.Sessions:
        made.append(opening(place))
        return made[-1]

    monkeypatch.setattr(nacre, "open", watched)
    monkeypatch.setattr(os, "access", lambda *_: False)
    opened = open_sessions(str(home / "store"), incognito=False)
    assert "cannot be written" in opened.trouble
    with pytest.raises(nacre.StoreError, match="closed"):
        made[0].add_message("k", "user", "a")
    opened.sessions.close()


def test_an_error_that_is_not_about_the_place_is_not_hidden(home: Path) -> None:
    with pytest.raises(nacre.ConfigError):
        open_sessions("mysql://x", incognito=False)
