"""What is around every page: its head, the bar on top, the help, and the two files that it loads."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from nacre.render.html import escaped
from nacre.render.look import STYLE
from nacre.render.text import one_line
from nacre.web.http_errors import Fault
from nacre.web.pages import urls
from nacre.web.pages.side_bar import icon

_TYPES = {"nacre.css": "text/css", "nacre.js": "text/javascript"}
# With `no-referrer` a browser says `Origin: null` even for our own forms, and they would be refused.
_HEADERS = {"referrer-policy": "same-origin"}
_THEMES = ("dark", "light")


def framed(  # noqa: PLR0913 - what a page is made of
    request: Request, title: str, body: str, *, side: str = "", status: int = 200, twins: str = "", kind: str = ""
) -> Response:
    """A whole page beside its sidebar; `twins` is its address without a suffix, for its Markdown and JSON."""
    html = (
        f'<!doctype html>\n<html lang="en" data-base="{urls.base()}" data-prefix="{urls.prefix()}"'
        f"{_chosen(request)}>\n<head>\n"
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escaped(one_line(title))} · nacre</title>\n{_files(request)}{_alternates(twins)}"
        f'<link rel="icon" href="data:,">\n</head>\n<body class="{kind}">\n'
        f'{_SKIP if side else ""}{side}<div class="page">{body}</div>\n{_help()}</body>\n</html>\n'
    )
    return HTMLResponse(html, status_code=status, headers=_HEADERS)


_SKIP = '<a class="skip" href="#main">Skip to the content</a>\n'


def problem(request: Request, fault: Fault, *, side: str = "") -> Response:
    """What went wrong, for people."""
    urls.mount(request.state.prefix, request.scope["root_path"])
    found = fault.to_problem()
    back = f'<p><a class="button" href="{urls.page("/")}">All sessions</a></p>'
    inside = f'<p role="alert">{escaped(found.detail)}</p>{back}'
    body = f'{top(found.title, has_side=bool(side))}<main class="problem" id="main" tabindex="-1">{inside}</main>'
    page = framed(request, found.title, body, side=side, status=found.status)
    page.headers.update(fault.headers)
    return page


def fragment(html: str) -> Response:
    """A piece of a page, for its script."""
    return HTMLResponse(html, headers=_HEADERS)


def top(title: str, *, more: str = "", has_side: bool = True) -> str:
    """The bar on top: the way to the sidebar, what the page is, and what can be done; `title` and `more` are HTML."""
    return f'<header class="top">{_TO_SIDE if has_side else ""}<h1 dir="auto">{title}</h1>{more}</header>'


_TO_SIDE = (
    '<button type="button" class="plain narrow" popovertarget="side" aria-label="Sessions" title="Sessions">'
    f"{icon('menu')}</button>"
    '<button type="button" class="plain wide" data-act="side" title="Show the sidebar (s)" '
    f'aria-label="Show the sidebar">{icon("menu")}</button>'
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


def _chosen(request: Request) -> str:
    """What a person has chosen for all pages: dark or light, with a sidebar or without."""
    theme, side = request.cookies.get("theme", ""), request.cookies.get("side", "")
    return (f' data-theme="{theme}"' if theme in _THEMES else "") + (' data-side="closed"' if side == "closed" else "")


def _address(name: str) -> str:
    return urls.page(f"/static/{name}", v=_file(name)[1])


@cache
def _file(name: str) -> tuple[str, str]:
    """A file's text and its version."""
    text = (files("nacre.web") / "static" / name).read_text("utf-8")
    text = STYLE + text if name.endswith(".css") else text
    return text, blake2b(text.encode(), digest_size=8).hexdigest()


_KEYS = (
    (
        "Everywhere",
        (
            ("N", "new session"),
            ("/", "search"),
            ("s", "show or hide the sidebar"),
            ("l", "the list of all sessions"),
            ("T", "dark or light"),
            ("?", "this list"),
        ),
    ),
    (
        "Moving",
        (
            ("j k", "next, previous message, session or match; ↓ ↑ in lists"),
            ("n p", "next, previous prompt"),
            ("g G", "first, last message"),
            ("[ ]", "newer, older session"),
            ("b B", "previous, next branch"),
            ("f", "follow new messages"),
        ),
    ),
    (
        "The message that is marked",
        (
            ("e E", "fold or unfold one, all"),
            ("c", "copy it"),
            ("y", "copy a link to it"),
            ("r", "show it as it is stored"),
            ("u", "edit your message: another branch"),
            ("R", "answer again: another branch"),
        ),
    ),
    (
        "Writing",
        (
            ("i", "write a message"),
            ("Enter", "send; Shift Enter begins a line"),
            ("a", "attach files"),
            ("m", "choose the model"),
            (".", "stop the answer"),
            ("t", "title, tags and more"),
            ("*", "pin the session"),
        ),
    ),
    (
        "A tool that asks",
        (
            ("Alt Y", "yes"),
            ("Alt N", "no"),
            ("Alt A", "always in this session"),
        ),
    ),
)


def _help() -> str:
    groups = "".join(f"<section><h3>{name}</h3><dl>{_listed(keys)}</dl></section>" for name, keys in _KEYS)
    return (
        f'<dialog id="help" aria-label="Keys"><h2>Keys</h2><div class="keys">{groups}</div>'
        '<form method="dialog"><button>Close</button></form>'
        f'<form method="post" action="{urls.page("/logout")}"><button>Log out</button></form></dialog>\n'
    )


def _listed(keys: Iterable[tuple[str, str]]) -> str:
    return "".join(
        f"<dt>{' '.join(f'<kbd>{escaped(key)}</kbd>' for key in names.split())}</dt><dd>{what}</dd>"
        for names, what in keys
    )
