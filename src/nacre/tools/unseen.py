"""What of a web page a reader cannot see: hidden by an attribute, a style, or a rule of the page's own style sheet.

Style sheets elsewhere, scripts, and text in the colour of its background are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nacre.errors import ToolError

Attributes = Mapping[str, str]
Styles = dict[str, str]
_Same = tuple[str, frozenset[str], tuple[tuple[str, str], ...]]

_TAGS = frozenset(
    {"annotation", "annotation-xml", "applet", "audio", "canvas", "datalist", "embed", "head", "iframe", "noembed"}
    | {"noframes", "noscript", "object", "script", "select", "style", "svg", "template", "title", "video"}
)
_WHOLE_PAGE = frozenset({"html", "body"})
_ANIMATED = ("opacity", "transform")
# One that is not ended goes to the end of the page: to look for its end again from the next would take for ever.
_STYLE_SHEET = re.compile(r"<style\b[^>]*(?:>|\Z)(.*?)(?:</style\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_SELECTOR = re.compile(r"([a-z][\w-]*|\*)?((?:[.#][\w-]+)*)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
_NO_COLOUR = re.compile(
    r"transparent|(?:rgb|hsl)a?\((?:[^,)]*,){3}\s*(?:0+\.?0*|\.0+)%?\s*\)"
    r"|(?:rgb|hsl)a?\([^/)]*/\s*(?:0+\.?0*|\.0+)%?\s*\)|#[0-9a-f]{3}0|#[0-9a-f]{6}00"
)
_CLIPPED = re.compile(r"rect\(\s*[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01](?:px)?[\s,]+[01](?:px)?\s*\)")
_CLIPPED_AWAY = re.compile(r"inset\(\s*(?:[5-9]\d|100)(?:\.\d+)?%|(?:circle|ellipse)\(\s*0")
_MOVED_AWAY = re.compile(r"translate(?:x|y|3d)?\([^)]*-\s*\d{3,}|scale(?:x|y)?\(\s*0*\.?0*\s*[,)]")
_EDGES = ("left", "top", "right", "bottom", "margin-left", "margin-top", "text-indent")
_FAR = 500
_TINY = 1.0
_FAINT = 0.01
_HIGHEST = 0x10FFFF
_MOST_LOOKS = 5_000_000
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


class _Rule(NamedTuple):
    """Styles for elements with all of these: a tag ("" is any), classes as `.name`, an id as `#name`."""

    tag: str
    marks: frozenset[str]
    styles: Styles


class Sheet:
    """The rules of a page's own style sheets, as far as they are for one element by its tag, classes and id."""

    def __init__(self, html: str) -> None:
        self._rules: dict[str, dict[_Same, _Rule]] = {}
        self._looks = 0
        for sheet in _STYLE_SHEET.finditer(html):
            for selectors, block in _blocks(_COMMENT.sub(" ", sheet[1])):
                # A script shows what only begins like this.
                styles = {name: value for name, value in _styles(block).items() if name not in _ANIMATED}
                for selector in selectors.split(","):
                    self._add(selector.strip(), styles)

    def look(self, above: Look, tag: str, attributes: Attributes) -> Look:
        """How an element looks, given how the one around it does."""
        if tag in _WHOLE_PAGE:
            return above  # a script shows it when it is loaded
        is_hidden = "hidden" in attributes or attributes.get("aria-hidden", "").strip().lower() == "true"
        if above.is_gone or tag in _TAGS or is_hidden or (tag == "dialog" and "open" not in attributes):
            return replace(above, is_gone=True)
        styles = self._of(tag, attributes)
        if not styles:
            return above
        return Look(
            is_gone=_is_gone(styles),
            is_visible=_visibility(styles.get("visibility", ""), inherited=above.is_visible),
            is_tiny=_is_tiny(styles.get("font-size", ""), inherited=above.is_tiny),
            is_clear=bool(_NO_COLOUR.fullmatch(styles["color"])) if "color" in styles else above.is_clear,
        )

    def _add(self, selector: str, styles: Styles) -> None:
        found = _SELECTOR.fullmatch(selector)
        if not styles or not selector or found is None:
            return
        marks = re.findall(r"[.#][\w-]+", found[2])
        tag = (found[1] or "").lower().replace("*", "")
        rules, rule = self._rules.setdefault(marks[0] if marks else tag, {}), _Rule(tag, frozenset(marks), styles)
        same = (rule.tag, rule.marks, tuple(sorted(styles.items())))
        # Of equal rules the last one decides.
        rules.pop(same, None)
        rules[same] = rule

    def _of(self, tag: str, attributes: Attributes) -> Styles:
        """The styles of an element; its own are the strongest."""
        found: Styles = {}
        if self._rules:
            marks = {f".{name}" for name in attributes.get("class", "").split()} | {f"#{attributes.get('id', '')}"}
            for key in ("", tag, *sorted(marks, reverse=True)):
                rules = self._rules.get(key, {})
                self._looks += len(rules)
                if self._looks > _MOST_LOOKS:
                    raise ToolError("the style sheets of this page are too large to tell what a reader would see")
                for rule in rules.values():
                    if rule.tag in {"", tag} and rule.marks <= marks:
                        found |= rule.styles
        return found | _styles(attributes["style"]) if "style" in attributes else found


def _blocks(sheet: str) -> Iterator[tuple[str, str]]:
    """The selectors and the block of each rule that holds without a condition."""
    depth, start, opened = 0, 0, 0
    for brace in re.finditer(r"[{};]", sheet):
        at = brace.start()
        if brace[0] == "{":
            opened = at if depth == 0 else opened
            depth += 1
        elif brace[0] == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if not sheet[start:opened].lstrip().startswith("@"):
                    yield sheet[start:opened], sheet[opened + 1 : at]
                start = at + 1
        elif depth == 0:
            start = at + 1


def _styles(text: str) -> Styles:
    """Declarations by name, in lower case, without what only ranks them."""
    found: Styles = {}
    for part in _ESCAPE.sub(_character, _COMMENT.sub(" ", text)).split(";"):
        name, _, value = part.partition(":")
        found[name.strip().lower()] = value.lower().replace("!important", "").strip()
    found.pop("", None)
    return found


def _character(found: re.Match[str]) -> str:
    if found[1]:
        point = int(found[1], 16)
        return chr(point) if point <= _HIGHEST else ""
    return found[2]


def _is_gone(styles: Styles) -> bool:
    display, content = styles.get("display", ""), styles.get("content-visibility", "")
    opacity = _number(styles.get("opacity", ""))
    if display == "none" or content == "hidden" or (opacity is not None and opacity <= _FAINT):
        return True
    return _is_away(styles) or _is_clipped(styles)


def _is_away(styles: Styles) -> bool:
    """Whether an element is moved to where nobody looks."""
    is_moved = styles.get("position") in {"absolute", "fixed", "relative"}
    for edge in _EDGES:
        distance = _number(styles.get(edge, ""))
        if distance is not None and distance <= -_FAR and (is_moved or "-" in edge):
            return True
    return bool(_MOVED_AWAY.search(styles.get("transform", "")))


def _is_clipped(styles: Styles) -> bool:
    """Whether nothing of an element is left to see."""
    if _CLIPPED.fullmatch(styles.get("clip", "")) or _CLIPPED_AWAY.match(styles.get("clip-path", "")):
        return True
    if not styles.get("overflow", "").startswith(("hidden", "clip")):
        return False
    sizes = [_number(styles.get(name, "")) for name in ("width", "height", "max-width", "max-height")]
    return any(size is not None and size <= _TINY for size in sizes)


def _visibility(value: str, *, inherited: bool) -> bool:
    match value:
        case "hidden" | "collapse":
            return False
        case "visible" | "initial":
            return True
        case _:
            return inherited


def _is_tiny(value: str, *, inherited: bool) -> bool:
    """Whether text is too small to be seen; a size in parts of nothing is nothing."""
    size = _number(value)
    if size is None:
        return inherited and not value.endswith(("small", "medium", "large", "initial"))
    if value.endswith(("em", "%")) and not value.endswith("rem"):
        return inherited or size == 0
    return size <= _TINY if value.endswith(("px", "pt")) else size == 0


def _number(value: str) -> float | None:
    found = _NUMBER.match(value)
    return float(found[0]) if found else None
