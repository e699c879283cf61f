"""What is learned from a turn: one question to a model, and what of its answer may be believed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from nacre.agent.ports import Context
from nacre.memory import contradictions, text_match
from nacre.memory.store import MEMORY_PAGE, Line, Part, Source, Strike
from nacre.memory.text_match import is_same, normal, one_line, salient, stems
from nacre.memory.turn_reader import Turn, utc_text
from nacre.messages import Message

_MAX_LINE, _MAX_FACT, _MAX_SUBJECT, _MAX_EXCERPT = 240, 300, 60, 120
_MAX_FACTS = 5
_MAX_ANSWER = 50_000
_MAX_ASKED, _MAX_ANSWERED, _MAX_KNOWN = 6_000, 3_000, 12
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


class Extraction(Struct, frozen=True, kw_only=True):
    """What a model made of a turn: a line for the day, and facts; `shown` are the known facts that it saw."""

    line: str = ""
    facts: tuple[Proposal, ...] = ()
    shown: tuple[str, ...] = ()


def question(turn: Turn, known: Sequence[Line]) -> Context:
    """What the model is shown: the turn, and what is known of what it is about."""
    listed = "\n".join(f"{at}. {line.subject or '?'}: {line.text}" for at, line in enumerate(known[:_MAX_KNOWN], 1))
    parts = [f"Known facts:\n{listed}"] if listed else []
    parts.append(f"The user said:\n{_clip(turn.own, _MAX_ASKED)}")
    if turn.pasted:
        parts.append(f"The user pasted or quoted, which are not their own words:\n{_clip(turn.pasted, _MAX_ASKED)}")
    parts.append(f"You answered:\n{_clip(turn.answered, _MAX_ANSWERED)}")
    return Context(system=SYSTEM, messages=[Message(role="user", content="\n\n".join(parts))])


def parse_answer(answer: Any, known: Sequence[Line] = ()) -> Extraction:
    """Read a model's answer; nothing is learned from one that is not in the shape that was asked for."""
    found = _find_object(answer) if isinstance(answer, str) else None
    if found is None:
        return Extraction()
    line, facts = found.get("line"), found.get("facts")
    proposals: list[Proposal] = []
    for fact in facts[:_MAX_FACTS] if isinstance(facts, list) else ():
        match fact:
            case str():
                proposals.append(Proposal(text=fact))
            case {"text": str(text)}:
                subject, replaces = fact.get("subject"), fact.get("replaces")
                numbers = tuple(at for at in replaces if type(at) is int) if isinstance(replaces, list) else ()
                subject = subject if isinstance(subject, str) else ""
                proposals.append(Proposal(subject=subject, text=text, replaces=numbers))
            case _:
                pass
    shown = tuple(fact.id for fact in known[:_MAX_KNOWN])
    return Extraction(line=line if isinstance(line, str) else "", facts=tuple(proposals), shown=shown)


def daily_line(turn: Turn, learned: Extraction, *, id: str) -> Line:
    """The line for the day; an excerpt of the turn where the model's words are not about it."""
    line = one_line(strip_markup(learned.line), _MAX_LINE)
    wanted = salient(line)
    if not wanted or len(wanted & stems(turn.said)) < _HALF * len(wanted):
        asked, answered = one_line(turn.asked, _MAX_EXCERPT), one_line(turn.answered, _MAX_EXCERPT)
        line = f"“{strip_markup(asked)}” → “{strip_markup(answered)}”"
    local, source = turn.at.astimezone(), source_of(turn)
    page, at = f"memory/{local:%Y-%m-%d}.md", local.isoformat()
    return Line(id=id, page=page, text=line, source=source, at=at, turn=turn.id, outside=turn.outside)


def new_facts(
    turn: Turn,
    learned: Extraction,
    *,
    near: Callable[[str, str], Sequence[Line]],
    is_unwanted: Callable[[str], bool],
    new_id: Callable[[], str],
) -> list[Part]:
    """The facts that were said, that are new, and that nobody removed; what they replace is struck.

    `near` gives the known facts that one, as subject and text, may repeat or replace.
    """
    parts: list[Part] = []
    taken: list[str] = []
    for proposal in learned.facts:
        text = one_line(strip_markup(proposal.text), _MAX_FACT)
        verdict = judge(text, turn)
        if verdict == "no" or is_unwanted(normal(text)) or any(is_same(text, other) for other in taken):
            continue
        subject = one_line(proposal.subject, _MAX_SUBJECT)
        known = near(subject, text)
        same = find_repeated(subject, text, known)
        if same is not None and (verdict == "ask" or not same.pending):
            continue
        # What waited to be confirmed is, by the user's own words.
        id, source, waits = new_id() if same is None else same.id, source_of(turn), verdict == "ask"
        line = Line(id=id, page=MEMORY_PAGE, text=text, subject=subject, source=source, at=source.at, pending=waits)
        parts.append(line)
        if not line.pending:
            numbers = {learned.shown[at - 1] for at in proposal.replaces if 0 < at <= len(learned.shown)}
            parts += [Strike(id=old.id, why="replaced", by=line.id) for old in replaced_by(line, known, numbers)]
        taken.append(text)
    return parts


def find_repeated(subject: str, text: str, known: Sequence[Line]) -> Line | None:
    """The known fact that a new one repeats, if there is one."""
    for line in known:
        if is_same(text, line.text) and not contradictions.replaces((subject, text), (line.subject, line.text)):
            return line
    return None


def judge(text: str, turn: Turn) -> Literal["keep", "ask", "no"]:
    """Whether a fact may be believed: who said it decides.

    The user's own words are believed, but not instructions of "the user" among them, which were copied from somewhere.
    The assistant's are too while nothing else has been in the conversation that it may be repeating, but never for
    instructions. What the user pasted is asked about.
    """
    is_instruction = text_match.is_instruction(text)
    if text_match.is_grounded(text, text_match.in_first_person(turn.own) if is_instruction else turn.own):
        return "keep"
    if not turn.outside and not is_instruction and text_match.is_grounded(text, turn.said):
        return "keep"
    return "ask" if text_match.is_grounded(text, turn.asked) else "no"


def replaced_by(new: Line, known: Sequence[Line], named: Collection[str] = ()) -> list[Line]:
    """The facts of ours that a new one takes the place of; `named` are those that a model said it does."""
    found, subject = [], normal(new.subject)
    for old in (line for line in known if line.is_ours and not line.pending):
        # A model is believed if the two have a subject, or a word that says something, in common.
        is_one_subject = bool(subject) and subject == normal(old.subject)
        is_named = old.id in named and (is_one_subject or not salient(new.text).isdisjoint(salient(old.text)))
        if is_named or contradictions.replaces((new.subject, new.text), (old.subject, old.text)):
            found.append(old)
    return found


def source_of(turn: Turn) -> Source:
    return Source(key=turn.key, n=turn.n, upto=turn.upto, at=utc_text(turn.at))


def _clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


def _find_object(answer: str) -> dict[str, Any] | None:
    """The first JSON object in an answer that reads as one; models put words and fences around it."""
    # After the last thought none ends, and one that does not end would be searched again and again.
    thoughts, end_of_thought, rest = answer[:_MAX_ANSWER].rpartition("</think>")
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


def strip_markup(text: str) -> str:
    """A text that is one item of a list and no other Markdown, whatever a model made of it."""
    line = " ".join(text.split()).replace("~~", "").replace("<!--", "").replace("-->", "")
    return line.lstrip("-*+#> ").strip()
