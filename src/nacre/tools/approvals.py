"""Whether a tool call may run: rules decide, and a person where they say so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from anyio import Lock
from msgspec import Struct

from nacre.agent.ports import Approval, Ask, Change, Effect, Tool
from nacre.messages import ToolCall
from nacre.tools.permission_rules import Judge, Rule, Rules, Verdict, parse_readable, parse_rule

Mode = Literal["ask", "read-only", "yolo"]
_STRICTEST_FIRST: tuple[Mode, ...] = ("read-only", "ask", "yolo")
_BY_EFFECT: Mapping[Effect, Verdict] = {"read": "allow", "write": "ask", "run": "ask"}
# It only reads, but an address can carry away what was read.
_BY_NAME: Mapping[str, Verdict] = {"web_fetch": "ask"}
_WRITING = ("write_file", "edit_file")
_SKILL = "use_skill"
QUESTION = frozenset({"question", "answer"})
"""The arguments under which a running tool passes on a question to the user: that the tool is allowed is no answer."""


class Policy(Struct, frozen=True, kw_only=True):
    """What whole tools may do where no rule is about a call: by name (`shell`, or `github_*`), else by their effect."""

    tools: Mapping[str, Verdict] = {}
    effects: Mapping[Effect, Verdict] = {}

    def rule(self, tool: Tool) -> Verdict:
        """The verdict on a tool; an exact name comes before a pattern, and of two patterns the stricter holds."""
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


class Grounds(Struct, frozen=True, kw_only=True):
    """What calls are judged by.

    Paths of calls are relative to `base`, those of rules to `root`, else to `base` too.
    `limit` is the most that `mode` may be now: it is asked at each call, so that a turn can be held to less than it
    began with. `confined` has the tools that `yolo` allows: those that stay in the folder and the sandbox.
    `is_protected` tells whether a path may only be written after asking, whatever rules say. `preview` is what a call
    would do to a file. `keep` stores rules that a person allowed always in this folder; without it they hold for the
    session.
    `skills` has the rules that each skill asks for; those of `trusted_skills` (patterns) hold while it is used.
    """

    policy: Policy = Policy()
    rules: Rules = Rules()
    root: str = ""
    base: str = "."
    mode: Mode = "ask"
    limit: Callable[[], Mode] = lambda: "yolo"
    confined: frozenset[str] = frozenset()
    is_protected: Callable[[str], bool] = lambda _: False
    preview: Callable[[ToolCall], Change | None] = lambda _: None
    keep: Callable[[tuple[str, ...]], None] | None = None
    skills: Mapping[str, tuple[Rule, ...]] = {}
    trusted_skills: tuple[str, ...] = ()


class Approvals:
    """The guard of one turn.

    `kept` are the rules that a person allowed always in this folder, and `remembered` those that they allowed for
    this session. Without somebody to ask, `ask` is a refusal. A skill is in use from its loading to the end of the
    turn; what it asks for is allowed only if the user trusts it or says so, and never against a rule.
    """

    def __init__(
        self,
        grounds: Grounds | Policy,
        *,
        ask: Ask | None = None,
        remembered: Iterable[str] = (),
        kept: Iterable[str] = (),
    ) -> None:
        self._grounds = Grounds(policy=grounds) if isinstance(grounds, Policy) else grounds
        self._judge = Judge(self._grounds.rules, root=self._grounds.root, base=self._grounds.base)
        self._ask = ask
        self._remembered = parse_readable(remembered)
        self._in_use: list[str] = []
        self._kept: list[Rule] = [parse_rule(rule) for rule in kept]
        self._asking = Lock()

    @property
    def remembered(self) -> tuple[str, ...]:
        """What a person has allowed for the rest of the session, sorted."""
        return tuple(sorted(self._remembered))

    def verdict(self, tool: Tool, call: ToolCall) -> Verdict:
        """What holds for a call, before anybody is asked."""
        grounds, name = self._grounds, tool.spec.name
        # What a person, or the trust in a skill that is in use, allows.
        trusted = (used for used in self._in_use if any(fnmatchcase(used, one) for one in grounds.trusted_skills))
        by_skills = [rule for used in trusted for rule in grounds.skills[used]]
        allowed = [*self._kept, *self._remembered.values(), *by_skills]
        by_rule = self._judge.verdict(name, _arguments(call), more=allowed)
        by_tool = grounds.policy.rule(tool)
        if "deny" in {by_rule, by_tool} or self._is_read_only(tool):
            return "deny"
        if by_rule == "ask" or self._is_protected(call) or _is_question(call):
            return "ask"
        if by_rule == "allow":
            return "allow"
        return "allow" if self._mode == "yolo" and name in grounds.confined else by_tool

    async def __call__(self, tool: Tool, call: ToolCall) -> str:
        """Decide about a call: "" if it may run, else why not, for the model and for a person."""
        verdict, refusal = self.verdict(tool, call), ""
        if verdict == "ask":
            refusal = await self._ask_person(tool, call)
            # The mode may have become stricter meanwhile.
            verdict = self.verdict(tool, call)
        if verdict == "deny":
            reason = "a rule of the configuration denies it"
            if self._is_read_only(tool):
                reason = "this conversation is read-only"
            return f"{tool.spec.name} was not run: {reason}. Do without it."
        # A skill is in use from its loading on.
        skill = str(_arguments(call).get("name", ""))
        if not refusal and call.name == _SKILL and skill in self._grounds.skills and skill not in self._in_use:
            self._in_use.append(skill)
        return refusal

    async def _ask_person(self, tool: Tool, call: ToolCall) -> str:
        """Ask the person who is there."""
        grounds, name, arguments = self._grounds, tool.spec.name, _arguments(call)
        # Some calls have to be asked about each time: "always" is not offered then.
        by_rule = self._judge.verdict(name, arguments)
        must_ask = self._is_protected(call) or _is_question(call) or by_rule == "ask"
        always = () if must_ask else self._judge.always(name, arguments)
        if self._ask is None:
            flags = " ".join("--allow '" + rule.replace("'", "'\\''") + "'" for rule in always)
            advice = f"; {flags} would let it run" if flags else ""
            return f"{name} was not run: it needs approval, and nobody can be asked here{advice}. Do without it."
        # One question at a time; the answer to the one before may settle this one.
        async with self._asking:
            if self.verdict(tool, call) != "ask":
                return ""
            # The skill in use that asks for the call, if one does.
            skill = ""
            for used in self._in_use if not must_ask else ():
                if not skill and self._judge.verdict(name, arguments, more=grounds.skills[used]) == "allow":
                    skill = used
            keep = grounds.keep if not skill else None
            if skill:
                always = tuple(map(str, grounds.skills[skill]))
            elif keep is None and not must_ask:
                always = (name,)
            scope: Literal["session", "folder"] = "session" if keep is None else "folder"
            change = grounds.preview(call)
            question = Approval(tool=tool, call=call, change=change, always=always, scope=scope, skill=skill)
            answer = await self._ask(question)
            if answer == "always" and always:
                if keep is not None:
                    self._kept += [parse_rule(rule) for rule in always]
                    keep(always)
                else:
                    self._remembered |= parse_readable(always)
        if answer in {"yes", "always"}:
            return ""
        return f"{name} was not run: the user said no. Ask what they want instead, or do without it."

    @property
    def _mode(self) -> Mode:
        return min(self._grounds.mode, self._grounds.limit(), key=_STRICTEST_FIRST.index)

    def _is_read_only(self, tool: Tool) -> bool:
        return self._mode == "read-only" and tool.effect != "read"

    def _is_protected(self, call: ToolCall) -> bool:
        path = _arguments(call).get("path")
        return call.name in _WRITING and isinstance(path, str) and self._grounds.is_protected(path)


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    return call.arguments if isinstance(call.arguments, Mapping) else {}


def _is_question(call: ToolCall) -> bool:
    return _arguments(call).keys() == QUESTION
