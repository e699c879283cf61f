"""What a summary carries word for word: instructions, questions, identifiers, paths, and the text of skills.

They stand behind the prose in a section of fixed form, which the next summary reads back; so they
outlive any number of summaries, whatever the model makes of the prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nacre.entries import Message
from nacre.history.compaction import is_beginning
from nacre.history.text import text_of
from nacre.history.tokens import count

HEADING = "[kept word for word; the number says how often it came up]"
SKILL = "use_skill"

Kind = Literal["instruction", "question", "identifier", "path"]

_WORTH: Mapping[Kind, int] = {"instruction": 4, "question": 2, "identifier": 1, "path": 0}
"""How much more often something else has to come up to be worth as much."""
_LONGEST = 240
_MOST_OF_ONE = 12
_NO_ROOM = "(there is no room for its text here; use_skill loads it again)"

_ITEM = re.compile(r"- (instruction|question|identifier|path) (\d{1,9}): (.+)")
_SKILL = re.compile(r"\[skill (.+)\]")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - as they are written
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_WORD = re.compile(r"[^\W_]{4,}")
_INSTRUCTION = re.compile(
    r"\b(?:always|never|from (?:now|here) on|don['’]t|do not|must|should(?:n['’]t)?|make sure|remember|prefer"
    r"|instead of|call me|my name is|i(?:['’]m| am)|use\b.+\bnot"
    r"|immer|niemals?|nie|ab jetzt|merke? dir|toujours|jamais|désormais|siempre|nunca|всегда|никогда|запомни)\b"
    r"|^only\b|总是|不要|必须|以后|记住|いつも|必ず|しないで",
    re.IGNORECASE,
)
_EXTENSIONS = (
    "c|cc|cfg|conf|cpp|cs|css|csv|db|env|go|gz|h|hpp|html?|ini|ipynb|java|jpe?g|jsonl?|jsx?|kt|lock|log|md|pdf|php|png"
    "|proto|py|rb|rs|rst|sh|sql|svg|swift|tar|toml|tsx?|txt|xlsx?|xml|ya?ml|zip|zst"
)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\"'<>)\]]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_PATH = re.compile(
    r"(?<![\w/.])(?:(?:~|\.\.?)?/[\w@%+~-][\w.@%+~-]*(?:/[\w.@%+~-]+)*"
    rf"|[\w@.-]+/(?:[\w.@%+~-]+/)+[\w.@%+~-]+|(?:[\w@.-]+/)*[\w-]+(?:\.[\w-]+)*\.(?:{_EXTENSIONS}))(?!\w)"
)
_IDENTIFIER = re.compile(
    r"\d+(?:[.:]\d+){2,}(?:[-+.:]\w+)*"  # 10.0.0.1:80, 4.18.2-rc3
    r"|(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w-]{3,}"  # ORD-58213, 9f3c2ab
    r"|[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*|[A-Z]{2,}(?:-[A-Z]+)+"
    r"|(?!(?:19|20)\d\d\b)\d{4,}#?"
    r"|`[^`\n]{2,60}`"
)


class Keepsake(Struct, frozen=True, kw_only=True):
    """Something that was said, in its own words, and in how many messages it came up."""

    kind: Kind
    text: str
    uses: int = 1


class Kept(Struct, frozen=True, kw_only=True):
    """What a summary carries: the oldest first; skills by name with their text."""

    items: tuple[Keepsake, ...] = ()
    skills: Mapping[str, str] = {}


def split(summary: str) -> tuple[str, Kept]:
    """The prose of a summary and what it carries; any text is a summary, most carry nothing."""
    prose, mark, section = f"\n{summary}".rpartition(f"\n{HEADING}\n")
    if not mark:
        return summary.strip(), Kept()
    items: list[Keepsake] = []
    skills: dict[str, list[str]] = {}
    for line in section.split("\n"):
        if (found := _ITEM.fullmatch(line)) is not None:
            kind: Kind = found[1]  # type: ignore[assignment] # the pattern has no others
            items.append(Keepsake(kind=kind, text=found[3], uses=int(found[2])))
        elif (named := _SKILL.fullmatch(line)) is not None:
            skills[named[1]] = []
        elif skills and line.startswith("| "):
            skills[next(reversed(skills))].append(line[2:])
    return prose.strip(), Kept(items=tuple(items), skills={name: "\n".join(skills[name]) for name in skills})


def joined(prose: str, kept: Kept) -> str:
    """A summary of prose and what it carries, as `split` takes it apart."""
    lines = [*map(_line, kept.items), *(line for name, text in kept.skills.items() for line in _lines(name, text))]
    clean = prose.replace(HEADING, "").strip()
    return "\n".join([*([clean, ""] if clean else []), HEADING, *lines]) if lines else clean


def gathered(kept: Kept, messages: Sequence[Message], *, tokens: int) -> Kept:
    """What is carried after more messages have been covered, within a number of tokens.

    What came up again moves to the end. Where there is not enough room, what came up least goes
    first, the oldest of it before the others. Skills get half of the room at most.
    """
    skills = _fitting_skills({**kept.skills, **_skills(messages)}, tokens // 2)
    items = _Items(kept.items)
    for message in messages:
        items.read(message)
    items.close(messages)
    for question in _open_questions(messages):
        items.add("question", question)
    return Kept(items=_fitting(items.all(), tokens - _cost(skills) - count(HEADING) - 1), skills=skills)


def _line(item: Keepsake) -> str:
    return f"- {item.kind} {item.uses}: {item.text}"


def _lines(name: str, text: str) -> list[str]:
    return [f"[skill {name}]", *(f"| {line}" for line in text.split("\n"))]


# ---- what there is to keep


class _Items:
    """Keepsakes by their text, and which of them each name belongs to; what came up last is last."""

    def __init__(self, items: Iterable[Keepsake]) -> None:
        self._items: dict[str, Keepsake] = {}
        self._owners: dict[str, str] = {}
        for item in items:
            self._items[item.text] = item
            self._own(item.text, item.text)

    def all(self) -> list[Keepsake]:
        return list(self._items.values())

    def add(self, kind: Kind, text: str) -> None:
        """Keep a text, unless it is kept."""
        self._items.setdefault(text, Keepsake(kind=kind, text=text))
        self._own(text, text)

    def read(self, message: Message) -> None:
        """Take what people and models said, and the paths that were worked on."""
        if message.role not in ("user", "assistant"):
            return
        before = set(self._items)
        met: set[str] = set()
        for kind, text, whole in list(_said(message))[:_MOST_OF_ONE]:
            met |= self._met(whole) | ({text} if text in before else set())
            if kind == "instruction" or not all(name in self._owners for name in _names(whole)):
                self.add(kind, text)
                self._own(whole, text)
        for text in met & before:
            item = self._items.pop(text)
            self._items[text] = replace(item, uses=item.uses + 1)

    def close(self, messages: Sequence[Message]) -> None:
        """Let go of questions that have been answered."""
        for item in self.all():
            if item.kind == "question" and _is_closed(item.text, messages):
                del self._items[item.text]

    def _met(self, text: str) -> set[str]:
        return {self._owners[name] for name in _names(text) if name in self._owners}

    def _own(self, whole: str, text: str) -> None:
        for name in _names(whole):
            self._owners.setdefault(name, text)


def _said(message: Message) -> Iterator[tuple[Kind, str, str]]:
    """What is worth keeping of a message: its kind, its words, and the whole sentence it stands in."""
    for sentence in _sentences(message):
        if message.role == "user" and _INSTRUCTION.search(sentence) and not sentence.endswith("?"):
            yield "instruction", sentence[:_LONGEST], sentence
        elif names := _names(sentence):
            kind: Kind = "path" if all(map(_PATH.fullmatch, names)) else "identifier"
            yield kind, _around(sentence, names[0]), sentence
    for call in message.tool_calls:
        values = call.arguments.values() if isinstance(call.arguments, dict) else ()
        for value in values:
            if isinstance(value, str) and len(value) <= _LONGEST and _PATH.fullmatch(value):
                yield "path", f"{call.name} {value}", value


def _open_questions(messages: Sequence[Message]) -> Iterator[str]:
    """Questions that nobody has answered: the user's, where the turn has no answer, and the model's."""
    starts = [at for at, message in enumerate(messages) if is_beginning(message)]
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=False):
        turn, after = messages[start:end], messages[end:]
        answer = next((message for message in reversed(turn) if _is_answer(message)), None)
        if answer is None:
            asked = _questions([message for message in turn if message.role == "user"])
        else:
            asked = [text for text in _questions([answer]) if after and not _answers(text_of(after[0]), text)][-1:]
        yield from (question for question in asked if not _is_closed(question, after))


def _questions(messages: Iterable[Message]) -> list[str]:
    found = [sentence for message in messages for sentence in _sentences(message)]
    return [sentence[-_LONGEST:] for sentence in found if sentence.endswith(("?", "？"))]  # noqa: RUF001 - as it is written


def _answers(reply: str, question: str) -> bool:
    """Tell whether a reply may be one to a question: it is short, or speaks of the same things."""
    return len(reply.split()) <= 8 or bool(_words(reply) & _words(question))  # noqa: PLR2004 - a few words


def _is_closed(question: str, messages: Iterable[Message]) -> bool:
    """Tell whether the model has spoken of most that a question asks about."""
    words = _words(question)
    answers = (_words(text_of(message)) for message in messages if _is_answer(message))
    return any(3 * len(words & said) >= 2 * max(len(words), 1) for said in answers)


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls and bool(text_of(message).strip())


# ---- text


def _sentences(message: Message) -> list[str]:
    """The sentences of a message, without code."""
    return [piece.strip() for piece in _END.split(_CODE.sub("\n", text_of(message))) if piece.strip()]


def _names(text: str) -> list[str]:
    """The identifiers and paths in a text."""
    found: list[str] = []
    for pattern in (_ADDRESS, _PATH, _IDENTIFIER):
        found += [name.rstrip(".,;:") for name in pattern.findall(text)]
        text = pattern.sub(" ", text)
    return found


def _around(sentence: str, name: str) -> str:
    """A sentence, or of a long one what is around a name."""
    if len(sentence) <= _LONGEST:
        return sentence
    start = max(sentence.find(name) - _LONGEST // 2, 0)
    return sentence[start : start + _LONGEST].strip()


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


# ---- skills


def _skills(messages: Iterable[Message]) -> dict[str, str]:
    """The text of every skill that was loaded, as it was loaded last."""
    asked: dict[str, str] = {}
    found: dict[str, str] = {}
    for message in messages:
        for call in message.tool_calls:
            if call.name == SKILL and isinstance(call.arguments, dict):
                parts = (call.arguments.get("name"), call.arguments.get("file"))
                named = "/".join(part for part in parts if isinstance(part, str) and part)
                offset = call.arguments.get("offset")
                is_part = named and isinstance(offset, int) and offset > 0
                asked[call.id] = f"{named}, from character {offset}" if is_part else named
        name = asked.get(message.tool_call_id or "", "") if message.role == "tool" else ""
        if name and "\n" not in name and not message.extra.get("failed"):
            found.pop(name, None)
            found[name] = text_of(message)
    return found


def _fitting_skills(skills: Mapping[str, str], tokens: int) -> dict[str, str]:
    """The skills with their texts as far as there is room, the newest first; of the others only that they were used."""
    found: dict[str, str] = {}
    for name, text in list(skills.items())[::-1]:
        fits = _cost(found) + _cost({name: text}) <= tokens
        shown = text if fits else _NO_ROOM
        if _cost(found) + _cost({name: shown}) <= tokens:
            found[name] = shown
    return dict(list(found.items())[::-1])


def _cost(skills: Mapping[str, str]) -> int:
    return sum(count(line) + 1 for name, text in skills.items() for line in _lines(name, text))


# ---- room


def _fitting(items: Sequence[Keepsake], tokens: int) -> tuple[Keepsake, ...]:
    """As many as there is room for; those that came up least go first, the oldest of them before the others."""
    costs = [count(_line(item)) + 1 for item in items]
    excess = sum(costs) - tokens
    gone: set[int] = set()
    for at in sorted(range(len(items)), key=lambda at: (items[at].uses + _WORTH[items[at].kind], at)):
        if excess <= 0:
            break
        gone.add(at)
        excess -= costs[at]
    return tuple(item for at, item in enumerate(items) if at not in gone)
