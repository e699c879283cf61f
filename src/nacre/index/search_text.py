"""What of a message can be searched, and how text is laid out for the two full-text tables."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

from nacre.attachments import is_data
from nacre.client_shapes import describe_bytes, thought_text
from nacre.messages import Message

# Scripts that are written without spaces, or whose words carry their endings: found by substring.
UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff"  # Hangul, in parts
    "\u1780-\u17ff"  # Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"  # radicals, iteration marks, numerals
    "\u3040-\u30ff\u3100-\u318f\u31a0-\u31ff"  # kana, bopomofo, Hangul letters
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff\uf900-\ufaff"  # Han, Hangul
    "\uff66-\uff9f"  # narrow kana
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{UNSPACED}]+")
# A token of its own, so that the words on both sides are not taken for neighbours.
_GAP = " \ue000 "
# The agent's own searches repeat the words that they look for, and what they found: they would bury it.
_SEARCH = "search_sessions"
# What is in a part of a message for programs, not for readers.
_MACHINE = frozenset(
    (
        *("base64", "cache_control", "data", "encrypted_content", "file_data", "id", "image_url", "media_type"),
        *("signature", "tool_use_id", "type", "url"),
    )
)
_IMAGES = ("image_url", "input_image")


# Letters that no decomposition takes apart; of the last four, a dotless i, a final sigma, an io and a long s.
_LETTERS = {"ß": "ss", "ẞ": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th"}
_LETTERS |= {"\u0131": "i", "\u03c2": "\u03c3", "\u0451": "\u0435", "\u017f": "s"}
_MARKS = re.compile("[\u0300-\u036f]")
# Latin and Greek with marks; the marks by themselves; full-width and joined letters. In other scripts a mark may be
# half of the letter.
_PLAIN = ((0x00C0, 0x024F), (0x0300, 0x036F), (0x0370, 0x03FF), (0x1E00, 0x1FFF), (0xFB00, 0xFB06), (0xFF01, 0xFF5E))


class _Folded(dict[int, str]):
    """What stands for a character in the tables, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code).lower()
        if any(first <= code <= last for first, last in _PLAIN):
            char = _MARKS.sub("", unicodedata.normalize("NFKD", char)).lower()
        self[code] = "".join(_LETTERS.get(one, one) for one in char)
        return self[code]


_FOLDED = _Folded()
# Words that are also written otherwise. What is looked for everywhere begins with a class of few characters, which is
# quick; the word around it is read only where there is one.
_HUMP = re.compile("[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z]{2})(?=[a-z]))")
_TOKEN = re.compile(r"[^\W_]+")
_MAX_CAMEL = 80
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_a-zA-Z0-9]+")
_HYPHEN = re.compile(r"-(?<=[^\W\d_]-)[^\W\d_]")
_HYPHENED = re.compile(r"[\w-]+")
_HYPHENS = re.compile(r"[^\W\d_]{1,16}(?:-[^\W\d_]{1,16}){1,2}")
_UMLAUTS = re.compile(r"(?<![^\W_])[^\W_]*[äöüøåÄÖÜØÅ][^\W_]*")
_GROUP = re.compile(r"[,.'’\u00a0\u202f](?<=\d.)\d{3}")
_GROUPED = re.compile(
    r"(?<![\w.,'’])\d{1,3}(?:(?:[,'’\u00a0\u202f]\d{3})+(?!\d)(?:\.\d+)?|(?:\.\d{3})+(?=,\d)(?:,\d+)?)"
)
_SPELLED = str.maketrans(
    {letter: two for letters, two in (("äÄ", "ae"), ("öÖøØ", "oe"), ("üÜ", "ue"), ("åÅ", "aa")) for letter in letters}
)
_MAX_CALLS = 64
_encode = msgspec.json.Encoder().encode

Calls = dict[str, str]
"""The tools of calls that have no result yet, by the id of the call."""


def body_of(message: Message) -> str:
    """Return what can be searched of a message: content, reasoning, and the calls with their arguments.

    Nothing of a search for sessions is.
    """
    if message.role == "tool" and message.name == _SEARCH:
        return ""
    content = message.content if message.role else [message.extra]
    if type(content) is str and not message.tool_calls and message.reasoning is None:
        return content if "\0" not in content else content.replace("\0", " ")
    parts = list(_leaves(content))
    if message.reasoning is not None:
        parts.append(message.reasoning)
    for call in message.tool_calls:
        if call.name != _SEARCH:
            arguments = call.arguments
            if not isinstance(arguments, str):
                arguments = _encode(describe_bytes(arguments)).decode()
            parts += [call.name, arguments]
    return "\n".join(parts).replace("\0", " ")


def tools_of(message: Message, calls: Calls) -> list[str]:
    """Return the tools that a message calls or that it is the result of, in lower case; keeps `calls` up to date."""
    names: list[str] = []
    if message.tool_calls:
        names = [call.name for call in message.tool_calls]
        calls |= {call.id: call.name for call in message.tool_calls}
        for oldest in list(calls)[:-_MAX_CALLS]:
            del calls[oldest]
    elif message.tool_call_id is not None or message.role == "tool":
        names = [message.name or "", calls.pop(message.tool_call_id or "", "")]
    return [name.casefold() for name in names]


def words_of(body: str) -> str:
    """Return a body as the word table gets it.

    It is without accents and without the scripts that have no words to tell apart. After it come other spellings of
    its words: the parts of `camelCase`, `email` for `e-mail`, `1234` for `1,234`, `Mueller` for `Müller`.
    """
    text = body if body.isascii() else _RUN.sub(_GAP, unicodedata.normalize("NFC", body))
    plain = text if text.isascii() else folded(text)
    others = spellings_in(text)
    return f"{plain}{_GAP}{folded(_GAP.join(others))}" if others else plain


def spellings_in(text: str) -> list[str]:
    """Return how words of a text are also written."""
    others = [_parted(word) for word in _around(_HUMP, _TOKEN, text) if len(word) <= _MAX_CAMEL]
    others += [part for word in _around(_HYPHEN, _HYPHENED, text) for part in _joined(word)]
    if _GROUP.search(text) is not None:
        others += map(_ungrouped, _GROUPED.findall(text))
    if not text.isascii():
        others += [one.translate(_SPELLED) for one in _UMLAUTS.findall(text)]
    return list(dict.fromkeys(others))


def other_spellings(word: str) -> list[str]:
    """Return how else a word that is searched for may be written: what `words_of` does not already do for a body."""
    found = [*camel_parts(word), *_joined(word)]
    if _UMLAUTS.fullmatch(word):
        found.append(word.translate(_SPELLED))
    if _GROUPED.fullmatch(word):
        found.append(_ungrouped(word))
    if "'" in word or "’" in word:
        found.append(word.replace("'", "").replace("’", ""))
    if word.lower() in _CONTRACTED:
        found.append(_CONTRACTED[word.lower()])
    return found


def camel_parts(word: str) -> list[str]:
    """Return the parts of a word in camel case as a text of one item; nothing if it is in no such case."""
    if len(word) > _MAX_CAMEL or _HUMP.search(word) is None or _TOKEN.fullmatch(word) is None:
        return []
    return [_parted(word)]


def _parted(word: str) -> str:
    return " ".join(_CAMEL_PART.findall(word))


def _joined(word: str) -> list[str]:
    """Return a word without its hyphens as a text of one item; nothing if it is not one of two or three parts."""
    return [word.replace("-", "")] if _HYPHENS.fullmatch(word) is not None else []


def _around(spot: re.Pattern[str], run: re.Pattern[str], text: str) -> dict[str, None]:
    """Return each different run of characters that has such a spot in it, after its first character."""
    found: dict[str, None] = {}
    if spot.search(text) is None:
        return found
    backwards, end = text[::-1], 0
    for match in spot.finditer(text):
        at = match.start()
        if at >= end:
            before, after = run.match(backwards, len(text) - at), run.match(text, at)
            start = at - len(before[0]) if before is not None else at
            end = after.end() if after is not None else at
            found[text[start:end]] = None
    return found


def grams_of(body: str) -> str:
    """Return a body as the trigram table gets it: the last characters, too, begin a group of three.

    White space is one blank, since its many trigrams would find nothing; candidates are read again as they are.
    """
    return one_spaced(folded(body)) + "\n\n"


def one_spaced(text: str) -> str:
    """Return a text with one blank for all white space between words."""
    return " ".join(text.split())


def folded(text: str) -> str:
    """Return a text without case and accents, as the tables have it; it may be longer than it was."""
    if text.isascii():
        return text.lower()
    if _MARKS.search(text) is not None:
        text = unicodedata.normalize("NFC", text)
    return text.translate(_FOLDED)


def is_unspaced(text: str) -> bool:
    """Tell whether a text has characters of a script that is found by substring."""
    return not text.isascii() and _RUN.search(text) is not None


def _leaves(value: Any) -> Iterator[str]:
    """Every text in a list of parts, without what only programs read."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        if (thought := thought_text(value)) is not None:
            yield thought
        elif value.get("type") not in _IMAGES:
            for name, item in value.items():
                # What a framework names otherwise is known by itself.
                if name not in _MACHINE and (name == "text" or not isinstance(item, str) or not is_data(item)):
                    yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


def _ungrouped(number: str) -> str:
    """A number without what parts its thousands."""
    if "," in number and "." in number and number.index(".") < number.index(","):
        return number.replace(".", "")
    return re.sub(r"[,'’\u00a0\u202f]", "", number)


_NEGATED = "are ca could did do does had has have is should was were would"
_CONTRACTED = {f"{word}nt": f"{word}n t" for word in _NEGATED.split()}
_CONTRACTED |= {"youre": "you re", "theyre": "they re", "thats": "that s", "whats": "what s", "ive": "i ve"}
