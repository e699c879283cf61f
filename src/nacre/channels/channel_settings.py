"""A channel's table of the configuration, and the secrets that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from nacre.errors import ConfigError

T = TypeVar("T")


def parsed(kind: type[T], table: Mapping[str, Any], *, section: str) -> T:
    """The table as a value; raises ConfigError that names the section and the key."""
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[{section}] cannot be used: {error}; see docs/channels.md for its settings") from error


def variable(channel: str, what: str) -> str:
    """The environment variable that holds a channel's secret, by the channel's name."""
    return f"NACRE_{channel.replace('-', '_').upper()}_{what}"


def secret(file: str, variable: str, *, section: str, key: str) -> str:
    """What the file holds, else the variable, else nothing; raises ConfigError for a file that cannot be read."""
    if not file:
        return os.environ.get(variable, "").strip()
    try:
        text = Path(file).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{section}.{key} names {file!r}, which cannot be read: {reason}") from None
    if not text or not text.isprintable():
        raise ConfigError(f"{section}.{key} names {file!r}, which must contain exactly one line")
    return text


def address(text: str, *, section: str, key: str) -> str:
    """The address of a server, without a slash at its end; raises ConfigError if it is none."""
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise ConfigError(f"{section}.{key} is an address such as https://example.org, not {text!r}")
    return text.rstrip("/")


def needed(value: str, *, section: str, key: str, variable: str) -> str:
    """A secret without which there is no channel; raises ConfigError."""
    if not value:
        raise ConfigError(
            f"[{section}] has no secret: set {section}.{key} to a file that contains it, or set {variable}"
        )
    return value
