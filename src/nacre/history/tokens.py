"""How many tokens something costs, about: an estimate without a tokenizer, corrected by what providers report.

`count`, `estimate`, `definition` and `cost` give estimated tokens, the same for every model. A `Calibration` has the
same four functions in the tokens of one model: use these wherever a size is compared with what a model takes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

from nacre.client_shapes import describe_bytes
from nacre.messages import Message

PER_MESSAGE = 4
PER_CALL = 4
PER_MEDIUM = 1000
PER_TOOL = 12

ByScript = Mapping[str, int]
"""Estimated tokens by script: `latin` for English and code, `accented` for other languages in Latin letters, `eastern`
and `vietnamese` for letters that Western Europe does not have, `digits`, and the names below for other scripts."""

# Cuts text in Latin letters about where tokenizers do: a piece is a token. The group has what is not in Latin letters.
# Languages that are not English have shorter pieces.
_ACCENTS = r"\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff"
_OTHERS = (
    r"|\d|={4,}|-{4,}|_{4,}|\.{4,}|\*{4,}|#{4,}|~{4,}|\^{4,}"
    r"| ?[!-/:-@\[-`{-~]{1,3}"
    r"| ?([^\x00-\u036f\u1e00-\u1eff\u2010-\u205f\u20a0-\u20cf]+)"
    r"|\s+|."
)
_PIECE = re.compile(rf"(?<=[a-z]{{8}})[a-z]{{1,4}}| ?[A-Z]?[a-z]{{1,8}}|[A-Z]{{1,2}}| ?[{_ACCENTS}]{{1,5}}" + _OTHERS)
_ACCENTED_PIECE = re.compile(rf" ?[A-Z{_ACCENTS}]?[a-z{_ACCENTS}]{{1,5}}|[A-Z{_ACCENTS}]{{1,2}}" + _OTHERS)
_ENCODED = re.compile(r"[A-Za-z0-9+/_=-]{60,}")
_LONG_WORD = 60
_PER_ENCODED = 0.8
"""Tokens per character of base64 and the like, which have no words."""
_ACCENT = re.compile(f"[{_ACCENTS}]")
_FEW_ACCENTS = 200
"""With fewer accents than one in so many characters a text is taken for English or code."""

# Where a script begins; it goes up to the next one.
_SCRIPTS: tuple[tuple[int, str], ...] = (
    (0x0000, "other"), (0x0370, "greek"), (0x0400, "cyrillic"), (0x0530, "armenian"), (0x0590, "hebrew"),
    (0x0600, "arabic"), (0x0700, "other"), (0x0750, "arabic"), (0x0780, "other"), (0x08A0, "arabic"),
    (0x0900, "devanagari"), (0x0980, "bengali"), (0x0A00, "gurmukhi"), (0x0A80, "gujarati"), (0x0B00, "oriya"),
    (0x0B80, "tamil"), (0x0C00, "telugu"), (0x0C80, "kannada"), (0x0D00, "malayalam"), (0x0D80, "sinhala"),
    (0x0E00, "thai"), (0x0E80, "lao"), (0x0F00, "tibetan"), (0x1000, "myanmar"), (0x10A0, "georgian"),
    (0x1100, "hangul"), (0x1200, "ethiopic"), (0x13A0, "other"), (0x1780, "khmer"), (0x1800, "other"),
    (0x1C80, "cyrillic"), (0x1C90, "georgian"), (0x1CC0, "other"), (0x1F00, "greek"), (0x2000, "emoji"),
    (0x2010, "other"), (0x2100, "symbols"), (0x2600, "emoji"), (0x27C0, "symbols"), (0x2C00, "other"),
    (0x2DE0, "cyrillic"), (0x2E00, "other"), (0x2E80, "han"), (0x3040, "kana"), (0x3100, "han"), (0x3130, "hangul"),
    (0x3190, "han"), (0x31F0, "kana"), (0x3200, "han"), (0xA000, "other"), (0xA640, "cyrillic"), (0xA6A0, "other"),
    (0xA960, "hangul"), (0xA980, "other"), (0xAC00, "hangul"), (0xD800, "other"), (0xF900, "han"), (0xFB00, "hebrew"),
    (0xFB50, "arabic"), (0xFE00, "emoji"), (0xFE10, "han"), (0xFE70, "arabic"), (0xFEFF, "other"), (0xFF00, "han"),
    (0xFF66, "kana"), (0xFFA0, "hangul"), (0xFFE0, "other"), (0x1F000, "emoji"), (0x1FB00, "other"),
    (0x20000, "han"), (0x40000, "other"), (0xE0020, "emoji"), (0xE0080, "other"),
)  # fmt: skip
_STARTS = [start for start, _ in _SCRIPTS]
# How many tokens a character is, about, with the vocabularies of today; older ones have up to six times as many.
_RARE_ACCENTS = (("eastern", "\u0100", "\u024f"), ("vietnamese", "\u0300", "\u1eff"))
_PER_RARE_ACCENT = 0.3
"""What they cost more than other letters: as good as nothing in some vocabularies, several tokens in others."""
_PER_CHARACTER: Mapping[str, float] = {
    "greek": 0.45, "cyrillic": 0.3, "armenian": 0.4, "hebrew": 0.5, "arabic": 0.42, "devanagari": 0.42,
    "bengali": 0.45, "gurmukhi": 0.5, "gujarati": 0.45, "oriya": 0.6, "tamil": 0.4, "telugu": 0.55, "kannada": 0.5,
    "malayalam": 0.42, "sinhala": 0.65, "thai": 0.45, "lao": 0.7, "tibetan": 1.2, "myanmar": 0.6, "georgian": 0.4,
    "hangul": 0.65, "ethiopic": 2.2, "khmer": 0.65, "han": 0.75, "kana": 0.52, "emoji": 2.0, "symbols": 1.3,
    "other": 2.0,
}  # fmt: skip
_LONG = 64 * 1024
_SAMPLES = 16
_SAMPLE = _LONG // _SAMPLES

_encode = msgspec.json.Encoder().encode


class Described(Protocol):
    """A tool as it is described to a model."""

    @property
    def name(self) -> str:
        """What it is called by."""

    @property
    def description(self) -> str:
        """What it is for."""

    @property
    def parameters(self) -> dict[str, Any]:
        """A JSON schema of what it takes."""


class Shown(Protocol):
    """All that a model is shown."""

    @property
    def system(self) -> str:
        """The system prompt."""

    @property
    def messages(self) -> Sequence[Message]:
        """What was said."""

    @property
    def tools(self) -> Sequence[Described]:
        """What it may call."""


def sizes(text: str) -> ByScript:
    """The estimated tokens of a text by script; of a very long one by samples.

    Only what is not long is remembered: a cache of long texts would hold hundreds of megabytes.
    """
    if len(text) <= _LONG:
        return _remembered_sizes(text)
    starts = range(0, len(text) - _SAMPLE + 1, (len(text) - _SAMPLE) // (_SAMPLES - 1))
    found = _total(_sizes(text[start : start + _SAMPLE]) for start in starts)
    return {script: size * len(text) // (len(starts) * _SAMPLE) for script, size in found.items()}


def count(text: str) -> int:
    """The estimated tokens of a text."""
    return sum(sizes(text).values())


def estimate(message: Message) -> int:
    """The estimated tokens of a message, with what every message costs besides its text."""
    fixed, texts = _message(message)
    return fixed + sum(map(count, texts))


def definition(tool: Described) -> int:
    """The estimated tokens of a tool's definition."""
    return PER_TOOL + sum(map(count, _tool(tool)))


def cost(context: Shown, *, reply: int = 0) -> int:
    """The estimated tokens of all that a model is shown, and of the room that is kept for its reply."""
    fixed, texts = _context(context)
    return fixed + sum(map(count, texts)) + reply


def context_sizes(context: Shown) -> ByScript:
    """What `cost` counts, by script; what every message costs besides its text counts as `latin`."""
    return ContextSizes(limit=0)(context)


class ContextSizes:
    """The same for contexts that have many messages in common: at most `limit` of them are remembered."""

    def __init__(self, *, limit: int = 4096) -> None:
        self._most = limit
        # Each is kept with its sizes, so that its id stays its own.
        self._known: dict[int, tuple[object, ByScript]] = {}

    def __call__(self, context: Shown) -> ByScript:
        fixed, texts = (PER_MESSAGE, [context.system]) if context.system else (0, [])
        found = [_by_script(fixed, texts)]
        for message in context.messages:
            known = self._known.get(id(message))
            found.append(known[1] if known is not None else self._keep(message, _by_script(*_message(message))))
        for tool in context.tools:
            known = self._known.get(id(tool))
            found.append(known[1] if known is not None else self._keep(tool, _by_script(PER_TOOL, _tool(tool))))
        return _total(found)

    def _keep(self, one: object, sizes: ByScript) -> ByScript:
        if self._most:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[id(one)] = (one, sizes)
        return sizes


class Ratio(Struct, frozen=True, kw_only=True):
    """How many tokens of a model an estimated one is, and how much that is in doubt (a variance)."""

    value: Annotated[float, Meta(ge=0.3, le=8.0)] = 1.0
    doubt: Annotated[float, Meta(ge=0.0, le=4.0)] = 4.0


class Calibration(Struct, frozen=True, kw_only=True):
    """What an estimated token is in the tokens of one model, for each script that was reported on.

    Learn from every reply: `calibration = calibration.learn(context_sizes(context), usage.prompt)`. It is a value;
    what was counted with the one before is out of date when `learned` returns another one.

    A report much lower than expected comes from a prompt that the server had cached; it says nothing. Others that are
    lower than expected may, so a ratio rises quickly and falls slowly.
    """

    ratios: Mapping[str, Ratio] = {}

    def count(self, text: str) -> int:
        """The tokens of a text."""
        return self.tokens(sizes(text))

    def estimate(self, message: Message) -> int:
        """The tokens of a message, with what every message costs besides its text."""
        fixed, texts = _message(message)
        return fixed + sum(map(self.count, texts))

    def definition(self, tool: Described) -> int:
        """The tokens of a tool's definition."""
        return PER_TOOL + sum(map(self.count, _tool(tool)))

    def cost(self, context: Shown, *, reply: int = 0) -> int:
        """The tokens of all that a model is shown, and of the room that is kept for its reply."""
        fixed, texts = _context(context)
        return fixed + sum(map(self.count, texts)) + reply

    def tokens(self, found: ByScript) -> int:
        """Estimated tokens of several scripts in the model's own."""
        return round(self._expected(found)) if self.ratios else sum(found.values())

    def ratio(self, found: ByScript) -> float:
        """How many tokens of the model an estimated one is in a text of this kind."""
        return self._expected(found) / (sum(found.values()) or 1) if found else 1.0

    def learn(self, found: ByScript, reported: int) -> Calibration:
        """The calibration after a request of so many estimated tokens was reported with so many.

        The difference is divided among the scripts of the request, by how much of it they are and how little is known
        of them (a Kalman filter without correlations).
        """
        estimated, expected = sum(found.values()), self._expected(found)
        if estimated < _TELLING or reported < _LOWEST * estimated:
            return self
        error = _MARGIN * reported - expected
        if self.ratios and abs(error) < _CLOSE * expected:
            return self
        known = {script: self._ratio(script) for script in found}
        noise = (_NOISE * estimated) ** 2 + sum(known[script].doubt * size**2 for script, size in found.items())
        ratios = dict(self.ratios)
        for script, size in found.items():
            gain = known[script].doubt * size / noise
            change = gain * error * (_FALL if error < 0 else 1)
            doubt = max(known[script].doubt * (1 - gain * size), _LEAST_DOUBT)
            ratios[script] = Ratio(value=_clamp(known[script].value + change), doubt=doubt)
        return Calibration(ratios=ratios)

    def correct(self, found: ByScript, tokens: int) -> Calibration:
        """The calibration by which a request is exactly so many tokens: a server that refused it has counted them."""
        factor = tokens / max(self._expected(found), 1)
        ratios = dict(self.ratios)
        for script, old in ((script, self._ratio(script)) for script in found):
            ratios[script] = Ratio(value=_clamp(old.value * factor), doubt=old.doubt)
        return Calibration(ratios=ratios)

    def _expected(self, found: ByScript) -> float:
        return sum(size * self._ratio(script).value for script, size in found.items())

    def _ratio(self, script: str) -> Ratio:
        return self.ratios.get(script) or _UNKNOWN.get(script) or Ratio()


_TELLING = 64
_LOWEST = 0.4
_SMALLEST_RATIO, _LARGEST_RATIO = 0.3, 8.0
_MARGIN = 1.1
"""Texts of one script differ; too many is the safe side."""
_CLOSE, _NOISE, _FALL, _LEAST_DOUBT = 0.02, 0.1, 0.25, 0.005
_DOUBTS = {"latin": 0.05, "accented": 0.2, "digits": 0.2, "eastern": 2.0}
_UNKNOWN = {script: Ratio(doubt=doubt) for script, doubt in _DOUBTS.items()}
"""What is known before anything was reported: vocabularies differ little in English and code."""


def _clamp(ratio: float) -> float:
    return min(max(ratio, _SMALLEST_RATIO), _LARGEST_RATIO)


# ---- a text


def _sizes(text: str) -> dict[str, int]:
    accents = [] if text.isascii() else _ACCENT.findall(text)
    is_accented = len(accents) * _FEW_ACCENTS > len(text)
    pieces = (_ACCENTED_PIECE if is_accented else _PIECE).findall(text)
    runs = [] if text.isascii() else [run for run in pieces if run]
    digits = sum(map(text.count, "0123456789"))
    latin = len(pieces) - len(runs) - digits
    # In base64 and the like there are more tokens than pieces.
    for word in text.split():
        if len(word) >= _LONG_WORD:
            for run in _ENCODED.findall(word):
                if not run.islower() and not run.isupper() and not run.isalpha():
                    latin += max(round(_PER_ENCODED * len(run)) - len(_PIECE.findall(run)), 0)
    found = {"digits": digits, "accented" if is_accented else "latin": latin}
    for name, first, last in _RARE_ACCENTS:
        found[name] = round(_PER_RARE_ACCENT * sum(first <= accent <= last for accent in accents))
    if runs:
        characters: Counter[str] = Counter()
        for character, times in Counter("".join(runs)).items():
            characters[_script(character)] += times
        found.update((script, max(round(n * _PER_CHARACTER[script]), 1)) for script, n in characters.items())
    return {script: size for script, size in found.items() if size}


_remembered_sizes = lru_cache(maxsize=512)(_sizes)


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    return _SCRIPTS[bisect_right(_STARTS, ord(character)) - 1][1]


def _by_script(fixed: int, texts: Iterable[str]) -> ByScript:
    return _total([{"latin": fixed} if fixed else {}, *map(sizes, texts)])


def _total(several: Iterable[ByScript]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in several:
        for script, size in one.items():
            found[script] = found.get(script, 0) + size
    return found


# ---- what is counted of a message, a tool and a context: a number, and texts


def _message(message: Message) -> tuple[int, list[str]]:
    texts = [field for field in (message.name, message.tool_call_id, message.reasoning) if field]
    for call in message.tool_calls:
        texts += [call.id, call.name, _text(call.arguments)]
    parts = message.content if isinstance(message.content, list) else [message.content or ""]
    images = [part for part in parts if isinstance(part, dict) and part.get("type") == "image_url"]
    for part in parts:
        if part not in images:
            text = part.get("text") if isinstance(part, dict) else None
            texts.append(text if isinstance(text, str) else _text(part))
    fixed = PER_MESSAGE + PER_CALL * len(message.tool_calls) + PER_MEDIUM * (len(message.media) + len(images))
    return fixed, texts


def _tool(tool: Described) -> list[str]:
    return [tool.name, tool.description, _text(tool.parameters)]


def _context(context: Shown) -> tuple[int, list[str]]:
    fixed, texts = (PER_MESSAGE, [context.system]) if context.system else (0, [])
    for message in context.messages:
        more, said = _message(message)
        fixed += more
        texts += said
    for tool in context.tools:
        fixed += PER_TOOL
        texts += _tool(tool)
    return fixed, texts


def _text(value: Any) -> str:
    """A text, or a value's JSON."""
    return value if isinstance(value, str) else _encode(describe_bytes(value)).decode()
