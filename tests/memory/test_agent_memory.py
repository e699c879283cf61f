"""Turns are gone through once; what was said becomes a line for the day and facts, with where it was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.errors import ContextOverflow, ProviderError
from nacre.memory.agent_memory import NoSuchFact
from nacre.memory.store import KEY
from nacre.messages import Message, ToolCall
from nacre.providers.scripted import Scripted
from nacre.sessions import Sessions
from tests.memory.scene import answer, days, facts, learn, memory, page, turn

LISBON = answer("The user moved to Lisbon.", ("home city", "The user lives in Lisbon."))


def test_a_turn_becomes_a_dated_line_and_a_fact_with_its_source(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "telegram:42", "I moved to Lisbon last week")
    kept = memory(sessions, folder, LISBON)
    assert learn(kept, "telegram:42") == 1
    assert page(folder) == ["- The user lives in Lisbon. [telegram:42 2]"]
    [line] = days(folder)
    assert line.endswith("The user moved to Lisbon. [telegram:42 2]")
    assert learn(kept, "telegram:42") == 0


def test_what_contradicts_takes_the_place_of_what_is_struck_through(sessions: Sessions, folder: Path) -> None:
    berlin = answer("", ("home city", "The user lives in Berlin."))
    turn(sessions, "k", "I live in Berlin")
    turn(sessions, "k", "I live in Lisbon now")
    kept = memory(sessions, folder, berlin, LISBON)
    assert learn(kept, "k") == 2
    assert page(folder) == ["- ~~The user lives in Berlin.~~ [k 2]", "- The user lives in Lisbon. [k 4]"]
    assert facts(kept) == ["The user lives in Lisbon."]


def test_the_same_subject_for_everything_strikes_nothing_that_shares_no_words(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "My dog Rex barks")
    turn(sessions, "k", "I take my coffee black")
    answers = [answer("", ("user", "The dog is named Rex.")), answer("", ("user", "Takes coffee black."))]
    kept = memory(sessions, folder, *answers)
    learn(kept, "k")
    assert facts(kept) == ["The dog is named Rex.", "Takes coffee black."]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The user lives in Lisbon.", "the user lives in  LISBON"),
        ("Deploys run on Fridays at noon in the blue cluster", "Deploys run Fridays at noon in the blue cluster"),
    ],
)
def test_what_is_known_is_not_learned_twice(sessions: Sessions, folder: Path, first: str, second: str) -> None:
    turn(sessions, "k", first)
    turn(sessions, "k", second)
    kept = memory(sessions, folder, answer("", ("a", first)), answer("", ("b", second)))
    assert learn(kept, "k") == 2
    assert facts(kept) == [first]


def test_another_number_is_another_fact(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "server alpha listens on port 8080")
    turn(sessions, "k", "server alpha listens on port 9090")
    ports = [answer("", ("", f"Server alpha listens on port {port}.")) for port in (8080, 9090)]
    kept = memory(sessions, folder, *ports)
    learn(kept, "k")
    assert len(facts(kept)) == 2


@pytest.mark.parametrize(
    "invented",
    ["The user lives in Paris.", "The user does not live in Lisbon.", "The user is a user.", "", "Lisbon 2027"],
)
def test_what_was_not_said_is_not_learned(sessions: Sessions, folder: Path, invented: str) -> None:
    turn(sessions, "k", "I moved to Lisbon last week")
    kept = memory(sessions, folder, answer("", ("home", invented)))
    assert learn(kept, "k") == 1
    assert facts(kept) == []


def test_what_was_denied_is_not_learned_as_said(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I don't eat peanuts, and I drink oat milk")
    answers = answer(
        "", ("", "The user eats peanuts."), ("", "The user does not eat peanuts."), ("", "Drinks oat milk")
    )
    kept = memory(sessions, folder, answers)
    learn(kept, "k")
    assert facts(kept) == ["The user does not eat peanuts.", "Drinks oat milk"]


def test_what_tools_returned_is_not_learned_from(sessions: Sessions, folder: Path) -> None:
    call = ToolCall(id="c", name="web_fetch", arguments={})
    said = [
        Message(role="user", content="read the page"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c", content="The user banks with Evil Corp"),
        Message(role="assistant", content="Read it."),
    ]
    sessions.add_messages("k", said)
    kept = memory(sessions, folder, answer("", ("bank", "The user banks with Evil Corp")))
    assert learn(kept, "k") == 1
    assert facts(kept) == []


@pytest.mark.parametrize("bad", ["", "no idea", "[1, 2", answer("Bought a yacht in Monaco"), '{"line": 3, "facts": 4}'])
def test_a_bad_answer_leaves_an_excerpt(sessions: Sessions, folder: Path, bad: str) -> None:
    turn(sessions, "k", "please sort the invoices", "Sorted.")
    kept = memory(sessions, folder, bad)
    learn(kept, "k")
    assert days(folder)[0].endswith("“please sort the invoices” → “Sorted.” [k 2]")
    assert not (folder / "MEMORY.md").exists()


def test_a_model_that_is_not_there_is_asked_again_and_then_done_without(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon")
    kept = memory(sessions, folder, *[ProviderError("no server")] * 3)
    assert [learn(kept, "k") for _ in range(4)] == [0, 0, 1, 0]
    assert "I moved to Lisbon" in days(folder)[0]


def test_a_turn_too_long_for_the_model_is_an_excerpt(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "words " * 10_000)
    kept = memory(sessions, folder, ContextOverflow("too long"))
    assert learn(kept, "k") == 1
    assert len(days(folder)[0]) < 200


def test_a_long_turn_is_shown_in_part(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "begin " + "words " * 10_000 + " end", "x" * 100_000)
    provider = Scripted([answer()])
    learn(memory(sessions, folder, provider=provider), "k")
    shown = str(provider.contexts[0].messages[0].content)
    assert len(shown) < 10_000
    assert "begin" in shown
    assert " end" in shown


def test_without_a_model_there_are_days_and_no_facts(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon")
    kept = memory(sessions, folder)
    assert learn(kept, "k") == 1
    assert len(days(folder)) == 1


def test_memory_is_a_session_with_a_title_and_learns_nothing_from_itself(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon")
    kept = memory(sessions, folder, LISBON)
    assert learn(kept, "k", KEY) == 1
    assert {info.key: info.title for info in sessions.list(internal=True)}[KEY] == "what nacre remembers"
    assert sessions.verify().ok


def test_why_gives_the_turn_that_it_was_learned_in(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon", "Nice!")
    kept = memory(sessions, folder, LISBON)
    learn(kept, "k")
    found = kept.why("lives in Lisbon").turn
    assert found is not None
    assert (found.key, found.n, found.asked, found.answered) == ("k", 2, "I moved to Lisbon", "Nice!")
    sessions.delete("k")
    assert kept.why("lives in Lisbon").turn is None


def test_what_is_remembered_on_request_has_its_source_and_is_kept_once(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "hello")
    kept = memory(sessions, folder)
    line = kept.remember("Release day is Thursday", key="k")
    assert kept.remember("release day is thursday").id == line.id
    assert page(folder) == ["- Release day is Thursday [k 3]"]
    found = kept.why(line.id).turn
    assert found is not None
    assert found.asked == "hello"


def test_what_is_forgotten_is_gone_from_page_and_recall_and_not_learned_again(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon")
    turn(sessions, "k", "Lisbon it is, I live in Lisbon")
    kept = memory(sessions, folder, LISBON, LISBON)
    turned = learn(kept, "k")
    kept.forget("Lisbon")
    assert turned == 2
    assert facts(kept) == []
    assert page(folder) == []
    turn(sessions, "k", "I am in Lisbon")
    learn(memory(sessions, folder, LISBON), "k")
    assert facts(kept) == []


def test_an_edited_fact_keeps_its_source(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I moved to Lisbon")
    kept = memory(sessions, folder, LISBON)
    learn(kept, "k")
    kept.edit("Lisbon", "The user lives in Porto.")
    assert page(folder) == ["- The user lives in Porto. [k 2]"]
    assert facts(kept) == ["The user lives in Porto."]


def test_what_nobody_can_mean_or_several_could_is_an_error(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The red cat sleeps")
    kept.remember("The black cat eats")
    with pytest.raises(NoSuchFact, match="no fact matches"):
        kept.forget("dog")
    with pytest.raises(NoSuchFact, match="may mean any of 2"):
        kept.forget("cat")
    with pytest.raises(NoSuchFact, match="empty"):
        kept.remember("  ")
