"""Words as memory compares them: without case, endings and what every sentence has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from threading import local

import snowballstemmer  # type: ignore[import-untyped]

from nacre.index.search_text import UNSPACED
from nacre.index.stems import irregular
from nacre.index.stems import stem as english_stem

_TOKEN = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_CLAUSE = re.compile(
    r"[,;:!?()\n\u3001\u3002\uff01\uff0c\uff1b\uff1f]+|\.(?=\s|$)|\b(?:and|but|und|aber|et|mais|y|pero)\b"
)
_SIMILAR = 0.8
_ENOUGH = 0.7


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_GRAMMAR = _words(
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
# Words by which a fact says that something holds, whatever was said.
_USUAL = _words(
    "always people human assistant agent name named names called call likes like liked loves love prefers",
    "prefer preferred preference favourite favorite enjoys lives live living based located resides works work",
    "working worked uses use using used wants want wanted needs need owns owned moved now current currently",
    "usually heißt",
)
_NO = _words("no not never none cannot without nicht kein keine keinen nie pas jamais non nunca не нет")
STANDING_WORDS = sorted(_words("always never prefer prefers now immer niemal niemals toujours siempre 总是 以后"))
"""Every fact that `is_standing` has one of these words."""
_STANDING = re.compile(
    r"\b(?:always|never|prefers?|from now on|immer|niemals?|toujours|siempre)\b|总是|以后", re.IGNORECASE
)
_INSTRUCTION = re.compile(
    r"\b(?:wants?|wish(?:es)?|asks?|asked|told|should|must|expects?|requires?|allows?|approves?|authori[sz]es?|instructs?"
    r"|instructions?|rules?|will|soll|möchte|wünscht|erlaubt|verlangt|muss|veut|souhaite|demande|doit|autorise|quiere|desea"
    r"|pide|debe|autoriza)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[\n!?\u3002\uff01\uff1f]+|\.(?=\s|$)")
_THIRD_PERSON = re.compile(
    r"\b(?:the user|(?:der|die|dem|den) (?:be)?nutzer(?:in)?|l['’]utilisat(?:eur|rice)|(?:el|o) usu[aá]rio|la usuaria"
    r"|l['’]utente|de gebruiker|användaren|пользователь)\b|用户|使用者|ユーザー|사용자",
    re.IGNORECASE,
)
_CONTRACTED = re.compile(r"\b(\w+)n['’]t\b", re.IGNORECASE)
_PLAIN_UNSPACED = re.compile(
    "用户|使用者|喜欢|住在|在|是|的|了|名字|叫|使用|用|我|他|她|ユーザー|です|ます|は|が|を|に|の|사용자|는|은|이|가"
)


# Words that only one of these languages has, or has often.
_HINTS = {
    "english": _words("the is are was has have and of to in my i you with for that it not always never user"),
    "german": _words(
        "der die das ist sind hat ich mein meine und nicht mit für auf ein eine den dem zu von immer nie im bei nutzer",
        "nutzerin",
    ),
    "french": _words(
        "le la les est sont je mon ma et pas avec pour un une des du dans sur toujours jamais à chez ne que l",
        "utilisateur utilisatrice",
    ),
    "spanish": _words(
        "el la los las es está son yo mi y no con para un una en por siempre nunca que de del se muy usuario usuaria"
    ),
    "italian": _words("il lo la gli è sono io mio mia e non con per un una di del nel sempre mai che si ho utente"),
    "portuguese": _words("o a os as é são eu meu minha e não com para um uma em por sempre nunca que do da no na"),
    "dutch": _words("de het is zijn ik mijn en niet met voor een op altijd nooit van te heeft dat in bij"),
    "swedish": _words("den det är jag min mitt och inte med för en ett på alltid aldrig av att har som"),
}
_SCRIPTS = (
    ("russian", "\u0400", "\u04ff"),
    ("greek", "\u0370", "\u03ff"),
    ("arabic", "\u0600", "\u06ff"),
    ("hindi", "\u0900", "\u097f"),
)
_CHUNK = re.compile(r"\S+")
_MARKS = ".,;:!?()[]{}\"'“”„«»…*"
_BEGINS = ("", ".", "!", "?", ":", "\n", "-", "•")
_IDENTIFIER = re.compile(r"\d|[@/\\_]|\w\.\w|[a-z][A-Z]")
_stemmers = local()


def tokens(text: str) -> Iterator[str]:
    """The words of a text, without case; of a script without spaces, pairs of neighbouring characters."""
    for found in _TOKEN.findall(_CONTRACTED.sub(r"\1 not", text).casefold()):
        if _UNSPACED.match(found):
            yield from [found[at : at + 2] for at in range(len(found) - 1)] or [found]
        else:
            yield found


def language_of(text: str) -> str:
    """The language that most words of grammar in a text belong to; English if there are none."""
    words = set(tokens(text))
    counts = {language: len(words & hints) for language, hints in _HINTS.items()}
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] > counts["english"] else "english"


@lru_cache(maxsize=1 << 16)
def stem(word: str, language: str = "english") -> str:
    """A word without its ending; one with a digit stays as it is."""
    if any(map(str.isdigit, word)):
        return word
    script = next((name for name, first, last in _SCRIPTS if first <= word[0] <= last), language)
    if script == "english" and (others := irregular(word)):
        # Of forms that differ by more than an ending, such as `go` and `went`, one stands for all.
        return min(map(english_stem, [word, *others]))
    # Each thread has its own stemmers: they hold the word that they are at.
    made = _stemmers.__dict__
    if script not in made:
        made[script] = snowballstemmer.stemmer(script)
    return str(made[script].stemWord(word))


def stems_of(words: frozenset[str], language: str) -> frozenset[str]:
    """Some words without their endings, made once."""
    return frozenset(stem(word, language) for word in words)


def stems(text: str, language: str = "") -> set[str]:
    """Every word of a text, without its ending."""
    language = language or language_of(text)
    return {stem(word, language) for word in tokens(text)}


@lru_cache(maxsize=1 << 15)
def salient(text: str, language: str = "") -> frozenset[str]:
    """What a text says that not every text says, without endings."""
    spoken = language or language_of(text)
    plain = stems_of(_USUAL, spoken)
    bare = _PLAIN_UNSPACED.sub(" ", text)
    found = (word for word in tokens(bare) if word not in _NO and word not in _GRAMMAR and word not in _USUAL)
    return frozenset(stemmed for word in found if (stemmed := stem(word, spoken)) not in plain)


def names(text: str) -> set[str]:
    """The words of a text that must be right: numbers, names, addresses and identifiers."""
    found: set[str] = set()
    for place in _CHUNK.finditer(text):
        chunk = place[0].strip(_MARKS)
        begins = text[: place.start()].rstrip(" \"'“„«(*_")[-1:] in _BEGINS
        if _IDENTIFIER.search(chunk) or (chunk[:1].isupper() and not begins):
            found |= {word for word in tokens(chunk) if word not in _GRAMMAR and word not in _USUAL}
    return found


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
    """Tell whether what a text says was said, and said or denied in the same way.

    Most of its words must have been said, in any form, and all its names and numbers.
    """
    language = language_of(text)
    wanted, there = salient(text, language), stems(said, language)
    if not wanted or len(wanted & there) < _ENOUGH * len(wanted):
        return False
    if not all(stem(name, language) in there for name in names(text)):
        return False
    clauses = [clause for clause in _CLAUSE.split(said) if clause and clause.strip()]
    covered = [(len(wanted & stems(clause, language)), is_negated(clause)) for clause in clauses]
    best = max(count for count, _ in covered) if covered else 0
    # Where what was said is spread over clauses, none of them alone says whether it was denied.
    return best == 0 or any(negated == is_negated(text) for count, negated in covered if count == best)


def is_same(one: str, other: str) -> bool:
    """Tell whether two texts say the same, or nearly; numbers and denials make a difference."""
    if normal(one) == normal(other):
        return True
    language = language_of(one)
    first, second = salient(one, language), salient(other, language)
    if not first or not second or len(first & second) < _SIMILAR * len(first | second):
        return False
    return is_negated(one) == is_negated(other) and _numbers(one) == _numbers(other)


def is_standing(text: str) -> bool:
    """Tell whether a fact is about what is always to be done, whatever the talk is of."""
    return _STANDING.search(text) is not None


def is_instruction(text: str) -> bool:
    """Tell whether a fact is about what somebody wants to be done."""
    return is_standing(text) or _INSTRUCTION.search(text) is not None


def in_first_person(text: str) -> str:
    """A text without the sentences that speak of "the user" among others, as no user does of themselves."""
    sentences = [sentence for sentence in _SENTENCE.split(text) if sentence.strip()]
    return "\n".join(sentence for sentence in sentences if not _THIRD_PERSON.search(sentence)) or text


def one_line(text: str, limit: int) -> str:
    """A text on one line, cut at a word where it is too long."""
    line = " ".join(text.replace("\0", " ").encode("utf-8", "replace").decode().split())
    return line if len(line) <= limit else f"{line[: limit - 1].rpartition(' ')[0] or line[: limit - 1]}…"


def _numbers(text: str) -> set[str]:
    return {word for word in tokens(text) if any(map(str.isdigit, word))}
