"""Memory on LoCoMo: how many facts survive grounding, and how often what is recalled has the evidence.

    python -m benchmarks.facts locomo10.json [--dialogues 0,3] [--tokens 200] [--meaning]

The data with observations (github.com/dial481/locomo, `data/locomo10.json`, CC BY-NC) is not part of this project. The
observations stand for the facts that a model gives: no model is asked. Two messages, `Name: text [shares caption]`,
are a turn. Three things are measured:

- grounding: of the facts, how many are kept against their own turn, a random turn and the turn before;
- recall with every fact kept: how often a fact from a message with the evidence is among what is shown;
- recall after grounding: the same, when the facts were learned turn by turn, with all of memory's rules.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio

import nacre
from nacre import Message, Sessions
from nacre.index import minilm
from nacre.memory import Memory
from nacre.memory.agent_memory import usual_embedding
from nacre.memory.store import KEY, MEMORY_PAGE, Line, note_of
from nacre.memory.text_match import is_grounded
from nacre.providers.scripted import Scripted

_ADVERSARIAL = 5


class Turn(NamedTuple):
    """Two messages of one date, and the facts that were learned from them."""

    date: str
    said: tuple[str, ...]
    facts: tuple[str, ...]


class Question(NamedTuple):
    """A question, its category, and the facts from the messages with its evidence."""

    text: str
    category: int
    facts: tuple[frozenset[str], ...]


class Dialogue(NamedTuple):
    """A conversation of many dates, and what is asked about it."""

    turns: list[Turn]
    questions: list[Question]


def read(item: dict[str, Any]) -> Dialogue:
    """A dialogue in turns, each with its observations."""
    facts: dict[str, list[str]] = {}
    for speakers in item["observation"].values():
        for observations in speakers.values():
            for text, evidence in observations:
                named = re.findall(r"D\d+:\d+", evidence if isinstance(evidence, str) else " ".join(evidence))
                for one in named[:1]:
                    facts.setdefault(one, []).append(text)
    turns = []
    for date, messages in item["conversation"].items():
        if isinstance(messages, list):
            for at in range(0, len(messages), 2):
                pair = messages[at : at + 2]
                learned = tuple(fact for message in pair for fact in facts.get(message["dia_id"], ()))
                turns.append(Turn(date, tuple(map(_said, pair)), learned))
    questions = []
    for asked in item["qa"]:
        named = re.findall(r"D\d+:\d+", " ".join(asked.get("evidence", ())))
        if named:
            evidence = tuple(frozenset(facts.get(one, ())) for one in named)
            questions.append(Question(asked["question"], asked["category"], evidence))
    return Dialogue(turns, questions)


def _said(message: dict[str, Any]) -> str:
    shares = f" [shares {message['blip_caption']}]" if message.get("blip_caption") else ""
    return f"{message['speaker']}: {message['text']}{shares}"


def ground(dialogues: Sequence[Dialogue]) -> tuple[int, list[float]]:
    """How many facts there are, and which shares are kept against their own turn, five random ones, the one before."""
    rng = random.Random(1)
    own, others, before = list[bool](), list[bool](), list[bool]()
    for dialogue in dialogues:
        turns = ["\n".join(turn.said) for turn in dialogue.turns]
        for at, turn in enumerate(dialogue.turns):
            rest = turns[:at] + turns[at + 1 :]
            for fact in turn.facts:
                own.append(is_grounded(fact, turns[at]))
                others += [is_grounded(fact, said) for said in rng.sample(rest, 5)]
                before.append(is_grounded(fact, turns[max(0, at - 1)]))
    return len(own), [sum(kept) / len(kept) for kept in (own, others, before)]


def keep_all(sessions: Sessions, dialogue: Dialogue) -> None:
    """Put every fact on the page, whatever memory would say to it."""
    texts = [fact for turn in dialogue.turns for fact in turn.facts]
    notes = [note_of(Line(id=f"{at:06}", page=MEMORY_PAGE, text=text)) for at, text in enumerate(texts)]
    for at in range(0, len(notes), 100):
        sessions.with_internal_keys().submit(KEY, notes[at : at + 100]).result()


def learn(sessions: Sessions, folder: Path, dialogue: Dialogue) -> None:
    """Have the dialogue, and let memory go through its turns."""
    answers = []
    for turn in dialogue.turns:
        user, *assistant = (Message(role=role, content=text) for role, text in zip(_ROLES, turn.said, strict=False))
        sessions.add_messages(turn.date, [user, *(assistant or [Message(role="assistant", content="All right.")])])
        facts = [{"subject": "", "text": fact} for fact in turn.facts]
        answers.append(json.dumps({"line": "", "facts": facts}))
    model = Scripted(answers)
    memory = Memory(sessions, folder, provider=lambda: model, embedding=lambda: None)

    async def run() -> None:
        for date in dict.fromkeys(turn.date for turn in dialogue.turns):
            await memory.consolidate(date)

    anyio.run(run)
    memory.close()


_ROLES = ("user", "assistant")


class Outcome(NamedTuple):
    """What came of a question: whether any evidence is shown, the share of it, lines shown, and the category."""

    hit: bool
    recall: float
    lines: int
    category: int


def ask(memory: Memory, dialogue: Dialogue, tokens: int) -> Iterator[Outcome]:
    for question in dialogue.questions:
        shown = memory.recall(question.text, tokens=tokens).splitlines()[1:]
        texts = {re.sub(r" \[\S+ \d+\]$", "", line.removeprefix("- ")) for line in shown}
        found = [not facts.isdisjoint(texts) for facts in question.facts]
        yield Outcome(any(found), sum(found) / len(found), len(shown), question.category)


def measure(
    dialogues: Sequence[Dialogue], *, tokens: int, meaning: bool, is_grounded: bool
) -> tuple[int, list[Outcome]]:
    """How many facts there were on the pages, and what came of all questions."""
    outcomes: list[Outcome] = []
    count = 0
    for dialogue in dialogues:
        with tempfile.TemporaryDirectory() as place, nacre.open(place) as sessions:
            folder = Path(place) / "home"
            if is_grounded:
                learn(sessions, folder, dialogue)
            else:
                keep_all(sessions, dialogue)
            memory = Memory(sessions, folder, embedding=usual_embedding if meaning else lambda: None)
            while memory.warm():
                pass
            count += len(memory.list())
            outcomes += ask(memory, dialogue, tokens)
            memory.close()
    return count, outcomes


def _show(name: str, count: int, outcomes: Sequence[Outcome]) -> str:
    answered = [one for one in outcomes if one.category != _ADVERSARIAL]
    adversarial = [one for one in outcomes if one.category == _ADVERSARIAL]

    def mean(values: Sequence[float]) -> str:
        return f"{sum(values) / len(values):.3f}" if values else "-"

    columns = [
        str(count),
        str(len(answered)),
        mean([one.hit for one in answered]),
        mean([one.recall for one in answered]),
        mean([one.lines for one in answered]),
        mean([one.hit for one in adversarial]),
    ]
    return f"| {name} | {' | '.join(columns)} |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Memory on LoCoMo.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--dialogues", default="", help="such as 0,3; all by default")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--meaning", action="store_true", help="find by meaning too")
    args = parser.parse_args(arguments)
    if args.meaning and not minilm.is_installed():
        raise SystemExit("embeddings are not installed: run `nacre setup embeddings`")
    items = json.loads(args.data.read_text(encoding="utf-8"))
    wanted = [int(one) for one in args.dialogues.split(",") if one] or range(len(items))
    dialogues = [read(items[at]) for at in wanted]
    count, (own, other, before) = ground(dialogues)
    sys.stdout.write(
        f"grounding: of {count} facts {own:.3f} kept, {other:.4f} against a random turn, {before:.4f} before\n\n"
    )
    sys.stdout.write(
        "| facts | count | n | hit (1-4) | recall | lines | hit adversarial |\n|---|---|---|---|---|---|---|\n"
    )
    for name, grounded in (("every fact kept", False), ("after grounding", True)):
        found = measure(dialogues, tokens=args.tokens, meaning=args.meaning, is_grounded=grounded)
        sys.stdout.write(_show(f"{name}, {args.tokens} tokens", *found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
