"""What is learned from a turn: one question to a model, and what of its answer may be believed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from nacre.agent.ports import Context
from nacre.entries import Message
from nacre.memory.lines import MEMORY_PAGE, Line, Part, Source, State, Strike
from nacre.memory.turns import Turn, moment
from nacre.memory.words import are_related, flat, is_grounded, is_same, normal, salient, stems

_LONGEST_LINE, _LONGEST_FACT, _LONGEST_SUBJECT = 240, 300, 60
_MOST_FACTS = 5
_MOST_ANSWER = 50_000
_ASKED, _ANSWERED, _KNOWN = 6_000, 3_000, 12
_EXCERPT = 120
_HALF = 0.5
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)

SYSTEM = """\
You keep the memory of an assistant. You read one turn of a conversation and answer with one JSON object:
{"line": "what was done or said, in one short sentence", "facts": [{"subject": "...", "text": "..."}]}

facts: what will still be true and useful in later conversations: who the user is, what they prefer, decided, own, \
plan or told you to do from now on. Most turns have none: then "facts": [].
text: one short sentence about the user or their work, in the user's own words and language. Nothing that was not said.
subject: what the fact is about, in one to three words, such as "home city" or "editor". Where a known fact is about \
the same thing, use its subject: the new fact will take its place.
Answer with the JSON object alone."""


class Learned(Struct, frozen=True, kw_only=True):
    """What a model made of a turn: a line for the day, and facts by subject."""

    line: str = ""
    facts: tuple[tuple[str, str], ...] = ()


def question(turn: Turn, known: Sequence[Line]) -> Context:
    """What the model is shown: the turn, and what is known of what it is about."""
    listed = "\n".join(f"- {line.subject or '?'}: {line.text}" for line in known[:_KNOWN])
    parts = [f"Known facts:\n{listed}"] if listed else []
    parts += [f"The user said:\n{_clipped(turn.asked, _ASKED)}", f"You answered:\n{_clipped(turn.answered, _ANSWERED)}"]
    return Context(system=SYSTEM, messages=[Message(role="user", content="\n\n".join(parts))])


def understood(answer: Any) -> Learned:
    """Read a model's answer; nothing is learned from one that is not in the shape that was asked for."""
    found = _object(answer) if isinstance(answer, str) else None
    if found is None:
        return Learned()
    line, facts = found.get("line"), found.get("facts")
    pairs = [_pair(fact) for fact in facts[:_MOST_FACTS]] if isinstance(facts, list) else []
    return Learned(line=line if isinstance(line, str) else "", facts=tuple(pair for pair in pairs if pair is not None))


def daily_line(turn: Turn, learned: Learned, *, id: str) -> Line:
    """The line for the day; an excerpt of the turn where the model's words are not about it."""
    line = flat(unmarked(learned.line), _LONGEST_LINE)
    wanted = salient(line)
    if not wanted or len(wanted & stems(turn.said)) < _HALF * len(wanted):
        line = excerpt(turn)
    local = turn.at.astimezone()
    page = f"memory/{local:%Y-%m-%d}.md"
    return Line(id=id, page=page, text=line, source=source_of(turn), at=local.isoformat(), turn=turn.id)


def new_facts(state: State, turn: Turn, learned: Learned, *, new_id: Callable[[], str]) -> list[Part]:
    """The facts that were said, that are new, and that nobody took out; what they contradict is struck."""
    parts: list[Part] = []
    taken: list[str] = []
    for subject, given in learned.facts:
        text = flat(unmarked(given), _LONGEST_FACT)
        if not is_grounded(text, turn.said) or is_known(state, text) or any(is_same(text, other) for other in taken):
            continue
        line = Line(
            id=new_id(),
            page=MEMORY_PAGE,
            text=text,
            subject=flat(subject, _LONGEST_SUBJECT),
            source=source_of(turn),
            at=moment(turn.at),
        )
        parts.append(line)
        parts += [Strike(id=old.id, why="replaced", by=line.id) for old in contradicted(state.facts, line)]
        taken.append(text)
    return parts


def is_known(state: State, text: str) -> bool:
    """Tell whether a fact is there already, or was taken out by someone who did not want it."""
    if any(is_same(text, line.text) for line in state.facts):
        return True
    wanted = normal(text)
    unwanted = (id for id, strike in state.strikes.items() if strike.why in ("removed", "forgotten"))
    return any(normal(state.lines[id].text) == wanted for id in unwanted if id in state.lines and state.lines[id].text)


def contradicted(facts: Iterable[Line], new: Line) -> list[Line]:
    """The facts of ours that a new one takes the place of: of the same subject, and in words that they share."""
    subject = normal(new.subject)
    same = (line for line in facts if subject and line.is_ours and normal(line.subject) == subject)
    return [line for line in same if are_related(line.text, new.text)]


def excerpt(turn: Turn) -> str:
    """The beginning of what was said, for a day's line without a model."""
    asked, answered = flat(turn.asked, _EXCERPT), flat(turn.answered, _EXCERPT)
    return f"“{unmarked(asked)}” → “{unmarked(answered)}”"


def source_of(turn: Turn) -> Source:
    return Source(key=turn.key, n=turn.n, upto=turn.upto, at=moment(turn.at))


def _clipped(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def _object(answer: str) -> dict[str, Any] | None:
    """The first JSON object in an answer that reads as one; models put words and fences around it."""
    text = _THOUGHT.sub("", answer[:_MOST_ANSWER])
    begin, end = text.find("{"), text.rfind("}")
    for start, stop in ((begin, end + 1), (text.rfind('{"line"'), end + 1)):
        if 0 <= start < stop:
            try:
                found = msgspec.json.decode(text[start:stop])
            except (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError):
                continue
            if isinstance(found, dict):
                return found
    return None


def _pair(fact: Any) -> tuple[str, str] | None:
    if isinstance(fact, str):
        return ("", fact)
    if not isinstance(fact, dict) or not isinstance(fact.get("text"), str):
        return None
    subject = fact.get("subject")
    return (subject if isinstance(subject, str) else "", fact["text"])


def unmarked(text: str) -> str:
    """A text that is one item of a list and no other Markdown, whatever a model made of it."""
    line = " ".join(text.split()).replace("~~", "").replace("<!--", "").replace("-->", "")
    return line.lstrip("-*+#> ").strip()
