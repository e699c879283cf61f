"""nacre sessions redact."""

from __future__ import annotations

import pytest

from nacre.memory.agent_memory import Memory
from tests.cli.conftest import Nacre, Terminal
from tests.erased import traces

SECRET = "my card is 4000 1234 5678 9010"  # noqa: S105 - said by somebody


@pytest.fixture
def told(nacre: Nacre) -> Nacre:
    with nacre.sessions() as sessions:
        sessions.add_message("k", "user", SECRET)
        sessions.add_message("k", "assistant", "noted")
        Memory(sessions, nacre.root / "home").remember(f"The user says: {SECRET}.", key="k")
    return nacre


def test_a_message_is_erased_with_what_memory_learned_from_it(told: Nacre) -> None:
    with told.sessions() as sessions:
        learned = Memory(sessions, told.root / "home").lines_from("k")[0].source
    assert learned is not None
    done = told("sessions", "redact", "k", str(learned.n), "--yes", "--json").json
    assert (done["facts"], done["key"]) == (1, "k")
    told("sessions", "redact", "k@2", "--yes")
    assert traces(SECRET, told.root) == []
    assert "[erased]" in told("sessions", "show", "k").out


def test_it_says_what_was_erased_and_who_may_still_have_it(told: Nacre) -> None:
    with told.sessions() as sessions:
        sessions.fork("k", "f")
        sessions.set_summary("k", f"summary of {SECRET}", upto=2)
    done = told("sessions", "redact", "k", "2", "--yes")
    assert done.out == "record 2 of k: erased\n"
    assert "it is still in f, which shares it" in done.err
    assert "summaries that cover it may have its words: record 4" in done.err
    assert told("sessions", "redact", "k", "2", "--yes").out == "record 2 of k: nothing was left to erase\n"


def test_it_names_all_who_may_still_have_it(told: Nacre) -> None:
    with told.sessions() as sessions:
        sessions.fork("k", "f")
        sessions.fork("k", "g")
        sessions.set_summary("k", f"summary of {SECRET}", upto=2)
        sessions.set_summary("k", f"shorter summary of {SECRET}", upto=3)
    said = told("sessions", "redact", "k", "2", "--yes").err
    assert "it is still in f, g, which share it;" in said
    assert "may have its words: records 4, 5;" in said


def test_it_asks_first_and_a_dry_run_does_nothing(told: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("sessions", "redact", "k", "2").code == 2
    assert told("sessions", "redact", "k", "2", "--dry-run").out == "the content of record 2 of k would be erased\n"
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert told("sessions", "redact", "k", "2").code != 0
    with told.sessions() as sessions:
        assert sessions.get_history("k")[0].content == SECRET


@pytest.mark.parametrize(("words", "code"), [(("k", "9"), 1), (("k", "1"), 1), (("k",), 2), (("none", "2"), 3)])
def test_what_is_not_there_cannot_be_erased(told: Nacre, words: tuple[str, ...], code: int) -> None:
    assert told("sessions", "redact", *words, "--yes").code == code


def test_a_session_of_nacres_own_is_refused(told: Nacre) -> None:
    assert told("sessions", "redact", "nacre:memory", "2", "--yes").code == 2


def test_the_numbers_it_takes_are_shown_for_tool_results_too(told: Nacre) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    with told.sessions() as sessions:
        sessions.add_full_message("t", {"role": "assistant", "content": None, "tool_calls": [call]})
        sessions.add_full_message("t", {"role": "tool", "content": SECRET, "tool_call_id": "c1"})
    assert "`nacre sessions show --full` has the numbers" in told("sessions", "redact", "t").err
    assert "→ #3" in told("sessions", "show", "--full", "t").out


def test_a_record_without_a_content_is_named_by_its_kind(told: Nacre) -> None:
    words = "record 1 of session 'k' is of the kind 'open', without a content that can be erased"
    assert words in told("sessions", "redact", "k", "1", "--yes").err
