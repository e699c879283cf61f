"""The OpenAPI document, made of the shapes that the handlers use, so that it cannot say anything else."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

import nacre
from nacre.web.api import openai_schemas as openai
from nacre.web.api import schemas
from nacre.web.http_errors import OPENAI_PREFIX, STATUSES, Problem

_REF = "#/components/schemas/{name}"
_KEY = "/api/sessions/{key}"
_OPENAI_HEADERS = ("Idempotency-Key", "X-Session-Id", "X-Stainless-Retry-Count")


class Operation(Struct, frozen=True):
    """One thing that the server does; `text` is the media type of an answer that is no JSON."""

    id: str
    method: str
    path: str
    summary: str
    answer: type[Struct] | None = None
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    status: int = 200
    streams: bool = False
    headers: tuple[str, ...] = ()
    text: str = ""
    is_public: bool = False


OPERATIONS = (
    Operation(
        "list", "GET", "/api/sessions", "List sessions, newest first", schemas.SessionList, query=schemas.ListQuery
    ),
    Operation(
        "search",
        "GET",
        "/api/search",
        "Search the messages of all sessions",
        schemas.FoundList,
        query=schemas.SearchQuery,
    ),
    Operation("read", "GET", _KEY, "Read a session, newest page first", schemas.Conversation, query=schemas.ReadQuery),
    Operation(
        "events",
        "GET",
        f"{_KEY}/events",
        "Follow the records of a session; an event's id is the record's number",
        query=schemas.EventsQuery,
        streams=True,
        headers=("Last-Event-ID",),
    ),
    Operation(
        "send",
        "POST",
        f"{_KEY}/messages",
        "Send a message; creates the session if needed; waits for the answer, or streams it",
        schemas.Sent,
        body=schemas.Send,
        streams=True,
        headers=("Idempotency-Key",),
    ),
    Operation("rename", "PATCH", _KEY, "Set the title", schemas.Renamed, body=schemas.Rename),
    Operation(
        "fork",
        "POST",
        f"{_KEY}/fork",
        "Create a new session that shares the history",
        schemas.Forked,
        body=schemas.Fork,
        status=201,
    ),
    Operation("archive", "POST", f"{_KEY}/archive", "Archive a session; it can still be read", schemas.Done),
    Operation("unarchive", "POST", f"{_KEY}/unarchive", "Make an archived session active again", schemas.Done),
    Operation("stop", "POST", f"{_KEY}/stop", "Stop the running turn of a session", schemas.Done),
    Operation("delete", "DELETE", _KEY, "Erase a session for good", schemas.Done),
    Operation(
        "redact",
        "DELETE",
        f"{_KEY}/messages/{{n}}",
        "Erase the content of one message for good; a marked hole stays",
        schemas.Redacted,
        query=schemas.RedactQuery,
    ),
    Operation("models", "GET", "/v1/models", "List the models", openai.ModelList),
    Operation("model", "GET", "/v1/models/{id}", "One model", openai.Model),
    Operation(
        "chat",
        "POST",
        "/v1/chat/completions",
        "OpenAI's chat completions, answered by the agent",
        openai.Completion,
        body=openai.Chat,
        streams=True,
        headers=_OPENAI_HEADERS,
    ),
    Operation(
        "respond",
        "POST",
        "/v1/responses",
        "OpenAI's responses, answered by the agent",
        openai.ResponseDocument,
        body=openai.Respond,
        streams=True,
        headers=_OPENAI_HEADERS,
    ),
    Operation("response", "GET", "/v1/responses/{id}", "Read a response that was stored", openai.ResponseDocument),
    Operation(
        "forget", "DELETE", "/v1/responses/{id}", "Erase the session that a response is in", openai.ResponseDeleted
    ),
    Operation(
        "embed",
        "POST",
        "/v1/embeddings",
        "OpenAI's embeddings, where `nacre setup embeddings` was run",
        openai.VectorList,
        body=openai.Embed,
    ),
    Operation("healthz", "GET", "/healthz", "Check that the process is running", text="text/plain", is_public=True),
    Operation(
        "readyz",
        "GET",
        "/readyz",
        "Check that new messages can be stored and answered; 503 if not",
        schemas.Readiness,
        is_public=True,
    ),
    Operation("metrics", "GET", "/metrics", "Metrics in Prometheus' text format", text="text/plain"),
)


_EVENT = {
    "type": "object",
    "description": "One event of the stream; its data is JSON",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
_PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "key": (msgspec.json.schema(schemas.Key), "The session's key, as one segment: a slash in it is written %2F"),
    "n": ({"type": "integer", "minimum": 1, "maximum": 2**53 - 1}, "The number of the message"),
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
    _, found = msgspec.json.schema_components({*used, Problem, openai.OpenAIError}, ref_template=_REF)
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
    fault = _json(openai.OpenAIError) if is_openai else _json(Problem, "application/problem+json")
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
    for name in re.findall(r"{(\w+)}", one.path):
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
