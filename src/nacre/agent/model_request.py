"""Fit a request into a number of tokens: what is left out first, and what is cut when that is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Context, Spec
from nacre.agent.terms import NONE, Terms, cost_of, with_terms
from nacre.entries import Message, ToolCall
from nacre.history.text import cut_middle
from nacre.history.tokens import PER_MEDIUM, PER_MESSAGE, cost, count, definition, estimate
from nacre.history.window import Window

_LESS = 0.6
"""How much smaller the next request is when a server refuses one and does not say how much it takes."""
_SHORTEST = 48
"""Tokens that a text keeps, however little room there is."""


class Show(Protocol):
    """Gives the newest turns within a number of tokens; at least the question and the last step of the last one."""

    def __call__(self, tokens: int, *, summary: int, has_facts: bool) -> Window:
        """`summary` is the maximum of the summary in tokens; `has_facts` tells whether recalled facts are shown."""


class Material(Struct, frozen=True, kw_only=True):
    """What a request is made of; `skills` is the part of the system prompt that lists skills.

    `terms` are those of the message that is answered, which itself may be covered by a summary.
    """

    show: Show
    system: str = ""
    skills: str = ""
    tools: Sequence[Spec] = ()
    terms: Terms = NONE
    cache_key: str = ""


class Request(Struct, frozen=True, kw_only=True):
    """A request that fits, if that was possible; `cuts` says in sentences what was left out besides messages.

    `is_cut` tells whether it lacks something of the session that a summary could stand for.
    """

    context: Context
    left_out: int
    is_cut: bool = False
    cuts: Sequence[str] = ()


def fit(material: Material, *, tokens: int, capacity: int | None = None, below: int | None = None) -> Request:
    """The request within a number of estimated tokens, and well below the size of one that was refused.

    Older turns are left out above `tokens`. What is more than the model can take, `capacity`, is left out in this
    order, each only if everything before it was not enough: the earlier steps of the last turn; the middle of a system
    prompt that takes more than half; tools, the last ones first; the list of skills; recalled facts and more of the
    system prompt; and the middle of the longest texts of the last turn. A tool call and its result stay together. If
    even that is too long, the smallest request is given.
    """
    if below is not None:
        capacity = int(below * _LESS) if capacity is None else min(capacity, int(below * _LESS))
    draft = _Draft(material, tokens, capacity)
    if draft.lacking() > 0:
        draft.cut_system(draft.capacity // 2)
    if draft.lacking() > 0:
        draft.drop_tools()
    if draft.lacking() > 0:
        draft.drop_skills()
    if draft.lacking() > 0:
        draft.summary, draft.has_facts = draft.capacity // 8, False
    if draft.lacking() > 0:
        # Nothing that was said last is cut as long as that alone fits.
        left = count(draft.system) - draft.lacking()
        draft.cut_system(left if left >= _SHORTEST else draft.capacity // 8)
    return draft.request()


class _Draft:
    """A request while it is made smaller, step by step."""

    def __init__(self, material: Material, tokens: int, capacity: int | None) -> None:
        self._material = material
        self._tokens = tokens if capacity is None else min(tokens, capacity)
        self._is_bounded = capacity is not None
        self.capacity = capacity or 0
        self._instructions = self.system = material.system
        self.tools = list(material.tools)
        # A summary has at most three eighths of the limit that it was made for, which may have been a larger one.
        self.summary = self._tokens * 3 // 8
        self.has_facts = True
        self._cuts: list[str] = []

    def lacking(self) -> int:
        """How many tokens too many there are with as little of the last turn as can be shown."""
        return self._show(0).tokens - self._room(self.capacity) if self._is_bounded else 0

    def cut_system(self, tokens: int) -> None:
        """Cut the middle of the system prompt, where the project's instructions are."""
        self.system = cut_middle(self._instructions, max(tokens, _SHORTEST))
        if self.system != self._instructions:
            self._say("the middle of the instructions (AGENTS.md) is not sent to the model: they are too long for it")

    def drop_tools(self) -> None:
        """Leave out tools until the last turn fits; those that it called stay, as providers demand."""
        called = {call.name for message in self._show(self.capacity).messages for call in message.tool_calls}
        lacking = self.lacking()
        kept = list(self.tools)
        for tool in reversed(self.tools):
            if lacking > 0 and tool.name not in called:
                kept.remove(tool)
                lacking -= definition(tool)
        dropped = [tool.name for tool in self.tools if tool not in kept]
        self.tools = kept
        if dropped:
            self._say(f"these tools are not offered to the model, for lack of space: {', '.join(dropped)}")
        if any(name in self._material.skills for name in dropped):
            self.drop_skills()

    def drop_skills(self) -> None:
        skills = self._material.skills
        if skills and skills in self._instructions:
            self._instructions = self._instructions.replace(skills, "").strip()
            self.cut_system(count(self.system))
            self._say("the list of skills is not sent to the model, for lack of space")

    def request(self) -> Request:
        # A long prompt may leave no room at all; results of tools are not cut to nothing for that.
        room, most = max(self._room(self._tokens), self._tokens // 4), self._room(self.capacity)
        window = self._show(min(room, most) if self._is_bounded else room)
        messages = window.messages
        if self._is_bounded and window.tokens > most:
            messages = squeeze(messages, most)
            size = sum(map(estimate, messages))
            self._say(
                f"the last message is too long for the model and is cut in the middle: "
                f"about {size:,} of {window.tokens:,} tokens are shown"
            )
        messages = with_terms(messages, self._material.terms)
        cache_key = self._material.cache_key
        context = Context(system=self.system, messages=messages, tools=self.tools, cache_key=cache_key)
        return Request(context=context, left_out=window.left_out, is_cut=window.is_cut, cuts=self._cuts)

    def _room(self, tokens: int) -> int:
        """What is left of a number of tokens for messages."""
        terms = cost_of(self._material.terms)
        return tokens - terms - cost(Context(system=self.system, messages=(), tools=self.tools))

    def _show(self, tokens: int) -> Window:
        return self._material.show(tokens, summary=self.summary, has_facts=self.has_facts)

    def _say(self, text: str) -> None:
        if text not in self._cuts:
            self._cuts.append(text)


# ---- a last turn that is too long


def squeeze(messages: Sequence[Message], tokens: int) -> list[Message]:
    """Messages in fewer tokens: the middle of the longest texts is cut."""
    longest = max(tokens // max(len(messages), 1), _SHORTEST)
    shortened = [_shortened(message, longest) for message in messages]
    # Give the longest texts what the short ones leave: the largest maximum at which all fit.
    low, high = longest, max(tokens, longest)
    while high - low > _SHORTEST // 4:
        middle = (low + high) // 2
        tried = [_shortened(message, middle) for message in messages]
        if sum(map(estimate, tried)) <= tokens:
            low, shortened = middle, tried
        else:
            high = middle
    return shortened


def _shortened(message: Message, tokens: int) -> Message:
    """A message of about so many tokens: the middle of its texts and of its calls' arguments is cut."""
    if estimate(message) <= tokens:
        return message
    text = max(tokens - PER_MESSAGE, 1)
    content: Any = message.content
    if isinstance(content, list):
        content = [_shortened_part(part, max(text // len(content), 1)) for part in content]
    elif content:
        content = cut_middle(content, text)
    calls = tuple(_shortened_call(call, text // len(message.tool_calls)) for call in message.tool_calls)
    return replace(message, content=content, tool_calls=calls)


def _shortened_part(part: Mapping[str, Any], tokens: int) -> Mapping[str, Any]:
    if isinstance(part.get("text"), str):
        return {**part, "text": cut_middle(part["text"], tokens)}
    return part if tokens >= PER_MEDIUM else {"type": "text", "text": "[image]"}


def _shortened_call(call: ToolCall, tokens: int) -> ToolCall:
    if not isinstance(call.arguments, dict):
        return call
    texts = [value for value in call.arguments.values() if isinstance(value, str)]
    each = max(tokens // max(len(texts), 1), 1)
    cut = {name: cut_middle(value, each) if isinstance(value, str) else value for name, value in call.arguments.items()}
    return replace(call, arguments=cut)
