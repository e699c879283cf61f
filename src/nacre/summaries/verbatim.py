"""What a summary carries word for word: instructions, decisions, questions, identifiers, numbers, paths, and skills.

They stand after the prose in a section of fixed form, which the next summary reads back; so they
outlive any number of summaries, whatever the model makes of the prose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nacre.history.message_text import text_of
from nacre.history.tokens import count
from nacre.history.window import is_beginning
from nacre.messages import Message
from nacre.summaries.instructions import weigh

HEADING = "[kept word for word; the number says how often it came up]"
SKILL = "use_skill"

Kind = Literal["instruction", "decision", "question", "identifier", "number", "path", "report"]
"""A report is what the assistant said that has an identifier in it; an identifier is the user's own."""

_SHARES: Mapping[Kind, float] = {
    "instruction": 0.35,
    "identifier": 0.25,
    "decision": 0.1,
    "number": 0.1,
    "report": 0.1,
    "path": 0.05,
    "question": 0.05,
}
"""The part of the room that each kind has for itself; what one leaves free is for the others."""
_MAX_ALIKE = 3
_MAX_TEXT = 240
_MAX_OF_ONE = 12
_PASTED = 2000
"""Characters from which on a message may have been pasted: then only its beginning and its end are the user's own."""
_NO_ROOM = "(there is no room for its text here; use_skill loads it again)"

_ITEM = re.compile(r"- (instruction|decision|question|identifier|number|path|report) (\d{1,9}): (.+)")
_SKILL = re.compile(r"\[skill (.+)\]")
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - as they are written
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ENDLESS = re.compile(r"[^\s。！？，、；：]{300,}")  # noqa: RUF001 - the same
_QUOTED = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]{4,}")
_DECISION = re.compile(
    r"\b(?:decided (?:that|to|on|against|not|for)|decision (?:is|was)|agreed (?:that|to|on)|settled on|opted for"
    r"|signed off|(?:let['’]s|(?:we|i)(?:['’]ll| will)) (?:go with|use|stick with|switch to)"
    r"|(?:is|was|are|were) (?:approved|rejected|cancell?ed|postponed)"
    r"|(?:entschieden|beschlossen|vereinbart)|décidé|convenu|decidido|decidimos|acordad[oa]|deciso|решил[аи]?|решено)\b"
    r"|决定|選定|选定|決めた|決定|결정",
    re.IGNORECASE,
)
_MONTH = "jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec|januar|februar|märz|mai|juni|juli|okt|dez"
_NUMBER = re.compile(
    r"[$€£¥₹]\s?\d[\d.,]*|\b(?!100\s?%)\d[\d.,]*\s?(?:%|[€£¥₹]|(?:euros?|dollars?|usd|eur|gbp|chf|kg|km|gb|mb|tb|kb|ms|mm|cm|mg"
    r"|ml|kwh|kw|amperes?|volts?|watts?|degrees|per cent|percent)\b)"
    rf"|\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}:\d\d\b|\b\d{{1,2}}\.? (?:{_MONTH})[a-z]*\b|\b(?:{_MONTH})[a-z]* \d{{1,2}}\b",
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
    # ORD-58213, 9f3c2ab; not 18th, 1990s
    r"|(?!\d+(?:st|nd|rd|th|s)\b)\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w-]{3,}"
    r"|[A-Za-z]\w*_\w+|\b[a-z]+[A-Z]\w*|[A-Z]{2,}(?:-[A-Z]+)+"
    r"|(?!(?:19|20)\d\ds?\b)\d{4,}#?"
    r"|`[^`\n]{2,60}`"
)


class KeptText(Struct, frozen=True, kw_only=True):
    """Something that was said, in its own words, and in how many messages it came up."""

    kind: Kind
    text: str
    uses: int = 1


class Kept(Struct, frozen=True, kw_only=True):
    """What a summary carries: the oldest first; skills by name with their text."""

    items: tuple[KeptText, ...] = ()
    skills: Mapping[str, str] = {}


def split(summary: str) -> tuple[str, Kept]:
    """The prose of a summary and what it carries; any text is a summary, most carry nothing."""
    prose, mark, section = f"\n{summary}".rpartition(f"\n{HEADING}\n")
    if not mark:
        return summary.strip(), Kept()
    items: list[KeptText] = []
    skills: dict[str, list[str]] = {}
    for line in section.split("\n"):
        if (found := _ITEM.fullmatch(line)) is not None:
            kind: Kind = found[1]  # type: ignore[assignment] # the pattern has no others
            items.append(KeptText(kind=kind, text=found[3], uses=int(found[2])))
        elif (named := _SKILL.fullmatch(line)) is not None:
            skills[named[1]] = []
        elif skills and line.startswith("| "):
            skills[next(reversed(skills))].append(line[2:])
    return prose.strip(), Kept(items=tuple(items), skills={name: "\n".join(skills[name]) for name in skills})


def join_kept(prose: str, kept: Kept) -> str:
    """A summary of prose and what it carries, as `split` takes it apart."""
    lines = [*map(_line, kept.items), *(line for name, text in kept.skills.items() for line in _lines(name, text))]
    clean = prose.replace(HEADING, "").strip()
    return "\n".join([*([clean, ""] if clean else []), HEADING, *lines]) if lines else clean


def gather(kept: Kept, messages: Sequence[Message], *, tokens: int) -> Kept:
    """What is carried after more messages have been covered, within a number of tokens.

    What came up again moves to the end. Every kind has a part of the room for itself. Where that is not enough, what
    came up least and says least goes first, the oldest of it before the others. Skills get half of the room at most.
    """
    # The skills with their texts as far as there is room, the newest first; of the others only that they were used.
    newest_first: dict[str, str] = {}
    for name, text in list({**kept.skills, **_skills(messages)}.items())[::-1]:
        left = tokens // 2 - _cost(newest_first)
        shown = text if _cost({name: text}) <= left else _NO_ROOM
        if _cost({name: shown}) <= left:
            newest_first[name] = shown
    skills = dict(list(newest_first.items())[::-1])
    items = _Items(kept.items)
    for message in messages:
        items.read(message)
    items.close(messages)
    for question in _open_questions(messages):
        items.add("question", question)
    return Kept(items=_fit(items.all(), tokens - _cost(skills) - count(HEADING) - 1), skills=skills)


def _line(item: KeptText) -> str:
    return f"- {item.kind} {item.uses}: {item.text}"


def _lines(name: str, text: str) -> list[str]:
    return [f"[skill {name}]", *(f"| {line}" for line in text.split("\n"))]


# ---- what there is to keep


class _Items:
    """Kept texts by their words, and which of them each name belongs to; what came up last is last."""

    def __init__(self, items: Iterable[KeptText]) -> None:
        self._items: dict[str, KeptText] = {}
        self._owners: dict[str, str] = {}
        for item in items:
            self._items[item.text] = item
            self._own(item.text, item.text)

    def all(self) -> list[KeptText]:
        return list(self._items.values())

    def add(self, kind: Kind, text: str) -> None:
        """Keep a text, unless it is kept."""
        self._items.setdefault(text, KeptText(kind=kind, text=text))
        self._own(text, text)

    def read(self, message: Message) -> None:
        """Take what people and models said, and the paths that were worked on."""
        if message.role not in ("user", "assistant"):
            return
        before = set(self._items)
        met: set[str] = set()
        said = sorted(_worth_keeping(message), key=lambda found: found[0] != "instruction")
        for kind, text, whole in said[:_MAX_OF_ONE]:
            names = _names(whole)
            met.update(self._owners[name] for name in names if name in self._owners)
            if text in before:
                met.add(text)
            if kind == "instruction" or not names or not all(name in self._owners for name in names):
                self.add(kind, text)
                self._own(whole, text)
        for text in met & before:
            item = self._items.pop(text)
            self._items[text] = replace(item, uses=item.uses + 1)

    def close(self, messages: Sequence[Message]) -> None:
        """Drop questions that have been answered."""
        for item in self.all():
            if item.kind == "question" and _is_closed(item.text, messages):
                del self._items[item.text]

    def _own(self, whole: str, text: str) -> None:
        for name in _names(whole):
            self._owners.setdefault(name, text)


def _worth_keeping(message: Message) -> Iterator[tuple[Kind, str, str]]:
    """What is worth keeping of a message: its kind, its words, and the whole sentence it stands in."""
    # The sentences that are the author's own: not quoted, and not in the middle of what was pasted.
    own: set[str] = set()
    if message.role == "user":
        text = _QUOTED.sub("\n", _prose(message))
        paragraphs = re.split(r"\n\s*\n", text.strip())
        if len(text) > _PASTED and len(paragraphs) > 2:  # noqa: PLR2004 - there is something between
            text = "\n".join([paragraphs[0], paragraphs[-1]])
        own = {piece.strip() for piece in _END.split(text)}
    for sentence in _sentences(message):
        names = _names(sentence)
        if sentence in own and weigh(sentence):
            yield "instruction", sentence[:_MAX_TEXT], sentence
        elif names:
            named: Kind = "identifier" if message.role == "user" else "report"
            kind: Kind = "path" if all(map(_PATH.fullmatch, names)) else named
            yield kind, _around(sentence, names[0]), sentence
        elif (found := _DECISION.search(sentence)) and not sentence.endswith("?"):
            yield "decision", _around(sentence, found[0]), sentence
        elif found := _NUMBER.search(sentence):
            yield "number", _around(sentence, found[0]), sentence
    for call in message.tool_calls:
        values = call.arguments.values() if isinstance(call.arguments, dict) else ()
        for value in values:
            if isinstance(value, str) and len(value) <= _MAX_TEXT and _PATH.fullmatch(value):
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
            # What comes next may answer it: it is short, or speaks of the same things.
            reply = text_of(after[0]) if after else ""
            is_short = len(reply.split()) <= 8  # noqa: PLR2004 - a few words
            asked = [one for one in _questions([answer]) if not is_short and not _words(reply) & _words(one)][-1:]
        yield from (question for question in asked if not _is_closed(question, after))


def _questions(messages: Iterable[Message]) -> list[str]:
    found = [sentence for message in messages for sentence in _sentences(message)]
    return [sentence[-_MAX_TEXT:] for sentence in found if sentence.endswith(("?", "？"))]  # noqa: RUF001 - as it is written


def _is_closed(question: str, messages: Iterable[Message]) -> bool:
    """Tell whether the model has spoken of most that a question asks about."""
    words = _words(question)
    answers = (_words(text_of(message)) for message in messages if _is_answer(message))
    return any(3 * len(words & said) >= 2 * max(len(words), 1) for said in answers)


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls and bool(text_of(message).strip())


# ---- text


def _sentences(message: Message) -> list[str]:
    """The sentences of a message, without code and encoded data."""
    return [sentence for piece in _END.split(_prose(message)) if (sentence := piece.strip())]


def _prose(message: Message) -> str:
    # Patterns for names take quadratic time in a word that does not end.
    return _ENDLESS.sub(" ", _CODE.sub("\n", text_of(message)))


def _names(text: str) -> list[str]:
    """The identifiers and paths in a text."""
    found: list[str] = []
    for pattern in (_ADDRESS, _PATH, _IDENTIFIER):
        found += [name.rstrip(".,;:") for name in pattern.findall(text)]
        text = pattern.sub(" ", text)
    return found


def _around(sentence: str, name: str) -> str:
    """A sentence, or of a long one what is around a name."""
    if len(sentence) <= _MAX_TEXT:
        return sentence
    start = max(sentence.find(name) - _MAX_TEXT // 2, 0)
    return sentence[start : start + _MAX_TEXT].strip()


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


def _cost(skills: Mapping[str, str]) -> int:
    return sum(count(line) + 1 for name, text in skills.items() for line in _lines(name, text))


# ---- room


def _fit(items: Sequence[KeptText], tokens: int) -> tuple[KeptText, ...]:
    """As many as there is room for: of each kind the best within its part of the room, then the best of the others."""
    costs = [count(_line(item)) + 1 for item in items]
    if sum(costs) <= tokens:
        return tuple(items)
    # Of sentences that differ only in their names the newest is worth most: it may be a correction of the others.
    alike: Counter[str] = Counter()
    worth = [0] * len(items)
    for at in reversed(range(len(items))):
        item = items[at]
        frame = item.text
        for pattern in (_ADDRESS, _PATH, _IDENTIFIER):
            frame = pattern.sub("", frame)
        # How much is lost without it: it came up again and again, and it says something definite.
        says = weigh(item.text) if item.kind == "instruction" else 2
        if item.kind in {"identifier", "report"}:
            # A word with capitals in it may be anybody's name.
            says = 3 if any(any(map(str.isdigit, name)) for name in _names(item.text)) else 1
        worth[at] = says + 2 * (item.uses.bit_length() - 1) - min(alike[frame], _MAX_ALIKE)
        alike[frame] += 1
    best_first = sorted(range(len(items)), key=lambda at: (worth[at], at), reverse=True)
    left = {kind: int(share * tokens) for kind, share in _SHARES.items()}
    chosen: set[int] = set()
    for at in best_first:
        if costs[at] <= left[items[at].kind]:
            left[items[at].kind] -= costs[at]
            chosen.add(at)
    free = tokens - sum(costs[at] for at in chosen)
    for at in best_first:
        if at not in chosen and costs[at] <= free:
            free -= costs[at]
            chosen.add(at)
    return tuple(item for at, item in enumerate(items) if at in chosen)
