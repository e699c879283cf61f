"""Forty things said once in three hundred turns are still at hand after five summaries."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import anyio
import pytest

import nacre
from nacre.agent.ports import Context, Emit, Reply
from nacre.history.window import window
from nacre.index.stems import is_stop_word, stem
from nacre.messages import Message, ToolCall
from nacre.runtime.summarizer import Compactor
from nacre.sessions import Sessions
from nacre.summaries.plan import Limits
from tests.needles.planted import IDENTIFIERS, INSTRUCTIONS, NEEDLES, Needle

KEY = "long"
TURNS, SUMMARIES = 300, 5
WINDOWS = (8_000, 32_000)


class Forgetful:
    """Summarises as small models do: the first words of each turn, and hardly anything of before."""

    model = "forgetful"

    def __init__(self) -> None:
        self.requests = 0

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        self.requests += 1
        said = str(context.messages[-1].content).partition("What was said next:\n")[2]
        lines = [line.removeprefix("user: ") for line in said.split("\n") if line.startswith("user: ")]
        points = dict.fromkeys(f"- {' '.join(line.split()[:8])}" for line in lines)
        text = "\n".join(["What was talked about so far, in a few words each:", *points])
        return Reply(message=Message(role="assistant", content=text))

    async def close(self) -> None:
        pass


TOPICS = ("the garden", "the budget", "the ledger", "our trip", "the kitchen", "the parser", "the school", "the server")
ASKED = (
    "Can you look into {topic} again and tell me what you find?",
    "What did we say about {topic} the other day?",
    "I was thinking about {topic} this morning, and where we should go with it.",
    "Here is what I know about {topic}: it is late, it is over, and nobody is happy with it.",
    "Please write a short note on {topic} that I can send to the team.",
)
ANSWERED = (
    "I looked into {topic}. There is not much to say about it yet, but the next step is clear.",
    "About {topic}: we agreed to wait. When you want it done, I will do it.",
    "Here is a note on {topic}. It says what is done, what is open, and who does what.",
    "The build of {topic} is at revision {number}; see notes/{word}.md for what changed.",
)


def turn(rng: random.Random, needle: Needle | None) -> Iterator[Message]:
    """A turn about something, with or without something planted, with or without a tool."""
    topic, number = rng.choice(TOPICS), f"r{rng.randrange(100, 999)}{rng.choice('abcdef')}{rng.randrange(10, 99)}"
    asked = rng.choice(ASKED).format(topic=topic)
    yield Message(role="user", content=asked if needle is None else f"{asked} {needle.said}")
    if rng.random() < 0.3:
        yield Message(
            role="assistant",
            content="",
            tool_calls=(ToolCall(id=number, name="read_file", arguments={"path": f"notes/{number}.md"}),),
        )
        listing = "\n".join(f"-rw-r--r-- 1 dev dev {rng.randrange(9999)} file_{rng.randrange(9999)}" for _ in range(30))
        yield Message(role="tool", tool_call_id=number, name="read_file", content=listing)
    said = rng.choice(ANSWERED).format(topic=topic, number=number, word=topic.split()[-1])
    yield Message(role="assistant", content=said)


@pytest.fixture(scope="module", params=WINDOWS)
def limits(request: pytest.FixtureRequest) -> Limits:
    return Limits(tokens=request.param)


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory, limits: Limits) -> Iterator[Sessions]:
    """A session of many turns, summarised five times on the way, and others beside it."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with nacre.open(tmp_path_factory.mktemp("store"), durability="relaxed") as sessions:
        anyio.run(_talk, sessions, limits)
        yield sessions
    monkeypatch.undo()


async def _talk(sessions: Sessions, limits: Limits) -> None:
    rng = random.Random(7)
    # All but the last turns are covered by five summaries at least.
    planted = dict(zip(rng.sample(range(1, TURNS - 30), len(NEEDLES)), NEEDLES, strict=True))
    compactor = Compactor(sessions, lambda _: Forgetful(), limits=lambda _: limits)
    for at in range(TURNS):
        sessions.add_messages(KEY, list(turn(rng, planted.get(at))))
        sessions.add_messages("other", list(turn(rng, None)))
        if (at + 1) % (TURNS // SUMMARIES) == 0:
            await compactor.compact(KEY)


def test_the_conversation_was_summarised_five_times(talked: Sessions) -> None:
    assert len(list(talked.records(KEY, "sum"))) == SUMMARIES
    assert len(talked.get_history(KEY)) < 5


def shown(sessions: Sessions, limits: Limits) -> str:
    """What the model is shown of the session."""
    now = sessions.snapshot(KEY)
    view = window(now.messages, summary=now.summary, tokens=limits.tokens, limit=limits.messages)
    return "\n".join(str(message.content) for message in view.messages)


def test_instructions_and_identifiers_need_no_search(talked: Sessions, limits: Limits) -> None:
    text = shown(talked, limits)
    assert [needle for needle in INSTRUCTIONS + IDENTIFIERS if needle.answer not in text] == []


@pytest.mark.parametrize("needle", NEEDLES, ids=lambda needle: needle.answer)
def test_a_needle_is_shown_or_found(talked: Sessions, limits: Limits, needle: Needle) -> None:
    found = [hit.snippet.replace("**", "") for hit in talked.search(needle.question, limit=5)]
    assert needle.answer in shown(talked, limits) or any(needle.answer in snippet for snippet in found)


@pytest.mark.parametrize("needle", NEEDLES, ids=lambda needle: needle.answer)
def test_a_reworded_question_shares_no_word_with_its_needle(needle: Needle) -> None:
    said, asked = (
        {stem(word) for word in re.findall(r"[^\W_]+", text.lower()) if not is_stop_word(word)}
        for text in (needle.said, needle.reworded)
    )
    assert said.isdisjoint(asked)
