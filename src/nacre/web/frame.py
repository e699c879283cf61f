"""What is around every page: its head, the bar on top, the help, and the two files that it loads."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nacre.render.html import escaped
from nacre.render.look import STYLE
from nacre.render.text import one_line
from nacre.web import links

_TYPES = {"nacre.css": "text/css", "nacre.js": "text/javascript"}
# With `no-referrer` a browser says `Origin: null` even for our own forms, and they would be refused.
_HEADERS = {"referrer-policy": "same-origin"}
_THEMES = ("dark", "light")


def framed(  # noqa: PLR0913 - what a page is made of
    request: Request, title: str, body: str, *, status: int = 200, twins: str = "", kind: str = ""
) -> Response:
    """A whole page; `twins` is its address without a suffix, for its Markdown and JSON."""
    html = (
        f'<!doctype html>\n<html lang="en" data-base="{links.base()}" data-prefix="{links.prefix()}"'
        f"{_theme(request)}>\n<head>\n"
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escaped(one_line(title))} · nacre</title>\n{_files(request)}{_alternates(twins)}"
        f'<link rel="icon" href="data:,">\n</head>\n<body class="{kind}">\n{body}\n{_help()}</body>\n</html>\n'
    )
    return HTMLResponse(html, status_code=status, headers=_HEADERS)


def fragment(html: str) -> Response:
    """A piece of a page, for its script."""
    return HTMLResponse(html, headers=_HEADERS)


def top(*, query: str = "", back: bool = True) -> str:
    """The bar with the way home and the search."""
    home = (
        f'<a class="home" href="{links.page("/")}" aria-label="All sessions">&lsaquo; sessions</a>'
        if back
        else '<b class="home">nacre</b>'
    )
    return (
        f'<nav class="top" aria-label="Pages">{home}<form role="search" action="{links.page("/search")}">'
        f'<input type="search" name="q" value="{escaped(query)}" placeholder="Search all sessions  /" '
        'aria-label="Search all sessions"></form>'
        '<button type="button" data-act="theme" hidden title="Dark or light" aria-label="Dark or light">◐</button>'
        '<button type="button" data-act="help" hidden title="Keys" aria-label="Keyboard help">?</button></nav>'
    )


def static(name: str, version: str) -> Response:
    """One of the two files; under the version that it has it never changes."""
    text, current = _file(name)
    age = "public, max-age=31536000, immutable" if version == current else "no-cache"
    return Response(text, media_type=_TYPES[name], headers={"cache-control": age})


def nonce(request: Request) -> str:
    """What the policy of this response lets load files by."""
    return escaped(getattr(request.state, "nonce", ""))


def _files(request: Request) -> str:
    style, script = _address("nacre.css"), _address("nacre.js")
    once = nonce(request)
    return (
        f'<link rel="stylesheet" href="{style}" nonce="{once}">\n'
        f'<script src="{script}" nonce="{once}" defer></script>\n'
    )


def _alternates(address: str) -> str:
    if not address:
        return ""
    path, mark, query = address.partition("?")
    kinds = (("json", "application/json"), ("md", "text/markdown"))
    return "".join(
        f'<link rel="alternate" type="{kind}" href="{escaped(f"{path}.{suffix}{mark}{query}")}">\n'
        for suffix, kind in kinds
    )


def _theme(request: Request) -> str:
    theme = request.cookies.get("theme", "")
    return f' data-theme="{theme}"' if theme in _THEMES else ""


def _address(name: str) -> str:
    return links.page(f"/static/{name}", v=_file(name)[1])


@cache
def _file(name: str) -> tuple[str, str]:
    """A file's text and its version."""
    text = (files("nacre.web") / "static" / name).read_text("utf-8")
    text = STYLE + text if name.endswith(".css") else text
    return text, blake2b(text.encode(), digest_size=8).hexdigest()


_KEYS = (
    ("j / k, ↓ / ↑", "next, previous message, session or match"),
    ("n / p", "next, previous prompt"),
    ("[ / ]", "newer, older session"),
    ("g / G", "first, last message"),
    ("e / E", "fold or unfold one, all"),
    ("r", "show the message as it is stored"),
    ("c", "copy the message"),
    ("y", "copy a link to it"),
    ("f", "follow new messages"),
    ("i", "write"),
    ("/", "search"),
    ("?", "show this help"),
)
_KEY_LIST = "".join(f"<dt><kbd>{key}</kbd></dt><dd>{what}</dd>" for key, what in _KEYS)


def _help() -> str:
    return (
        f'<dialog id="help" aria-label="Keys"><h2>Keys</h2><dl>{_KEY_LIST}</dl>'
        '<form method="dialog"><button>Close</button></form>'
        f'<form method="post" action="{links.page("/logout")}"><button>Log out</button></form></dialog>\n'
    )
