"""Addresses of the pages: a key stands in a path, whatever it is made of, below where the application is mounted.

Below `/agents/NAME/` is everything that the main agent has at `/`.
"""

from __future__ import annotations

from contextvars import ContextVar
from urllib.parse import quote, urlencode

from nacre.config import is_name

AGENTS = "/agents/"
_FOLDED_BY_BROWSERS = (".", "..", "")
_prefix: ContextVar[str] = ContextVar("prefix", default="")
_agent: ContextVar[str] = ContextVar("agent", default="")


def mount(prefix: str, agent: str) -> None:
    """Say where the application is that the current request has come to.

    `prefix` is where the server is on its host, and `agent` where the agent is on the server; "" is the root of each.
    """
    _prefix.set(prefix)
    _agent.set(agent)


def base() -> str:
    """What the addresses of this agent begin with."""
    return f"{_prefix.get()}{_agent.get()}"


def prefix() -> str:
    """What the addresses of all agents begin with."""
    return _prefix.get()


def to(folder: str, key: str, suffix: str = "", /, **fields: object) -> str:
    """The address of a session in a folder (`s`, `part`, `do/title` …); a query's empty values are left out."""
    if key in _FOLDED_BY_BROWSERS:
        return f"{base()}/{folder}/{suffix}{query(key=key, **fields)}"
    return f"{base()}/{folder}/{segment(key)}{suffix}{query(**fields)}"


def segment(key: str) -> str:
    """A key as one segment of a path."""
    return quote(key, safe=":@")


def page(path: str, **fields: object) -> str:
    """The address of a page that is not a session's."""
    return f"{base()}{path}{query(**fields)}"


def split(path: str) -> tuple[str, str]:
    """What a path begins with if it is a further agent's, and the rest."""
    name, _, rest = path.removeprefix(AGENTS).partition("/")
    if not path.startswith(AGENTS) or not is_name(name):
        return "", path
    return f"{AGENTS}{name}", f"/{rest}"


def query(**given: object) -> str:
    """A query with its question mark; empty values are left out."""
    fields = {name.rstrip("_"): str(value) for name, value in given.items() if value not in (None, "", 0, False)}
    return f"?{urlencode(fields)}" if fields else ""
