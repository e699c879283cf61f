"""The text of a paragraph, heading or cell, cut where its style changes: CommonMark's rules, and formulas.

It takes time that grows with the length of the text alone. What is not understood is text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from nacre.render.text import visible

# How a span is set; plain numbers, since a long message has a great many spans.
PLAIN, BOLD, ITALIC, STRUCK, CODE = 0, 1, 2, 4, 8


class Span(Struct, frozen=True):
    """Some text in one style; `address` is where it links to."""

    text: str
    style: int = PLAIN
    address: str = ""


def spans(text: str, references: Mapping[str, str] | None = None) -> Sequence[Span]:
    """The spans of a text; `references` has the addresses of links by their labels, as `reference_key` gives them."""
    if _MARKED.search(text) is None:
        return (Span(text),)
    return _merge(_style(_Reader(text, references or {}).read()))


def reference_key(label: str) -> str:
    """A label as it is compared: neither case nor the length of blanks matters."""
    return " ".join(label.split()).casefold()


def plain(text: str) -> str:
    """The text without its backslashes and entities."""
    return _PLAIN.sub(lambda match: match[1] or _character(match[0]), text)


def _character(entity: str) -> str:
    """What an entity stands for.

    It may be a control character, which must not get past those who looked for them in the text; nor does it end a
    line.
    """
    from html import unescape  # noqa: PLC0415 - a table of 2,231 names, for the few texts that have one
    from html.entities import html5  # noqa: PLC0415 - the same

    found = (unescape(entity) or "\ufffd") if entity[1] == "#" else html5.get(entity[1:], entity)
    return visible(found).replace("\n", " ")


def address_of(match: re.Match[str]) -> str:
    """The address in a match of ADDRESS; blanks, which it may have between `<` and `>`, as addresses have them."""
    return plain(match["angled"] or match["plain"] or "").replace(" ", "%20")


def is_linkable(address: str) -> bool:
    """Tell whether an address may be one that a click follows."""
    return _LINKABLE.match(address) is not None


_MARKED = re.compile(r"[\\`*_\[$&<]|~~|https?://")
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});"
_TOKEN = re.compile(
    r"(?P<math>(?<![\w$])(?:\$\$[^$]+\$\$|\$(?!\s)[^$\n]+(?<!\s)\$(?![\w$({]))"
    r"|\\\((?:[^\\\n]|\\[^()\n])+\\\)|\\\[(?:[^\\]|\\[^\[\]])+\\\])"
    rf"|(?P<escaped>\\[!-/:-@\[-`{{-~]|{_ENTITY})"
    r"|(?P<end>\\(?=\n))"
    r"|(?P<ticks>`+)"
    r"|(?P<opening>!?\[)"
    r"|(?P<closing>\])"
    r"|<(?P<auto>(?i:https?://|mailto:)[^\s<>]+|[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)>"
    # Brackets only in pairs: what follows an odd one is no part of the address.
    r"|(?<![A-Za-z0-9])(?P<bare>https?://(?:[^\s<>\"'`\[\]]++|\[[^\s<>\"'`\[\]]*\])+)"
    r"|(?P<mark>\*+|_+|~~+)"
)
# Prices, variables of a shell and escaped brackets are between such signs too; a formula has one of these.
_FORMULA = re.compile(r"[\\^={}+<>]")
_PLAIN = re.compile(rf"\\([!-/:-@\[-`{{-~])|{_ENTITY}")
_LINKABLE = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x20]+$", re.IGNORECASE)
# Without possessive quantifiers (`*+`) a text of blanks would be tried in all the ways in which it can be shared.
_INNER = r"[^\s()\\\x00-\x1f]|\\[^\s]?"
_NESTED = rf"\((?:{_INNER}|\((?:{_INNER})*+\))*+\)"
ADDRESS = rf"<(?P<angled>(?:[^<>\\\n]|\\.)*+)>|(?P<plain>(?!<)(?:{_INNER}|{_NESTED})++)"
TITLE = r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)"
_TARGET = re.compile(rf"\([ \t\n]*+(?:{ADDRESS})?(?:[ \t\n]++(?:{TITLE}))?[ \t\n]*+\)", re.DOTALL)
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999}+)\]", re.DOTALL)
_MAX_LABEL = 999


class _Run:
    """Some marks of one sort that may begin emphasis, end it, or both."""

    __slots__ = ("can_close", "can_open", "ends", "left", "length", "number", "opens", "sign")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.sign = text[start]
        self.left = self.length = end - start
        self.number = 0
        self.ends = 0
        """How many emphases end here, before what is left of the marks."""
        self.opens: list[int] = []
        """The styles that begin after what is left, the innermost first."""
        before = text[start - 1] if start else " "
        after = text[end] if end < len(text) else " "
        opens = not after.isspace() and (not _is_sign(after) or _is_border(before))
        closes = not before.isspace() and (not _is_sign(before) or _is_border(after))
        inside_word = self.sign == "_" and opens and closes
        self.can_open = opens and (not inside_word or _is_sign(before))
        self.can_close = closes and (not inside_word or _is_sign(after))


def _is_sign(character: str) -> bool:
    """Tell whether it is punctuation; that of Chinese and Japanese stands between words without blanks."""
    return unicodedata.category(character)[0] in "PS" and not _is_wide(character)


def _is_border(character: str) -> bool:
    """Tell whether a word that is emphasised may end or begin next to it, though it has punctuation there."""
    return character.isspace() or _is_sign(character) or _is_wide(character)


def _is_wide(character: str) -> bool:
    return not character.isascii() and unicodedata.east_asian_width(character) in "WF"


class _Bracket(Struct, frozen=True):
    """A bracket that may begin a link: the number of its node, where its text begins, and the runs before it."""

    node: int
    start: int
    runs: int
    is_image: bool


class _Begin(Struct, frozen=True):
    """Where a link begins."""

    address: str


class _End(Struct, frozen=True):
    """Where a link ends."""


_Node = Span | _Run | _Begin | _End


class _Reader:
    """Reads one text from its beginning to its end."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        self._text = text
        self._references = references
        self._nodes: list[_Node] = []
        self._runs: list[_Run] = []
        self._brackets: list[_Bracket] = []
        self._closed = 0
        """How many of the brackets cannot begin a link, since there is one after them: links do not nest."""
        self._last_bracket = -1
        self._ticks: dict[int, list[int]] | None = None

    def read(self) -> list[_Node]:
        """The nodes of the text, with emphasis in its runs."""
        text, nodes, at = self._text, self._nodes, 0
        while match := _TOKEN.search(text, at):
            if match.start() > at:
                nodes.append(Span(text[at : match.start()]))
            at = self._take(match)
        nodes.append(Span(text[at:]))
        _pair(self._runs)
        return nodes

    def _take(self, match: re.Match[str]) -> int:
        """Take a token; gives where the text after it begins."""
        nodes, end = self._nodes, match.end()
        match match.lastgroup:
            case "mark":
                run = _Run(self._text, match.start(), end)
                nodes.append(run)
                self._runs.append(run)
            case "escaped":
                nodes.append(Span(plain(match[0])))
            case "ticks":
                return self._take_code(match)
            case "opening":
                self._brackets.append(_Bracket(len(nodes), end, len(self._runs), match[0][0] == "!"))
                self._last_bracket = match.start()
                nodes.append(Span(match[0]))
            case "closing":
                return self._close_bracket(end)
            case "math" if not _is_formula(match[0]):
                # The sign alone; an escaped one without its backslash.
                end = match.start() + (1 if match[0][0] == "$" else 2)
                nodes.append(Span(self._text[end - 1 : end]))
            case "math":
                nodes.append(Span(match[0], CODE))
            case "auto":
                address = match["auto"]
                nodes.append(Span(address, address=address if ":" in address else f"mailto:{address}"))
            case "bare":
                address = _trim_address(match["bare"])
                nodes.append(Span(address, address=address))
                return match.start() + len(address)
            case _:
                # A backslash at the end of a line, which ends anyway.
                pass
        return end

    def _take_code(self, match: re.Match[str]) -> int:
        """Take code up to a run of as many ticks; without one, the ticks themselves."""
        ticks, start = match[0], match.end()
        if self._ticks is None:
            # All are looked for at once, and only now: most texts have none.
            self._ticks = {}
            for run in re.finditer("`+", self._text):
                self._ticks.setdefault(len(run[0]), []).append(run.start())
        starts = self._ticks.get(len(ticks), [])
        place = bisect_left(starts, start)
        if place == len(starts):
            self._nodes.append(Span(ticks))
            return start
        end = starts[place]
        body = self._text[start:end].replace("\n", " ")
        if body.startswith(" ") and body.endswith(" ") and body.strip():
            body = body[1:-1]
        self._nodes.append(Span(body, CODE))
        return end + len(ticks)

    def _close_bracket(self, end: int) -> int:
        """Make a link of what is between the last bracket and this one, if an address belongs to it."""
        bracket = self._brackets.pop() if self._brackets else None
        is_closed = len(self._brackets) < self._closed
        self._closed = min(self._closed, len(self._brackets))
        found = None
        if bracket is not None and (bracket.is_image or not is_closed) and end - 1 > bracket.start:
            found = self._target(bracket, end)
        if bracket is None or found is None:
            self._nodes.append(Span("]"))
            return end
        address, after = found
        _pair(self._runs[bracket.runs :])
        del self._runs[bracket.runs :]
        self._nodes[bracket.node] = _Begin(address)
        self._nodes.append(_End())
        if not bracket.is_image:
            self._closed = len(self._brackets)
        return after

    def _target(self, bracket: _Bracket, end: int) -> tuple[str, int] | None:
        """The address of a link whose text ends there, and where what says it ends."""
        text = self._text
        if text.startswith("(", end) and (target := _TARGET.match(text, end)):
            return address_of(target), target.end()
        if not self._references:
            return None
        label, after = "", end
        if named := _LABEL.match(text, end):
            label, after = named[1], named.end()
        if not label and self._last_bracket < bracket.start and end - bracket.start <= _MAX_LABEL:
            label = text[bracket.start : end - 1]
        address = self._references.get(reference_key(label)) if label else None
        return None if address is None else (address, after)


def _is_formula(text: str) -> bool:
    """Tell whether what is between two signs is a formula, which is shown as it is written."""
    if text.startswith("\\["):
        return _FORMULA.search(text, 2, len(text) - 2) is not None
    body = text.strip("$") if text[0] == "$" else text[2:-2]
    return not any(map(str.isspace, body)) or "_" in body or _FORMULA.search(body) is not None


def _trim_address(address: str) -> str:
    """A bare address without the punctuation of the sentence around it."""
    end = len(address)
    surplus = address.count(")") - address.count("(")
    while end and (address[end - 1] in ".,;:!?*_~" or (address[end - 1] == ")" and surplus > 0)):
        surplus -= address[end - 1] == ")"
        end -= 1
    return address[:end]


def _pair(runs: Sequence[_Run]) -> None:
    """Find out which runs belong together: each that can close takes the last that is open and fits.

    Below `bottoms` no open run fits a run of that sort. So none is looked at twice for the same sort, and the time
    grows with the number of runs alone.
    """
    opened: list[_Run] = []
    bottoms: dict[tuple[str, bool, int], int] = {}
    for number, run in enumerate(runs):
        run.number = number
        least = 2 if run.sign == "~" else 1
        sort = run.sign, run.can_open, run.length % 3
        while run.can_close and run.left >= least:
            bottom = bottoms.get(sort, -1)
            place = len(opened) - 1
            while place >= 0 and opened[place].number > bottom and not _fits(opened[place], run):
                place -= 1
            if place < 0 or opened[place].number <= bottom:
                bottoms[sort] = opened[-1].number if opened else -1
                break
            first = opened[place]
            used = 2 if min(first.left, run.left) > 1 else 1
            first.opens.append(STRUCK if run.sign == "~" else BOLD if used > 1 else ITALIC)
            run.ends += 1
            first.left -= used
            run.left -= used
            del opened[place + (first.left >= least) :]
        if run.can_open and run.left >= least:
            opened.append(run)


def _fits(first: _Run, last: _Run) -> bool:
    """Tell whether emphasis may begin at one run and end at another, which may be in the middle of a word."""
    if first.sign != last.sign:
        return False
    is_in_word = first.can_close or last.can_open
    return not is_in_word or first.sign == "~" or (first.length + last.length) % 3 > 0 or first.length % 3 == 0


def _style(nodes: Sequence[_Node]) -> Iterator[Span]:
    """The spans in their styles, without the marks that made them; of links in links the outer one counts."""
    around, links = [PLAIN], [""]
    for node in nodes:
        match node:
            case Span(text, style, address):
                yield Span(text, style | around[-1], links[-1] or address)
            case _Run():
                del around[len(around) - node.ends :]
                if node.left:
                    yield Span(node.sign * node.left, around[-1], links[-1])
                for style in reversed(node.opens):
                    around.append(around[-1] | style)
            case _Begin(address):
                links.append(links[-1] or address)
            case _End():
                links.pop()


def _merge(found: Iterator[Span]) -> list[Span]:
    """The spans with neighbours of one style and link joined."""
    joined: list[Span] = []
    texts: list[str] = []
    for span in found:
        if joined and joined[-1].style == span.style and joined[-1].address == span.address:
            texts.append(span.text)
            continue
        if joined:
            joined[-1] = Span("".join(texts), joined[-1].style, joined[-1].address)
        joined.append(span)
        texts = [span.text]
    joined[-1] = Span("".join(texts), joined[-1].style, joined[-1].address)
    return [span for span in joined if span.text]
