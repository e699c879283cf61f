"""Erasing is one act, and then it is complete: no file of store or workspace has the text any more."""

from __future__ import annotations

from pathlib import Path

from nacre.messages import Message
from nacre.sessions import Sessions
from tests.memory.scene import answer, facts, learn, memory, page, texts, turn


def holding(root: Path, text: bytes) -> list[str]:
    return [str(path) for path in root.rglob("*") if path.is_file() and text in path.read_bytes()]


def city(name: str) -> str:
    return answer(f"The user spoke of {name}.", ("home", f"The user lives in {name}."))


def test_what_was_learned_from_a_session_is_erased_everywhere(sessions: Sessions, folder: Path, root: Path) -> None:
    turn(sessions, "a", "I live in Reykjavik")
    turn(sessions, "b", "I like figs")
    kept = memory(sessions, folder, city("Reykjavik"), answer("", ("", "Likes figs")))
    learn(kept, "a", "b")
    sessions.delete("a")
    assert holding(root, b"Reykjavik")
    assert kept.forget_session("a") == 2
    assert holding(root, b"Reykjavik") == []
    assert facts(kept) == ["Likes figs"]
    assert sessions.verify().ok
    assert kept.forget_session("a") == 0


def test_it_is_not_learned_again_from_what_was_said_there(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "a", "I live in Reykjavik")
    learn(memory(sessions, folder, city("Reykjavik")), "a")
    memory(sessions, folder).forget_session("a")
    again = memory(sessions, folder, city("Reykjavik"), city("Oslo"))
    sessions.fork("a", "fork")
    assert learn(again, "a", "fork") == 0
    turn(sessions, "a", "I live in Oslo")
    assert learn(memory(sessions, folder, city("Oslo")), "a") == 1
    assert facts(again) == ["The user lives in Oslo."]


def test_what_an_erased_fact_had_taken_the_place_of_holds_again(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "a", "I live in Berlin")
    turn(sessions, "b", "I live in Reykjavik")
    kept = memory(sessions, folder, city("Berlin"), city("Reykjavik"))
    learn(kept, "a", "b")
    assert page(folder)[0].startswith("- ~~")
    kept.forget_session("b")
    assert page(folder) == ["- The user lives in Berlin. [a 2]"]


def test_what_an_edited_fact_said_before_is_erased_with_it(sessions: Sessions, folder: Path, root: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The safe code is 90210")
    line = kept.edit("safe code", "The safe code is 10203")
    assert kept.erase([line.id]) == 2
    assert holding(root, b"90210") == holding(root, b"10203") == []


def test_notes_of_other_generations_of_a_session_stay(sessions: Sessions, folder: Path) -> None:
    turn(sessions, "k", "I planted tomatoes on the balcony")
    kept = memory(
        sessions,
        folder,
        answer("The user planted tomatoes on the balcony."),
        answer("The user told where something is.", ("passport", "The passport is in the blue drawer.")),
        answer("The user planted leeks on the balcony."),
    )
    learn(kept, "k")
    sessions.archive("k")
    turn(sessions, "k", "where something is: the passport is in the blue drawer")
    learn(kept, "k")
    sessions.archive("k")
    turn(sessions, "k", "I planted leeks on the balcony")
    learn(kept, "k")
    [passport] = kept.list()
    assert texts(kept.belonging([passport.id])) == ["The user told where something is."]
    assert kept.erase([passport.id]) == 2
    assert texts(kept.days()) == ["The user planted tomatoes on the balcony.", "The user planted leeks on the balcony."]


def test_notes_of_other_generations_stay_with_a_fact_that_was_asked_for(sessions: Sessions, folder: Path) -> None:
    kept = memory(
        sessions,
        folder,
        answer("The user planted tomatoes on the balcony."),
        answer("The user spoke of the passport."),
        answer("The user planted leeks on the balcony."),
    )
    turn(sessions, "k", "I planted tomatoes on the balcony")
    learn(kept, "k")
    sessions.archive("k")
    sessions.add_messages("k", [Message(role="user", content="my passport is in the blue drawer")])
    passport = kept.remember("The passport is in the blue drawer.", key="k")
    sessions.add_messages("k", [Message(role="assistant", content="I will remember it.")])
    learn(kept, "k")
    sessions.archive("k")
    turn(sessions, "k", "I planted leeks on the balcony")
    learn(kept, "k")
    assert texts(kept.belonging([passport.id])) == ["The user spoke of the passport."]


def test_pages_keep_their_order_and_what_people_wrote(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("Figs are sweet")
    kept.remember("Plums are ripe", key="a")
    kept.remember("Pears are hard")
    file = folder / "MEMORY.md"
    file.write_text(file.read_text().replace("- Plums", "## Fruit\n\n- Plums").replace("- Pears", "mine\n- Pears"))
    kept.settle()
    wanted = file.read_text().replace("- Plums are ripe [a 0]\n", "")
    kept.forget_session("a")
    assert file.read_text() == wanted
    assert facts(memory(sessions, folder)) == ["Figs are sweet", "Pears are hard"]


def test_another_process_sees_that_it_was_erased(sessions: Sessions, folder: Path) -> None:
    kept, other = memory(sessions, folder), memory(sessions, folder)
    kept.remember("Figs are sweet", key="a")
    assert facts(other) == ["Figs are sweet"]
    kept.forget_session("a")
    assert facts(other) == []
    other.remember("Plums are ripe")
    assert facts(kept) == ["Plums are ripe"]
