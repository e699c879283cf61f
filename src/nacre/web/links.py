"""Addresses of the pages: a key stands in a path, whatever it is made of."""

from __future__ import annotations

from urllib.parse import quote, urlencode

_FOLDED_BY_BROWSERS = (".", "..", "")


def to(folder: str, key: str, suffix: str = "", /, **query: object) -> str:
    """The address of a session in a folder (`s`, `part`, `do/title` …); a query's empty values are left out."""
    if key in _FOLDED_BY_BROWSERS:
        return f"/{folder}/{suffix}{_query(key=key, **query)}"
    return f"/{folder}/{quoted(key)}{suffix}{_query(**query)}"


def quoted(key: str) -> str:
    """A key as one segment of a path."""
    return quote(key, safe=":@")


def page(path: str, **query: object) -> str:
    """The address of a page that is not a session's."""
    return f"{path}{_query(**query)}"


def _query(**given: object) -> str:
    fields = {name.rstrip("_"): str(value) for name, value in given.items() if value not in (None, "", 0, False)}
    return f"?{urlencode(fields)}" if fields else ""
