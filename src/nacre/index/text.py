"""What of a message can be searched, and how text is laid out for the two full-text tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from nacre.entries import Message

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
# What is in a part of a message for programs, not for readers.
_MACHINE = frozenset(
    ("cache_control", "data", "id", "image_url", "media_type", "signature", "tool_use_id", "type", "url")
)


class _Folded(dict[int, str]):
    """One character for each character, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        self[code] = next((form for form in (char.casefold(), char.lower()) if len(form) == 1), char)
        return self[code]


_FOLDED = _Folded()
_encode = msgspec.json.Encoder().encode


def body_of(message: Message) -> str:
    """Return what can be searched of a message: content, reasoning, and the calls with their arguments."""
    content = message.content
    if type(content) is str and not message.tool_calls and message.reasoning is None:
        return content if "\0" not in content else content.replace("\0", " ")
    return "\n".join(_pieces(message)).replace("\0", " ")


def words_of(body: str) -> str:
    """Return a body as the word table gets it: without the scripts that have no words to tell apart."""
    return body if body.isascii() else _RUN.sub(_GAP, body)


def grams_of(body: str) -> str:
    """Return a body as the trigram table gets it: the last characters, too, begin a group of three."""
    return body + "\n\n"


def folded(text: str) -> str:
    """Return a text without case, character for character, as the trigram table has it."""
    return text.lower() if text.isascii() else text.translate(_FOLDED)


def is_unspaced(text: str) -> bool:
    """Tell whether a text has characters of a script that is found by substring."""
    return not text.isascii() and _RUN.search(text) is not None


def _pieces(message: Message) -> Iterator[str]:
    if isinstance(message.content, str):
        yield message.content
    elif message.content is not None:
        yield from _leaves(message.content)
    if message.reasoning is not None:
        yield message.reasoning
    for call in message.tool_calls:
        yield call.name
        yield call.arguments if isinstance(call.arguments, str) else _encode(call.arguments).decode()


def _leaves(value: Any) -> Iterator[str]:
    """Every text in a list of parts, without what only programs read."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _MACHINE:
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
