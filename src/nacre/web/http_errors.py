"""What goes wrong over HTTP: a status, a word for programs, and a sentence for people."""

from __future__ import annotations

import errno
import http
import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from nacre import errors
from nacre.errors import Busy, Stopped
from nacre.runtime.workers import WorkerLost

STATUSES = {
    "usage": 400,
    "invalid_key": 400,
    "invalid_message": 400,
    "too_long": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method": 405,
    "timeout": 408,
    "conflict": 409,
    "locked": 409,
    "stopped": 409,
    "too_new": 409,
    "too_large": 413,
    "media_type": 415,
    "host": 421,
    "invalid_answer": 422,
    "busy": 429,
    "rate_limited": 429,
    "head": 431,
    "damaged": 500,
    "durability_unknown": 500,
    "failed": 500,
    "unsupported": 501,
    "provider": 502,
    "worker_lost": 503,
    "unavailable": 503,
    "refused": 507,
}
_KINDS: Mapping[type[Exception], str] = {
    errors.SessionNotFound: "not_found",
    errors.SessionBusy: "locked",
    errors.Conflict: "conflict",
    errors.LogDamaged: "damaged",
    errors.FormatTooNew: "too_new",
    errors.Refused: "refused",
    errors.DurabilityUnknown: "durability_unknown",
    errors.InvalidArgument: "usage",
    errors.InvalidKey: "invalid_key",
    errors.InvalidMessage: "invalid_message",
    errors.ContextOverflow: "too_long",
    errors.InvalidAnswer: "invalid_answer",
    errors.RateLimited: "rate_limited",
    errors.ProviderError: "provider",
    Busy: "busy",
    Stopped: "stopped",
    WorkerLost: "worker_lost",
}
_FULL = (f"[Errno {errno.ENOSPC}]", f"[Errno {errno.EDQUOT}]", "the database is full")
"""What a refusal says if there is no room: of an error that comes from a worker only its text is known."""
_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_OPENAI_CODES = {"too_long": "context_length_exceeded", "unauthorized": "invalid_api_key"}
OPENAI_PREFIX = "/v1/"


class Problem(Struct, frozen=True, kw_only=True):
    """What went wrong, as the API says it (RFC 9457); `code` is the word for programs."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Fault(errors.NacreError):
    """A request that cannot be answered; `kind` decides the status, `param` names the part of it that is wrong."""

    def __init__(self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, param: str = "") -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.param = param
        self.status = STATUSES[kind]
        self.headers = dict(headers or {})

    def to_problem(self) -> Problem:
        title = http.HTTPStatus(self.status).phrase
        return Problem(
            type=f"urn:nacre:{self.kind}", title=title, status=self.status, code=self.kind, detail=self.detail
        )

    def to_openai(self) -> dict[str, object]:
        """The error as OpenAI's API words it."""
        kind = _OPENAI_TYPES.get(
            self.status,
            "api_error" if self.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error",
        )
        code = _OPENAI_CODES.get(self.kind, self.kind)
        return {"error": {"message": self.detail, "type": kind, "param": self.param or None, "code": code}}


def fault_of(error: BaseException) -> Fault:
    """The problem that a client gets for an error; unexpected errors show no details."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, HTTPException):
        # A route that does not exist, or not for that method.
        kind = next((name for name, status in STATUSES.items() if status == error.status_code), "usage")
        details = {"not_found": "there is nothing here", "method": "the method is not allowed here"}
        return Fault(kind, details.get(kind, error.detail), headers=error.headers)
    if isinstance(error, ClientDisconnect):
        return Fault("usage", "the request ended before it was complete")
    # The server of a model may ask to wait.
    wait = error.wait if isinstance(error, errors.RateLimited) else None
    wait = 1 if isinstance(error, WorkerLost) else wait
    headers = {} if wait is None else {"retry-after": str(math.ceil(wait))}
    if isinstance(error, errors.Refused) and not any(sign in str(error) for sign in _FULL):
        return Fault("unavailable", str(error))
    for cls in type(error).__mro__:
        if cls in _KINDS:
            return Fault(_KINDS[cls], str(error), headers=headers)
    if isinstance(error, errors.NacreError):
        return Fault("failed", str(error))
    return Fault("failed", "an internal error occurred; the log of the server has the details")


def response(fault: Fault, path: str) -> Response:
    """A fault in the words of the API that was called."""
    if path.startswith(OPENAI_PREFIX):
        body, media = msgspec.json.encode(fault.to_openai()), "application/json"
    else:
        body, media = msgspec.json.encode(fault.to_problem()), "application/problem+json"
    return Response(body, status_code=fault.status, headers=fault.headers, media_type=media)
