"""Who decides whether a tool may run: a policy, and a person where the policy says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal

from anyio import Lock
from msgspec import Struct

from nacre.agent.ports import Approval, Ask, Effect, Tool
from nacre.entries import ToolCall

Rule = Literal["ask", "allow", "deny"]
_BY_EFFECT: Mapping[Effect, Rule] = {"read": "allow", "write": "ask", "run": "ask"}
# It only reads, but an address can carry away what was read.
_BY_NAME: Mapping[str, Rule] = {"web_fetch": "ask"}


class Policy(Struct, frozen=True, kw_only=True):
    """What tools may do: by name (`shell`, or a pattern such as `github_*`), else by their effect."""

    tools: Mapping[str, Rule] = {}
    effects: Mapping[Effect, Rule] = {}

    def rule(self, tool: Tool) -> Rule:
        """What holds for a tool; an exact name comes before a pattern, and of two patterns the stricter holds."""
        name = tool.spec.name
        if name in self.tools:
            return self.tools[name]
        matching = {rule for pattern, rule in self.tools.items() if fnmatchcase(name, pattern)}
        for rule in ("deny", "ask", "allow"):
            if rule in matching:
                return rule
        if tool.effect in self.effects:
            return self.effects[tool.effect]
        return _BY_NAME.get(name, _BY_EFFECT[tool.effect])


class Approvals:
    """The guard of one session.

    What a person answered with "always" is `remembered`: plain names, given back at the next start.
    Without somebody to ask, `ask` is a refusal.
    """

    def __init__(self, policy: Policy, *, ask: Ask | None = None, remembered: Iterable[str] = ()) -> None:
        self._policy = policy
        self._ask = ask
        self._remembered = set(remembered)
        self._asking = Lock()

    @property
    def remembered(self) -> tuple[str, ...]:
        """The tools that a person has allowed for the rest of the session, sorted."""
        return tuple(sorted(self._remembered))

    async def __call__(self, tool: Tool, call: ToolCall) -> str:
        """Decide about a call: "" if it may run, else why not, in words for the model."""
        name = tool.spec.name
        match self._policy.rule(tool):
            case "allow":
                return ""
            case "deny":
                return f"{name} was not run: the configuration forbids it. Do without it."
            case "ask":
                return await self._asked(tool, call, name)

    async def _asked(self, tool: Tool, call: ToolCall, name: str) -> str:
        if name in self._remembered:
            return ""
        if self._ask is None:
            return (
                f"{name} was not run: it needs somebody's approval, and nobody can be asked here. "
                f'Do without it, or say what should be done; `{name} = "allow"` in the configuration would let it run.'
            )
        # One question at a time; the answer to the one before may settle this one.
        async with self._asking:
            answer = (
                "yes" if name in self._remembered else await self._ask(Approval(tool=tool, call=call, always=(name,)))
            )
        if answer == "always":
            self._remembered.add(name)
        if answer in {"yes", "always"}:
            return ""
        return f"{name} was not run: the user said no. Ask what they want instead, or do without it."
