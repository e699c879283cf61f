"""What a text is about is found among what is remembered, within bounds, without asking a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacre.history.tokens import estimate
from nacre.index.minilm import MiniLM, is_installed
from nacre.memory import fact_index
from nacre.memory.agent_memory import HEADING, Memory
from nacre.memory.fact_index import FactIndex
from nacre.memory.store import KEY, MEMORY_PAGE, Line
from nacre.messages import Message
from nacre.sessions import Sessions
from tests.memory.paraphrases import PAIRS
from tests.memory.scene import memory, texts

needs_embeddings = pytest.mark.skipif(not is_installed(), reason="the extra [embeddings] is not installed")


def lines(*facts: str) -> list[Line]:
    return [Line(id=str(at), page=MEMORY_PAGE, text=fact) for at, fact in enumerate(facts)]


def test_what_is_recalled_is_about_the_text_and_says_where_it_is_from(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The database listens on port 5433", key="k")
    kept.remember("Plums are ripe in August")
    assert kept.recall("which port does the database use?", tokens=200) == (
        f"{HEADING}\n- The database listens on port 5433 [k 0]"
    )
    assert kept.recall("how are you?", tokens=200) == ""
    assert kept.recall("", tokens=200) == ""


def test_what_is_recalled_is_bounded(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    for at in range(30):
        kept.remember(f"Server number {at} in rack {at} runs service {at}")
    for tokens in (0, 10, 40, 100, 300):
        found = kept.recall("which server runs which service?", tokens=tokens)
        assert sum(estimate(Message(role="user", content=line)) for line in found.splitlines()) <= tokens
    assert kept.recall("server", tokens=300)


def test_what_was_shown_before_is_not_repeated(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The blue server is in Porto")
    first = kept.recall("where is the blue server?", tokens=100)
    assert kept.recall("the blue server?", tokens=100, shown=[first]) == ""


def test_what_is_always_to_be_done_comes_whatever_the_talk_is_of(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("Always answer in German")
    kept.remember("Plums are ripe")
    assert kept.recall("sort my invoices", tokens=100) == f"{HEADING}\n- Always answer in German"


@pytest.mark.parametrize(
    "text",
    [
        '"',
        "a OR b NEAR(c)",
        "*",
        "-x",
        "NOT",
        "\0",
        "col:x",
        "'; DROP TABLE words; --",
        "\ud800 figs",
        "(" * 50,
        "x" * 9999,
    ],
)
def test_any_text_may_be_asked_with(text: str) -> None:
    index = FactIndex()
    index.update(lines("figs are sweet"))
    index.find(text, limit=5)


@pytest.mark.parametrize(
    ("fact", "asked"),
    [
        ("用户住在里斯本", "里斯本的天气怎么样"),
        ("ユーザーは東京で働いている", "東京のおすすめは"),
        ("Der Nutzer heißt Jürgen Groß", "jurgen?"),
        ("Пользователь любит чай", "чай или кофе?"),
        ("The repository is acme-billing-v2", "what changed in billing?"),
        ("Runs PostgreSQL", "postgres"),
    ],
)
def test_words_of_any_script_are_found(fact: str, asked: str) -> None:
    index = FactIndex()
    index.update(lines("Plums are ripe in August", fact))
    assert texts(index.find(asked, limit=1)) == [fact]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Müller", "mueller"),
        ("Straße", "strasse"),
        ("e-mail", "email"),
        ("parseHeader", "parse_header"),
        ("1,234", "1234"),
        ("mice", "mouse"),
    ],
)
def test_a_word_is_found_in_its_other_spelling(one: str, other: str) -> None:
    index = FactIndex()
    index.update(lines(f"It is about {one} now", f"It is about {other} now", "It is about plums now"))
    assert {line.id for line in index.find(f"what about {one}", limit=5)} == {"0", "1"}
    assert {line.id for line in index.find(f"what about {other}", limit=5)} == {"0", "1"}
    index.close()


def test_the_index_follows_the_facts(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    line = kept.remember("The blue server is in Porto")
    assert "Porto" in kept.recall("blue server", tokens=100)
    other = memory(sessions, folder)
    other.edit(line.id, "The blue server is in Braga")
    assert "Braga" in kept.recall("blue server", tokens=100)
    other.forget("Braga")
    assert kept.recall("blue server", tokens=100) == ""


def test_recall_writes_nothing(sessions: Sessions, folder: Path, root: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The blue server is in Porto")
    (folder / "MEMORY.md").write_text("- The blue server is in Faro\n")
    before = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert "Faro" in kept.recall("blue server", tokens=100)
    assert {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_search_finds_facts_and_days(sessions: Sessions, folder: Path) -> None:
    kept = memory(sessions, folder)
    kept.remember("The blue server is in Porto")
    (folder / "memory").mkdir(exist_ok=True)
    (folder / "memory" / "2026-01-02.md").write_text("- 10:00 The blue server was restarted\n")
    kept.settle()
    assert set(texts(kept.search("blue server"))) == {"The blue server is in Porto", "The blue server was restarted"}


def many(sessions: Sessions, folder: Path, count: int) -> Memory:
    """A memory of many facts, stored at once."""
    from nacre.memory.store import note_of  # noqa: PLC0415 - only here

    words = ("server", "invoice", "garden", "flight", "sister", "engine", "recipe", "guitar", "bridge", "window")
    made = [
        Line(
            id=f"f{at}", page=MEMORY_PAGE, text=f"The {words[at % 10]} of project {at} is kept by team {at * 7 % 1000}."
        )
        for at in range(count)
    ]
    for at in range(0, count, 100):
        sessions.with_internal_keys().submit(KEY, [note_of(line) for line in made[at : at + 100]]).result()
    return memory(sessions, folder)


def test_the_right_one_of_ten_thousand_facts_is_recalled(sessions: Sessions, folder: Path) -> None:
    kept = many(sessions, folder, 10_000)
    kept.settle()
    for at in range(20):
        found = kept.recall(f"who looks after project {at * 497 + 1}?", tokens=500)
        assert f"project {at * 497 + 1} " in found


# ---- by meaning


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


@needs_embeddings
def test_texts_of_one_meaning_are_near(model: MiniLM) -> None:
    cat, kitten, tax = model.embed(["a cat sits on the mat", "a kitten rests on the rug", "quarterly tax report"])
    assert float(cat @ kitten) == pytest.approx(0.659, abs=0.005)
    assert float(cat @ tax) < 0.1
    assert float(cat @ cat) == pytest.approx(1)


@needs_embeddings
def test_a_text_has_the_same_vector_alone_and_among_others(model: MiniLM) -> None:
    alone = model.embed(["short"])[0]
    among = model.embed(["short", "a text that is much longer than the first one is"])[0]
    assert float(alone @ among) == pytest.approx(1, abs=1e-5)


@needs_embeddings
def test_the_right_fact_is_first_for_a_question_in_other_words(model: MiniLM) -> None:
    index = FactIndex()
    index.update(lines(*(fact for fact, _ in PAIRS)))
    vectors = fact_index.Vectors(model)
    index.use(vectors)
    while vectors.work(16):
        pass
    wrong = [question for fact, question in PAIRS if texts(index.find(question, limit=1)) != [fact]]
    assert len(PAIRS) - len(wrong) >= 36, wrong


@needs_embeddings
def test_vectors_are_made_off_the_way_and_used_when_they_are_there(sessions: Sessions, folder: Path) -> None:
    kept = Memory(sessions, folder)
    kept.remember("The user is a vegetarian")
    assert kept.recall("shall we have a steak?", tokens=100) == ""
    while kept.warm():
        pass
    assert "vegetarian" in kept.recall("shall we have a steak for dinner? I eat no meat", tokens=100)
    kept.forget("vegetarian")
    assert kept.recall("shall we have a steak for dinner? I eat no meat", tokens=100) == ""
