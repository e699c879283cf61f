"""Memory: what is learned from conversations, looked up, edited, and forgotten."""

from __future__ import annotations

import builtins
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Provider
from nacre.errors import Conflict, ContextOverflow, NacreError, describe_error
from nacre.history.tokens import estimate
from nacre.keys import is_internal
from nacre.memory import contradictions, extraction, turn_reader
from nacre.memory.extraction import Extraction
from nacre.memory.fact_index import FactIndex, Vectors
from nacre.memory.page_files import PageFiles
from nacre.memory.page_sync import PageSync
from nacre.memory.store import MEMORY_PAGE, Cursor, FactStore, Line, Source, State, Strike, with_earlier, with_related
from nacre.memory.text_match import STANDING_WORDS, is_same, is_standing, normal, one_line, salient, stems
from nacre.memory.turn_reader import Turn, utc_text
from nacre.messages import Message
from nacre.sessions import Sessions
from nacre.storage.system import System

logger = logging.getLogger(__name__)

HEADING = "What you remember of earlier conversations, which may be out of date:"
_MAX_ATTEMPTS = 3
_TIMEOUT = 120.0
_MAX_TEXT, _MAX_SUBJECT = 300, 60
_BATCH = 16
_MIN_PREFIX = 4
_MAX_CANDIDATES = 40
_MAX_RELATED = 12
_MAX_NEAR, _MAX_OF_SUBJECT = 30, 50
MAX_RECALLED = 10
"""How many facts are recalled for one text, unless another number is asked for."""


class NoSuchFact(NacreError):
    """Nothing that is remembered is meant by that, or more than one thing."""


class Why(Struct, frozen=True, kw_only=True):
    """A fact, and the turn that it was learned in; None if a person wrote it, or if the session is gone."""

    line: Line
    turn: Turn | None = None


class Version(Struct, frozen=True, kw_only=True):
    """A fact as it was, and what became of it; `strike` is None for what holds."""

    line: Line
    strike: Strike | None = None


def usual_embedding() -> Vectors | None:
    """The embedding that is installed, if one is."""
    from nacre.index import minilm  # noqa: PLC0415 - an extra

    return Vectors(minilm.shared_model()) if minilm.is_installed() else None


class Memory:
    """What an agent remembers: a session in the store, and pages of Markdown below `folder` that show it.

    `provider` gives the model that facts are learned with; without one, only daily lines are written. All
    methods may be called from any thread; those that change something return when it is durable. `page` is where
    the facts are for people.
    """

    def __init__(  # noqa: PLR0913 - the parts it is made of
        self,
        sessions: Sessions,
        folder: Path,
        *,
        provider: Callable[[], Provider] | None = None,
        embedding: Callable[[], Vectors | None] = usual_embedding,
        skips: Callable[[str], bool] = lambda _: False,
        system: System | None = None,
        timeout: float = _TIMEOUT,
    ) -> None:
        self._sessions = sessions
        self._provider = provider
        self._make_embedding = embedding
        self._skips = skips
        self._embedding: Vectors | None = None
        self._is_warm = False
        self._timeout = timeout
        self._store = FactStore(sessions, system or System())
        files = PageFiles(folder, system)
        self.page = files.path(MEMORY_PAGE)
        self._pages = PageSync(self._store, files)
        self._index = FactIndex()
        self._indexed: tuple[State | None, int] = (None, -1)
        self._standing: builtins.list[Line] = []
        self._failures: Counter[str] = Counter()

    # ---- learning

    async def consolidate(self, key: str) -> int:
        """Go through the turns of a session that memory does not know; returns how many it has learned from.

        Each turn is one transaction in memory's log, so that it is gone through once, whatever happens meanwhile.
        """
        done, tried = 0, set[str]()
        while True:
            unknown = await to_thread.run_sync(lambda: self._unknown(self._store.read(), key))
            if not unknown or unknown[0].id in tried:
                return done
            tried.add(unknown[0].id)
            learned = await self._ask_model(unknown[0])
            if learned is None:
                return done
            done += await to_thread.run_sync(self._learn, unknown[0], learned)

    def start(self) -> None:
        """Note when memory began, if its log is new: what is said from then on is learned from, sooner or later."""
        if self._store.is_new:
            with self._store.hold() as state:
                self._note_beginning(state)

    def begin(self) -> builtins.list[str]:
        """Note when memory began, store what people edited, and list the sessions with turns that may be unknown.

        What was said before memory began is not learned from.
        """
        with self._store.hold() as state:
            self._note_beginning(state)
            self._pages.sync()
        found, state = [], self._store.state
        for info in self._sessions.list():
            cursor = state.cursors.get(info.key)
            mark = cursor.at if cursor is not None else state.begun
            if utc_text(info.updated) > mark and not self._skips(info.key):
                found.append((info.updated, info.key))
        return [key for _, key in sorted(found)]

    def _note_beginning(self, state: State) -> None:
        if not state.begun:
            self._store.write([Cursor(begun=utc_text(datetime.now(UTC)))])

    def settle(self) -> None:
        """Store what people edited, and write the pages."""
        with self._store.hold():
            self._pages.sync()

    def _unknown(self, state: State, key: str) -> builtins.list[Turn]:
        """The turns of a session that memory does not know, oldest first."""
        if is_internal(key):
            return []
        cursor = state.cursors.get(key)
        begun = state.begun if cursor is None else ""
        found = turn_reader.turns_after(self._sessions, key, cursor, outside=key in state.outside)
        return [turn for turn in found if turn.id not in state.turns and utc_text(turn.at) >= begun]

    async def _ask_model(self, turn: Turn) -> Extraction | None:
        """What a model says of a turn; None if it cannot be asked now, and should be later."""
        if self._provider is None:
            return Extraction()
        self._update_index()
        known = [line for line in self._index.find(turn.asked, limit=_MAX_RELATED) if line.text]
        try:
            with anyio.fail_after(self._timeout):
                reply = await self._provider().complete(extraction.question(turn, known), emit=lambda _: None)
        except ContextOverflow:
            return Extraction()
        except Exception as error:  # noqa: BLE001 - a provider is anybody's code: memory goes on without it
            self._failures[turn.id] += 1
            logger.warning("memory skipped a turn for now", extra={"key": turn.key, "error": describe_error(error)})
            return Extraction() if self._failures[turn.id] >= _MAX_ATTEMPTS else None
        return extraction.parse_answer(reply.message.content, known)

    def _learn(self, turn: Turn, learned: Extraction) -> int:
        """Record what was learned from a turn, unless it is known by now or was undone meanwhile."""
        with self._store.hold() as state:
            if turn.id not in {other.id for other in self._unknown(state, turn.key)}:
                return 0
            self._pages.sync()
            self._update_index()
            new_id, is_unwanted = self._store.new_id, self._store.state.unwanted.__contains__
            line = extraction.daily_line(turn, learned, id=new_id())
            facts = extraction.new_facts(turn, learned, near=self._near, is_unwanted=is_unwanted, new_id=new_id)
            try:
                self._store.write([line, *facts], id=f"turn:{turn.id}")
            except Conflict:
                # A process that does not take the lock was faster.
                return 0
            self._failures.pop(turn.id, None)
            self._pages.sync()
        return 1

    # ---- recalling

    def recall(self, text: str, *, tokens: int, shown: Iterable[str] = (), limit: int = MAX_RECALLED) -> str:
        """What is remembered that a text is about, within a limit of tokens and lines; "" if that is nothing.

        Asks no model and writes nothing. What is in `shown`, texts that were recalled before, is not repeated;
        what is always to be done comes last, with a third of the lines at most if there are others.
        """
        before = {line for earlier in shown for line in earlier.splitlines()}
        self._update_index()
        found = dict.fromkeys(map(_with_tag, self._index.find(text, limit=_MAX_CANDIDATES)))
        standing = [line for line in map(_with_tag, self._standing) if line not in before and line not in found]
        related = [line for line in found if line not in before][: limit - min(len(standing), limit // 3)]
        room = tokens - _cost(HEADING)
        chosen: list[str] = []
        for line in [*related, *standing][:limit]:
            cost = _cost(line)
            if cost <= room:
                chosen.append(line)
                room -= cost
        return "\n".join([HEADING, *chosen]) if chosen else ""

    def warm(self) -> bool:
        """Do a part of what makes recall better: load the embedding, make vectors; False if nothing is left."""
        if not self._is_warm:
            self._is_warm = True
            self._embedding = self._make_embedding()
            if self._embedding is not None:
                self._index.use(self._embedding)
        if self._embedding is None:
            return False
        self._update_index()
        return self._embedding.work(_BATCH) > 0

    def search(self, query: str, *, limit: int = 20) -> builtins.list[Line]:
        """The facts and daily lines that a text is about, best first."""
        state = self._view()
        with closing(FactIndex()) as index:
            index.update([*state.facts, *state.days])
            return index.find(query, limit=limit)

    def _view(self) -> State:
        """The state with what people edited, stored or not; the last one if another thread is at work."""
        state = self._store.read_if_free()
        return self._pages.view() if state is not None else (self._indexed[0] or self._store.state)

    def _update_index(self) -> None:
        state = self._view()
        if state is not self._indexed[0] or state.version != self._indexed[1]:
            self._index.update(state.facts)
            candidates = reversed(self._index.having(STANDING_WORDS))
            self._standing = [line for line in candidates if is_standing(line.text)]
            self._indexed = (state, state.version)

    def _near(self, subject: str, text: str) -> builtins.list[Line]:
        """The facts that one may repeat or replace: those of its subject, those in like words, and those that wait."""
        like = self._index.like(f"{text} {contradictions.other_words(text)}", limit=_MAX_NEAR)
        near = [*self._index.about(subject, limit=_MAX_OF_SUBJECT), *like, *self._store.state.pending]
        return [*{line.id: line for line in near}.values()]

    # ---- what people and models ask for

    def list(self) -> builtins.list[Line]:
        """The facts that hold, oldest first."""
        return builtins.list(self._view().facts)

    def days(self) -> builtins.list[Line]:
        """The daily lines, oldest first."""
        return builtins.list(self._view().days)

    @contextmanager
    def _change(self) -> Iterator[State]:
        """The state with what people edited, to be changed by this process alone; the pages are written afterwards."""
        with self._store.hold():
            self._pages.sync()
            yield self._store.state
            self._pages.sync()

    def find(self, what: str, *, struck: bool = False) -> Line:
        """The fact or daily line that an id, the beginning of one, or a text means; raises NoSuchFact.

        With `struck`, one that no longer holds may be meant too, if no other is.
        """
        state = self._view()
        try:
            return self._one_of(what, [*state.facts, *state.pending, *state.days], "no fact matches")
        except NoSuchFact:
            if not struck:
                raise
            return self._find_version(state, what)

    def _one_of(self, what: str, held: builtins.list[Line], none: str) -> Line:
        """The line that is meant; raises NoSuchFact, which begins with `none` if there is no such line."""
        wanted = salient(what)
        rules: tuple[Callable[[Line], bool], ...] = (
            lambda line: line.id == what,
            lambda line: len(what) >= _MIN_PREFIX and line.id.startswith(what),
            lambda line: normal(line.text) == normal(what),
            lambda line: line.page == MEMORY_PAGE and is_same(line.text, what),
            lambda line: line.page == MEMORY_PAGE and bool(wanted) and wanted <= stems(line.text),
        )
        found = next(filter(None, ([line for line in held if rule(line)] for rule in rules)), [])
        if len(found) == 1:
            return found[0]
        if not found:
            raise NoSuchFact(f"{none} {what!r}")
        listed = "; ".join(f"{line.id}: {line.text}" for line in found[:5])
        raise NoSuchFact(f"{what!r} may mean any of {len(found)} facts; choose one by its id: {listed}")

    def why(self, what: str) -> Why:
        """Where something was learned; raises NoSuchFact."""
        line = self.find(what)
        source = line.source
        turn = turn_reader.turn_at(self._sessions, source.key, source.n, source.at) if source is not None else None
        return Why(line=line, turn=turn)

    def remember(self, text: str, *, subject: str = "", key: str = "") -> Line:
        """Keep a fact that someone asked to be kept; one that is known already is given back as it is."""
        with self._change():
            said = one_line(extraction.strip_markup(text), _MAX_TEXT)
            if not said:
                raise NoSuchFact("there is nothing to remember in an empty text")
            self._update_index()
            near = self._near(subject, said)
            known = extraction.find_repeated(subject, said, near)
            if known is not None and not known.pending:
                return known
            # What waited to be confirmed is by this.
            id, subject = self._store.new_id() if known is None else known.id, one_line(subject, _MAX_SUBJECT)
            source = Source(key=key, n=self._sessions.snapshot(key, last=0).n) if key else None
            at = utc_text(datetime.now(UTC))
            line = Line(id=id, page=MEMORY_PAGE, text=said, subject=subject, source=source, at=at)
            self._store.write([line, *_strikes(extraction.replaced_by(line, near), by=line)])
            return line

    def confirm(self, what: str) -> Line:
        """Let a fact hold that was waiting for a person to confirm it. Raises NoSuchFact."""
        with self._change() as state:
            self._update_index()
            found = self._one_of(what, state.pending, "no fact that waits to be confirmed matches")
            line = replace(found, pending=False)
            near = self._near(line.subject, line.text)
            self._store.write([line, *_strikes(extraction.replaced_by(line, near), by=line)])
            return line

    def pending(self) -> builtins.list[Line]:
        """The facts that wait for a person to confirm them, oldest first."""
        return builtins.list(self._view().pending)

    def find_pending(self, what: str) -> Line:
        """The fact that waits to be confirmed which an id or a text means; raises NoSuchFact."""
        return self._one_of(what, self._view().pending, "no fact that waits to be confirmed matches")

    def find_struck(self, what: str) -> Line:
        """The fact that no longer holds which an id or a text means; raises NoSuchFact."""
        struck = [version.line for version in self.changes()]
        return self._one_of(what, struck, "no replaced or forgotten fact matches")

    def history(self, what: str) -> builtins.list[Version]:
        """The versions of a fact, oldest first. Raises NoSuchFact."""
        state = self._view()
        line = self._find_version(state, what)
        return [Version(line=one, strike=state.strikes.get(one.id)) for one in state.history(line.id)]

    def changes(self) -> builtins.list[Version]:
        """All facts that no longer hold, and what became of them, oldest first."""
        state = self._view()
        struck = (state.lines[id] for id in state.pages.get(MEMORY_PAGE, ()) if id in state.strikes)
        return [Version(line=line, strike=state.strikes[line.id]) for line in struck if line.text]

    def restore(self, what: str, *, both: bool = False) -> Line:
        """Let a fact hold again that was replaced, edited or forgotten. Raises NoSuchFact.

        What holds in its place now becomes an earlier version, unless `both` are to hold.
        """
        with self._change() as state:
            line = self.find_struck(what)
            others = [one for one in state.history(line.id) if one.id not in state.strikes and not one.pending]
            strikes = [] if both else _strikes(others, by=line)
            self._store.write([Strike(id=line.id, why="restored"), *strikes])
            return line

    def _find_version(self, state: State, what: str) -> Line:
        """The fact that is meant, of those that hold, or else of all that there ever were."""
        facts = [state.lines[id] for id in state.pages.get(MEMORY_PAGE, ()) if state.lines[id].text]
        held = [line for line in facts if line.id not in state.strikes]
        try:
            return self._one_of(what, held, "no fact matches")
        except NoSuchFact:
            return self._one_of(what, facts, "no fact matches")

    def forget(self, what: str) -> Line:
        """Stop using a fact; its text stays in memory's log. Raises NoSuchFact."""
        with self._change():
            line = self.find(what)
            self._store.write([Strike(id=line.id, why="forgotten")])
            return line

    def edit(self, what: str, text: str) -> Line:
        """Let a fact say something else; it keeps its source. Raises NoSuchFact."""
        with self._change():
            old = self.find(what)
            said = one_line(extraction.strip_markup(text), _MAX_TEXT)
            if not said:
                raise NoSuchFact("a fact cannot be empty; forget it instead")
            # A line in the same place, as if a person had written it on the page.
            tag = f" {old.source.tag}" if old.source is not None else ""
            time = f"{old.at[11:16]} " if old.page != MEMORY_PAGE else ""
            id, raw = self._store.new_id(), f"- {time}{said}{tag}"
            line = replace(old, id=id, text=said, raw=raw, after=old.id, pending=False, outside=False)
            self._store.write([line, Strike(id=old.id, why="edited", by=line.id)])
            return line

    # ---- erasing

    def lines_from(self, key: str) -> builtins.list[Line]:
        """Everything that was learned from a session, in use or not; facts first."""
        lines = self._view().lines.values()
        return _facts_first(line for line in lines if line.source is not None and line.source.key == key)

    def forget_session(self, key: str) -> int:
        """Erase all that was learned from a session, for good; returns how many lines that were.

        It is not learned again from what was said there so far.
        """
        return self._erase(lambda line: line.source is not None and line.source.key == key)

    def forget_message(self, key: str, n: int) -> int:
        """Erase all that was learned from a turn that a message is in, for good; returns how many lines that were."""

        def is_meant(line: Line) -> bool:
            source = line.source
            return source is not None and source.key == key and source.n <= n <= max(source.n, source.upto)

        return self._erase(is_meant)

    def erase(self, ids: Iterable[str]) -> int:
        """Erase lines for good, with all that belongs to them; returns how many that were."""
        wanted = set(ids)
        return self._erase(lambda line: line.id in wanted, related=True)

    def belonging(self, ids: Iterable[str]) -> builtins.list[Line]:
        """What is erased with some lines: their earlier versions, then the daily lines that say the same."""
        wanted = set(ids)
        state = self._view()
        found = with_related(state, wanted) - wanted
        return _facts_first(line for line in state.lines.values() if line.id in found)

    def _erase(self, is_meant: Callable[[Line], bool], *, related: bool = False) -> int:
        with self._store.hold():
            self._pages.sync()
            state = self._store.state
            doomed = {line.id for line in state.lines.values() if is_meant(line)}
            doomed = with_related(state, doomed) if related else with_earlier(state, doomed)
            if doomed:
                self._store.erase(doomed)
                self._pages.sync(must=True)
                self._update_index()
        return len(doomed)

    def close(self) -> None:
        """Release what is held in RAM; the sessions are their owner's to close."""
        self._index.close()


def _facts_first(lines: Iterable[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: line.page != MEMORY_PAGE)


def _with_tag(line: Line) -> str:
    return f"- {line.text} {line.source.tag}" if line.source is not None else f"- {line.text}"


def _strikes(lines: Iterable[Line], *, by: Line) -> list[Strike]:
    return [Strike(id=line.id, why="replaced", by=by.id) for line in lines]


def _cost(text: str) -> int:
    return estimate(Message(role="user", content=text))
