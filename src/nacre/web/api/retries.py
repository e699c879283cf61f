"""Answers a message once: finds one that was sent before, by its id or by the history that a client sends."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from starlette.datastructures import Headers

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Ask, Emit
from nacre.history.message_text import text_of
from nacre.history.replies import id_of, is_final, reply_among
from nacre.messages import Message, Snapshot
from nacre.runtime import App
from nacre.sessions import Sessions
from nacre.web.http_errors import Fault

_ID = re.compile(r"[!-~]{1,256}\Z")
_MAX_COMPARED = 256


def newest(sessions: Sessions, key: str) -> Snapshot:
    """A session with its newest messages, among which a repeated one is looked for."""
    return sessions.snapshot(key, last=_MAX_COMPARED)


def request_id(headers: Headers) -> str:
    """The client's own name for its request; "" if it has none."""
    id = headers.get("idempotency-key")
    if id is None:
        return ""
    if not _ID.match(id):
        raise Fault("usage", "an Idempotency-Key must have 1 to 256 visible ASCII characters")
    return id


def is_retry(headers: Headers) -> bool:
    """Tell whether a client says that it sends a request again, as OpenAI's does by itself."""
    return headers.get("x-stainless-retry-count", "0") != "0"


async def deliver_once(  # noqa: PLR0913 - who asks, and who hears of it
    app: App,
    inbound: UserMessage,
    before: Snapshot,
    *,
    emit: Emit,
    ask: Ask | None = None,
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> Message | None:
    """Deliver a message and give its answer; one that came before under its id is not stored again.

    `before` is the session as it was, `prepare` is done before a new message is delivered.
    """
    answer = answer_to(before, id=inbound.id, content=inbound.content)
    if answer is not None:
        return answer
    if inbound.id and is_waiting(before, id=inbound.id, words=Message(role="user", content=inbound.content)):
        return await app.kernel.resume(inbound.key, emit=emit, ask=ask)
    if prepare is not None:
        await prepare()
    return await app.kernel.deliver(inbound, emit=emit, ask=ask)


def answer_to(now: Snapshot, *, id: str, content: Any, has_tools: bool = False) -> Message | None:
    """The answer to the message with an id; None if it is new, or has no answer yet.

    To a client with tools of its own a call is an answer, too. Raises Conflict if other words came under the same id.
    """
    ends = (lambda one: one.role == "assistant") if has_tools else is_final
    return reply_among(now.messages, content, id=id, ends=ends)


def answer_to_history(
    now: Snapshot, sent: Sequence[Message], *, is_retry: bool, has_tools: bool = False
) -> Message | None:
    """The answer to a history that the client sends again; None if its last message is new.

    The stored history must be the one that was sent, from its first word, and one answer more: who
    sends only the newest words may say the same twice. A client that says it tries again is believed. One with
    tools of its own knows every call and result; any other knows only what was said.
    """

    def comparable(messages: Iterable[Message]) -> list[tuple[str, str, list[Any], str | None]]:
        """Who said what; without tools, words of people and answers alone."""
        chosen = [one for one in messages if has_tools or one.role == "user" or is_final(one)]
        return [(one.role, *_words(one), one.tool_call_id) for one in chosen]

    last = now.messages[-1] if now.messages else None
    if last is None or last.role != "assistant" or not (has_tools or is_final(last)):
        return None
    if len(sent) == 1 and not is_retry:
        # New words alone, as most are: nothing has to be compared.
        return None
    stored, given = comparable(now.messages), comparable(sent)
    is_whole = now.live == len(now.messages) and len(given) > 1 and stored[:-1] == given
    is_repeated = is_retry and bool(given) and stored[-2:-1] == given[-1:]
    return last if is_whole or is_repeated else None


def is_waiting(now: Snapshot, *, id: str, words: Message) -> bool:
    """Tell whether this message is stored and has no answer yet: by its id, or as the last one."""
    if not now.messages or is_final(now.messages[-1]):
        return False
    if id:
        return any(id_of(one) == id for one in now.messages)
    last = next((one for one in reversed(now.messages) if one.role == "user"), None)
    return last is not None and _words(last) == _words(words)


def _words(message: Message) -> tuple[str, list[Any]]:
    """What a message says, and what it shows: the same words about another picture are others."""
    content = message.content if isinstance(message.content, list) else []
    shown = [part for part in content if not (isinstance(part, dict) and isinstance(part.get("text"), str))]
    # Without the space around it that clients may drop.
    return text_of(message).strip(), [*shown, *message.media]
