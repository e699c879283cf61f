"""Words as memory compares them: without case, endings and what every sentence has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from nacre.index.text import UNSPACED

_TOKEN = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_CLAUSE = re.compile(
    r"[,;:!?()\n\u3001\u3002\uff01\uff0c\uff1b\uff1f]+|\.(?=\s|$)|\b(?:and|but|und|aber|et|mais|y|pero)\b"
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "edly", "ed", "ers", "er", "es", "ly", "s", "e", "y", "en")
_LEAST = 3
_SIMILAR = 0.8

_GRAMMAR = frozenset(
    word
    for line in (
        "a about after all also am an and any are as at be because been before being but by can could did do does",
        "doing done each else every for from get gets got had has have having he her here hers him his how i if in",
        "into is it its just let lets ll m may me mine more most much must my near of off on once one only or",
        "other our ours out over own per re s said say says she should since so some still such t than that the",
        "their theirs them then there these they this those to too under until up upon us very via was we were",
        "what when where which while who whom whose why will with within would yes you your yours user users",
        "person please der die das den dem des ein eine einen einem ist sind hat haben und oder nicht mit von zu",
        "im am auf für ich mein meine du sein seine nutzer nutzerin benutzer le la les un une des est sont dans",
        "avec pour je mon ma utilisateur el los las una es son con por para yo mi su usuario usuaria utente",
        "пользователь",
    )
    for word in line.split()
)
# Words by which a fact says that something holds, whatever was said.
_USUAL = frozenset(
    word
    for line in (
        "always people human assistant agent name named names called call likes like liked loves love prefers",
        "prefer preferred preference favourite favorite enjoys lives live living based located resides works work",
        "working worked uses use using used wants want wanted needs need owns owned moved now current currently",
        "usually heißt",
    )
    for word in line.split()
)
_DENIALS = "no not never none cannot without nicht kein keine keinen nie pas jamais non nunca не нет"
_NO = frozenset(_DENIALS.split(" "))
_STANDING = re.compile(
    r"\b(?:always|never|prefers?|from now on|immer|niemals?|toujours|siempre)\b|总是|以后", re.IGNORECASE
)
_CONTRACTED = re.compile(r"\b(\w+)n['’]t\b", re.IGNORECASE)
_PLAIN_UNSPACED = re.compile(
    "用户|使用者|喜欢|住在|在|是|的|了|名字|叫|使用|用|我|他|她|ユーザー|です|ます|は|が|を|に|の|사용자|는|은|이|가"
)


def tokens(text: str) -> Iterator[str]:
    """The words of a text, without case; of a script without spaces, pairs of neighbouring characters."""
    for found in _TOKEN.findall(_CONTRACTED.sub(r"\1 not", text).casefold()):
        if _UNSPACED.match(found):
            yield from pairs(found)
        else:
            yield found


def pairs(run: str) -> list[str]:
    """Every two neighbours of a run of characters."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """A word without its ending; one with a digit stays as it is."""
    if any(map(str.isdigit, word)):
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST:
            return word[: -len(ending)]
    return word


_PLAIN_STEMS = frozenset(map(stem, _GRAMMAR | _USUAL))


def stems(text: str) -> set[str]:
    """Every word of a text, without its ending."""
    return set(map(stem, tokens(text)))


@lru_cache(maxsize=1 << 15)
def salient(text: str) -> frozenset[str]:
    """What a text says that not every text says."""
    bare = _PLAIN_UNSPACED.sub(" ", text)
    found = (word for word in tokens(bare) if word not in _NO)
    return frozenset(stemmed for word in found if (stemmed := stem(word)) not in _PLAIN_STEMS)


def is_grammar(word: str) -> bool:
    """Tell whether a word says nothing of what a text is about."""
    return word in _GRAMMAR


def is_negated(text: str) -> bool:
    return not _NO.isdisjoint(tokens(text)) or "不" in text or "没" in text


@lru_cache(maxsize=1 << 15)
def normal(text: str) -> str:
    """A text as it is compared for being the same."""
    return " ".join(tokens(text))


def is_grounded(text: str, said: str) -> bool:
    """Tell whether all that a text says was said, and said or denied in the same way."""
    wanted = salient(text)
    if not wanted or not wanted <= stems(said):
        return False
    clauses = [clause for clause in _CLAUSE.split(said) if clause and clause.strip()]
    covered = [(len(wanted & stems(clause)), is_negated(clause)) for clause in clauses]
    best = max(count for count, _ in covered) if covered else 0
    # Where what was said is spread over clauses, none of them alone says whether it was denied.
    return best == 0 or any(negated == is_negated(text) for count, negated in covered if count == best)


def is_same(one: str, other: str) -> bool:
    """Tell whether two texts say the same, or nearly; numbers and denials make a difference."""
    if normal(one) == normal(other):
        return True
    first, second = salient(one), salient(other)
    if not first or not second or len(first & second) < _SIMILAR * len(first | second):
        return False
    return is_negated(one) == is_negated(other) and _numbers(one) == _numbers(other)


def are_related(one: str, other: str) -> bool:
    """Tell whether two texts share more than words of grammar."""
    return not _content(one).isdisjoint(_content(other))


def is_standing(text: str) -> bool:
    """Tell whether a fact is about what is always to be done, whatever the talk is of."""
    return _STANDING.search(text) is not None


def flat(text: str, most: int) -> str:
    """A text on one line, cut at a word where it is too long."""
    line = " ".join(text.replace("\0", " ").encode("utf-8", "replace").decode().split())
    if len(line) <= most:
        return line
    return f"{line[: most - 1].rpartition(' ')[0] or line[: most - 1]}…"


def _content(text: str) -> set[str]:
    return {stem(word) for word in tokens(text) if word not in _GRAMMAR and len(word) > 1}


def _numbers(text: str) -> set[str]:
    return {word for word in tokens(text) if any(map(str.isdigit, word))}
