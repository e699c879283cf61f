"""A running agent: its model, tools, memory and limits, and who answers in a session."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.actor import Agent, UserMessage
from nacre.agent.kernel import AnyKernel, Kernel
from nacre.agent.model_request import ContextUsage, Material, fit, measure
from nacre.agent.ports import Answer, Approval, Ask, Context, Emit, Event, Guard, Notice, Provider, Tool
from nacre.config import MAIN, Settings
from nacre.errors import ModelNotAllowed, NacreError, describe_error
from nacre.history.message_text import cut_middle
from nacre.history.pairing import without_facts
from nacre.history.tokens import ByScript, context_sizes, cost
from nacre.history.window import Window, recent
from nacre.memory import Consolidator, Memory
from nacre.messages import Message, Snapshot, ToolCall
from nacre.opening import local_root
from nacre.records import SetMeta
from nacre.render.usage import Prices
from nacre.runtime import titles
from nacre.runtime.agent_parts import AgentParts
from nacre.runtime.context_budget import Budget, Calibrations, Windows
from nacre.runtime.counters import Work
from nacre.runtime.file_copies import FileHistory
from nacre.runtime.folder import Folder, FolderConfig
from nacre.runtime.gateway.queue import StepPacer
from nacre.runtime.model_chain import ModelChain, as_chain, find_model, last_model, local_model_before
from nacre.runtime.models import list_all, make_named
from nacre.runtime.permissions import PermissionStore, rules_of, skill_rules
from nacre.runtime.session_owner import outermost
from nacre.runtime.structured_output import Formed
from nacre.runtime.subagents import Delegated, Tally
from nacre.runtime.summarizer import Compactor
from nacre.sessions import Sessions
from nacre.skills import Catalogue
from nacre.summaries.plan import Limits
from nacre.tools.approvals import Approvals, Grounds, Policy
from nacre.tools.files.file_writer import Writer
from nacre.tools.permission_rules import Verdict

if TYPE_CHECKING:
    from nacre.tools.mcp import Prompt

logger = logging.getLogger(__name__)

Mode = Literal["ask", "read-only", "yolo"]
CHOSEN = "chosen_model"
"""The field of a session's meta that names the model that was chosen for it, as `provider/model`."""
_MEMORY_SHARE = 40
"""The facts that are sent with one message have at most one part in so many of the context."""
_FOR_A_TITLE = 4
"""How many messages of a session the model is shown to name it."""


class Options(Struct, frozen=True, kw_only=True):
    """The choices of one run.

    `store` is the agent's own, a folder or a URL (see `nacre.opening.store_of`). `folder` is where a conversation
    works; None is the daemon's workspace. `allow_remote` lets a remote model answer where a local one did before.
    `is_trusted` follows the folder for this run only. `allow` has permission rules for this run. `system` replaces the
    persona (`agent.persona`, PERSONA.md) in the system prompt.
    """

    store: str | None = None
    agent: str = MAIN
    incognito: bool = False
    model: str | None = None
    allow_remote: bool = False
    folder: Path | None = None
    is_trusted: bool = False
    mode: Mode = "ask"
    allow: tuple[str, ...] = ()
    system: str = ""


USUAL = Options()
"""What holds when a person chose nothing."""


class App:
    """A running agent and its parts.

    `trouble` says why its store cannot be used and another stands in for it. `root` is the folder for what it keeps
    besides its sessions.
    """

    def __init__(self, settings: Settings, sessions: Sessions, provider: Provider, *, name: str = MAIN) -> None:
        self.name, self.settings, self.sessions = name, settings, sessions
        self.is_ending, self.trouble = False, ""
        self.root = local_root(sessions.location, name)
        self.provider = as_chain(provider, settings)
        self.tracing = self.provider.tracing
        self._remote_keys: set[str] = set()
        self._chosen: dict[str, ModelChain] = {}
        self._model_notes: list[str] = [self.provider.note] if self.provider.note else []
        leaves_traces = sessions.is_durable
        self.budget = Budget(
            settings.number("agent.max_context_tokens"),
            windows=Windows.usual() if leaves_traces else None,
            calibrations=Calibrations.usual() if leaves_traces else None,
            name=self._full_name,
            mix=self._mix,
        )
        self.max_messages = settings.number("agent.max_history_messages")
        self.pacer = StepPacer()
        self.kernel: AnyKernel = Kernel(sessions, self.agent_for, pace=self.pacer.step)
        self.children = Delegated(sessions, self._deliver)
        self.file_history = FileHistory(sessions, partial(outermost, sessions))
        self.options = USUAL
        self._asks: dict[str, Ask | None] = {}
        self._grounds: Grounds | None = None
        # What the mode may be at most now: a person may make it stricter during a turn.
        self.mode_limit: Callable[[], Mode] = lambda: "yolo"
        self.parts = AgentParts({}, Catalogue(()), "", [])
        self.folder: Folder | None = None
        self.is_guest: Callable[[str], bool] = lambda _: False
        self.memory: Memory | None = None
        self.learner: Consolidator | None = None
        self.compactor = Compactor(
            sessions,
            lambda key: self.tracing.name_session(key, self.budget.watch(self.provider_of(key))),
            limits=lambda key: Limits(tokens=self._room(key), messages=self.max_messages),
            check=lambda key: self._check_remote(key, self.provider_of(key)),
            # Not of the kernel that there is now: a worker replaces it.
            known=self.known_session,
        )
        self.after: list[Callable[[str], None]] = []
        self.hear_of_turns: Callable[[], None] = lambda: None
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
        return self.parts.tools

    @property
    def skills(self) -> Catalogue:
        return self.parts.skills

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """What MCP servers have for the user to send, by command."""
        return self.parts.prompts

    @property
    def notes(self) -> list[str]:
        """Notices for the user at the start."""
        return [*self._model_notes, *self.parts.notes]

    async def use(self, model: str) -> str:
        """Let another model answer from the next turn on; returns a note about it, or "".

        Raises ModelUnavailable or ConfigError, and changes nothing, if the model cannot answer or is not known.
        """
        new = await find_model(self.settings, model, tracing=self.tracing)
        old, self.provider = self.provider, new
        await old.close()
        return new.note

    async def find_choice(self, model: str) -> str:
        """The full name of a model that somebody chooses for one session; raises ModelUnavailable, ConfigError."""
        found = await find_model(self.settings, model, tracing=self.tracing)
        await found.close()
        return found.ref

    def provider_of(self, key: str) -> ModelChain:
        """The model that answers in a session: the one that was chosen for it, by its meta, else the agent's.

        Raises ModelUnavailable if the chosen one is not known: it is never replaced.
        """
        return self.provider_named(self.meta_of(key).get(CHOSEN) if key else None)

    def known_session(self, key: str) -> Snapshot | None:
        """A session with its newest messages, without reading it; None if only reading it shows how it is now."""
        return self.kernel.snapshot(key)

    def meta_of(self, key: str) -> Mapping[str, Any]:
        """The meta of a session; that of one whose turn runs here is not read again."""
        now = self.known_session(key)
        return now.meta if now is not None else self.sessions.get_meta(key)

    def provider_named(self, ref: object) -> ModelChain:
        """A model that was chosen, by what a session's meta says of it; the agent's if none was."""
        if not isinstance(ref, str) or ref in {"", self.model}:
            return self.provider
        if ref not in self._chosen:
            self._chosen[ref] = ModelChain(make_named(self.settings, ref), self.settings, tracing=self.tracing)
        return self._chosen[ref]

    async def check_model(self) -> None:
        """Raise ModelUnavailable if no model can answer, before anything is stored; learn the model's window."""

        def note(event: Event) -> None:
            if isinstance(event, Notice):
                self._model_notes.append(event.text)

        await self.provider.check(note)

    def remote_question(self, key: str) -> str:
        """Ask whether a session may be sent to a remote model, where a local one answered so far; "" if it may."""
        # Without a key it is a request over HTTP that has no session.
        if not key or self.options.allow_remote or key in self._remote_keys:
            return ""
        local = local_model_before(self.provider, self.settings, partial(self._newest, key))
        question = f"answered so far, a local model. {self.model} is remote: send the session to it?"
        return f"In this session {local} {question}" if local else ""

    def _newest(self, key: str, last: int) -> Sequence[Message]:
        """The newest messages of a session."""
        now = self.known_session(key)
        return now.messages[-last:] if now is not None else self.sessions.get_history(key, last=last)

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
        """Close the models."""
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
        provider = self.tracing.name_session(key, self.provider)
        return await titles.suggest_title(provider, self.sessions.get_history(key, last=_FOR_A_TITLE))

    async def improve_title(self, key: str, plain: str = "") -> bool:
        """Let the model name a session, unless it has another title by then than the plain one; tells if it did."""
        try:
            plain = plain or self.sessions.get_meta(key).get("title", "")
            better = await self.suggest_title(key)
            if better and self.sessions.get_meta(key).get("title", "") == plain:
                self.sessions.set_meta(key, title=better)
                return True
        except NacreError as error:
            # The title made of the first words stays.
            logger.info("no title was generated", extra={"error": describe_error(error)})
        return False

    def window(self, key: str) -> Window:
        """What the model would be shown of a session now."""
        return self._show(self.sessions.snapshot(key, last=self.max_messages), tokens=self._room(key))

    def filling(self, key: str) -> ContextUsage:
        """What would fill the model's context if a session were answered now."""
        now = self.sessions.snapshot(key, last=self.max_messages)

        def show(tokens: int, *, summary: int, has_facts: bool) -> Window:
            messages = now.messages if has_facts else list(map(without_facts, now.messages))
            shown = replace(now, messages=messages, summary=cut_middle(now.summary, summary))
            return self._show(shown, tokens=tokens)

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

    def _show(self, now: Snapshot, *, tokens: int) -> Window:
        newest, count = reversed(now.messages), now.live
        return recent(newest, count=count, summary=now.summary, tokens=tokens, limit=self.max_messages)

    def _room(self, key: str) -> int:
        """The estimated tokens that are left for a session's messages next to the system prompt and the tools.

        A quarter at least: a small window that prompt and tools fill is not a reason for useless summaries.
        """
        agent = self.agent_for(key)
        specs = [tool.spec for tool in agent.tools.values()]
        taken = cost(Context(system=agent.system(), messages=(), tools=specs))
        return max(agent.tokens() - taken, agent.tokens() // 4)

    def _mix(self, key: str) -> ByScript:
        """What scripts a session's next request is made of, about."""
        said = self.sessions.snapshot(key, last=self.max_messages) if key else Snapshot()
        specs = [tool.spec for tool in self.tools.values()]
        summary = Message(role="user", content=said.summary)
        return context_sizes(Context(system=self.parts.system, messages=[summary, *said.messages], tools=specs))

    def _full_name(self, provider: Provider) -> str:
        """A model and where it is served."""
        kind = (provider if isinstance(provider, ModelChain) else self.provider).current.kind
        place = self.settings.text("ollama.host") or os.environ.get("OLLAMA_HOST", "") if kind == "ollama" else ""
        place = self.settings.text(f"{kind}.base_url") if kind in {"openai", "anthropic"} else place
        return f"{kind}/{provider.model}@{place}"

    def for_guest(self, prefix: str) -> App:
        """The same agent with the sessions alone whose keys begin with a prefix; its turns run in the same kernel."""
        return GuestApp(self, prefix)

    def agent_for(self, key: str) -> Agent:
        """Who answers in a session; a turn keeps the model that it began with, and its limits."""
        tally, is_guest = self.children.running.get(key), self.is_guest(key)
        model = _TurnModel(partial(self.provider_of, key))
        return Agent(
            provider=lambda: self._model_for_turn(key, model.begin(), tally),
            tools=self.tracing.trace_tools(self.parts.for_guests if is_guest else self.tools),
            system=lambda: self.parts.guest_system if is_guest else self.parts.system,
            skills=lambda: self.skills.text,
            guard=self._guard,
            tokens=lambda: self.budget.room(model.now, key),
            capacity=lambda: self.budget.capacity(model.now, key),
            max_messages=self.max_messages,
            steps=self.settings.number("agent.max_steps") if tally is None else tally.task.steps,
            make_room=self.compactor.make_room,
            # What was learned is the owner's.
            recall=(lambda *_: "") if is_guest else partial(self._recall, key),
            local_model=lambda: found.ref if (found := self.provider_of(key)).is_local else "",
            after=self._end_turn,
            trace=partial(self.tracing.trace_turn, key, agent=self.name, model=lambda: _names(self.provider_of(key))),
        )

    def _recall(self, key: str, text: str, in_view: Callable[[], Sequence[str]]) -> str:
        """What memory knows of use to a text, without the facts that are in view; its trouble is never the caller's."""
        if self.memory is None:
            return ""
        share = self.budget.limit(self.provider_of(key)) // _MEMORY_SHARE
        try:
            return self.memory.recall(text, tokens=min(self.settings.number("memory.tokens"), share), shown=in_view())
        except NacreError:
            logger.exception("facts could not be recalled from memory")
            return ""

    def _end_turn(self, key: str) -> None:
        """A turn is over; what a child does for another session is that one's to remember."""
        self.work.end(key)
        self._asks.pop(key, None)
        if key not in self.children.running:
            for listen in self.after:
                listen(key)

    def _model_for_turn(self, key: str, model: ModelChain, tally: Tally | None) -> Provider:
        """The model for a turn, which begins with asking for it; raises ModelUnavailable if it may not be asked."""
        self._check_remote(key, model)
        if key:
            self.work.begin(key)
        watched = self.work.of(self.budget.watch(model, key), key)
        return Formed(watched if tally is None else tally.of(watched))

    def _check_remote(self, key: str, model: ModelChain) -> None:
        """Raise ModelNotAllowed if a session must not be sent to the model that answers now."""
        # Anyone who chose another model for this session has said yes to it.
        if model is self.provider and self.remote_question(key):
            raise ModelNotAllowed(
                f"session {key!r} was answered by a local model, and {self.model} is remote\n"
                "Allow it with --allow-remote or agent.allow_remote = true, or use a local model."
            )

    async def _deliver(self, inbound: UserMessage, parent: str, emit: Emit) -> Message | None:
        """Pass its task to a child; when nobody waits for it any more, it is stopped.

        It may ask the person who is asked in the parent's turn, with the task that asks.
        """
        above, task = self._asks.get(parent), str(inbound.content)

        async def ask(approval: Approval) -> Answer:
            if above is None:
                return "no"
            # A task further down names itself.
            named = approval if approval.task else replace(approval, task=task, session=inbound.key)
            return await above(named)

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
        # Now: a file that cannot be read is a reason not to begin.
        kept = PermissionStore().rules(root) if root is not None else ()
        found: list[Approvals] = []

        async def decide(tool: Tool, call: ToolCall) -> str:
            if not found:
                # Only now: most turns call nothing.
                remembered = self.meta_of(key).get("approvals") or ()
                found.append(Approvals(grounds, ask=ask, remembered=remembered, kept=kept))
            approvals = found[0]
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
            options, parts, root = self.options, self.parts, self.permission_root()
            files, folder = parts.files, self.folder
            own = FolderConfig() if folder is None else folder.config

            def keep(rules: tuple[str, ...]) -> None:
                PermissionStore().add(str(root), rules)

            self._grounds = Grounds(
                policy=Policy(tools=cast("Mapping[str, Verdict]", self.settings.table("approvals"))),
                rules=rules_of(self.settings, allow=options.allow, ask=own.ask, deny=own.deny),
                root=str(folder.root) if folder is not None else "",
                base=files.root if files is not None else ".",
                is_protected=files.is_protected if files is not None else lambda _: False,
                mode=options.mode,
                limit=lambda: self.mode_limit(),  # noqa: PLW0108 - it may be set later
                confined=parts.confined,
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

    def __init__(self, agent: App, prefix: str) -> None:
        self._agent, self._prefix = agent, prefix
        self.sessions = agent.sessions.within(prefix)

    def known_session(self, key: str) -> Snapshot | None:
        """The same, of a session that the guest may reach."""
        return self._agent.known_session(key) if key.startswith(self._prefix) else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)


def _names(model: ModelChain) -> tuple[str, str]:
    return model.current.kind, model.model


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
