"""The text of a message, whatever its shape."""

from __future__ import annotations

from nacre.entries import Message


def text_of(message: Message) -> str:
    """What was said, without what is not text."""
    if isinstance(message.content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in message.content]
        return "\n".join(text for text in texts if isinstance(text, str))
    return message.content or ""
