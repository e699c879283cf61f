"""A channel's table of the configuration, and the secrets that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from nacre.errors import ConfigError

T = TypeVar("T")


def parse_settings(kind: type[T], table: Mapping[str, Any], *, section: str) -> T:
    """The table as a value; raises ConfigError that names the section and the key."""
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[{section}] cannot be used: {error}; see docs/channels.md for its settings") from error


def read_secret(channel: str, kind: Literal["token", "password"], file: str, *, is_required: bool = True) -> str:
    """A channel's secret: what the file of its settings holds, else what a variable of the environment does.

    Raises ConfigError for a file that cannot be read, and for a secret that is required and nowhere.
    """
    section, key = f"channels.{channel}", f"{kind}_file"
    variable = f"NACRE_{channel.replace('-', '_').upper()}_{kind.upper()}"
    if not file:
        found = os.environ.get(variable, "").strip()
        if not found and is_required:
            raise ConfigError(
                f"[{section}] has no secret: set {section}.{key} to a file that contains it, or set {variable}"
            )
        return found
    try:
        text = Path(file).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{section}.{key} names {file!r}, which cannot be read: {reason}") from None
    if not text or not text.isprintable():
        raise ConfigError(f"{section}.{key} names {file!r}, which must contain exactly one line")
    return text


def parse_address(text: str, *, section: str, key: str) -> str:
    """The address of a server, without a slash at its end; raises ConfigError if it is none."""
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{section}.{key} is an address such as https://example.org, not {text!r}")
    return text.rstrip("/")
