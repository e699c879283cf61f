"""A running agent: its parts made, joined, and closed in order."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from enum import Enum
from pathlib import Path, PurePath
from typing import NamedTuple

import anyio
import anyio.to_thread

import nacre
from nacre.agent.background import Worker
from nacre.agent.kernel import AnyKernel
from nacre.agent.ports import Emit, Notice, Provider, ignore
from nacre.config import MAIN, Settings
from nacre.errors import ConfigError, NacreError, Refused, StoreError, describe_error
from nacre.history.session_state import RULES
from nacre.memory import Consolidator, Memory
from nacre.memory.agent_memory import usual_embedding
from nacre.memory.home import open_home
from nacre.opening import is_url, local_root, open_shared
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.agent_parts import AgentSetup, make_parts, searches_by_meaning, servers_for, workspace
from nacre.runtime.app import USUAL, App, Options
from nacre.runtime.folder import apply_config, open_folder, shell_word, sources
from nacre.runtime.gateway.access import Guests
from nacre.runtime.model_chain import provider_for
from nacre.runtime.permissions import PermissionStore
from nacre.runtime.redaction import finish_redactions
from nacre.runtime.session_owner import outermost
from nacre.runtime.trust import Notices
from nacre.sessions import Sessions

logger = logging.getLogger(__name__)

_PIECE, _REST = 8, 5.0
"""How many messages get vectors at once, and the seconds between two times."""


class Part(Enum):
    """Which part of an agent a process runs: all of it, or with workers what `serve` or a worker does.

    What is done once for a whole store is done by one process. Each worker learns from the turns that it ran.
    """

    ALL = "all"
    FRONT = "front"
    FIRST_WORKER = "first worker"
    WORKER = "worker"

    @property
    def finishes_redactions(self) -> bool:
        """Whether it finishes at its start what was cut short; workers are started after that."""
        return self in {Part.ALL, Part.FRONT}

    @property
    def serves_store(self) -> bool:
        """Whether it makes the vectors of all sessions, and reads the turns that no process has learned from."""
        return self in {Part.ALL, Part.FIRST_WORKER}

    @property
    def learns(self) -> bool:
        """Whether it learns from the turns that it runs."""
        return self is not Part.FRONT


@asynccontextmanager
async def run_agent(
    settings: Settings,
    options: Options = USUAL,
    *,
    emit: Emit = ignore,
    part: Part = Part.ALL,
    kernel: Callable[[App], AnyKernel] | None = None,
) -> AsyncIterator[App]:
    """Put the parts of an agent together and run them; whatever happens, all are closed, the store last.

    `kernel` makes what runs its turns, if that is not the agent's own kernel.
    If the store cannot be used, another stands in for it, and `App.trouble` says so. Raises StoreError, ConfigError,
    and ProviderError if there is no model to talk to.
    """
    store, agent, incognito = options.store, options.agent, options.incognito
    root = local_root(store, agent)
    # The folder that all agents' folders are in, none of which tools may see.
    main_root = root if agent == MAIN else str(PurePath(root).parents[1])
    mine = settings.for_agent(agent)
    folder = None
    if options.folder is not None:
        folder = open_folder(options.folder, settings, is_trusted=options.is_trusted)
        mine = apply_config(folder.config, mine)
    if options.system:
        mine = mine.override("agent.persona", options.system)
    closing = Closing()
    try:
        place, lease_seconds = store if store and is_url(store) else root, mine.number("store.lease_seconds")
        opened = open_sessions(place, incognito=incognito, lease_seconds=lease_seconds)
        sessions = opened.sessions
        closing.add("store", sessions.close)
        app = App(mine, sessions, await provider_for(mine, options.model), name=agent)
        closing.add("model", app.close)
        app.folder, app.options, app.trouble = folder, options, opened.trouble
        if opened.trouble:
            # What the agent keeps besides its sessions is where they are.
            root = sessions.location
        app.root = root
        tokens = Tokens(main_root)
        guests = Guests(mine, sessions.aliases, is_owners=tokens.is_owners)
        app.is_guest = lambda key: guests(outermost(sessions, key))
        home, notes = open_home(root, configured=mine.text("agent.workspace"))
        if not incognito and not opened.trouble and mine.flag("memory.enabled"):
            app.memory = await _open_memory(app, home, closing, part=part)
        setup = AgentSetup(
            settings=mine,
            sessions=sessions,
            children=app.children,
            memory=app.memory,
            root=root if opened.trouble else main_root,
            home=home,
            tokens=Path(root) / "mcp",
            folder=folder or open_folder(workspace(mine, root), settings),
            is_daemon=folder is None,
            is_guest=app.is_guest,
            keep=app.file_history.keep,
        )
        servers = servers_for(setup)
        async with servers or nullcontext():
            app.parts = await make_parts(setup, servers)
            app.parts.notes[:0] = [*opened.notes, *notes, *_folder_notes(setup, incognito=incognito)]
            if (kept := app.permission_root()) is not None:
                app.parts.notes.extend(PermissionStore().problems(kept))
            app.file_history.workspace = app.parts.files
            _check_mode(app)
            for note in app.notes:
                emit(Notice(note))
            if kernel is not None:
                app.kernel = kernel(app)
            async with _run_background(app, part), app.kernel:
                try:
                    yield app
                finally:
                    app.is_ending = True
    finally:
        await closing.close()


def _folder_notes(setup: AgentSetup, *, incognito: bool) -> list[str]:
    """Notices about the folder."""
    folder, configured = setup.folder, setup.settings.text("agent.workspace")
    if setup.is_daemon and not folder.is_trusted:
        names = ", ".join(str(source.path) for source in sources(folder.path, folder.root))
        return [f"not followed: {names}; to accept: nacre trust {shell_word(folder.path)}"] if names else []
    if setup.is_daemon:
        return folder.notes
    if not configured:
        return folder.notes
    ignored = f"agent.workspace ({configured}) is for `nacre serve`; chat works in the current folder, or in -C DIR"
    is_known = not (incognito or Notices().is_new(f"{setup.root}: {ignored}"))
    return folder.notes if is_known else [ignored, *folder.notes]


def _check_mode(app: App) -> None:
    """Refuse rules that cannot be read, and `--yolo` where nothing confines what it would allow."""
    if app.grounds.mode != "yolo":
        return
    if app.folder is None or not app.folder.is_trusted:
        raise ConfigError("--yolo needs a folder that you trust: look at it first, then run `nacre trust`")
    if app.settings.text("sandbox.kind") == "off" or "shell" not in app.parts.confined:
        raise ConfigError("--yolo needs a working sandbox, and there is none here: `nacre doctor` shows why")


@asynccontextmanager
async def _run_background(app: App, part: Part) -> AsyncIterator[None]:
    """Run what goes on besides the conversations: summaries, vectors for the search, and memory's reading."""
    async with app.compactor:
        app.after = [lambda key: None if app.remote_question(key) else app.compactor.post(key)]
        async with AsyncExitStack() as stack:
            if part.serves_store and "search_sessions" in app.parts.tools and searches_by_meaning(app.settings):
                vectors = await stack.enter_async_context(VectorMaker(app.sessions.make_vectors))
                app.after.append(vectors.post)
                app.hear_of_turns = vectors.wake
            if app.memory is not None and part.learns:
                # Of several daemons on a shared store, the one that serves the channels reads what nobody learned from.
                is_one_of_many = app.folder is None and app.sessions.is_shared and part is Part.ALL
                learner = Consolidator(app.memory, reads_earlier=part.serves_store and not is_one_of_many)
                app.learner = await stack.enter_async_context(learner)
                app.after.append(lambda key: None if app.is_guest(key) else learner.post(key))
            yield


async def _open_memory(app: App, home: Path, closing: Closing, *, part: Part) -> Memory:
    """Memory, begun: what is said from now on is learned, if not by this process then by a later one."""
    embedding = usual_embedding if app.settings.text("memory.embeddings") == "auto" else lambda: None
    # A model of its own reads the turns if that is set, else the one that answers.
    reader: Provider | None = None
    if model := app.settings.text("memory.model"):
        reader = await provider_for(app.settings, model, tracing=app.tracing)
        closing.add("memory's model", reader.close)

    def provider() -> Provider:
        return app.tracing.name_session("", reader or app.provider)

    memory = Memory(app.sessions, home, provider=provider, embedding=embedding, skips=app.skips_memory)
    closing.add("memory", memory.close)
    try:
        await anyio.to_thread.run_sync(memory.start)
        if part.finishes_redactions:
            await anyio.to_thread.run_sync(finish_redactions, app.sessions, memory)
    except NacreError:
        # Conversations go on without it; its worker tries again.
        logger.exception("memory could not start")
    return memory


# ---- the store


class OpenedStore(NamedTuple):
    """The sessions, notices for the start, and why the store cannot be used: "" if it can."""

    sessions: Sessions
    notes: list[str]
    trouble: str = ""


def open_sessions(root: str, *, incognito: bool, lease_seconds: int = 30) -> OpenedStore:
    """Open a store, and import what was written while it could not be used.

    If it is a folder and cannot be used now, sessions are JSON documents in the user's state directory. Raises
    StoreError if those cannot be written either, if the store is of a newer version, or if it is a database: other
    machines use that too, and what was said here meanwhile would be missing there.
    """
    if incognito:
        return OpenedStore(nacre.open(":memory:"), [])
    if is_url(root):
        return OpenedStore(open_shared(root, lease_seconds=lease_seconds), [])
    try:
        sessions = nacre.open(root)
        if not os.access(f"{root}/sessions", os.W_OK | os.X_OK):
            # One that may only be read can be opened.
            sessions.close()
            raise Refused(f"{root} cannot be written; is its disk read-only?")
    except StoreError as error:
        if type(error) not in (StoreError, Refused):
            # Its version is newer, or it is damaged: that is not for another store to hide.
            raise
        from nacre.legacy.standby import StandIn  # noqa: PLC0415 - for a store that cannot be used

        store = StandIn(root, error, rules=RULES)
        notice = (
            f"THE STORE CANNOT BE USED: {store.reason}. Messages are saved as JSON documents in {store.location}, "
            "and the next start with a usable store brings them into it, with the titles and folders of new sessions. "
            "Until then there is no search, archive, fork or memory."
        )
        return OpenedStore(Sessions(store), [notice], f"the store cannot be used: {error}")
    return OpenedStore(sessions, _import_standby(sessions))


def _import_standby(sessions: Sessions) -> list[str]:
    """Import what was written while the store could not be used; notices about it."""
    from nacre.user_files import has_standby  # noqa: PLC0415 - most stores have none

    if not has_standby(sessions.location):
        return []
    from nacre.legacy.standby import bring_home  # noqa: PLC0415 - the same

    try:
        found = [migrated for migration in bring_home(sessions.location) for migrated in migration.report]
    except (StoreError, OSError) as error:
        logger.warning(
            "what was written without the store could not be brought in", extra={"error": describe_error(error)}
        )
        return [f"what was written while the store could not be used is not in it yet: {error}"]
    bad = [f"{one.file} could not be brought into the store: {one.detail}" for one in found if one.detail]
    brought = [one for one in found if one.outcome in {"migrated", "separate", "appended"}]
    count, keys = sum(one.messages for one in brought), ", ".join(sorted({one.key for one in brought}))
    good = f"{count} messages that were written while the store could not be used are in it now: {keys}"
    return [good, *bad] if count else bad


# ---- vectors


class VectorMaker(Worker):
    """Prepares messages for a search by meaning in the background, a few at a time, while nobody waits.

    A worker that goes on `rest` seconds after it was entered, and after each turn; `make` says how many are left.
    """

    def __init__(self, make: Callable[[int], int], *, rest: float = _REST) -> None:
        self._make, self._rest = make, rest
        self._woken = anyio.Event()

    def post(self, _: str) -> None:
        """Go on, since something was said."""
        self.wake()

    def wake(self) -> None:
        """Go on, since something may have been said, here or in another process."""
        self._woken.set()

    async def _run(self) -> None:
        while True:
            # A program that answers once is gone by then.
            await anyio.sleep(self._rest)
            self._woken = anyio.Event()
            try:
                began = anyio.current_time()
                while await anyio.to_thread.run_sync(self._make, _PIECE):
                    # At most half of the time, so that anyone who asks something meanwhile is not kept waiting.
                    await anyio.sleep(anyio.current_time() - began)
                    began = anyio.current_time()
            except Exception:  # the worker must outlive whatever went wrong once
                logger.exception("messages could not be prepared for a search by meaning")
            await self._woken.wait()


# ---- closing


class Closing:
    """Things to close, the last one first; one that fails does not keep the others from being closed."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Callable[[], Awaitable[None] | None]]] = []

    def add(self, name: str, close: Callable[[], Awaitable[None] | None]) -> None:
        self._parts.append((name, close))

    async def close(self) -> list[str]:
        """Close everything; returns what could not be closed, and logs why."""
        failed: list[str] = []
        while self._parts:
            name, close = self._parts.pop()
            try:
                with anyio.CancelScope(shield=True):
                    if (ending := close()) is not None:
                        await ending
            except Exception:
                # The rest is to be closed all the same.
                logger.exception("a part could not be closed", extra={"part": name})
                failed.append(name)
        return failed
