"""Messages that address a user by name, in a chat of several users."""

from __future__ import annotations

import re

# What may stand in a name, so that @nacre is not met in @nacre2.
_REST = r"(?![\w\[\]\\`^{|}-])"


def addressed(text: str, name: str) -> str | None:
    """The words in `name: words`, `name, words` or `@name words`; None if they are said to nobody or another."""
    word = re.escape(name)
    found = re.match(rf"(?:{word}\s*[:,]|@{word}{_REST}[:,]?)\s*(.*)", text.lstrip(), re.IGNORECASE | re.DOTALL)
    return found[1] if found else None
