"""What can go wrong on the command line, and the exit code that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nacre.errors import install_command

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
AMBIGUOUS = 4
LOCKED = 5
DAMAGED = 6
UNRECOVERABLE = 7
TOO_NEW = 8
PARTIAL = 9
TOOL_REFUSED = 10
LIMIT_REACHED = 11
EMPTY_ANSWER = 12
NO_MODEL = 13
SIGNALLED = 128
"""Added to the number of the signal that ended it."""
INTERRUPTED = 130
PIPE_CLOSED = 141

_CODES = {
    "usage": USAGE,
    "config": USAGE,
    "invalid_key": USAGE,
    "not_found": NOT_FOUND,
    "ambiguous": AMBIGUOUS,
    "locked": LOCKED,
    "damaged": DAMAGED,
    "too_new": TOO_NEW,
    "tool_refused": TOOL_REFUSED,
    "limit_reached": LIMIT_REACHED,
    "empty_answer": EMPTY_ANSWER,
    "model_unavailable": NO_MODEL,
    "model_not_allowed": NO_MODEL,
}

# The store's errors by the name of their class: to name the classes would mean to load the store.
_KINDS = {
    "SessionNotFound": ("not_found", "`nacre sessions list --all` shows all sessions"),
    "SessionBusy": ("locked", "try again when the other process has finished"),
    "LogDamaged": ("damaged", "`nacre sessions verify` shows the damage"),
    "FormatTooNew": ("too_new", "upgrade nacre"),
    "Conflict": ("conflict", ""),
    "Refused": ("refused", "`nacre doctor` checks space and permissions"),
    "DurabilityUnknown": ("durability_unknown", "`nacre sessions verify` shows what was stored"),
    "InvalidArgument": ("usage", ""),
    "InvalidKey": ("invalid_key", ""),
    "ServerFailed": ("server_failed", "try again, or ask another model: `nacre models` lists them"),
    "ModelUnavailable": ("model_unavailable", "`nacre models` lists the models that can answer"),
    "ModelNotAllowed": ("model_not_allowed", ""),
    "ConfigError": ("config", "`nacre config check` checks the settings"),
}

# Optional modules, and the extra that installs each.
EXTRAS = {
    **dict.fromkeys(("anyio", "httpx2", "prompt_toolkit", "pygments", "snowballstemmer", "wcwidth", "yaml"), "agent"),
    **dict.fromkeys(("h11", "jsonschema_rs", "starlette", "uvicorn"), "serve"),
    **dict.fromkeys(("numpy", "safetensors", "tokenizers"), "embeddings"),
    "acp": "acp",
    "mcp": "mcp",
    "opentelemetry": "otel",
    **dict.fromkeys(("psycopg", "psycopg_pool"), "postgres"),
    "xllamacpp": "embedded",
}


class Failure(Exception):
    """An error for a person, or for a program as JSON.

    `kind` decides the exit code, unless `code` is given. `candidates` are sessions, key and title, and `folders`
    has the folder of each key that has one. `details` are further fields of the JSON document.
    """

    def __init__(  # noqa: PLR0913 - what an error is reported with
        self,
        kind: str,
        message: str,
        *,
        hint: str = "",
        candidates: Sequence[tuple[str, str]] = (),
        folders: Mapping[str, str] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.candidates = candidates
        self.folders = dict(folders or {})
        self.code = _CODES.get(kind, FAILED) if code is None else code
        self.details: dict[str, object] = {}

    def to_mapping(self) -> dict[str, object]:
        """The error in the shape of the JSON contract."""
        found: dict[str, object] = {"type": self.kind, "message": self.message}
        if self.hint:
            found["hint"] = self.hint
        if self.candidates:
            found["candidates"] = [
                {"key": key, "title": title, **({"cwd": self.folders[key]} if key in self.folders else {})}
                for key, title in self.candidates
            ]
        return found


@contextmanager
def require_extra(extra: str, sentence: str) -> Iterator[None]:
    """Around imports: a package that is missing is a Failure with the command that installs it.

    Its name ends the sentence, such as "memory needs".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # A module of our own that is missing is a bug.
        if (error.name or "").startswith("nacre"):
            raise
        raise Failure("unavailable", f"{sentence} {error.name}", hint=install_command(extra)) from error


def failure_of(error: Exception) -> Failure | None:
    """Give the failure that an error of the store or the system means; None for one that nobody foresaw."""
    if isinstance(error, Failure):
        return error
    for kind in type(error).__mro__:
        # The first line is the message; what follows says what to do.
        message, _, rest = str(error).partition("\n")
        if kind.__name__ in _KINDS and kind.__module__ == "nacre.errors":
            name, hint = _KINDS[kind.__name__]
            return Failure(name, message, hint=rest.strip() or hint)
        if kind.__name__ == "NacreError":
            return Failure("failed", message, hint=rest.strip())
    if isinstance(error, OSError):
        return Failure("failed", str(error), hint="`nacre doctor` checks space and permissions")
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").partition(".")[0])):
        return Failure("unavailable", f"this needs {error.name}, which is not installed", hint=install_command(extra))
    return None


def internal_failure(error: BaseException) -> Failure:
    """The failure of an error that nobody foresaw."""
    return Failure("internal", f"{type(error).__name__}: {error}", hint="a bug in nacre; -vv shows where")
