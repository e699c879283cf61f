"""The same pages for programs and for editors: JSON and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from nacre.history import session_state
from nacre.history.transcript import Transcript, Wanted, message, whole
from nacre.messages import Stored
from nacre.records import View
from nacre.render.conversation import Cover, Cut, parts
from nacre.render.markdown_export import document
from nacre.sessions import Sessions
from nacre.web.api.queries import require, rfc3339

_encode = msgspec.json.Encoder().encode


def json(head: dict[str, Any], items: Sequence[Any]) -> Response:
    """A listing as JSON."""
    return Response(_encode({**head, "count": len(items), "items": items}), media_type="application/json")


def markdown(pieces: Iterable[str]) -> Response:
    return StreamingResponse(pieces, media_type="text/markdown; charset=utf-8")


def of_session(sessions: Sessions, key: str, suffix: str, wanted: Wanted) -> Response:
    """A whole branch of a session; it is sent as it is made."""
    found = sessions.read(key, lambda view: whole(view, wanted), generation=wanted.generation)
    shown, stored = require(found, key)
    if suffix == "json":
        return StreamingResponse(_json(shown, stored), media_type="application/json")
    cover = Cover(key=shown.key, title=shown.title, messages=len(stored))
    text = shown.bars[0].text if shown.bars and not shown.tip else ""
    cut = Cut(summary=text, hidden=shown.hidden) if shown.hidden and not shown.is_all else None
    return markdown(document(cover, parts(stored, cut=cut)))


def of_message(sessions: Sessions, key: str, n: int, wanted: Wanted) -> Response:
    """One message as it is stored."""

    def get(view: View) -> tuple[str, object, Stored | None]:
        return view.key, session_state.meta(view, view.state).get("title", ""), message(view, n)

    own, title, found = require(sessions.read(key, get, generation=wanted.generation), key)
    head = {"schema_version": 1, "key": own, "title": title if isinstance(title, str) else ""}
    return json(head, [_item(found)] if found is not None else [])


def _json(shown: Transcript, stored: Sequence[Stored]) -> Iterator[bytes]:
    head = {
        "schema_version": 1,
        "key": shown.key,
        "title": shown.title,
        "generation": shown.generation,
        "n": shown.n,
        "summary": shown.bars[0].text if shown.bars else "",
        "hidden": shown.hidden,
        "count": len(stored),
    }
    yield _encode(head)[:-1] + b',"items":['
    for at, one in enumerate(stored):
        yield (b",\n" if at else b"\n") + _encode(_item(one))
    yield b"]}\n"


def _item(one: Stored) -> dict[str, Any]:
    return {"generation": one.generation, "n": one.n, "ts": rfc3339(one.ts), "message": one.message.to_mapping()}
