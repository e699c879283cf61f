"""Keep log and pages in step: what a person edited is stored, and pages are written as Markdown from the state."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from difflib import SequenceMatcher

from msgspec.structs import replace

from nacre.errors import describe_error
from nacre.memory.page_files import Base, FileStamp, PageFiles
from nacre.memory.store import MEMORY_PAGE, TOP, FactStore, Line, Part, RenderedLine, State, Strike, skeleton
from nacre.memory.turn_reader import utc_text

logger = logging.getLogger(__name__)

_ATTEMPTS = 16
_BULLET = re.compile(r"\s*[-*+]\s+(?P<body>\S.*)\Z")
_TAG = re.compile(r"\[[^\[\]]+ \d+\]\Z")
_TIME = re.compile(r"\d\d:\d\d\s+")
_STRUCK = re.compile(r"~~.*~~\Z")
_BOX = re.compile(r"\[(?P<tick>[ xX])\]\s+")
_MANY = 500
_FEW = 50
_SIMILAR = 0.6


# ---- pages as text

_Rendered = tuple[Line, bool, RenderedLine]
"""A line, whether it is struck, and how it was rendered."""


def render(state: State, page: str, known: dict[str, _Rendered] | None = None) -> list[RenderedLine]:
    """A page as it is to be; `known` is how each line was last rendered: most are as they were."""
    known = {} if known is None else known
    now: dict[str, _Rendered] = {}
    for line in state.page_lines(page):
        is_struck = line.id in state.strikes
        last = known.get(line.id)
        if last is None or last[0] is not line or last[1] is not is_struck:
            text = line.text if line.raw is None else parse_item(line.raw)[0] or line.raw
            time = f"{line.at[11:16]} " if line.page != MEMORY_PAGE and line.raw is None else ""
            tag = f" {line.source.tag}" if line.source is not None else ""
            box = "[ ] " if line.pending else ""
            item = f"- {time}~~{text}~~{tag}" if is_struck else f"- {time}{box}{text}{tag}"
            written = item if line.raw is None or is_struck else line.raw
            last = (line, is_struck, RenderedLine(line.id, written))
        now[line.id] = last
    known.clear()
    known.update(now)
    return [rendered for _, _, rendered in now.values()]


def page_text(lines: Sequence[RenderedLine]) -> str:
    return "".join(f"{line.text}\n" for line in lines)


def parse_item(raw: str) -> tuple[str, str]:
    """What a line says, and its tag: nothing if it is no item of a list, struck through, or a box without a tick."""
    found = _BULLET.match(raw)
    if found is None:
        return "", ""
    body = found["body"].rstrip()
    tag = _TAG.search(body)
    if tag is not None:
        body = body[: tag.start()].rstrip()
    box = _BOX.match(body)
    if _STRUCK.match(body) or (box is not None and box["tick"] == " "):
        body = ""
    elif box is not None:
        body = body[box.end() :]
    return body.strip(), tag[0] if tag is not None else ""


# ---- edits


def read_edit(  # noqa: PLR0913 - a page as it was and as it is
    state: State,
    page: str,
    base: Sequence[RenderedLine],
    lines: Sequence[str],
    *,
    is_sure: bool,
    new_id: Callable[[], str],
) -> Iterator[Part]:
    """Turn an edit, read from top to bottom, into the parts that it adds to memory.

    `base` is how we last wrote the page; where that is not known, it is not `is_sure`, and nothing counts as removed.
    None of what a person wrote is left out.
    """
    known, heads = {line.id for line in base}, {head.id for head in skeleton(page)}
    # What is on the page by now though we last wrote it without: most likely an edit that was stored before.
    stored = [line for line in render(state, page) if line.id not in known]
    at, last = utc_text(datetime.now(UTC)), TOP

    def strike(line: RenderedLine, by: str = "") -> Iterator[Part]:
        before = state.strikes.get(line.id)
        if (is_sure or line.id in heads) and (before is None or before.why == "replaced"):
            yield Strike(id=line.id, why="edited" if by else "removed", by=by)

    matcher = SequenceMatcher(None, [line.text for line in base], lines, autojunk=len(base) > _MANY)
    for tag, start, end, first, stop in matcher.get_opcodes():
        if tag == "equal":
            last = base[end - 1].id
            continue
        # Lines that are not found among the new ones were removed.
        old = list(base[start:end])
        for raw in lines[first:stop]:
            again = next((line for line in stored if line.text == raw), None)
            if again is not None:
                stored.remove(again)
                last = again.id
                continue
            before = _take_original(raw, old)
            line = Line(id=new_id(), page=page, raw=raw, at=at, after=last)
            line = _with_origin(line, state.lines.get(before.id) if before is not None else None)
            yield line
            last = line.id
            if before is not None:
                yield from strike(before, line.id)
        for gone in old:
            yield from strike(gone)


def _take_original(raw: str, old: list[RenderedLine]) -> RenderedLine | None:
    """The line that a person changed into this one, if there is one; it is taken from the old ones."""
    tag = parse_item(raw)[1]
    same = [line for line in old if tag and parse_item(line.text)[1] == tag]
    near = same or (old if raw.strip() and len(old) <= _FEW else [])
    likeness = {line.id: SequenceMatcher(None, line.text, raw).ratio() for line in near}
    found = max(near, key=lambda line: likeness[line.id], default=None)
    if found is None or not (same or likeness[found.id] >= _SIMILAR):
        return None
    old.remove(found)
    return found


def _with_origin(line: Line, origin: Line | None) -> Line:
    """A line that a person wrote, with what it says, and what is known of the one that they changed."""
    text, tag = parse_item(line.raw or "")
    line = replace(line, text=_TIME.sub("", text, count=1) if line.page != MEMORY_PAGE else text)
    if origin is None or not origin.text:
        return line
    # It still comes from there if the person removed the tag, but not if there is another one.
    source = origin.source if origin.source is None or tag in ("", origin.source.tag) else None
    return replace(line, source=source, turn=origin.turn, subject=origin.subject)


# ---- both together


class PageSync:
    """Keeps pages and state in step; what cannot be read or written is logged and left for the next time."""

    def __init__(self, store: FactStore, files: PageFiles) -> None:
        self._store = store
        self._files = files
        self._rendered: dict[str, dict[str, _Rendered]] = {}
        self._synced: dict[str, tuple[FileStamp | None, int]] = {}
        self._texts: dict[str, str] = {}
        self._seen: tuple[FileStamp | None, State, int] | None = None
        self._view: State | None = None

    def sync(self, *, must: bool = False) -> None:
        """Store every edit and write every page that is not as it should be; only while the store is held.

        Errors of the file system are raised only where someone relies on the pages: with `must`.
        """
        for page in dict.fromkeys([*self._files.pages(), *self._store.state.pages]):
            stamp = self._files.stamp(page)
            version = self._store.state.versions.get(page, 0)
            if self._synced.get(page) == (stamp, version):
                continue
            try:
                if self._is_unchanged(page):
                    self._synced[page] = (stamp, version)
                else:
                    self._sync_page(page)
            except OSError as error:
                if must:
                    raise
                logger.warning("a page of memory was not changed", extra={"page": page, "error": describe_error(error)})

    def view(self) -> State:
        """The state as it will be once the edits of the facts are stored; nothing is written."""
        state = self._store.state
        stamp = self._files.stamp(MEMORY_PAGE)
        if stamp is None or stamp == self._synced.get(MEMORY_PAGE, (None, 0))[0]:
            return state
        if self._seen != (stamp, state, state.version) or self._view is None:
            parts: list[Part] = []
            if not self._is_unchanged(MEMORY_PAGE):
                with suppress(OSError):
                    parts = self._read_edit(MEMORY_PAGE, self._files.read(MEMORY_PAGE))
            self._view = state.copy() if parts else state
            for part in parts:
                self._view.add(part)
            self._seen = (stamp, state, state.version)
        return self._view

    def _is_unchanged(self, page: str) -> bool:
        """Tell whether neither a page nor its state changed since they were synced; the text is quick to compare."""
        version = self._store.state.versions.get(page, 0)
        if page not in self._synced or self._synced[page][1] != version:
            return False
        try:
            return page in self._texts and self._files.read(page) == self._texts[page]
        except OSError:
            return False

    def _render(self, page: str) -> list[RenderedLine]:
        return render(self._store.state, page, self._rendered.setdefault(page, {}))

    def _read_edit(self, page: str, theirs: str | None) -> list[Part]:
        """What a page says that memory does not; a page that is gone, or new and empty, says nothing."""
        base = self._files.base(page)
        is_sure = base is not None and self._store.is_known_epoch(base.epoch)
        if theirs is None or not (theirs or is_sure):
            return []
        known = base.lines if base is not None and is_sure else self._render(page)
        # A byte order mark and the two kinds of line ends make no difference.
        lines = [line.removesuffix("\r") for line in theirs.removeprefix("\ufeff").split("\n")]
        lines = lines[:-1] if lines[-1] == "" else lines
        if [line.text for line in known] == lines:
            return []
        # It may be what we last wrote and a beginning of what we add to it: a crash came between.
        if theirs.startswith(page_text(known)) and page_text(self._render(page)).startswith(theirs):
            return []
        return list(read_edit(self._store.state, page, known, lines, is_sure=is_sure, new_id=self._store.new_id))

    def _sync_page(self, page: str) -> None:
        self._files.finish_write(page, page_text(self._render(page)))
        for attempt in range(_ATTEMPTS):
            theirs = self._files.read(page)
            # One that is empty just then was made by a sandbox that found none to hide, or is still being saved.
            parts = self._read_edit(page, theirs) if theirs or not attempt else []
            if parts:
                self._store.write(parts)
            if self._write(page, theirs, self._render(page)):
                return
        logger.warning("a page of memory is being saved repeatedly; it was not changed", extra={"page": page})

    def _write(self, page: str, theirs: str | None, lines: list[RenderedLine]) -> bool:
        """Make a page as it should be; False if somebody saved it meanwhile."""
        base = self._files.base(page)
        is_bare = {line.id for line in lines} <= {head.id for head in skeleton(page)}
        if is_bare and (theirs is None or (base is not None and page != MEMORY_PAGE)):
            # Nothing is on it, or nothing is left; the page of facts stays, for what is gone cannot be hidden.
            return self._files.remove(page, theirs)
        ours = page_text(lines)
        if theirs and theirs != ours and ours.startswith(theirs):
            # Lines were only added at its end.
            if not self._files.extend(page, theirs, ours[len(theirs) :]):
                return False
        elif theirs != ours and not self._files.replace(page, theirs, ours):
            return False
        known = base.lines if base is not None and base.epoch == self._store.epoch else None
        if known is None or known != lines[: len(known)]:
            self._files.set_base(page, Base(self._store.epoch, lines))
        elif len(known) < len(lines):
            self._files.extend_base(page, lines[len(known) :])
        stamp = self._files.stamp(page)
        if self._files.read(page) != ours:
            return False
        self._synced[page] = (stamp, self._store.state.versions.get(page, 0))
        self._texts[page] = ours
        return True
