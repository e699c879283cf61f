"""What is left of forty things that were said once in a real conversation, after several summaries.

    python -m benchmarks.needles locomo10.json [--dialogues 3,6] [--tokens 8000,32000] [--summaries 5] [--meaning]

The needles of `tests/needles` are planted into dialogues of LoCoMo (github.com/snap-research/locomo, CC BY-NC, not part
of this project), which give no instruction and hardly an identifier. The model that summarises keeps the first words of
each turn. A needle is at hand if the model is shown it, or if it is in the first ten hits of one search for a question.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

import nacre
from nacre import Message, Sessions
from nacre.history.tokens import count
from nacre.history.window import window
from nacre.runtime.summarizer import Compactor
from nacre.summaries.plan import Limits
from nacre.summaries.verbatim import split
from tests.needles.planted import FACTS, IDENTIFIERS, INSTRUCTIONS, NEEDLES
from tests.needles.test_needles import Forgetful

_TURNS = 300
_HITS = 10
_KEY = "long"


def turns(dialogue: dict[str, Any]) -> list[tuple[str, str]]:
    """A dialogue as turns: what the one said, and what the other did."""
    sessions = [value for key, value in dialogue["conversation"].items() if isinstance(value, list)]
    said = [str(message["text"]) for session in sessions for message in session]
    return list(zip(said[::2], said[1::2], strict=False))


async def talk(sessions: Sessions, said: Sequence[tuple[str, str]], limits: Limits, summaries: int) -> None:
    """Have the conversation, with everything planted before the last turns, and summarise it on the way."""
    rng = random.Random(7)
    size = min(_TURNS, len(said))
    planted = dict(zip(rng.sample(range(1, size - 30), len(NEEDLES)), NEEDLES, strict=True))
    compactor = Compactor(sessions, lambda _: Forgetful(), limits=lambda _: limits)
    for at, (asked, answered) in enumerate(said[:size]):
        needle = planted.get(at)
        words = asked if needle is None else f"{asked} {needle.said}"
        sessions.add_messages(_KEY, [Message(role="user", content=words), Message(role="assistant", content=answered)])
        if (at + 1) % (size // summaries) == 0:
            await compactor.compact(_KEY)


def measure(sessions: Sessions, limits: Limits, *, meaning: bool) -> dict[str, object]:
    """What is shown, and what is found."""
    now = sessions.snapshot(_KEY)
    view = window(now.messages, summary=now.summary, tokens=limits.tokens, limit=limits.messages)
    text = "\n".join(str(message.content) for message in view.messages)

    def at_hand(question: str, answer: str, *, by_meaning: bool) -> bool:
        hits = sessions.search(question, limit=_HITS, fill=True, meaning=by_meaning)
        return answer in text or any(answer in hit.snippet.replace("**", "") for hit in hits)

    missed = [needle.answer for needle in NEEDLES if not at_hand(needle.question, needle.answer, by_meaning=False)]
    found: dict[str, object] = {
        "summary tokens": count(now.summary),
        "kept": dict(Counter(item.kind for item in split(now.summary)[1].items)),
        "shown": {
            name: f"{sum(needle.answer in text for needle in group)}/{len(group)}"
            for name, group in (("instructions", INSTRUCTIONS), ("identifiers", IDENTIFIERS), ("facts", FACTS))
        },
        "at hand": f"{len(NEEDLES) - len(missed)}/40, not {missed}",
    }
    if meaning:
        while sessions.make_vectors(1000):
            pass
        lost = [needle.answer for needle in NEEDLES if not at_hand(needle.reworded, needle.answer, by_meaning=True)]
        found["at hand, reworded"] = f"{len(NEEDLES) - len(lost)}/40, not {lost}"
    return found


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each number."""
    parser = argparse.ArgumentParser(prog="benchmarks.needles")
    parser.add_argument("data", type=Path)
    parser.add_argument("--dialogues", default="3,6")
    parser.add_argument("--tokens", default="8000,32000")
    parser.add_argument("--summaries", type=int, default=5)
    parser.add_argument("--meaning", action="store_true")
    args = parser.parse_args(arguments)
    dialogues = json.loads(args.data.read_text())
    for number in map(int, args.dialogues.split(",")):
        for tokens in map(int, args.tokens.split(",")):
            limits = Limits(tokens=tokens)
            with tempfile.TemporaryDirectory() as folder:
                os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
                with nacre.open(f"{folder}/store", durability="relaxed") as sessions:
                    anyio.run(talk, sessions, turns(dialogues[number]), limits, args.summaries)
                    sys.stdout.write(f"LoCoMo {number}, {tokens} tokens, {args.summaries} summaries\n")
                    for name, value in measure(sessions, limits, meaning=args.meaning).items():
                        sys.stdout.write(f"  {name}: {value}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
