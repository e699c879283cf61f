"""Which facts a new one takes the place of: only those that cannot hold together with it.

Two facts about one subject usually both hold: a dog and a cat, two allergies, two standing instructions. A new fact
replaces an old one on evidence alone; without any, both are kept. No model is asked.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from nacre.memory import vocabulary as known
from nacre.memory.text_match import is_negated, language_of, normal, salient, stems_of, tokens

_ALIKE = 0.6
_FEW_WORDS = 2


class Claim(Struct, frozen=True):
    """A fact as it is compared: its words, whom it is about, what it answers, and which values it has."""

    text: str
    words: tuple[str, ...]
    owner: frozenset[str]
    core: frozenset[str]
    is_negated: bool
    has_ended: bool
    is_more: bool
    has_switched: bool
    questions: frozenset[str]
    values: frozenset[tuple[str, int]]


@lru_cache(maxsize=1 << 12)
def claim(text: str, language: str) -> Claim:
    """Read a fact in a language."""
    low = text.casefold()
    words = tuple(tokens(known.FROM_NOW_ON.sub(" ", low)))
    verb = next((at for at, word in enumerate(words) if word in known.VERBS), 0)
    said = salient(text, language)
    has_ended = known.ENDED.search(low) is not None
    owner = frozenset(words[:verb]) - known.NOBODY - known.NOW - known.ALSO
    return Claim(
        text=low,
        words=tuple(word for word in words if word not in known.NOW and word not in known.ALSO),
        owner=owner,
        core=(said - stems_of(known.VERBS, language)) or said,
        is_negated=(is_negated(known.WITHOUT.sub(" ", text)) or has_ended) != (not known.DISLIKE.isdisjoint(words)),
        has_ended=has_ended,
        is_more=not known.ALSO.isdisjoint(words),
        has_switched=known.SWITCHED.search(low) is not None or (bool(owner) and known.MOVED.search(low) is not None),
        questions=frozenset(name for name, pattern in known.QUESTIONS.items() if pattern.search(text)),
        values=frozenset((group, at) for group, at, pattern in known.VALUES if pattern.search(low)),
    )


def other_words(text: str) -> str:
    """Words that facts have which answer the same as a text, or deny its values: what to look for besides its own."""
    read = claim(text, language_of(text))
    asked = read.questions | {group for group, _ in read.values}
    return " ".join(words for name, words in known.OTHER_WORDS.items() if name in asked)


def replaces(new: tuple[str, str], old: tuple[str, str]) -> bool:
    """Tell whether a new fact, as subject and text, takes the place of an old one."""
    subject = normal(new[0])
    is_one_subject = bool(subject) and subject == normal(old[0])
    language = language_of(f"{new[1]} {old[1]}")
    one, other = claim(new[1], language), claim(old[1], language)
    if one.words == other.words:
        return False
    # 1. It denies what the old one says, or says that this has ended.
    if one.is_negated != other.is_negated:
        common, shorter = one.core & other.core, min(len(one.core), len(other.core))
        if one.has_ended or other.has_ended:
            is_denied = 2 * len(common) >= shorter
        else:
            is_part = common in (one.core, other.core) and len(one.core ^ other.core) <= 1
            is_denied = is_part or len(common) >= _ALIKE * len(one.core | other.core)
        return is_one_subject and bool(common) and is_denied
    if one.is_more:
        return False
    if one.owner == other.owner and not one.is_negated:
        # 2. Both have values of which one can hold.
        if _exclude(one, other, is_one_subject=is_one_subject):
            return True
        # 3. Both answer a question that has one answer.
        if one.questions & other.questions and one.core != other.core:
            return True
    # 4. They say the same but for one value, of something that has one.
    return is_one_subject and _is_other_value(subject, one, other)


def _exclude(one: Claim, other: Claim, *, is_one_subject: bool) -> bool:
    """Tell whether two facts have different values of one group, and no value in common there."""
    for group in {name for name, _ in one.values} & {name for name, _ in other.values}:
        mine, theirs = ({at for name, at in read.values if name == group} for read in (one, other))
        if not mine.isdisjoint(theirs):
            continue
        if not group.endswith("*"):
            return True
        # Apart from their values of this group, the two must be about the same.
        rests = [one.text, other.text]
        for pattern in (pattern for name, _, pattern in known.VALUES if name == group):
            rests = [pattern.sub(" ", rest) for rest in rests]
        first, second = map(salient, rests)
        if is_one_subject and (first <= second or second <= first):
            return True
    return False


def _is_other_value(subject: str, one: Claim, other: Claim) -> bool:
    """Tell whether two facts differ in one place only, and there can be only one thing at that place."""
    first, second = one.words, other.words
    shorter = min(len(first), len(second))
    start = next((at for at in range(shorter) if first[at] != second[at]), shorter)
    end = next((at for at in range(shorter - start) if first[-1 - at] != second[-1 - at]), shorter - start)
    head, tail = frozenset(first[:start]), frozenset(first[len(first) - end :])
    mine, theirs = first[start : len(first) - end], second[start : len(second) - end]
    is_single = not known.SINGLE.isdisjoint(subject.split())
    if one.has_switched and (is_single or one.core & other.core):
        return True
    # "with milk" and "without milk", and all else is the same
    if {*mine, *theirs} in known.WITH_OR_WITHOUT:
        return True
    # Two values must be of one form: a name and a description hold at the same time.
    if not mine or not theirs or _form(mine) != _form(theirs):
        return False
    kind, owner, about = _kind(mine), one.owner & other.owner, head - known.NOBODY - known.IS
    is_many = bool(known.MANY & head)
    has_new_number = kind == "number" or (kind == "weekday" and not is_many)
    # Brothers and dogs have names at the same time.
    is_relative = bool(known.RELATIVES & head and (known.IS | known.NAMED) & head)
    # What is preferred are two of a kind: of one thing, or short and of a subject that says which.
    is_short = len(mine) == len(theirs) <= _FEW_WORDS
    is_one_preference = tail - known.NOBODY or (is_short and known.GENERAL.isdisjoint(subject.split()))
    reasons = (
        has_new_number and (about or tail) and _without_numbers(mine) == _without_numbers(theirs),
        kind == "language" and known.SAY & head,
        known.VERBS & head and not is_relative and is_single,
        known.ONE & head and not is_relative and not is_many,
        # "Use British spelling"
        known.USE & head and head <= known.USE | known.NOBODY and tail - known.NOBODY and len(mine) == len(theirs) == 1,
        known.PREFER & head and not is_many and is_one_preference,
        # "The rent is", but not "the user is".
        known.IS & head and not is_relative and not is_many and owner,
        # "is the user's manager"
        not head and known.IS & tail and known.SINGLE & tail and is_single,
    )
    return any(reasons)


def _form(value: tuple[str, ...]) -> tuple[str, bool, str, int]:
    prepositions = [word for word in value if word in known.PREPOSITIONS]
    first = value[0] if value[0] in known.PREPOSITIONS else ""
    return (_kind(value), value[0] in known.ARTICLES, first, len(prepositions))


def _without_numbers(value: tuple[str, ...]) -> list[str]:
    return [word for word in value if not known.NUMBER.fullmatch(word) and not known.WEEKDAY.fullmatch(word)]


def _kind(value: tuple[str, ...]) -> str:
    for name, pattern in (("number", known.NUMBER), ("weekday", known.WEEKDAY), ("language", known.LANGUAGE)):
        if any(pattern.fullmatch(word) for word in value):
            return name
    return ""
