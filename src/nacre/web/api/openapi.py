"""The OpenAPI document, made of the shapes that the handlers use, so that it cannot say anything else."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

import nacre
from nacre.web.api import openai_schemas, schemas
from nacre.web.http_errors import OPENAI_PREFIX, STATUSES, Problem

_REF = "#/components/schemas/{name}"
_KEY = "/api/sessions/{key}"


class Operation(Struct, frozen=True, kw_only=True):
    """One thing that the server does; `text` is the media type of an answer that is no JSON."""

    id: str
    method: str
    path: str
    summary: str
    answer: type[Struct] | None
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    status: int = 200
    streams: bool = False
    headers: tuple[str, ...] = ()
    text: str = ""
    is_public: bool = False


OPERATIONS = (
    Operation(
        id="list",
        method="GET",
        path="/api/sessions",
        summary="List sessions, newest first",
        query=schemas.ListQuery,
        answer=schemas.SessionList,
    ),
    Operation(
        id="search",
        method="GET",
        path="/api/search",
        summary="Search the messages of all sessions",
        query=schemas.SearchQuery,
        answer=schemas.FoundList,
    ),
    Operation(
        id="read",
        method="GET",
        path=_KEY,
        summary="Read a session, newest page first",
        query=schemas.ReadQuery,
        answer=schemas.Conversation,
    ),
    Operation(
        id="events",
        method="GET",
        path=f"{_KEY}/events",
        summary="Follow the records of a session; an event's id is the record's number",
        query=schemas.EventsQuery,
        answer=None,
        streams=True,
        headers=("Last-Event-ID",),
    ),
    Operation(
        id="send",
        method="POST",
        path=f"{_KEY}/messages",
        summary="Send a message; creates the session if needed; waits for the answer, or streams it",
        body=schemas.Send,
        answer=schemas.Sent,
        streams=True,
        headers=("Idempotency-Key",),
    ),
    Operation(
        id="rename", method="PATCH", path=_KEY, summary="Set the title", body=schemas.Rename, answer=schemas.Renamed
    ),
    Operation(
        id="fork",
        method="POST",
        path=f"{_KEY}/fork",
        summary="Create a new session that shares the history",
        body=schemas.Fork,
        answer=schemas.Forked,
        status=201,
    ),
    Operation(
        id="archive",
        method="POST",
        path=f"{_KEY}/archive",
        summary="Archive a session; it can still be read",
        answer=schemas.Done,
    ),
    Operation(
        id="unarchive",
        method="POST",
        path=f"{_KEY}/unarchive",
        summary="Make an archived session active again",
        answer=schemas.Done,
    ),
    Operation(
        id="stop",
        method="POST",
        path=f"{_KEY}/stop",
        summary="Stop the running turn of a session",
        answer=schemas.Done,
    ),
    Operation(id="delete", method="DELETE", path=_KEY, summary="Erase a session for good", answer=schemas.Done),
    Operation(id="models", method="GET", path="/v1/models", summary="List the models", answer=openai_schemas.ModelList),
    Operation(id="model", method="GET", path="/v1/models/{id}", summary="One model", answer=openai_schemas.Model),
    Operation(
        id="chat",
        method="POST",
        path="/v1/chat/completions",
        summary="OpenAI's chat completions, answered by the agent",
        body=openai_schemas.Chat,
        answer=openai_schemas.Completion,
        streams=True,
        headers=("Idempotency-Key", "X-Session-Id", "X-Stainless-Retry-Count"),
    ),
    Operation(
        id="respond",
        method="POST",
        path="/v1/responses",
        summary="OpenAI's responses, answered by the agent",
        body=openai_schemas.Respond,
        answer=openai_schemas.ResponseDocument,
        streams=True,
        headers=("Idempotency-Key", "X-Session-Id", "X-Stainless-Retry-Count"),
    ),
    Operation(
        id="response",
        method="GET",
        path="/v1/responses/{id}",
        summary="Read a response that was stored",
        answer=openai_schemas.ResponseDocument,
    ),
    Operation(
        id="forget",
        method="DELETE",
        path="/v1/responses/{id}",
        summary="Erase the session that a response is in",
        answer=openai_schemas.ResponseDeleted,
    ),
    Operation(
        id="embed",
        method="POST",
        path="/v1/embeddings",
        summary="OpenAI's embeddings, where `nacre setup embeddings` was run",
        body=openai_schemas.Embed,
        answer=openai_schemas.VectorList,
    ),
    Operation(
        id="healthz",
        method="GET",
        path="/healthz",
        summary="Check that the process is running",
        answer=None,
        text="text/plain",
        is_public=True,
    ),
    Operation(
        id="readyz",
        method="GET",
        path="/readyz",
        summary="Check that new messages can be stored and answered; 503 if not",
        answer=schemas.Readiness,
        is_public=True,
    ),
    Operation(
        id="metrics",
        method="GET",
        path="/metrics",
        summary="Metrics in Prometheus' text format",
        answer=None,
        text="text/plain",
    ),
)


_EVENT = {
    "type": "object",
    "description": "One event of the stream; its data is JSON",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
_PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "key": (msgspec.json.schema(schemas.Key), "The session's key, as one segment: a slash in it is written %2F"),
    "id": ({"type": "string", "minLength": 1}, "The name of the model or the id of the response"),
}


_HEADERS: dict[str, dict[str, Any]] = {
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,15}$"},
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$"},
    "X-Session-Id": {"type": "string"},
    "X-Stainless-Retry-Count": {"type": "string"},
}


@cache
def document(base: str = "") -> bytes:
    """The document, as JSON; `base` is the path on the host that all paths are below."""
    used = [kind for one in OPERATIONS for kind in (one.body, one.answer) if kind is not None]
    _, found = msgspec.json.schema_components({*used, Problem, openai_schemas.OpenAIError}, ref_template=_REF)
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "servers": [{"url": base or "/"}],
            "info": {"title": "nacre", "version": nacre.__version__, "summary": "Durable sessions for AI agents"},
            "security": [{"token": []}, {"cookie": []}],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(found.items())),
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer"},
                    "cookie": {"type": "apiKey", "in": "cookie", "name": "nacre", "description": "set by POST /login"},
                },
            },
        }
    )


def _operation(one: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": one.id, "summary": one.summary}
    if parameters := _parameters(one):
        found["parameters"] = parameters
    if one.body is not None:
        found["requestBody"] = {"required": True, "content": _json(one.body)}
    if one.is_public:
        found["security"] = []
    content = {
        **(_json(one.answer) if one.answer is not None else {}),
        **({one.text: {"schema": {"type": "string"}}} if one.text else {}),
        **({"text/event-stream": {"schema": _EVENT}} if one.streams else {}),
    }
    is_openai = one.path.startswith(OPENAI_PREFIX)
    fault = _json(openai_schemas.OpenAIError) if is_openai else _json(Problem, "application/problem+json")
    responses = {
        str(one.status): {"description": one.summary, "content": content},
        **{str(status): {"description": "The error", "content": fault} for status in sorted(set(STATUSES.values()))},
    }
    if one.answer is schemas.Readiness:
        responses["503"] = responses["200"]
    return {**found, "responses": responses}


def _parameters(one: Operation) -> list[dict[str, Any]]:
    """What an operation takes in its path, its query and its headers."""

    def parameter(name: str, place: str, schema: Any, *, required: bool = False, **more: str) -> dict[str, Any]:
        return {"name": name, "in": place, "required": required, "schema": schema, **more}

    found = []
    if name := one.path.partition("{")[2].partition("}")[0]:
        schema, description = _PLACES[name]
        found.append(parameter(name, "path", schema, required=True, description=description))
    if one.query is not None:
        _, components = msgspec.json.schema_components([one.query], ref_template=_REF)
        query = components[one.query.__name__]
        required = query.get("required", [])
        found += [parameter(name, "query", of, required=name in required) for name, of in query["properties"].items()]
    return [*found, *(parameter(name, "header", _HEADERS[name]) for name in one.headers)]


def _json(kind: type[Struct], media: str = "application/json") -> dict[str, Any]:
    return {media: {"schema": {"$ref": _REF.format(name=kind.__name__)}}}
