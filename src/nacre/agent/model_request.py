"""The request to a model: what it is made of, made smaller until it fits; and what fills a context, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Context, Form, Spec
from nacre.history.message_text import cut_middle
from nacre.history.pairing import RECALLED
from nacre.history.tokens import PER_MEDIUM, PER_MESSAGE, ContextSizes, count, definition, estimate
from nacre.history.window import Window
from nacre.messages import Message, Snapshot

TERMS = "terms"
"""Where a message's `extra` keeps them: what a model is asked for is in the log, and a resumed turn keeps to it."""
_TERMS_OVERHEAD = 50
"""The tokens of the words around terms, besides the terms themselves."""
_SHRINK = 0.6
"""How much smaller the next request is when a server refuses one and does not say how much it takes."""
_MIN_TOKENS = 48
"""Tokens that a text keeps, however little room there is."""
_sizes = ContextSizes(limit=256)
"""Of tools, which are the same in every request of an agent."""


class Terms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client asks of the answer to one message: further instructions, and a form that is checked."""

    instructions: str = ""
    form: Form | None = None


NONE = Terms()


def terms_of(messages: Sequence[Message]) -> Terms:
    """The terms of the newest message of the user's; terms that cannot be read are none."""
    last = next((one for one in reversed(messages) if one.role == "user"), None)
    given = last.extra.get(TERMS) if last is not None else None
    if given is None:
        return NONE
    try:
        return msgspec.convert(given, Terms)
    except msgspec.ValidationError:
        return NONE


def to_extra(terms: Terms) -> dict[str, Any]:
    """Terms as a message's `extra` keeps them; nothing if there are none."""
    return {} if terms == NONE else {TERMS: msgspec.to_builtins(terms)}


def with_terms(messages: Sequence[Message], terms: Terms) -> list[Message]:
    """The same messages with other terms for the newest one of the user's."""
    found = list(messages)
    at = next((at for at in reversed(range(len(found))) if found[at].role == "user"), None)
    if at is not None and terms_of(found[at : at + 1]) != terms:
        extra = {name: value for name, value in found[at].extra.items() if name != TERMS}
        found[at] = replace(found[at], extra={**extra, **to_extra(terms)})
    return found


# ---- a request that fits


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


class ModelRequest(Struct, frozen=True, kw_only=True):
    """A request that fits, if that was possible; `cuts` says in sentences what was left out besides messages.

    `is_cut` tells whether it lacks something of the session that a summary could stand for.
    """

    context: Context
    left_out: int
    is_cut: bool = False
    cuts: Sequence[str] = ()


def fit(material: Material, *, tokens: int, capacity: int | None = None, below: int | None = None) -> ModelRequest:
    """The request within a number of estimated tokens, and well below the size of one that was refused.

    Older turns are left out above `tokens`. What is more than the model can take, `capacity`, is left out in this
    order, each only if everything before it was not enough: the earlier steps of the last turn; the middle of a system
    prompt that takes more than half; tools, the last ones first; the list of skills; recalled facts and more of the
    system prompt; and the middle of the longest texts of the last turn. A tool call and its result stay together. If
    even that is too long, the smallest request is given.
    """
    if below is not None:
        capacity = int(below * _SHRINK) if capacity is None else min(capacity, int(below * _SHRINK))
    draft = _Draft(material, tokens, capacity)
    if draft.excess() > 0:
        draft.cut_system(draft.capacity // 2)
    if draft.excess() > 0:
        draft.drop_tools()
    if draft.excess() > 0:
        draft.drop_skills()
    if draft.excess() > 0:
        draft.summary, draft.has_facts = draft.capacity // 8, False
    if (excess := draft.excess()) > 0:
        # Nothing that was said last is cut as long as that alone fits.
        left = count(draft.system) - excess
        draft.cut_system(left if left >= _MIN_TOKENS else draft.capacity // 8)
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
        self._cuts: dict[str, None] = {}

    def excess(self) -> int:
        """How many tokens too many there are with as little of the last turn as can be shown."""
        return self._show(0).tokens - self._room(self.capacity) if self._is_bounded else 0

    def cut_system(self, tokens: int) -> None:
        """Cut the middle of the system prompt, where the project's instructions are."""
        self.system = cut_middle(self._instructions, max(tokens, _MIN_TOKENS))
        if self.system != self._instructions:
            text = "the middle of the instructions (AGENTS.md) is not sent to the model: they are too long for it"
            self._cuts[text] = None

    def drop_tools(self) -> None:
        """Leave out tools until the last turn fits; those that it called stay, as providers demand."""
        called = {call.name for message in self._show(self.capacity).messages for call in message.tool_calls}
        excess = self.excess()
        kept = list(self.tools)
        for tool in reversed(self.tools):
            if excess > 0 and tool.name not in called:
                kept.remove(tool)
                excess -= definition(tool)
        dropped = [tool.name for tool in self.tools if tool not in kept]
        self.tools = kept
        if dropped:
            text = f"these tools are not offered to the model, for lack of space: {', '.join(dropped)}"
            self._cuts[text] = None
        if any(name in self._material.skills for name in dropped):
            self.drop_skills()

    def drop_skills(self) -> None:
        skills = self._material.skills
        if skills and skills in self._instructions:
            self._instructions = self._instructions.replace(skills, "").strip()
            self.cut_system(count(self.system))
            self._cuts["the list of skills is not sent to the model, for lack of space"] = None

    def request(self) -> ModelRequest:
        # A long prompt may leave no room at all; results of tools are not cut to nothing for that.
        room, limit = max(self._room(self._tokens), self._tokens // 4), self._room(self.capacity)
        window = self._show(min(room, limit) if self._is_bounded else room)
        messages = window.messages
        if self._is_bounded and window.tokens > limit:
            messages = squeeze(messages, limit)
            size = sum(map(estimate, messages))
            text = (
                f"the last message is too long for the model and is cut in the middle: "
                f"about {size:,} of {window.tokens:,} tokens are shown"
            )
            self._cuts[text] = None
        messages = with_terms(messages, self._material.terms)
        cache_key = self._material.cache_key
        context = Context(system=self.system, messages=messages, tools=self.tools, cache_key=cache_key)
        return ModelRequest(context=context, left_out=window.left_out, is_cut=window.is_cut, cuts=list(self._cuts))

    def _room(self, tokens: int) -> int:
        """What is left of a number of tokens for messages."""
        room = tokens - sum(_sizes(Context(system=self.system, messages=(), tools=self.tools)).values())
        terms = self._material.terms
        if terms == NONE:
            return room
        # A schema is sent as a field, and repeated in words.
        schema = msgspec.json.encode(terms.form.schema).decode() if terms.form is not None else ""
        return room - count(terms.instructions) - 2 * count(schema) - _TERMS_OVERHEAD

    def _show(self, tokens: int) -> Window:
        return self._material.show(tokens, summary=self.summary, has_facts=self.has_facts)


# ---- a last turn that is too long


def squeeze(messages: Sequence[Message], tokens: int) -> list[Message]:
    """Messages in fewer tokens: the middle of the longest texts is cut."""
    limit = max(tokens // max(len(messages), 1), _MIN_TOKENS)
    shorter = [_shorten(message, limit) for message in messages]
    # Give the longest texts what the short ones leave: the largest maximum at which all fit.
    low, high = limit, max(tokens, limit)
    while high - low > _MIN_TOKENS // 4:
        middle = (low + high) // 2
        attempt = [_shorten(message, middle) for message in messages]
        if sum(map(estimate, attempt)) <= tokens:
            low, shorter = middle, attempt
        else:
            high = middle
    return shorter


def _shorten(message: Message, tokens: int) -> Message:
    """A message of about so many tokens: the middle of its texts and of its calls' arguments is cut."""
    if estimate(message) <= tokens:
        return message
    limit = max(tokens - PER_MESSAGE, 1)
    content: Any = message.content
    if isinstance(content, list):
        share = max(limit // len(content), 1)
        image = {"type": "text", "text": "[image]"}
        content = [
            {**part, "text": cut_middle(part["text"], share)}
            if isinstance(part.get("text"), str)
            else (part if share >= PER_MEDIUM else image)
            for part in content
        ]
    elif content:
        content = cut_middle(content, limit)
    calls = []
    for call in message.tool_calls:
        given = call.arguments
        if isinstance(given, dict):
            texts = {name: value for name, value in given.items() if isinstance(value, str)}
            share = max(limit // len(message.tool_calls) // max(len(texts), 1), 1)
            given = given | {name: cut_middle(text, share) for name, text in texts.items()}
        calls.append(replace(call, arguments=given))
    return replace(message, content=content, tool_calls=tuple(calls))


# ---- what fills a context


class ContextUsage(Struct, frozen=True, kw_only=True):
    """The parts of a context in the model's own tokens, about; `limit` is what all of them may have together.

    `cuts` says in sentences what is left out of it besides older turns.
    """

    limit: int
    system: int = 0
    skills: int = 0
    tools: int = 0
    summary: int = 0
    facts: int = 0
    messages: int = 0
    reply: int = 0
    cuts: Sequence[str] = ()

    @property
    def used(self) -> int:
        """What would be sent: everything but the room for the reply."""
        return self.system + self.skills + self.tools + self.summary + self.facts + self.messages

    @property
    def free(self) -> int:
        return max(self.limit - self.used - self.reply, 0)


def measure(  # noqa: PLR0913 - what is measured, and by what
    request: ModelRequest, now: Snapshot, *, skills: str, limit: int, reply: int, scale: Callable[[int], int] = int
) -> ContextUsage:
    """Measure the parts of a request that was made of a session as it is `now`; `skills` is the list of skills.

    `scale` turns an estimate into the model's own tokens.
    """
    context = request.context
    total = sum(map(estimate, context.messages))
    summary = min(count(now.summary), estimate(context.messages[0])) if now.summary and context.messages else 0
    shown = now.messages[len(now.messages) - max(now.live - request.left_out, 0) :]
    facts = sum(count(text) for message in shown if isinstance(text := message.extra.get(RECALLED), str))
    facts = min(facts, total - summary)
    listed = count(skills) if skills and skills in context.system else 0
    return ContextUsage(
        limit=limit,
        system=scale(PER_MESSAGE + count(context.system) - listed if context.system else 0),
        skills=scale(listed),
        tools=scale(sum(map(definition, context.tools))),
        summary=scale(summary),
        facts=scale(facts),
        messages=scale(total - summary - facts),
        reply=reply,
        cuts=request.cuts,
    )
