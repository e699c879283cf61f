"""What is said to somebody by name, in a place where people also talk to each other."""

from __future__ import annotations

import re

# What may stand in a name, so that @nacre is not met in @nacre2.
_REST = r"(?![\w\[\]\\`^{|}-])"


def addressed(text: str, name: str) -> str | None:
    """The words in `name: words`, `name, words` or `@name words`; None if they are said to nobody or another."""
    word = re.escape(name)
    found = re.match(rf"(?:{word}\s*[:,]|@{word}{_REST}[:,]?)\s*(.*)", text.lstrip(), re.IGNORECASE | re.DOTALL)
    return found[1] if found else None
