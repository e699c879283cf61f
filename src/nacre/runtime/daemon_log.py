"""The daemon's log: one line per event, as JSON or for people, without secrets and without what anybody said."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import PurePath
from traceback import extract_tb
from types import MappingProxyType
from typing import Any, Literal, TextIO

from nacre.errors import describe_error
from nacre.opening import passwords_in

Form = Literal["json", "text"]

_OURS = "nacre"
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_KNOWN = frozenset(("anyio", "asyncio", "httpcore2", "httpx2", "psycopg", "uvicorn"))
"""Packages whose warnings say what is wrong, and show values only after it."""
_POOL = "psycopg.pool"
_NOT_SHOWN = "a message of another package is not shown, since it may quote what somebody said"
_QUOTING = re.compile(
    r"(answered \d{3}|in the middle of its answer|refuses the key|wants a key|not JSON):? .*|(?<=sent) b['\"].*",
    re.DOTALL,
)
"""Where the words of a server begin, which may repeat what it was sent."""
_MIN_SECRET = 8
_SECRET = re.compile(r"TOKEN|KEY|PASSWORD|SECRET")


@contextmanager
def logged(
    stream: TextIO,
    *,
    form: Form,
    level: str = "info",
    secrets: Iterable[str] = (),
    about: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[None]:
    """Write the log to a stream; of what is not ours, warnings alone, whatever the level.

    The values in `secrets` are not written, wherever they turn up; each line ends with what it is `about`.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_LineFormatter(form, secrets, about))
    least = logging.getLevelNamesMapping()[level.upper()]
    handler.addFilter(lambda record: record.levelno >= (least if _is_ours(record) else _least_of_others(record)))
    ours, root = logging.getLogger(_OURS), logging.getLogger()
    before = ours.level
    ours.setLevel(least)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """The values of variables that are called keys, tokens or passwords, and the password of a database."""
    found = [value for name, value in environ.items() if _SECRET.search(name)]
    return [*found, *passwords_in(environ.get("NACRE_STORE_URL", ""))]


class _LineFormatter(logging.Formatter):
    """A record as one line, without secrets: a JSON object, or for people when, how bad, what, and about what."""

    def __init__(self, form: Form, secrets: Iterable[str], about: Mapping[str, Any]) -> None:
        super().__init__()
        self._form, self._about = form, about
        # The longest first: one may be the beginning of another.
        self._secrets = sorted({text for text in secrets if len(text) >= _MIN_SECRET}, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        fields, level = self._clean({**_fields(record), **self._about}), record.levelname.lower()
        time = f"{datetime.fromtimestamp(record.created, UTC).isoformat(timespec='milliseconds')[:-6]}Z"
        if self._form == "json":
            head = {"time": time, "level": level, "logger": record.name}
            return json.dumps({**head, **fields}, ensure_ascii=False)
        text = fields.pop("message")
        about = " ".join(f"{name}={_quote(value)}" for name, value in fields.items())
        message = f"{time} {level:<7} {text if text.isprintable() else json.dumps(text)}"
        return f"{message} ({about})" if about else message

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, "…")
                return _QUOTING.sub(lambda found: f"{found[1] or ''}: …", value)
            case dict():
                return {str(name): self._clean(one) for name, one in value.items()}
            case list() | tuple():
                return [self._clean(one) for one in value]
            case None | bool() | int() | float():
                return value
            case BaseException():
                return self._clean(describe_error(value))
            case _:
                return self._clean(str(value))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The message, what it is about, and the exception that led to it, if any."""
    found: dict[str, Any]
    if _is_ours(record):
        extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
        found = {"message": record.getMessage(), **extra}
    else:
        # The first line and no values, and only of packages that are known.
        is_known = record.name.partition(".")[0] in _KNOWN
        message = str(record.msg).partition("\n")[0] if is_known else _NOT_SHOWN
        found = {"message": message, "at": f"{record.module}:{record.lineno}"}
    if record.exc_info and (error := record.exc_info[1]) is not None:
        # Where it happened, without the lines of source: a name of a file, a number, a function.
        trace = [f"{PurePath(at.filename).name}:{at.lineno} {at.name}" for at in extract_tb(error.__traceback__)]
        found |= {"exception": describe_error(error), "trace": trace}
    return found


def _quote(value: Any) -> str:
    is_plain = isinstance(value, str) and value.isprintable() and value and " " not in value
    return value if is_plain else json.dumps(value)


def _least_of_others(record: logging.LogRecord) -> int:
    # The pool warns of each attempt to connect, with the reason in values that are not shown. Ours say what came of it.
    return logging.ERROR if record.name.startswith(_POOL) else logging.WARNING


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name == _OURS or record.name.startswith(f"{_OURS}.")
