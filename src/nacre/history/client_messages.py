"""A whole history for the clients of OpenAI and Anthropic: valid at every cut, whatever the log has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nacre.checks import check_items
from nacre.history.message_text import text_of
from nacre.history.pairing import pair
from nacre.history.window import NO_BEGINNING
from nacre.messages import Message

_HEADS = ("system", "developer")


def to_openai(messages: Iterable[Message | Mapping[str, Any]]) -> list[Any]:
    """Messages for `client.chat.completions.create(messages=…)`.

    Every call is directly followed by its result, or by one that says that it was interrupted. System messages at the
    beginning stay; one that comes later is a user's words, with its role in brackets. Items without a role are left
    out. Mappings in OpenAI's shape may be among the messages, such as a system prompt. Each of what is returned is a
    `dict`; the type says less, so that a type checker lets the client have it.

    >>> nacre.to_openai([{"role": "system", "content": "Be brief."}, *sessions.get_history("cli:1")])[:2]
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'What is nacre?'}]
    """
    heads, rest = _split(messages)
    return [message.to_openai() for message in (*heads, *rest)]


def to_anthropic(messages: Iterable[Message | Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """The system text and the messages for `client.messages.create(system=…, messages=…)`.

    The same; results that follow each other are in one turn, and turns of the user and the assistant alternate.

    >>> system, messages = nacre.to_anthropic(sessions.get_history("cli:1"))
    >>> system, [message["role"] for message in messages]
    ('', ['user', 'assistant'])
    """
    heads, rest = _split(messages)
    turns: list[dict[str, Any]] = []
    for turn in (message.to_anthropic() for message in rest):
        if turns and turns[-1]["role"] == turn["role"]:
            turns[-1]["content"] += turn["content"]
        else:
            turns.append(turn)
    return "\n\n".join(filter(None, map(text_of, heads))), turns


def _split(messages: Iterable[Message | Mapping[str, Any]]) -> tuple[list[Message], list[Message]]:
    """The system messages at the beginning, and the others as every provider takes them."""
    given = (
        one if isinstance(one, Message) else Message.from_mapping(one) for one in check_items(messages, "messages")
    )
    shown = [message for message in given if message.role]
    count = next((at for at, message in enumerate(shown) if message.role not in _HEADS), len(shown))
    heads, rest = [head for head in shown[:count] if text_of(head).strip()], pair(shown[count:])
    if rest and rest[0].role != "user":
        rest.insert(0, Message(role="user", content=NO_BEGINNING))
    return heads, rest
