"""nacre sessions summarize: a model's summary of a session, seen, stored and taken back."""

from __future__ import annotations

from typing import Any

import pytest

from nacre.providers.scripted import Scripted
from nacre.runtime import model_chain
from tests.cli.conftest import Nacre

GOOD = "The user said hello several times, and each time was told hi."


@pytest.fixture
def script(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The model that is asked, in a store with a session of three turns."""
    made = Scripted([GOOD] * 3)

    async def provider_for(*_: Any) -> Scripted:
        return made

    monkeypatch.setattr(model_chain, "provider_for", provider_for)
    for _ in range(3):
        nacre.fill("talk")
    return made


def test_all_but_the_last_turn_is_summarised(nacre: Nacre, script: Scripted) -> None:
    result = nacre("sessions", "summarize", "talk", "--json", "--focus", "greetings")
    assert result.code == 0, result.err
    assert (result.json["covered"], result.json["kept"], result.json["summary"]) == (4, 2, GOOD)
    assert "greetings" in str(script.contexts[0].messages[0].content)
    assert script.closed
    with nacre.sessions() as sessions:
        assert sessions.get_summary("talk") == GOOD
        assert len(sessions.get_history("talk")) == 2


def test_a_dry_run_shows_the_summary_and_changes_nothing(nacre: Nacre, script: Scripted) -> None:
    before = nacre.files()
    result = nacre("sessions", "summarize", "talk", "--dry-run")
    assert GOOD in result.out
    assert "4 messages would be summarised, 2 stay" in result.out
    assert nacre.files() == before


def test_undo_takes_it_back(nacre: Nacre, script: Scripted) -> None:
    assert nacre("sessions", "summarize", "talk").code == 0
    result = nacre("sessions", "summarize", "talk", "--undo")
    assert "4 messages are live again" in result.out
    assert nacre("sessions", "summarize", "talk", "--undo", "--json").code != 0
    with nacre.sessions() as sessions:
        assert sessions.get_summary("talk") == ""
        assert len(sessions.get_history("talk")) == 6


def test_what_cannot_be_is_said(nacre: Nacre, script: Scripted) -> None:
    assert nacre("sessions", "summarize", "talk", "--undo", "--dry-run").code == 2
    assert nacre("sessions", "archive", "talk").code == 0
    result = nacre("sessions", "summarize", "talk")
    assert result.code != 0
    assert "archived" in result.err
