"""What is learned from a turn: one question to a model, and what of its answer may be believed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from nacre.agent.ports import Context
from nacre.entries import Message
from nacre.memory import contradictions
from nacre.memory.model import MEMORY_PAGE, Line, Part, Source, Strike
from nacre.memory.text_match import flat, in_first_person, is_grounded, is_same, is_wish, normal, salient, stems
from nacre.memory.turn_reader import Turn, moment

_LONGEST_LINE, _LONGEST_FACT, _LONGEST_SUBJECT = 240, 300, 60
_MOST_FACTS = 5
_MOST_ANSWER = 50_000
_ASKED, _ANSWERED, _KNOWN = 6_000, 3_000, 12
_EXCERPT = 120
_HALF = 0.5
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)

SYSTEM = """\
You keep the memory of an assistant. You read one turn of a conversation and answer with one JSON object:
{"line": "what was done or said, in one short sentence", "facts": [{"subject": "...", "text": "...", "replaces": []}]}

facts: what will still be true and useful in later conversations: who the user is, what they prefer, decided, own, \
plan or told you to do from now on. Most turns have none: then "facts": [].
text: one short sentence about the user or their work, in the user's own words and language. Nothing that was not said.
subject: what the fact is about, in one to three words, such as "home city" or "editor". Where a known fact is about \
the same thing, use its subject.
replaces: the numbers of the known facts that are no longer true because of this one; [] if all of them still hold.
Answer with the JSON object alone."""


class Proposal(Struct, frozen=True, kw_only=True):
    """A fact as a model gives it; `replaces` are numbers in the list of facts that it was shown."""

    subject: str = ""
    text: str
    replaces: tuple[int, ...] = ()


class Learned(Struct, frozen=True, kw_only=True):
    """What a model made of a turn: a line for the day, and facts; `shown` are the known facts that it saw."""

    line: str = ""
    facts: tuple[Proposal, ...] = ()
    shown: tuple[str, ...] = ()


def question(turn: Turn, known: Sequence[Line]) -> Context:
    """What the model is shown: the turn, and what is known of what it is about."""
    listed = "\n".join(f"{at}. {line.subject or '?'}: {line.text}" for at, line in enumerate(known[:_KNOWN], 1))
    parts = [f"Known facts:\n{listed}"] if listed else []
    parts.append(f"The user said:\n{_clipped(turn.own, _ASKED)}")
    if turn.pasted:
        parts.append(f"The user pasted or quoted, which are not their own words:\n{_clipped(turn.pasted, _ASKED)}")
    parts.append(f"You answered:\n{_clipped(turn.answered, _ANSWERED)}")
    return Context(system=SYSTEM, messages=[Message(role="user", content="\n\n".join(parts))])


def understood(answer: Any, known: Sequence[Line] = ()) -> Learned:
    """Read a model's answer; nothing is learned from one that is not in the shape that was asked for."""
    found = _object(answer) if isinstance(answer, str) else None
    if found is None:
        return Learned()
    line, facts = found.get("line"), found.get("facts")
    proposals = [_proposal(fact) for fact in facts[:_MOST_FACTS]] if isinstance(facts, list) else []
    return Learned(
        line=line if isinstance(line, str) else "",
        facts=tuple(proposal for proposal in proposals if proposal is not None),
        shown=tuple(fact.id for fact in known[:_KNOWN]),
    )


def daily_line(turn: Turn, learned: Learned, *, id: str) -> Line:
    """The line for the day; an excerpt of the turn where the model's words are not about it."""
    line = flat(unmarked(learned.line), _LONGEST_LINE)
    wanted = salient(line)
    if not wanted or len(wanted & stems(turn.said)) < _HALF * len(wanted):
        line = excerpt(turn)
    local = turn.at.astimezone()
    page = f"memory/{local:%Y-%m-%d}.md"
    return Line(
        id=id,
        page=page,
        text=line,
        source=source_of(turn),
        at=local.isoformat(),
        turn=turn.id,
        outside=turn.outside,
    )


def new_facts(
    turn: Turn,
    learned: Learned,
    *,
    near: Callable[[str, str], Sequence[Line]],
    is_unwanted: Callable[[str], bool],
    new_id: Callable[[], str],
) -> list[Part]:
    """The facts that were said, that are new, and that nobody took out; what they replace is struck.

    `near` gives the known facts that one, as subject and text, may repeat or replace.
    """
    parts: list[Part] = []
    taken: list[str] = []
    for proposal in learned.facts:
        text = flat(unmarked(proposal.text), _LONGEST_FACT)
        verdict = judge(text, turn)
        if verdict == "no" or is_unwanted(normal(text)) or any(is_same(text, other) for other in taken):
            continue
        subject = flat(proposal.subject, _LONGEST_SUBJECT)
        known = near(subject, text)
        same = repeated(subject, text, known)
        if same is not None and (verdict == "ask" or not same.pending):
            continue
        line = Line(
            # What waited to be confirmed is, by the user's own words.
            id=new_id() if same is None else same.id,
            page=MEMORY_PAGE,
            text=text,
            subject=subject,
            source=source_of(turn),
            at=moment(turn.at),
            pending=verdict == "ask",
        )
        parts.append(line)
        if not line.pending:
            numbers = {learned.shown[at - 1] for at in proposal.replaces if 0 < at <= len(learned.shown)}
            parts += [Strike(id=old.id, why="replaced", by=line.id) for old in replaced_by(line, known, numbers)]
        taken.append(text)
    return parts


def repeated(subject: str, text: str, known: Sequence[Line]) -> Line | None:
    """The known fact that a new one repeats, if there is one."""
    same = (line for line in known if is_same(text, line.text))
    return next(
        (line for line in same if not contradictions.replaces((subject, text), (line.subject, line.text))), None
    )


Verdict = Literal["keep", "ask", "no"]


def judge(text: str, turn: Turn) -> Verdict:
    """Whether a fact may be believed: who said it decides.

    The user's own words are believed, but not what they tell of wishes of "the user", which was copied from somewhere.
    The assistant's are too while nothing else has been in the conversation that it may be repeating, but never for
    what the user wishes. What the user pasted is asked about.
    """
    if is_grounded(text, in_first_person(turn.own) if is_wish(text) else turn.own):
        return "keep"
    if not turn.outside and not is_wish(text) and is_grounded(text, turn.said):
        return "keep"
    return "ask" if is_grounded(text, turn.asked) else "no"


def replaced_by(new: Line, known: Sequence[Line], named: Collection[str] = ()) -> list[Line]:
    """The facts of ours that a new one takes the place of; `named` are those that a model said it does."""
    mine = (new.subject, new.text)
    return [
        old
        for old in known
        if old.is_ours
        and not old.pending
        and (contradictions.replaces(mine, (old.subject, old.text)) or (old.id in named and _is_related(new, old)))
    ]


def _is_related(one: Line, other: Line) -> bool:
    """Tell whether two facts have a subject or a word that says something in common."""
    is_one_subject = bool(normal(one.subject)) and normal(one.subject) == normal(other.subject)
    return is_one_subject or not salient(one.text).isdisjoint(salient(other.text))


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
    # Behind the last thought none ends, and one that does not end would be looked through again and again.
    thoughts, end_of_thought, rest = answer[:_MOST_ANSWER].rpartition("</think>")
    text = _THOUGHT.sub("", thoughts + end_of_thought) + rest
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


def _proposal(fact: Any) -> Proposal | None:
    if isinstance(fact, str):
        return Proposal(text=fact)
    if not isinstance(fact, dict) or not isinstance(fact.get("text"), str):
        return None
    subject, replaces = fact.get("subject"), fact.get("replaces")
    numbers = replaces if isinstance(replaces, list) else []
    return Proposal(
        subject=subject if isinstance(subject, str) else "",
        text=fact["text"],
        replaces=tuple(number for number in numbers if type(number) is int),
    )


def unmarked(text: str) -> str:
    """A text that is one item of a list and no other Markdown, whatever a model made of it."""
    line = " ".join(text.split()).replace("~~", "").replace("<!--", "").replace("-->", "")
    return line.lstrip("-*+#> ").strip()
