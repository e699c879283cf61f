"""Retrieval on LoCoMo: how often a search finds the messages that answer a question.

    python -m benchmarks.recall locomo10.json [--joint] [--meaning] [--tool] [--dialogues 0-4] [--every N]

The data (github.com/snap-research/locomo, `data/locomo10.json`, CC BY-NC) is not part of this project. One store per
dialogue, or one for all with `--joint`; one session per date; a message is `Name: text [shares caption]`. Questions of
the categories 1 to 4 have an answer. `--tool` asks through the agent's tool in a session that has the question in it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio

import nacre
from nacre import Message, Sessions, ToolCall
from nacre.agent.ports import Scene
from nacre.tools.builtin import search_tool

Place = tuple[str, int]
Ask = Callable[[str, int], Sequence[Place]]
_ANSWERED = frozenset((1, 2, 3, 4))
_AT = 10
_PLACE = re.compile(r"^(\S+)@(\d+)  ", re.MULTILINE)


class Question(NamedTuple):
    """A question, its category, and the messages that answer it."""

    text: str
    category: int
    evidence: frozenset[Place]


class Score(NamedTuple):
    """What came of one question: the share of its evidence found, and at which place the first session with some is."""

    recall: float
    session: int
    category: int


def load(sessions: Sessions, dialogue: dict[str, Any], name: str) -> list[Question]:
    """Put a dialogue into a store; returns the questions about it whose evidence is there."""
    places: dict[str, Place] = {}
    for date, turns in dialogue["conversation"].items():
        if not isinstance(turns, list) or not turns:
            continue
        key = f"{name}:{date.removeprefix('session_')}"
        messages = [Message(role="user", content=_said(turn)) for turn in turns]
        sessions.add_messages(key, messages)
        for turn, stored in zip(turns, sessions.transcript(key), strict=True):
            places[turn["dia_id"]] = (key, stored.n)
    asked = []
    for item in dialogue["qa"]:
        named = re.findall(r"D\d+:\d+", " ".join(item.get("evidence", ())))
        evidence = frozenset(places[one] for one in named if one in places)
        if evidence:
            asked.append(Question(item["question"], item["category"], evidence))
    return asked


def _said(turn: dict[str, Any]) -> str:
    shares = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{shares}"


def by_library(sessions: Sessions, *, meaning: bool) -> Ask:
    def ask(question: str, limit: int) -> list[Place]:
        return [(hit.key, hit.n) for hit in sessions.search(question, limit=limit, meaning=meaning)]

    return ask


def by_tool(sessions: Sessions, *, meaning: bool) -> Ask:
    """Ask as an agent does: the question and the call are in the log."""
    tool = search_tool(sessions, meaning=lambda: meaning)

    def ask(question: str, limit: int) -> list[Place]:
        arguments = {"query": question, "limit": limit}
        call = ToolCall(id=f"call_{time.monotonic_ns()}", name="search_sessions", arguments=arguments)
        sessions.add_message("agent:live", "user", question)
        sessions.add_full_message("agent:live", Message(role="assistant", tool_calls=(call,)))
        scene = Scene(key="agent:live", call=call, emit=lambda _: None)

        async def run() -> str:
            return (await tool.run(arguments, scene)).text

        found = [(key, int(n)) for key, n in _PLACE.findall(anyio.run(run))]
        sessions.delete("agent:live")
        return found

    return ask


def score(ask: Ask, question: Question) -> Score:
    found = list(ask(question.text, 50))
    recall = len(question.evidence.intersection(found[:_AT])) / len(question.evidence)
    keys = list(dict.fromkeys(key for key, _ in found))
    wanted = {key for key, _ in question.evidence}
    return Score(recall, next((at for at, key in enumerate(keys, 1) if key in wanted), 99), question.category)


def report(name: str, scores: Sequence[Score]) -> str:
    kept = [one for one in scores if one.category in _ANSWERED]
    others = [one for one in scores if one.category not in _ANSWERED]

    def share(values: Iterator[float]) -> str:
        listed = list(values)
        return f"{sum(listed) / len(listed):.3f}" if listed else "-"

    kinds = " ".join(share(one.recall for one in kept if one.category == kind) for kind in (1, 2, 3, 4))
    first, five = (share(float(one.session <= most) for one in kept) for most in (1, 5))
    return (
        f"{name}: n {len(kept)}, recall@{_AT} {share(one.recall for one in kept)}, session first {first}, "
        f"among five {five}; by category {kinds}; adversarial {share(one.recall for one in others)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--joint", action="store_true", help="all dialogues in one store")
    parser.add_argument("--meaning", action="store_true", help="search by meaning too")
    parser.add_argument("--tool", action="store_true", help="through the agent's tool in a live turn")
    parser.add_argument("--dialogues", default="0-9", help="which dialogues, such as 0-4")
    parser.add_argument("--every", type=int, default=1, help="only every Nth question")
    args = parser.parse_args()
    first, _, last = args.dialogues.partition("-")
    dialogues = json.loads(args.data.read_text())
    chosen = range(int(first), int(last or first) + 1)
    scores: dict[int, list[Score]] = {}
    with tempfile.TemporaryDirectory() as room:
        os.environ["XDG_CACHE_HOME"] = f"{room}/cache"
        groups = [list(chosen)] if args.joint else [[number] for number in chosen]
        started = time.process_time()
        for group in groups:
            with nacre.open(f"{room}/{group[0]}") as sessions:
                asked = {number: load(sessions, dialogues[number], f"d{number}") for number in group}
                while args.meaning and sessions.make_vectors(64):
                    pass
                ask = (by_tool if args.tool else by_library)(sessions, meaning=args.meaning)
                for number, questions in asked.items():
                    scores[number] = [score(ask, question) for question in questions[:: args.every]]
        took = time.process_time() - started
    everything = [one for some in scores.values() for one in some]
    sys.stdout.write(f"{report('all', everything)}; {took * 1000 / max(1, len(everything)):.1f} ms CPU a question\n")
    for name, part in (("dialogues 0-4", range(5)), ("dialogues 5-9", range(5, 10))):
        sys.stdout.write(report(name, [one for number in part for one in scores.get(number, ())]) + "\n")


if __name__ == "__main__":
    main()
