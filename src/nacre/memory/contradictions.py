"""Which facts a new one takes the place of: only those that cannot hold together with it.

Two facts about one subject usually both hold: a dog and a cat, two allergies, two standing instructions. A new fact
replaces an old one on evidence alone; without any, both are kept. No model is asked.
"""

from __future__ import annotations

from functools import cache, lru_cache

from msgspec import Struct

from nacre.memory import vocabulary as known
from nacre.memory.text_match import is_negated, language_of, normal, salient, stem, tokens

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


@cache
def _verb_stems(language: str) -> frozenset[str]:
    return frozenset(stem(verb, language) for verb in known.VERBS)


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
        core=(said - _verb_stems(language)) or said,
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
        return is_one_subject and _is_denied(one, other)
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


def _is_denied(one: Claim, other: Claim) -> bool:
    common = one.core & other.core
    if not common:
        return False
    if one.has_ended or other.has_ended:
        return 2 * len(common) >= min(len(one.core), len(other.core))
    is_part = common in (one.core, other.core) and len(one.core ^ other.core) <= 1
    return is_part or len(common) >= _ALIKE * len(one.core | other.core)


def _exclude(one: Claim, other: Claim, *, is_one_subject: bool) -> bool:
    """Tell whether two facts have different values of one group, and no value in common there."""
    for group in {name for name, _ in one.values} & {name for name, _ in other.values}:
        mine, theirs = ({at for name, at in read.values if name == group} for read in (one, other))
        if not mine.isdisjoint(theirs):
            continue
        if not group.endswith("*"):
            return True
        # Apart from their values of this group, the two must be about the same.
        rests = []
        for read in (one, other):
            rest = read.text
            for name, _, pattern in known.VALUES:
                rest = pattern.sub(" ", rest) if name == group else rest
            rests.append(salient(rest))
        if is_one_subject and (rests[0] <= rests[1] or rests[1] <= rests[0]):
            return True
    return False


def _is_other_value(subject: str, one: Claim, other: Claim) -> bool:
    """Tell whether two facts differ in one place only, and there can be only one thing at that place."""
    first, second = one.words, other.words
    start = 0
    while start < min(len(first), len(second)) and first[start] == second[start]:
        start += 1
    end = 0
    while end < min(len(first), len(second)) - start and first[-1 - end] == second[-1 - end]:
        end += 1
    head, tail = frozenset(first[:start]), frozenset(first[len(first) - end :])
    mine, theirs = first[start : len(first) - end], second[start : len(second) - end]
    is_single = not known.SINGLE.isdisjoint(subject.split())
    if one.has_switched and (is_single or one.core & other.core):
        return True
    # "with milk" and "without milk", and all else is the same
    if {*mine, *theirs} in known.WITH_OR_WITHOUT:
        return True
    if not mine or not theirs or not _is_alike(mine, theirs):
        return False
    return _says_one_thing(subject, owner=one.owner & other.owner, head=head, tail=tail, mine=mine, theirs=theirs)


def _says_one_thing(  # noqa: PLR0913 - the parts of two sentences
    subject: str,
    *,
    owner: frozenset[str],
    head: frozenset[str],
    tail: frozenset[str],
    mine: tuple[str, ...],
    theirs: tuple[str, ...],
) -> bool:
    """Tell whether there can be only one thing between the words of a head and a tail."""
    kind = _kind(mine)
    about = head - known.NOBODY - known.IS
    has_new_number = kind == "number" or (kind == "weekday" and not known.MANY & head)
    is_many = bool(known.MANY & head)
    # Brothers and dogs have names at the same time.
    is_relative = bool(known.RELATIVES & head and (known.IS | known.NAMED) & head)
    reasons = (
        has_new_number and (about or tail) and _without_numbers(mine) == _without_numbers(theirs),
        kind == "language" and known.SAY & head,
        known.VERBS & head and not is_relative and not known.SINGLE.isdisjoint(subject.split()),
        known.ONE & head and not is_relative and not is_many,
        # "Use British spelling"
        known.USE & head and head <= known.USE | known.NOBODY and tail - known.NOBODY and len(mine) == len(theirs) == 1,
        known.PREFER & head and not is_many and _is_one_preference(subject, tail, mine, theirs),
        # "The rent is", but not "the user is".
        known.IS & head and not is_relative and not is_many and owner,
        # "is the user's manager"
        not head and known.IS & tail and known.SINGLE & tail and not known.SINGLE.isdisjoint(subject.split()),
    )
    return any(reasons)


def _is_one_preference(subject: str, tail: frozenset[str], mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Tell whether what is preferred are two of a kind: of one thing, or short and of a subject that says which."""
    is_short = len(mine) == len(theirs) <= _FEW_WORDS
    return bool(tail - known.NOBODY) or (is_short and known.GENERAL.isdisjoint(subject.split()))


def _is_alike(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Tell whether two values are of one form: a name and a description hold at the same time."""
    forms = [
        (
            _kind(value),
            value[0] in known.ARTICLES,
            value[0] in known.PREPOSITIONS and value[0],
            sum(word in known.PREPOSITIONS for word in value),
        )
        for value in (mine, theirs)
    ]
    return forms[0] == forms[1]


def _without_numbers(value: tuple[str, ...]) -> list[str]:
    return [word for word in value if not known.NUMBER.fullmatch(word) and not known.WEEKDAY.fullmatch(word)]


def _kind(value: tuple[str, ...]) -> str:
    for name, pattern in (("number", known.NUMBER), ("weekday", known.WEEKDAY), ("language", known.LANGUAGE)):
        if any(pattern.fullmatch(word) for word in value):
            return name
    return ""
