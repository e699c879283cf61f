"""Made-up histories, as bad as logs can be: what crashes, other agents and models have left in them."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from nacre.codec import encode_message
from nacre.messages import Message, ToolCall
from nacre.records import Operation, Pop, Rewind, Summarise, Truncate

_IDS = ("", "a", "b", "call_0", "call_0-2", "functions.shell:0", "x" * 60, "x" * 41, "é")
_NAMES = ("shell", "read_file", "", "functions.shell", "y" * 80)
_ROLES = ("system", "developer", "function", "a strange role", "Assistant")
_OBJECTS: tuple[dict[str, Any], ...] = ({}, {"path": "a.py"}, {"deep": [{"x": None}]})
_ARGUMENTS: tuple[Any, ...] = (*_OBJECTS, "", '{"a": 1}', '{"a": ', "[1]", "null", None, 7, "é")
_TEXTS = ("hello", "", " ", "\n", "an answer \n", "[empty message]", "好", "a\u00a0", "line\n" * 40, "word " * 400)
_PARTS: tuple[Any, ...] = (
    {"type": "text", "text": "a part"},
    {"type": "text", "text": " "},
    {"type": "text", "text": "a part \n", "cache_control": {"type": "ephemeral"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "image_url", "image_url": "https://example.org/a.png"},
    {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    {"type": "image", "source": {"type": "base64", "data": "?"}},
    {"type": "thinking", "thinking": "hm"},
    {"type": "tool_use", "id": "a", "name": "shell", "input": {}},
    {"type": 3},
    {},
    "words",
    "",
    None,
    4.5,
)


@cache
def messages() -> SearchStrategy[Message]:
    """One message of any kind, in no relation to others."""
    role = st.sampled_from(("user",) * 4 + ("assistant",) * 6 + ("tool",) * 6 + _ROLES)
    return st.builds(
        Message,
        role=role,
        content=_contents(),
        tool_calls=st.one_of(st.just(()), st.lists(_calls(), max_size=3).map(tuple)),
        tool_call_id=st.sampled_from((None, *_IDS)),
        name=st.sampled_from((None, *_NAMES)),
        reasoning=st.sampled_from((None, None, "", "hm")),
        media=st.sampled_from(((), (), (), ("media://1",), ({"path": "a.png"},))),
        extra=st.sampled_from(({}, {}, {"failed": True}, {"said": 1})),
    )


@cache
def turns() -> SearchStrategy[list[Message]]:
    """A turn as an agent writes it: asked, called, answered; then disturbed here and there."""

    @st.composite
    def turn(draw: Any) -> list[Message]:
        found = [Message(role="user", content=draw(_contents()))]
        for _ in range(draw(st.integers(0, 3))):
            calls = tuple(draw(st.lists(_calls(), min_size=1, max_size=3)))
            found.append(Message(role="assistant", content=draw(_contents()), tool_calls=calls))
            for call in draw(st.permutations(calls)):
                content = draw(_contents())
                found.append(Message(role="tool", tool_call_id=call.id, name=call.name, content=content))
        found.append(Message(role="assistant", content=draw(_contents())))
        return _disturb(draw, found)

    return turn()


@cache
def histories() -> SearchStrategy[list[Message]]:
    """Turns, disturbed turns, and messages in no order."""
    pieces = st.lists(st.one_of(turns(), messages().map(lambda message: [message])), max_size=4)
    return pieces.map(lambda found: [message for piece in found for message in piece])


@cache
def logs() -> SearchStrategy[list[Operation]]:
    """What a session is asked to record: messages, and now and then a step back, a cut or a summary.

    `to` and `upto` are any number; those that a log refuses are not for it.
    """
    number = st.integers(0, 40)
    change = st.one_of(
        st.just(Pop()),
        st.builds(Rewind, number),
        st.builds(Truncate, st.integers(0, 10)),
        st.builds(Summarise, st.sampled_from(("", " ", "what was said")), st.one_of(st.none(), number)),
    )
    said = turns().map(lambda found: [encode_message(message) for message in found])
    word = messages().map(lambda message: [encode_message(message)])
    pieces = st.lists(st.one_of(said, word, change.map(lambda operation: [operation])), max_size=8)
    return pieces.map(lambda found: [operation for piece in found for operation in piece])


def _disturb(draw: Any, found: list[Message]) -> list[Message]:
    """Lose, repeat, move or interrupt something."""
    for what in draw(st.lists(st.sampled_from(("lose", "repeat", "move", "say", "stop")), max_size=3)):
        at, to = draw(st.integers(0, len(found))), draw(st.integers(0, len(found)))
        match what:
            case "lose":
                found = found[:at] + found[at + 1 :]
            case "repeat":
                found = found[:to] + found[at : at + 1] + found[to:]
            case "move":
                rest = found[:at] + found[at + 1 :]
                found = rest[:to] + found[at : at + 1] + rest[to:]
            case "say":
                found = [*found[:at], draw(messages()), *found[at:]]
            case _:
                found = found[:at]
    return found


@cache
def _contents() -> SearchStrategy[Any]:
    text = st.one_of(st.sampled_from(_TEXTS), st.text(max_size=8))
    return st.one_of(text, text, text, st.none(), st.lists(st.sampled_from(_PARTS), max_size=4))


@cache
def _calls() -> SearchStrategy[ToolCall]:
    return st.builds(
        ToolCall,
        id=st.one_of(st.sampled_from(_IDS), st.from_regex(r"[a-z]{6}", fullmatch=True)),
        name=st.sampled_from(_NAMES),
        arguments=st.sampled_from(_ARGUMENTS),
        extra=st.sampled_from(({}, {}, {}, {"type": "custom", "custom": {"input": "x"}}, {"signature": "s"})),
    )
