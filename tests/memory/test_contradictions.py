"""A new fact takes the place of an old one only if both cannot hold; what it replaced can be restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.memory.agent_memory import NoSuchFact
from nacre.memory.contradictions import replaces
from nacre.providers.scripted import Scripted
from nacre.sessions import Sessions
from tests.memory.pairs import BOTH_HOLD, OTHER_UPDATES, OTHERS_BOTH_HOLD, UPDATES
from tests.memory.scene import answer, facts, learn, memory, page, texts, turn


def kept_of(sessions: Sessions, folder: Path, pair: tuple[str, str, str]) -> list[str]:
    """The facts of a pair that hold when both were learned, one after the other."""
    subject, first, second = pair
    for text in (first, second):
        turn(sessions, "k", text)
    kept = memory(sessions, folder, answer("", (subject, first)), answer("", (subject, second)))
    learn(kept, "k")
    return facts(kept)


@pytest.mark.parametrize("pair", BOTH_HOLD, ids=lambda pair: pair[1])
def test_facts_about_one_subject_hold_beside_each_other(
    sessions: Sessions, folder: Path, pair: tuple[str, str, str]
) -> None:
    assert kept_of(sessions, folder, pair) == [pair[1], pair[2]]


@pytest.mark.parametrize("pair", UPDATES, ids=lambda pair: pair[1])
def test_a_fact_that_cannot_hold_any_more_is_replaced(
    sessions: Sessions, folder: Path, pair: tuple[str, str, str]
) -> None:
    assert kept_of(sessions, folder, pair) == [pair[2]]


def test_the_rule_is_right_about_pairs_that_it_was_not_made_with() -> None:
    def is_replaced(pair: tuple[str, str, str]) -> bool:
        subject, first, second = pair
        return replaces((subject, second), (subject, first))

    assert sum(map(is_replaced, OTHERS_BOTH_HOLD)) <= 1
    assert sum(map(is_replaced, OTHER_UPDATES)) >= 18


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("home", "The user lives in Paris."), ("residence", "The user moved to Berlin.")),
        (("food", "The user is a vegetarian."), ("diet", "The user eats meat.")),
        (("family", "Die Nutzerin ist ledig."), ("status", "Die Nutzerin ist verheiratet.")),
    ],
)
def test_a_model_that_calls_the_subject_by_another_name_updates_too(
    sessions: Sessions, folder: Path, old: tuple[str, str], new: tuple[str, str]
) -> None:
    kept = memory(sessions, folder)
    for at in range(60):
        kept.remember(f"The user saw film number {at}.", subject="films")
    kept.remember(old[1], subject=old[0])
    kept.remember(new[1], subject=new[0])
    assert old[1] not in facts(kept)
    assert facts(kept)[-1] == new[1]


def test_with_replaces_without_where_all_else_is_the_same() -> None:
    old = ("deploys", "The team deploys with a review.")
    assert replaces(("deploys", "The team deploys without a review."), old)
    assert replaces(("Tee", "Der Nutzer trinkt Tee mit Zucker."), ("Tee", "Der Nutzer trinkt Tee ohne Zucker."))
    assert not replaces(("deploys", "The team deploys without a freeze."), old)
    assert not replaces(("tests", "The team deploys without a review."), old)


def test_what_a_model_says_is_replaced_is_replaced_if_it_is_related(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The user sings in a choir.", subject="choir")
    kept.remember("The user keeps bees.", subject="bees")
    turn(sessions, "k", "I only play the organ in the choir these days. My bees are fine.")
    said = (
        '{"line": "", "facts": [{"subject": "choir", "text": "The user plays the organ in the choir", "replaces": %s}]}'
    )
    provider = Scripted([said % "[1, 2, 9, 0, true, null]"])
    learning = memory(sessions, folder, provider=provider)
    learn(learning, "k")
    shown = str(provider.contexts[0].messages[0].content)
    assert "1. bees: The user keeps bees.\n2. choir: The user sings in a choir.\n" in shown
    assert facts(learning) == ["The user keeps bees.", "The user plays the organ in the choir"]


def test_what_a_person_wrote_is_never_replaced(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("Pears are hard.")
    file = folder / "MEMORY.md"
    file.write_text(f"{file.read_text()}- The user lives in Paris.\n")
    kept.remember("The user lives in Berlin.", subject="home")
    assert facts(kept) == ["Pears are hard.", "The user lives in Berlin.", "The user lives in Paris."]


# ---- versions


def moved(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    for city in ("Paris", "Berlin", "Lisbon"):
        kept.remember(f"The user lives in {city}.", subject="home")


def test_the_versions_of_a_fact_are_kept(sessions: Sessions, folder: Path) -> None:
    moved(sessions, folder)
    kept = memory(sessions, folder)
    versions = kept.history("lives in Lisbon")
    assert texts([version.line for version in versions]) == [
        "The user lives in Paris.",
        "The user lives in Berlin.",
        "The user lives in Lisbon.",
    ]
    assert [version.strike and version.strike.why for version in versions] == ["replaced", "replaced", None]
    assert texts([version.line for version in kept.history("Paris")]) == texts([version.line for version in versions])
    assert texts([version.line for version in kept.changes()]) == [
        "The user lives in Paris.",
        "The user lives in Berlin.",
    ]


def test_a_version_that_is_restored_takes_its_place_back(sessions: Sessions, folder: Path) -> None:
    moved(sessions, folder)
    kept = memory(sessions, folder)
    kept.restore("Paris")
    assert facts(kept) == ["The user lives in Paris."]
    assert page(folder) == [
        "- The user lives in Paris.",
        "- ~~The user lives in Berlin.~~",
        "- ~~The user lives in Lisbon.~~",
    ]
    again = memory(sessions, folder)
    assert facts(again) == ["The user lives in Paris."]
    assert again.restore("Lisbon").text == "The user lives in Lisbon."
    assert facts(again) == ["The user lives in Lisbon."]


def test_a_version_can_be_restored_beside_the_other(sessions: Sessions, folder: Path) -> None:
    moved(sessions, folder)
    kept = memory(sessions, folder)
    kept.restore("Berlin", both=True)
    assert facts(kept) == ["The user lives in Berlin.", "The user lives in Lisbon."]


def test_what_was_forgotten_or_edited_can_be_restored_and_learned_again(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("Figs are sweet.")
    kept.remember("Plums are ripe.")
    kept.edit("Figs", "Figs are sour.")
    kept.forget("Plums")
    kept.restore("Figs are sweet.")
    kept.restore("Plums")
    assert facts(memory(sessions, folder)) == ["Figs are sweet.", "Plums are ripe."]
    kept.forget("Plums")
    kept.restore("Plums")
    kept.edit("Plums", "Pears are hard.")
    turn(sessions, "k", "Plums are ripe.")
    learning = memory(sessions, folder, answer("", ("plums", "Plums are ripe.")))
    learn(learning, "k")
    assert "Plums are ripe." in facts(learning)


def test_what_was_restored_is_so_after_something_was_erased(sessions: Sessions, folder: Path) -> None:
    moved(sessions, folder)
    kept = memory(sessions, folder)
    figs = kept.remember("Figs are sweet.")
    kept.restore("Berlin")
    kept.erase([figs.id])
    assert facts(memory(sessions, folder)) == ["The user lives in Berlin."]


def test_only_what_does_not_hold_can_be_restored(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("Figs are sweet.")
    with pytest.raises(NoSuchFact, match="no replaced or forgotten fact matches 'Figs'"):
        kept.restore("Figs")
    with pytest.raises(NoSuchFact, match="no fact matches 'Plums'"):
        kept.history("Plums")
