"""What of a web page a reader cannot see: hidden by an attribute, a style, or a rule of the page's own style sheet.

Style sheets elsewhere, scripts, and text in the colour of its background are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isnan, nan

from msgspec import Struct
from msgspec.structs import replace

from nacre.errors import ToolError

Attributes = Mapping[str, str]
Styles = dict[str, str]
_Rule = tuple[str, frozenset[str], tuple[tuple[str, str], ...]]
"""Elements with all of these: a tag ("" is any), classes as `.name`, an id as `#name`; and the styles for them."""

_TAGS = frozenset(
    {"annotation", "annotation-xml", "applet", "audio", "canvas", "datalist", "embed", "head", "iframe", "noembed"}
    | {"noframes", "noscript", "object", "rp", "script", "select", "style", "svg", "template", "title", "video"}
)
_WHOLE_PAGE = frozenset({"html", "body"})
_ANIMATED = ("opacity", "transform", "scale", "translate")
# One that is not ended goes to the end of the page: to look for its end again from the next would take forever.
_STYLE_SHEET = re.compile(r"<style\b([^>]*)(?:>|\Z)(.*?)(?:</style\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_FOR_PAPER = re.compile(r"\bmedia\s*=\s*[\"']?\s*print\b", re.IGNORECASE)
_ALWAYS = re.compile(r"@layer\b|@media\s+(?:only\s+)?(?:all|screen)\s*\Z")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_SELECTOR = re.compile(r"([a-z][\w-]*|\*)?((?:[.#][\w-]+)*)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
_DISPLAY = re.compile(
    r"none|contents|list-item|flow-root|initial|inherit|unset|revert|revert-layer|inline|run-in|math"
    r"|(?:inline-)?(?:block|flex|grid|table)|table-[a-z-]+|ruby[a-z-]*|-[a-z-]+|(?:block|inline) [a-z -]+"
)
_EDGES = ("left", "top", "right", "bottom", "margin-left", "margin-top", "text-indent")
_COLOURS = ("-webkit-text-fill-color", "color")
_SCROLLED = ("overflow", "overflow-x", "overflow-y")
_SIZES = ("width", "height", "max-width", "max-height")
_USED = frozenset(
    {"display", "visibility", "content-visibility", "opacity", "filter", "zoom", "position", "clip", "clip-path"}
    | {"transform", "scale", "translate", "font", "font-size", "margin", "inset"}
    | {*_EDGES, *_COLOURS, *_SCROLLED, *_SIZES}
)
_VISIBILITY = {"hidden": False, "collapse": False, "visible": True, "initial": True}
_PIXELS = {"em": 16, "rem": 16, "ch": 8, "ex": 8, "pt": 1.3, "pc": 16, "in": 96, "cm": 38, "mm": 3.8}
_PIXELS |= {"%": 4, **dict.fromkeys(("vw", "vh", "vmin", "vmax"), 10)}
"""How many pixels a unit has, about, on the screen of a reader."""
_FAR = 500
_BEYOND = 5000
_MOVED = 100
_HALF = 50
_TINY = 1.0
_FAINT = 0.01
_MAX_CODE_POINT = 0x10FFFF
_ALPHA = 4
_WITH_ALPHA = {5: 4, 9: 7}
"""Where in a colour of so many characters its alpha begins."""
_MAX_DEPTH = 5
_MAX_RULES_TRIED = 5_000_000
"""How many rules are looked at for all elements of a page, so that no page takes long."""


class Look(Struct, frozen=True, kw_only=True):
    """How an element looks: gone with all that is in it, or invisible unless something in it says otherwise."""

    is_gone: bool = False
    is_visible: bool = True
    is_tiny: bool = False
    is_clear: bool = False

    @property
    def is_seen(self) -> bool:
        return self.is_visible and not (self.is_gone or self.is_tiny or self.is_clear)


class Sheet:
    """The rules of a page's own style sheets, as far as they are for one element by its tag, classes and id."""

    def __init__(self, html: str) -> None:
        self._rules: dict[str, dict[_Rule, Styles]] = {}
        self._looks = 0
        for sheet in _STYLE_SHEET.finditer(html):
            if _FOR_PAPER.search(sheet[1]):
                continue
            for selectors, block in _blocks(_COMMENT.sub(" ", sheet[2])):
                # A script shows what only begins like this.
                styles = {name: value for name, value in _styles(block).items() if name.strip("!") not in _ANIMATED}
                for selector in map(str.strip, selectors.split(",")):
                    found = _SELECTOR.fullmatch(selector)
                    if not styles or not selector or found is None:
                        continue
                    tag, marks = (found[1] or "").lower().replace("*", ""), re.findall(r"[.#][\w-]+", found[2])
                    rules = self._rules.setdefault(marks[0] if marks else tag, {})
                    rule = (tag, frozenset(marks), tuple(sorted(styles.items())))
                    # Of equal rules the last one decides.
                    rules.pop(rule, None)
                    rules[rule] = styles

    def look(self, above: Look, tag: str, attributes: Attributes) -> Look:
        """How an element looks, given how the one around it does."""
        if tag in _WHOLE_PAGE:
            return above  # a script shows it when it is loaded
        is_hidden = not attributes.keys().isdisjoint({"hidden", "popover"})
        is_hidden = is_hidden or attributes.get("aria-hidden", "").strip().lower() == "true"
        if above.is_gone or tag in _TAGS or is_hidden or (tag == "dialog" and "open" not in attributes):
            return replace(above, is_gone=True)

        # The styles of the element; its own are the strongest.
        found: Styles = {}
        if self._rules:
            marks = {f".{name}" for name in attributes.get("class", "").split()} | {f"#{attributes.get('id', '')}"}
            for key in ("", tag, *sorted(marks, reverse=True)):
                rules = self._rules.get(key, {})
                self._looks += len(rules)
                if self._looks > _MAX_RULES_TRIED:
                    raise ToolError("the style sheets of this page are too large to tell what a reader would see")
                for (wanted_tag, wanted_marks, _), styles in rules.items():
                    if wanted_tag in {"", tag} and wanted_marks <= marks:
                        found |= styles
        found = found | _styles(attributes["style"]) if "style" in attributes else found
        found |= {name[:-1]: value for name, value in found.items() if name.endswith("!")}
        if not found:
            return above
        return Look(
            is_gone=_is_gone(found),
            is_visible=_VISIBILITY.get(found.get("visibility", ""), above.is_visible),
            is_tiny=_is_tiny(found.get("font-size", ""), inherited=above.is_tiny),
            is_clear=next((_is_clear(found[name]) for name in _COLOURS if name in found), above.is_clear),
        )


def _blocks(sheet: str, *, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The selectors and the block of each rule that holds without a condition."""
    inside, start, opened = 0, 0, 0
    for brace in re.finditer(r"[{};]", sheet):
        at = brace.start()
        if brace[0] == "{":
            opened = at if inside == 0 else opened
            inside += 1
        elif brace[0] == "}" and inside > 1:
            inside -= 1
        elif brace[0] == "}" and inside:
            inside = 0
            selectors, block = sheet[start:opened].strip(), sheet[opened + 1 : at]
            if not selectors.startswith("@"):
                yield selectors, block
            elif depth < _MAX_DEPTH and _ALWAYS.match(selectors.lower()):
                yield from _blocks(block, depth=depth + 1)
            start = at + 1
        elif inside == 0:
            start = at + 1


def _styles(text: str) -> Styles:
    """Those declarations by name, in lower case, that can hide something; one that ranks higher has a `!` after it."""
    found: Styles = {}
    for part in _ESCAPE.sub(_character, _COMMENT.sub(" ", text)).split(";"):
        name, _, value = part.partition(":")
        name = name.strip().lower()
        if name not in _USED:
            continue
        value, mark, rank = value.strip().lower().partition("!")
        value = value.rstrip()
        if name == "display" and not _DISPLAY.fullmatch(value):
            continue
        suffix = "!" if mark and rank.strip() == "important" else ""
        # One that stands for several is taken apart.
        words = value.split()
        if name == "font":
            size = next((word.partition("/")[0] for word in words if _NUMBER.match(word)), "")
            found[f"font-size{suffix}"] = size
        elif name in {"margin", "inset"} and words:
            prefix = "margin-" if name == "margin" else ""
            for at, side in enumerate(("top", "right", "bottom", "left")):
                found[f"{prefix}{side}{suffix}"] = words[at] if at < len(words) else words[at % 2 % len(words)]
        else:
            found[f"{name}{suffix}"] = value
    return found


def _character(found: re.Match[str]) -> str:
    if found[1]:
        point = int(found[1], 16)
        return chr(point) if point <= _MAX_CODE_POINT else ""
    return found[2]


def _is_gone(styles: Styles) -> bool:
    """Whether an element is not shown, or shown so that nobody sees it."""
    if styles.get("display") == "none" or styles.get("content-visibility") == "hidden":
        return True
    fading = [styles.get("opacity", ""), styles.get("zoom", "")]
    fading += [words[0] for name, words in _functions(styles.get("filter", "")) if name == "opacity"]
    if any(_number(word) <= _FAINT for word in fading):
        return True

    # Moved to where nobody looks, or made as small as a point.
    is_moved = styles.get("position") in {"absolute", "fixed", "relative", "sticky"}
    for edge in _EDGES:
        distance = _pixels(styles.get(edge, ""))
        if (distance <= -_FAR or distance >= _BEYOND) and (is_moved or "-" in edge):
            return True
    changes = [(name, styles[name].split()) for name in ("translate", "scale") if styles.get(name)]
    for name, words in [*changes, *_functions(styles.get("transform", ""))]:
        numbers = [_number(word) for word in words]
        if (
            (name.startswith("translate") and any(_number(one) <= -_MOVED or _pixels(one) >= _BEYOND for one in words))
            or (name.startswith("scale") and 0 in numbers)
            or (name.startswith("matrix") and numbers[:2] == [0, 0])
        ):
            return True

    # Clipped, so that nothing of it is left to see.
    for name, words in _functions(styles.get("clip", "")):
        if name == "rect" and all(_number(word) <= _TINY for word in words):
            return True
    for name, words in _functions(styles.get("clip-path", "")):
        number = _number(words[0])
        if name == "inset" and words[0].endswith("%") and number >= _HALF:
            return True
        if name in {"circle", "ellipse"} and number == 0:
            return True
    if not any(styles.get(name, "").startswith(("hidden", "clip", "auto", "scroll")) for name in _SCROLLED):
        return False
    return any(_pixels(styles.get(name, "")) <= _TINY for name in _SIZES)


def _is_clear(colour: str) -> bool:
    """Whether a colour is none at all."""
    if colour == "transparent":
        return True
    if colour.startswith("#"):
        return len(colour) in _WITH_ALPHA and not colour[_WITH_ALPHA[len(colour)] :].strip("0")
    words = next((words for _, words in _functions(colour.replace("/", " / "))), [])
    return (len(words) == _ALPHA or "/" in words) and _number(words[-1]) == 0


def _functions(value: str) -> Iterator[tuple[str, list[str]]]:
    """The functions of a value with their arguments, of which there is at least one, be it empty."""
    for part in value.split(")"):
        name, mark, arguments = part.rpartition("(")
        if mark:
            yield name.strip(" \n\t,"), arguments.replace(",", " ").split() or [""]


def _is_tiny(value: str, *, inherited: bool) -> bool:
    """Whether text is too small to be seen; a size in parts of nothing is nothing."""
    size, unit = _measure(value)
    if isnan(size):
        return inherited and not value.endswith(("small", "medium", "large", "initial"))
    if unit in {"em", "%"}:
        return inherited or size * (1 if unit == "em" else 1 / 100) * _PIXELS["rem"] <= _TINY
    return size * _PIXELS.get(unit, 1) <= (_TINY if unit else 0)


def _pixels(value: str) -> float:
    """A length, about."""
    size, unit = _measure(value)
    return size * _PIXELS.get(unit, 1)


def _number(value: str) -> float:
    return _measure(value)[0]


def _measure(value: str) -> tuple[float, str]:
    """A number and its unit; NaN, which is neither small nor large, if a value does not begin with one."""
    text = value.removeprefix("calc(").removesuffix(")").strip()
    found = _NUMBER.match(text)
    return (float(found[0]), text[found.end() :].strip()) if found else (nan, "")
