"""The text of a message, whatever its shape; the first text of a session; and a text with its middle cut."""

from __future__ import annotations

from nacre.codec import message_of
from nacre.messages import Message
from nacre.records import Records

_NEAR_THE_START = 6
"""The first message of a session is among its first records: a header, perhaps meta, then what was said."""


def text_of(message: Message) -> str:
    """What was said, without what is not text."""
    if isinstance(message.content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in message.content]
        return "\n".join(text for text in texts if isinstance(text, str))
    return message.content or ""


def first_text(view: Records) -> str:
    """The first text of a user in a session, without attached files; reads only the first few records."""
    said = [record for record in view.back(_NEAR_THE_START) if record.m is not None and record.m.role == "user"]
    if not said:
        return ""
    content = message_of(said[-1], view).content
    # Attached files come before the text.
    return text_of(Message(role="user", content=content[-1:] if isinstance(content, list) else content))


def cut_middle(text: str, tokens: int) -> str:
    """A text within a number of tokens: its beginning and its end, with a note between them if it was cut.

    The note is there even if it alone is longer.
    """
    from nacre.history.tokens import count  # noqa: PLC0415 - its patterns are compiled, which costs an opening 2 ms

    size = count(text)
    if size <= tokens:
        return text
    note = f"\n[{len(text)} characters, of which the middle is not shown]\n"
    half = len(text) * max(tokens - count(note), 0) // size // 2
    # Tokens are not quite proportional to characters.
    while half and count(text[:half] + note + text[-half:]) > tokens:
        half = half * 9 // 10
    return text[:half] + note + text[len(text) - half :]
