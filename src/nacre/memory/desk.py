"""Where the log and the pages meet: edits are taken in, and pages are written as the state says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from nacre.errors import describe_error
from nacre.memory import pages
from nacre.memory.folder import Base, Folder, Sign
from nacre.memory.ledger import Ledger
from nacre.memory.lines import MEMORY_PAGE, Part, State, skeleton
from nacre.memory.pages import Edit, Shown
from nacre.memory.turns import moment

logger = logging.getLogger(__name__)

_TRIES = 16


class Desk:
    """Keeps pages and state in step; what cannot be read or written is told in the log and left for the next time."""

    def __init__(self, ledger: Ledger, folder: Folder) -> None:
        self._ledger = ledger
        self._folder = folder
        self._renderer = pages.Renderer()
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
        lines = pages.lines_of(theirs)
        if [line.text for line in known] == lines or self._is_being_added(page, theirs, known):
            return []
        edit = Edit(page, known, lines, is_sure)
        return pages.taken_in(state, edit, new_id=self._ledger.new_id, at=moment(datetime.now(UTC)))

    def _is_being_added(self, page: str, theirs: str, known: Sequence[Shown]) -> bool:
        """Whether a page is what we last wrote and a beginning of what we add to it: a crash came between."""
        ours = pages.file_of(self._renderer.render(self._ledger.state, page))
        return theirs.startswith(pages.file_of(known)) and ours.startswith(theirs)

    def _settle(self, page: str) -> None:
        self._folder.mend(page, pages.file_of(self._renderer.render(self._ledger.state, page)))
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
        ours = pages.file_of(shown)
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
