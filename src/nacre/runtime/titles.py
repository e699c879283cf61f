"""Titles for sessions: their first words, then a title by the model after the first turn."""

from __future__ import annotations

import re

import anyio

from nacre.agent.ports import Context, Provider, ignore
from nacre.history.message_text import text_of
from nacre.messages import Message
from nacre.render.text import clip, one_line

_SYSTEM = (
    "You name conversations. Answer with a title of at most six words for the conversation below, "
    "in its language, and with nothing else: no quotes, no full stop."
)
_MAX_SHOWN = 2_000
_MAX_TITLE = 60
_TIMEOUT = 60.0
_DECORATION = " \t\"'`*#_.:\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e"
_LABEL = re.compile(r"(?:title|titel|titre|título)\s*:\s*", re.IGNORECASE)


async def suggest_title(provider: Provider, messages: list[Message]) -> str:
    """Ask the model for a title; "" if it gives none that can be used. Raises what the provider raises."""
    said = [f"{message.role}: {text_of(message)[:_MAX_SHOWN]}" for message in messages if text_of(message).strip()]
    question = Message(role="user", content="\n\n".join(said))
    with anyio.move_on_after(_TIMEOUT):
        reply = await provider.complete(Context(system=_SYSTEM, messages=[question]), emit=ignore)
        return clean_title(text_of(reply.message))
    return ""


def first_title(text: str) -> dict[str, str]:
    """The meta of a session that begins with a text: its first words as the title, nothing if it has none."""
    words = clip(one_line(text), _MAX_TITLE)
    return {"title": words} if words else {}


def clean_title(text: str) -> str:
    """The first line of an answer without decoration; "" if that is too long to be a title."""
    line = next((line for line in text.splitlines() if line.strip(_DECORATION)), "")
    title = " ".join(_LABEL.sub("", line.strip(_DECORATION), count=1).strip(_DECORATION).split())
    return title if len(title) <= _MAX_TITLE else ""
