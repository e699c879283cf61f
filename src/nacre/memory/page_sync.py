"""Pages of Markdown: how lines are shown, and what a person's edit of them means."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import NamedTuple

from nacre.errors import describe_error
from nacre.memory.model import MEMORY_PAGE, TOP, Line, Part, Shown, Source, State, Strike, skeleton
from nacre.memory.page_files import Base, Folder, Sign
from nacre.memory.store import Ledger
from nacre.memory.turn_reader import moment

_BULLET = re.compile(r"\s*[-*+]\s+(?P<body>\S.*)\Z")
_TAG = re.compile(r"\[[^\[\]]+ \d+\]\Z")
_TIME = re.compile(r"\d\d:\d\d\s+")
_STRUCK = re.compile(r"~~.*~~\Z")
_BOX = re.compile(r"\[(?P<tick>[ xX])\]\s+")
_MANY = 500
_FEW = 50
_ALIKE = 0.6


class Edit(NamedTuple):
    """What an edit is seen from: the page, how we last wrote it, and how it is now.

    `is_sure` is False where how we wrote it is not known: then nothing counts as taken out.
    """

    page: str
    base: Sequence[Shown]
    lines: Sequence[str]
    is_sure: bool = True


class Renderer:
    """Shows pages, and remembers how each line was shown: most are as they were the last time."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[str, tuple[Line, bool, Shown]]] = {}

    def render(self, state: State, page: str) -> list[Shown]:
        """A page as it is to be."""
        before, now = self._pages.get(page, {}), dict[str, tuple[Line, bool, Shown]]()
        shown = []
        for line in state.shown(page):
            is_struck = line.id in state.strikes
            known = before.get(line.id)
            if known is None or known[0] is not line or known[1] is not is_struck:
                known = (line, is_struck, Shown(line.id, _shown(line, is_struck=is_struck)))
            now[line.id] = known
            shown.append(known[2])
        self._pages[page] = now
        return shown


def rendered(state: State, page: str) -> list[Shown]:
    """A page as it is to be."""
    return Renderer().render(state, page)


def file_of(shown: Sequence[Shown]) -> str:
    return "".join(f"{line.text}\n" for line in shown)


def lines_of(text: str) -> list[str]:
    """The lines of a file; a byte order mark and the two kinds of line ends make no difference."""
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def words_of(raw: str) -> tuple[str, str]:
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


def taken_in(state: State, edit: Edit, *, new_id: Callable[[], str], at: str) -> list[Part]:
    """The parts that an edit adds to memory; none of what a person wrote is left out."""
    return list(_Intake(state, edit, new_id, at).run())


def _shown(line: Line, *, is_struck: bool) -> str:
    text, raw = line.text, line.raw
    if raw is not None and not is_struck:
        return raw
    if raw is not None:
        text = words_of(raw)[0] or raw
    time = f"{line.at[11:16]} " if line.page != MEMORY_PAGE and raw is None else ""
    tag = f" {line.source.tag}" if line.source is not None else ""
    box = "[ ] " if line.pending else ""
    return f"- {time}~~{text}~~{tag}" if is_struck else f"- {time}{box}{text}{tag}"


class _Intake:
    """One edit, gone through from top to bottom."""

    def __init__(self, state: State, edit: Edit, new_id: Callable[[], str], at: str) -> None:
        self._state = state
        self._edit = edit
        self._new_id = new_id
        self._at = at
        self._last = TOP
        known = {line.id for line in edit.base}
        # What stands on the page by now though we last wrote it without: most likely an edit that was taken in before.
        self._waiting = [line for line in rendered(state, edit.page) if line.id not in known]

    def run(self) -> Iterator[Part]:
        base, lines = self._edit.base, self._edit.lines
        matcher = SequenceMatcher(None, [line.text for line in base], lines, autojunk=len(base) > _MANY)
        for tag, start, end, first, last in matcher.get_opcodes():
            if tag == "equal":
                self._last = base[end - 1].id
            else:
                yield from self._changed(list(base[start:end]), lines[first:last])

    def _changed(self, old: list[Shown], new: Sequence[str]) -> Iterator[Part]:
        for raw in new:
            if self._is_there(raw):
                continue
            before = self._pair(raw, old)
            line = self._line(raw, before)
            yield line
            self._last = line.id
            if before is not None:
                yield from self._struck(before, by=line.id)
        for gone in old:
            yield from self._struck(gone)

    def _is_there(self, raw: str) -> bool:
        for at, line in enumerate(self._waiting):
            if line.text == raw:
                self._last = self._waiting.pop(at).id
                return True
        return False

    def _pair(self, raw: str, old: list[Shown]) -> Shown | None:
        """The line that a person changed into this one, if there is one; it is taken from the old ones."""
        tag = words_of(raw)[1]
        same = [line for line in old if tag and words_of(line.text)[1] == tag]
        near = same or (old if raw.strip() and len(old) <= _FEW else [])
        found = max(near, key=lambda line: _alike(line.text, raw), default=None)
        if found is None or not (same or _alike(found.text, raw) >= _ALIKE):
            return None
        old.remove(found)
        return found

    def _line(self, raw: str, before: Shown | None) -> Line:
        text, tag = words_of(raw)
        page, after = self._edit.page, self._last
        origin = self._state.lines.get(before.id) if before is not None else None
        text = _TIME.sub("", text, count=1) if page != MEMORY_PAGE else text
        if origin is None or not origin.text:
            return Line(id=self._new_id(), page=page, text=text, raw=raw, at=self._at, after=after)
        source = _kept(origin.source, tag)
        turn, subject = origin.turn, origin.subject
        return Line(
            id=self._new_id(),
            page=page,
            text=text,
            raw=raw,
            at=self._at,
            after=after,
            source=source,
            turn=turn,
            subject=subject,
        )

    def _struck(self, line: Shown, *, by: str = "") -> Iterator[Part]:
        is_head = line.id in {head.id for head in skeleton(self._edit.page)}
        known = self._state.strikes.get(line.id)
        if (self._edit.is_sure or is_head) and (known is None or known.why == "replaced"):
            yield Strike(id=line.id, why="edited" if by else "removed", by=by)


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _kept(source: Source | None, tag: str) -> Source | None:
    """Where an edited line comes from; it still does if the person took the tag away."""
    return source if source is None or tag in ("", source.tag) else None


logger = logging.getLogger(__name__)

_TRIES = 16


class Desk:
    """Keeps pages and state in step; what cannot be read or written is told in the log and left for the next time."""

    def __init__(self, ledger: Ledger, folder: Folder) -> None:
        self._ledger = ledger
        self._folder = folder
        self._renderer = Renderer()
        self._settled: dict[str, tuple[Sign | None, int]] = {}
        self._texts: dict[str, str] = {}
        self._viewed: tuple[Sign | None, State, int] | None = None
        self._view: State | None = None

    def settle(self, *, must: bool = False) -> None:
        """Take in every edit and write every page that is not as it should be; only while the ledger is held.

        Errors of the file system are raised only where someone relies on the pages: with `must`.
        """
        state = self._ledger.state
        for page in dict.fromkeys([*self._folder.pages(), *state.pages]):
            sign = self._folder.sign(page)
            version = self._ledger.state.versions.get(page, 0)
            if self._settled.get(page) == (sign, version):
                continue
            try:
                if self._is_at(page, self._ledger.state) and self._is_as_we_wrote_it(page):
                    self._settled[page] = (sign, version)
                    continue
                self._settle(page)
            except OSError as error:
                if must:
                    raise
                logger.warning("a page of memory was not changed", extra={"page": page, "error": describe_error(error)})

    def view(self) -> State:
        """The state as it will be once the edits of the facts are taken in; nothing is written."""
        state = self._ledger.state
        sign = self._folder.sign(MEMORY_PAGE)
        if sign is None or sign == self._settled.get(MEMORY_PAGE, (None, 0))[0]:
            return state
        if self._viewed != (sign, state, state.version) or self._view is None:
            is_known = self._is_at(MEMORY_PAGE, state) and self._is_as_we_wrote_it(MEMORY_PAGE)
            self._view = state if is_known else self._edited(state)
            self._viewed = (sign, state, state.version)
        return self._view

    def _is_at(self, page: str, state: State) -> bool:
        """Tell whether a page was settled with a state as it is."""
        return page in self._settled and self._settled[page][1] == state.versions.get(page, 0)

    def _is_as_we_wrote_it(self, page: str) -> bool:
        """Tell whether a page says what it said when it was settled: its text is compared, which is quickly done."""
        try:
            return page in self._texts and self._folder.read(page) == self._texts[page]
        except OSError:
            return False

    def _edited(self, state: State) -> State:
        try:
            parts = self._edits(MEMORY_PAGE, self._folder.read(MEMORY_PAGE))
        except OSError:
            return state
        if not parts:
            return state
        other = state.copy()
        for part in parts:
            other.add(part)
        return other

    def _edits(self, page: str, theirs: str | None) -> list[Part]:
        """What a page says that memory does not; a page that is gone, or new and empty, says nothing."""
        state, base = self._ledger.state, self._folder.base(page)
        is_sure = base is not None and self._ledger.has_been(base.epoch)
        if theirs is None or not (theirs or is_sure):
            return []
        known = base.lines if base is not None and is_sure else self._renderer.render(state, page)
        lines = lines_of(theirs)
        if [line.text for line in known] == lines or self._is_being_added(page, theirs, known):
            return []
        edit = Edit(page, known, lines, is_sure)
        return taken_in(state, edit, new_id=self._ledger.new_id, at=moment(datetime.now(UTC)))

    def _is_being_added(self, page: str, theirs: str, known: Sequence[Shown]) -> bool:
        """Whether a page is what we last wrote and a beginning of what we add to it: a crash came between."""
        ours = file_of(self._renderer.render(self._ledger.state, page))
        return theirs.startswith(file_of(known)) and ours.startswith(theirs)

    def _settle(self, page: str) -> None:
        self._folder.mend(page, file_of(self._renderer.render(self._ledger.state, page)))
        for attempt in range(_TRIES):
            theirs = self._folder.read(page)
            # One that is empty just then was made by a sandbox that found none to hide, or is still being saved.
            parts = self._edits(page, theirs) if theirs or not attempt else []
            if parts:
                self._ledger.write(parts)
            if self._wrote(page, theirs, self._renderer.render(self._ledger.state, page)):
                return
        logger.warning("a page of memory is being saved repeatedly; it was not changed", extra={"page": page})

    def _wrote(self, page: str, theirs: str | None, shown: list[Shown]) -> bool:
        """Let a page be as it should be; False if somebody saved it meanwhile."""
        base = self._folder.base(page)
        is_bare = {line.id for line in shown} <= {head.id for head in skeleton(page)}
        if is_bare and (theirs is None or (base is not None and page != MEMORY_PAGE)):
            # Nothing is on it, or nothing is left; the page of facts stays, for what is gone cannot be hidden.
            return self._folder.remove(page, theirs)
        ours = file_of(shown)
        if theirs != ours and not self._replaced(page, theirs, ours):
            return False
        self._keep_base(page, base, shown)
        sign = self._folder.sign(page)
        if self._folder.read(page) != ours:
            return False
        self._settled[page] = (sign, self._ledger.state.versions.get(page, 0))
        self._texts[page] = ours
        return True

    def _replaced(self, page: str, theirs: str | None, ours: str) -> bool:
        """Write a page; if lines were only added at its end, they are appended."""
        if theirs and ours.startswith(theirs):
            return self._folder.extend(page, theirs, ours[len(theirs) :])
        return self._folder.swap(page, theirs, ours)

    def _keep_base(self, page: str, base: Base | None, shown: list[Shown]) -> None:
        known = base.lines if base is not None and base.epoch == self._ledger.epoch else None
        if known is None or known != shown[: len(known)]:
            self._folder.set_base(page, Base(self._ledger.epoch, shown))
        elif len(known) < len(shown):
            self._folder.extend_base(page, shown[len(known) :])
