"""A running agent: its parts made, joined, and closed in order."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from msgspec.structs import replace

from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.model_request import ContextUsage, Material, fit, measure
from nacre.agent.ports import Answer, Approval, Ask, Context, Emit, Event, Guard, Notice, Provider, Tool, ignore
from nacre.config import MAIN, Settings
from nacre.errors import ConfigError, ModelNotAllowed, NacreError
from nacre.history.message_text import cut_middle
from nacre.history.pairing import without_facts
from nacre.history.tokens import ByScript, context_sizes, cost
from nacre.history.window import Window, recent
from nacre.memory import Consolidator, Memory
from nacre.memory.agent_memory import usual_embedding
from nacre.memory.home import open_home
from nacre.messages import Message, Snapshot, ToolCall
from nacre.opening import default_place
from nacre.records import SetMeta
from nacre.render.usage import Prices
from nacre.runtime import titles
from nacre.runtime.access_tokens import Tokens
from nacre.runtime.agent_parts import Furniture, Makings, furnish, searches_by_meaning, servers_for, workspace
from nacre.runtime.closing import Closing
from nacre.runtime.context_budget import Budget, Calibrations, Windows
from nacre.runtime.file_copies import FileHistory
from nacre.runtime.folder import Folder, open_folder, shell_word, sources
from nacre.runtime.folder_config import apply
from nacre.runtime.gateway.access import Guests
from nacre.runtime.gateway.queue import StepPacer
from nacre.runtime.model_chain import (
    ModelChain,
    as_chain,
    find_model,
    last_model,
    local_model_before,
    provider_for,
)
from nacre.runtime.models import list_all, make_named
from nacre.runtime.options import USUAL, Options
from nacre.runtime.permissions import PermissionStore, rules_of, skill_rules
from nacre.runtime.run_sessions import open_sessions
from nacre.runtime.stats import Work
from nacre.runtime.structured_output import Formed
from nacre.runtime.subagents import Delegated, Tally
from nacre.runtime.summarizer import Compactor
from nacre.runtime.trust import Notices
from nacre.runtime.vectors import VectorMaker
from nacre.sessions import Sessions
from nacre.skills import Catalogue
from nacre.summaries.plan import Limits
from nacre.tools.approvals import Approvals, Grounds, Policy
from nacre.tools.files.file_writer import Writer
from nacre.tools.permission_rules import Verdict

if TYPE_CHECKING:
    from nacre.tools.mcp import Prompt

logger = logging.getLogger(__name__)

CHOSEN = "chosen_model"
"""The field of a session's meta that names the model that was chosen for it, as `provider/model`."""
_MEMORY_SHARE = 40
"""The facts that are sent with one message have at most one part in so many of the context."""
_FOR_A_TITLE = 4
"""How many messages of a session the model is shown to name it."""


class App:
    """A running agent and its parts; `trouble` says why its store cannot be used and another stands in for it."""

    def __init__(self, settings: Settings, sessions: Sessions, provider: Provider, *, name: str = MAIN) -> None:
        self.name = name
        self.is_ending = False
        self.trouble = ""
        self.settings = settings
        self.sessions = sessions
        self.provider = as_chain(provider, settings)
        self._remote_keys: set[str] = set()
        self._chosen: dict[str, ModelChain] = {}
        self._model_notes: list[str] = [self.provider.note] if self.provider.note else []
        leaves_traces = sessions.location != ":memory:"
        self.budget = Budget(
            settings.number("agent.max_context_tokens"),
            windows=Windows.usual() if leaves_traces else None,
            calibrations=Calibrations.usual() if leaves_traces else None,
            name=self._full_name,
            mix=self._mix,
        )
        self.most = settings.number("agent.max_history_messages")
        self.pacer = StepPacer()
        self.kernel = Kernel(sessions, self.agent_for, pace=self.pacer.step)
        self.children = Delegated(sessions, self._deliver)
        self.file_history = FileHistory(sessions, self.children.outermost)
        self.options = USUAL
        self._asks: dict[str, Ask | None] = {}
        self._grounds: Grounds | None = None
        self.furniture = Furniture({}, Catalogue(()), "", [])
        self.folder: Folder | None = None
        self.is_guest: Callable[[str], bool] = lambda _: False
        self.memory: Memory | None = None
        self.learner: Consolidator | None = None
        self.compactor = Compactor(
            sessions,
            lambda key: self.budget.watch(self.provider_of(key)),
            limits=self._limits,
            check=lambda key: self._check_remote(key, self.provider_of(key)),
        )
        self.after: list[Callable[[str], None]] = []
        self.work = Work()

    @property
    def model(self) -> str:
        """The model that answers, as `provider/model`."""
        return self.provider.ref

    @property
    def tokens(self) -> int:
        """How many tokens a request and its reply may have together."""
        return self.budget.limit(self.provider)

    @property
    def tools(self) -> Mapping[str, Tool]:
        return self.furniture.tools

    @property
    def skills(self) -> Catalogue:
        return self.furniture.skills

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """What MCP servers have for the user to send, by command."""
        return self.furniture.prompts

    @property
    def notes(self) -> list[str]:
        """Notices for the user at the start."""
        return [*self._model_notes, *self.furniture.notes]

    async def use(self, model: str) -> str:
        """Let another model answer from the next turn on; returns a note about it, or "".

        Raises ModelUnavailable or ConfigError, and changes nothing, if the model cannot answer or is not known.
        """
        new = await find_model(self.settings, model)
        old, self.provider = self.provider, new
        await old.close()
        return new.note

    async def find_choice(self, model: str) -> str:
        """The full name of a model that somebody chooses for one session; raises ModelUnavailable, ConfigError."""
        found = await find_model(self.settings, model)
        await found.close()
        return found.ref

    def provider_of(self, key: str) -> ModelChain:
        """The model that answers in a session: the one that was chosen for it, by its meta, else the agent's.

        Raises ModelUnavailable if the chosen one is not known: it is never replaced.
        """
        return self.provider_named(self.sessions.get_meta(key).get(CHOSEN) if key else None)

    def provider_named(self, ref: object) -> ModelChain:
        """A model that was chosen, by what a session's meta says of it; the agent's if none was."""
        if not isinstance(ref, str) or ref in {"", self.model}:
            return self.provider
        if ref not in self._chosen:
            self._chosen[ref] = ModelChain(make_named(self.settings, ref), self.settings)
        return self._chosen[ref]

    async def check_model(self) -> None:
        """Raise ModelUnavailable if no model can answer, before anything is stored; learn the model's window."""
        await self.provider.check(self._note_about_model)

    def _note_about_model(self, event: Event) -> None:
        if isinstance(event, Notice):
            self._model_notes.append(event.text)

    def remote_question(self, key: str) -> str:
        """Ask whether a session may be sent to a remote model, where a local one answered so far; "" if it may."""
        # Without a key it is a request over HTTP that has no session.
        if not key or self.options.allow_remote or key in self._remote_keys:
            return ""
        local = local_model_before(self.provider, self.settings, self.sessions, key)
        if not local:
            return ""
        return (
            f"In this session {local} answered so far, a local model. {self.model} is remote: send the session to it?"
        )

    def other_model_before(self, key: str) -> str:
        """The model that answered last in a session, if another one answers now; "" otherwise."""
        last = last_model(self.sessions, key)
        return "" if last == self.model else last

    def allow_remote(self, key: str) -> None:
        """Let a remote model answer in a session from now on."""
        self._remote_keys.add(key)

    def skips_memory(self, key: str) -> bool:
        """Tell whether memory leaves a session alone: a guest's, and one that must not be sent to the model now."""
        return self.is_guest(key) or (not self.settings.text("memory.model") and bool(self.remote_question(key)))

    async def close(self) -> None:
        """Let go of the model."""
        for model in (self.provider, *self._chosen.values()):
            await model.close()

    async def models(self) -> list[str]:
        """The models of all providers that can be reached, as `provider/model`."""
        listed = await list_all(self.settings)
        return [f"{provider.kind}/{info.name}" for provider in listed for info in provider.models if info.can_chat]

    async def suggest_title(self, key: str) -> str:
        """A title for a session, made by the model; "" if that is turned off, or the model is too small for it."""
        if not self.settings.flag("agent.titles") or self.model.startswith("embedded/") or self.remote_question(key):
            return ""
        return await titles.suggest_title(self.provider, self.sessions.get_history(key, last=_FOR_A_TITLE))

    def window(self, key: str) -> Window:
        """What the model would be shown of a session now."""
        return self._shown(self._now(key), tokens=self._room(key))

    def filling(self, key: str) -> ContextUsage:
        """What would fill the model's context if a session were answered now."""
        now = self._now(key)

        def show(tokens: int, *, summary: int, has_facts: bool) -> Window:
            messages = now.messages if has_facts else list(map(without_facts, now.messages))
            shown = replace(now, messages=messages, summary=cut_middle(now.summary, summary))
            return self._shown(shown, tokens=tokens)

        agent, budget, provider = self.agent_for(key), self.budget, self.provider_of(key)
        specs = [tool.spec for tool in agent.tools.values()]
        material = Material(show=show, system=agent.system(), skills=agent.skills(), tools=specs)
        request = fit(material, tokens=agent.tokens(), capacity=agent.capacity())
        limit, reply = budget.limit(provider), budget.reply(provider)
        scale = partial(budget.tokens, provider, key=key)
        return measure(request, now, skills=agent.skills(), limit=limit, reply=reply, scale=scale)

    def cost(self, use: Any) -> float | None:
        """What a request cost in money, by its `use` record; None if no price is configured for its model."""
        return Prices(self.settings.table("prices")).cost(use)

    def _now(self, key: str) -> Snapshot:
        return self.sessions.snapshot(key, last=self.most)

    def _shown(self, now: Snapshot, *, tokens: int) -> Window:
        newest, count = reversed(now.messages), now.live
        return recent(newest, count=count, summary=now.summary, tokens=tokens, limit=self.most)

    def _room(self, key: str) -> int:
        """The estimated tokens that are left for a session's messages beside the system prompt and the tools.

        A quarter at least: a small window that prompt and tools fill is not a reason for useless summaries.
        """
        agent = self.agent_for(key)
        specs = [tool.spec for tool in agent.tools.values()]
        taken = cost(Context(system=agent.system(), messages=(), tools=specs))
        return max(agent.tokens() - taken, agent.tokens() // 4)

    def _limits(self, key: str) -> Limits:
        """When a summary of a session is due, by the model that answers in it now."""
        return Limits(tokens=self._room(key), messages=self.most)

    def _mix(self, key: str) -> ByScript:
        """What scripts a session's next request is made of, about."""
        said = self.sessions.snapshot(key, last=self.most) if key else Snapshot()
        specs = [tool.spec for tool in self.tools.values()]
        summary = Message(role="user", content=said.summary)
        return context_sizes(Context(system=self.furniture.system, messages=[summary, *said.messages], tools=specs))

    def _full_name(self, provider: Provider) -> str:
        """A model and where it is served."""
        kind = (provider if isinstance(provider, ModelChain) else self.provider).current.kind
        place = self.settings.text("ollama.host") or os.environ.get("OLLAMA_HOST", "") if kind == "ollama" else ""
        place = self.settings.text(f"{kind}.base_url") if kind in {"openai", "anthropic"} else place
        return f"{kind}/{provider.model}@{place}"

    def for_guest(self, prefix: str) -> App:
        """The same agent with the sessions alone whose keys begin with a prefix; its turns run in the same kernel."""
        return GuestApp(self, self.sessions.within(prefix))

    def agent_for(self, key: str) -> Agent:
        """Who answers in a session; a turn keeps the model that it began with, and its limits."""
        tally, is_guest = self.children.running.get(key), self.is_guest(key)
        model = _TurnModel(partial(self.provider_of, key))
        return Agent(
            provider=lambda: self._answering(key, model.begin(), tally),
            tools=self.furniture.for_guests if is_guest else self.tools,
            system=lambda: self.furniture.guest_system if is_guest else self.furniture.system,
            skills=lambda: self.skills.text,
            guard=self._guard,
            tokens=lambda: self.budget.room(model.now, key),
            capacity=lambda: self.budget.capacity(model.now, key),
            max_messages=self.most,
            steps=self.settings.number("agent.max_steps") if tally is None else tally.task.steps,
            make_room=self.compactor.make_room,
            recall=_nothing if is_guest else partial(self._recalled, key),
            local_model=lambda: found.ref if (found := self.provider_of(key)).is_local else "",
            after=self._over,
        )

    def _recalled(self, key: str, text: str, in_view: Callable[[], Sequence[str]]) -> str:
        """What memory has to say to words, but for the facts that are in view; its trouble is never theirs."""
        if self.memory is None:
            return ""
        share = self.budget.limit(self.provider_of(key)) // _MEMORY_SHARE
        try:
            return self.memory.recall(text, tokens=min(self.settings.number("memory.tokens"), share), shown=in_view())
        except NacreError:
            logger.exception("facts could not be recalled from memory")
            return ""

    def _over(self, key: str) -> None:
        """A turn is over; what a child does for another session is that one's to remember."""
        self.work.end(key)
        self._asks.pop(key, None)
        if key not in self.children.running:
            for told in self.after:
                told(key)

    def _answering(self, key: str, model: ModelChain, tally: Tally | None) -> Provider:
        """The model for a turn, which begins with asking for it; raises ModelUnavailable if it may not be asked."""
        self._check_remote(key, model)
        if key:
            self.work.begin(key)
        watched = self.work.of(self.budget.watch(model, key), key)
        return Formed(watched if tally is None else tally.of(watched))

    def _check_remote(self, key: str, model: ModelChain) -> None:
        """Raise ModelNotAllowed if a session must not be sent to the model that answers now."""
        # Whoever chose another model for this session has said yes to it.
        if model is self.provider and self.remote_question(key):
            raise ModelNotAllowed(
                f"session {key!r} was answered by a local model, and {self.model} is remote\n"
                "Allow it with --allow-remote or agent.allow_remote = true, or use a local model."
            )

    async def _deliver(self, inbound: UserMessage, parent: str, emit: Emit) -> Message | None:
        """Give a child its task; when nobody waits for it any more, it is stopped.

        It may ask whoever is asked in the parent's turn, who is told which task asks.
        """
        above, task = self._asks.get(parent), str(inbound.content)

        async def ask(approval: Approval) -> Answer:
            return "no" if above is None else await above(replace(approval, task=approval.task or task))

        try:
            return await self.kernel.deliver(inbound, emit=emit, ask=None if above is None else ask)
        except anyio.get_cancelled_exc_class():
            self.kernel.stop(inbound.key)
            raise

    def _guard(self, key: str, ask: Ask | None) -> Guard:
        """Who decides about calls in a session.

        What a person allowed always is kept for the folder; without one, in the session's meta.
        """
        self._asks[key] = ask
        grounds, root = self.grounds, self.permission_root()
        if self.is_guest(key):
            grounds = replace(grounds, mode="ask" if grounds.mode == "yolo" else grounds.mode, skills={})
        approvals = Approvals(
            grounds,
            ask=ask,
            remembered=self.sessions.get_meta(key).get("approvals") or (),
            kept=PermissionStore().rules(root) if root is not None else (),
        )

        async def decide(tool: Tool, call: ToolCall) -> str:
            before = approvals.remembered
            refusal = await approvals(tool, call)
            if approvals.remembered != before:
                await self.sessions.submit(key, [SetMeta({"approvals": list(approvals.remembered)})])
            return refusal

        return decide

    @property
    def grounds(self) -> Grounds:
        """What calls are judged by; raises ConfigError if a rule cannot be read."""
        if self._grounds is None:
            options, furniture, root = self.options, self.furniture, self.permission_root()
            files, folder = furniture.files, self.folder
            folder_ask, folder_deny = (folder.ask, folder.deny) if folder is not None else ((), ())

            def keep(rules: tuple[str, ...]) -> None:
                PermissionStore().add(str(root), rules)

            self._grounds = Grounds(
                policy=Policy(tools=cast("Mapping[str, Verdict]", self.settings.table("approvals"))),
                rules=rules_of(self.settings, allow=options.allow, ask=folder_ask, deny=folder_deny),
                root=str(folder.root) if folder is not None else "",
                base=files.root if files is not None else ".",
                is_protected=files.is_protected if files is not None else lambda _: False,
                mode=options.mode,
                confined=furniture.confined,
                preview=Writer(files).preview if files is not None else lambda _: None,
                keep=keep if root is not None else None,
                skills=skill_rules(self.skills.skills),
                trusted_skills=tuple(self.settings.texts("permissions.skills")),
            )
        return self._grounds

    def permission_root(self) -> str | None:
        """The folder that "always" is kept for; None where it holds for the session: in the daemon, and incognito."""
        return None if self.folder is None or self.options.incognito else str(self.folder.root)


class GuestApp(App):
    """An agent as a guest reaches it: with sessions of their own, and in all else the agent itself.

    Whatever changes in the agent, as its model or its tools, changes here too.
    """

    def __init__(self, agent: App, sessions: Sessions) -> None:
        self._agent = agent
        self.sessions = sessions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)


class _TurnModel:
    """The model of a session: read when a turn begins, and the same until the next one does."""

    def __init__(self, read: Callable[[], ModelChain]) -> None:
        self._read = read
        self._model: ModelChain | None = None

    def begin(self) -> ModelChain:
        self._model = self._read()
        return self._model

    @property
    def now(self) -> ModelChain:
        return self.begin() if self._model is None else self._model


def store_of(root: str, agent: str) -> str:
    """Where an agent's sessions are: a whole store of its own below the main one's."""
    return root if agent == MAIN else f"{root}/agents/{agent}"


@asynccontextmanager
async def run_agent(settings: Settings, options: Options = USUAL, *, emit: Emit = ignore) -> AsyncIterator[App]:
    """Put the parts of an agent together and run them; whatever happens, all are closed, the store last.

    If the store cannot be used, another stands in for it, and `App.trouble` says so. Raises StoreError, ConfigError,
    and ProviderError if there is no model to talk to.
    """
    store, agent, incognito = options.store, options.agent, options.incognito
    root = _root(store)
    mine = settings.for_agent(agent)
    folder = None
    if options.folder is not None:
        folder = open_folder(options.folder, settings, is_trusted=options.is_trusted)
        mine = apply(folder.config, mine)
    if options.system:
        mine = mine.override("agent.persona", options.system)
    closing = Closing()
    try:
        opened = open_sessions(root, incognito=incognito)
        sessions = opened.sessions
        closing.add("store", _later(sessions.close))
        app = App(mine, sessions, await provider_for(mine, options.model), name=agent)
        closing.add("model", app.close)
        app.folder = folder
        app.options = options
        app.trouble = opened.trouble
        if opened.trouble:
            # What the agent keeps beside its sessions is where they are.
            root = sessions.location
        tokens = Tokens(_outermost(_root(store), agent))
        guests = Guests(mine, sessions.aliases, is_owners=tokens.is_owners)
        app.is_guest = lambda key: guests(app.children.outermost(key))
        home, notes = open_home(root, configured=mine.text("agent.workspace"))
        if not incognito and not opened.trouble and mine.flag("memory.enabled"):
            app.memory = await _open_memory(app, home, closing)
        makings = Makings(
            settings=mine,
            sessions=sessions,
            children=app.children,
            memory=app.memory,
            root=root if opened.trouble else _outermost(root, agent),
            home=home,
            tokens=Path(root) / "mcp",
            folder=folder or open_folder(workspace(mine, root), settings),
            is_daemon=folder is None,
            is_guest=app.is_guest,
            keep=app.file_history.keep,
        )
        servers = servers_for(makings)
        async with servers or nullcontext():
            app.furniture = await furnish(makings, servers)
            app.furniture.notes[:0] = [*opened.notes, *notes, *_folder_notes(makings, incognito=incognito)]
            if (kept := app.permission_root()) is not None:
                app.furniture.notes.extend(PermissionStore().problems(kept))
            app.file_history.workspace = app.furniture.files
            _check_mode(app)
            for note in app.notes:
                emit(Notice(note))
            async with _beside(app), app.kernel:
                try:
                    yield app
                finally:
                    app.is_ending = True
    finally:
        await closing.close()


def _folder_notes(makings: Makings, *, incognito: bool) -> list[str]:
    """What a person should be told of the folder."""
    folder, configured = makings.folder, makings.settings.text("agent.workspace")
    if makings.is_daemon and not folder.is_trusted:
        names = ", ".join(str(source.path) for source in sources(folder.path, folder.root))
        return [f"not followed: {names}; to accept: nacre trust {shell_word(folder.path)}"] if names else []
    if makings.is_daemon:
        return folder.notes
    if not configured:
        return folder.notes
    ignored = f"agent.workspace ({configured}) is for `nacre serve`; chat works in the current folder, or in -C DIR"
    is_told = not (incognito or Notices().is_new(f"{makings.root}: {ignored}"))
    return folder.notes if is_told else [ignored, *folder.notes]


def _check_mode(app: App) -> None:
    """Refuse rules that cannot be read, and `--yolo` where nothing confines what it would allow."""
    if app.grounds.mode != "yolo":
        return
    if app.folder is None or not app.folder.is_trusted:
        raise ConfigError("--yolo needs a folder that you trust: look at it first, then run `nacre trust`")
    if app.settings.text("sandbox.kind") == "off" or "shell" not in app.furniture.confined:
        raise ConfigError("--yolo needs a working sandbox, and there is none here: `nacre doctor` shows why")


def _root(store: str | None) -> str:
    """Where the agent's store is, even if nothing is kept this time."""
    return str(Path(store or default_place()).expanduser().absolute())


def _outermost(root: str, agent: str) -> str:
    """The store that all agents' stores are in, none of which tools may see."""
    return root if agent == MAIN else str(Path(root).parents[1])


@asynccontextmanager
async def _beside(app: App) -> AsyncIterator[None]:
    """What goes on beside the conversations: summaries, vectors for the search, and memory's reading."""
    async with app.compactor:
        app.after = [lambda key: None if app.remote_question(key) else app.compactor.post(key)]
        async with AsyncExitStack() as stack:
            if "search_sessions" in app.furniture.tools and searches_by_meaning(app.settings):
                vectors = await stack.enter_async_context(VectorMaker(app.sessions.make_vectors))
                app.after.append(vectors.post)
            if app.memory is not None:
                app.learner = learner = await stack.enter_async_context(Consolidator(app.memory))
                app.after.append(lambda key: None if app.is_guest(key) else learner.post(key))
            yield


async def _open_memory(app: App, home: Path, closing: Closing) -> Memory:
    """Memory, begun: what is said from now on is learned, if not by this process then by a later one."""
    embedding = usual_embedding if app.settings.text("memory.embeddings") == "auto" else lambda: None
    reader = await _reader(app, closing)
    memory = Memory(app.sessions, home, provider=reader, embedding=embedding, skips=app.skips_memory)
    closing.add("memory", _later(memory.close))
    try:
        await anyio.to_thread.run_sync(memory.start)
    except NacreError:
        # Conversations go on without it; its worker tries again.
        logger.exception("memory could not start")
    return memory


async def _reader(app: App, closing: Closing) -> Callable[[], Provider]:
    """The model that reads turns for memory: one of its own if that is set, else the one that answers."""
    model = app.settings.text("memory.model")
    if not model:
        return lambda: app.provider
    reader = await provider_for(app.settings, model)
    closing.add("memory's model", reader.close)
    return lambda: reader


def _nothing(*_: object) -> str:
    """What guests are reminded of: what was learned is the owner's."""
    return ""


def _later(close: Callable[[], None]) -> Callable[[], Any]:
    async def closed() -> None:
        close()

    return closed
