"""What a client asks of the answer to its message: further instructions, and a form that is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nacre.entries import Message
from nacre.history.tokens import count

TERMS = "terms"
"""Where a message's `extra` keeps them: what a model is asked for is in the log, and a resumed turn keeps to it."""


class Form(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON schema that the text of an answer must follow; `strict`: it keeps to the rules of OpenAI's strict mode."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool = False


class Terms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for the answer to one message, and for no other."""

    instructions: str = ""
    form: Form | None = None


NONE = Terms()
_WORDS = 50
"""The tokens of what a model is told about terms, besides the terms themselves."""


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


def cost_of(terms: Terms) -> int:
    """The tokens that terms add to a request, about: a schema is sent as a field, and told in words too."""
    if terms == NONE:
        return 0
    schema = msgspec.json.encode(terms.form.schema).decode() if terms.form is not None else ""
    return count(terms.instructions) + 2 * count(schema) + _WORDS


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
