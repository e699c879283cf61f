"""The tokens of the HTTP interface: who they are for, kept by their hashes in a private file of the store."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from nacre.config import MAIN, is_name
from nacre.errors import ConfigError, Conflict, InvalidArgument, describe_error
from nacre.user_files import locked, write_whole

logger = logging.getLogger(__name__)

FILE = "serve/tokens.json"
"""Where the tokens are in a store."""
PREFIX = "nacre_"
"""How a token begins, so that tools that look for secrets in files know one."""
_BYTES = 32

Role = Literal["owner", "guest"]


class Token(Struct, frozen=True, kw_only=True):
    """A token by its name. `agent` is the one that a guest talks to; `revoked` is when it was revoked, or empty.

    The name stays taken after that, with its role: it is part of the keys of sessions, which tell by it whose they are.
    """

    name: str
    role: Role
    created: str
    digest: str = ""
    agent: str = MAIN
    revoked: str = ""


class _File(Struct, frozen=True, kw_only=True):
    schema_version: Literal[1] = 1
    tokens: list[Token] = []


class Tokens:
    """The tokens in the store at a place; changes by any process count from the next question on."""

    def __init__(self, root: str) -> None:
        self._path = Path(root) / FILE
        self._seen: tuple[int, ...] = ()
        self._found: Mapping[str, Token] = {}

    def all(self) -> list[Token]:
        """Every token, revoked ones too, in the order of their names; raises ConfigError if they cannot be read."""
        return [token for _, token in sorted(self._read().items())]

    def find(self, secret: str) -> Token | None:
        """The token that somebody shows; None if there is none. Takes as long whichever it is."""
        shown, found = digest(secret), None
        for token in self._now().values():
            if hmac.compare_digest(shown.encode(), token.digest.encode()) and not token.revoked:
                found = token
        return found

    def get(self, name: str) -> Token | None:
        """The token of a name, if it is valid."""
        token = self._now().get(name)
        return None if token is None or token.revoked else token

    def is_owners(self, name: str) -> bool:
        """Tell whether a name is, or was, that of an owner's token."""
        token = self._now().get(name)
        return token is not None and token.role == "owner"

    def add(self, name: str, role: Role, *, agent: str = MAIN) -> str:
        """Make a token and return it: it is shown once, and only its hash is kept.

        A name that was revoked can be used again for the same role, and means the same sessions. Raises
        InvalidArgument for a name that cannot be one, Conflict if it is taken.
        """
        if not is_name(name):
            rule = "at most 32 lower-case letters, digits and dashes, and does not begin with a dash"
            raise InvalidArgument(f"the name of a token has {rule}; {name!r:.100} cannot be one")
        with self._changing() as tokens:
            before = tokens.get(name)
            if before is not None and not before.revoked:
                raise Conflict(f"there is a token {name!r} already; revoke it first, or choose another name")
            if before is not None and (before.role, before.agent) != (role, agent):
                whose = f"the {before.role} {name!r} of the agent {before.agent!r}"
                raise Conflict(f"there are sessions of {whose}, who had a token; choose another name")
            secret = f"{PREFIX}{secrets.token_urlsafe(_BYTES)}"
            tokens[name] = Token(name=name, role=role, agent=agent, created=_time(), digest=digest(secret))
        return secret

    def revoke(self, name: str) -> Token:
        """End a token; its name stays taken. Raises InvalidArgument if there is none."""
        with self._changing() as tokens:
            token = tokens.get(name)
            if token is None or token.revoked:
                raise InvalidArgument(f"there is no token {name!r:.100}")
            tokens[name] = msgspec.structs.replace(token, digest="", revoked=_time())
        return tokens[name]

    def _now(self) -> Mapping[str, Token]:
        """The tokens as they are now; none if they cannot be read, since one that was revoked must not count."""
        seen: tuple[int, ...] = ()
        with suppress(OSError):
            found = os.stat(self._path)  # noqa: PTH116 - asked at every request
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen:
            self._seen = seen
            try:
                self._found = self._read()
            except ConfigError as error:
                logger.error("tokens cannot be read; none is accepted", extra={"reason": describe_error(error)})  # noqa: TRY400
                self._found = {}
                if isinstance(error.__cause__, OSError):
                    # It may be over at the next question, with the same file.
                    self._seen = ()
        return self._found

    def _read(self) -> dict[str, Token]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{self._path} cannot be read: {error}; repair it, or move it away") from error
        return {token.name: token for token in found.tokens}

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Token]]:
        """Change the tokens under a lock; the file is replaced whole. Raises ConfigError if it cannot be written."""
        try:
            self._path.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self._path.parent):
                tokens = self._read()
                yield tokens
                document = msgspec.json.encode(_File(tokens=list(tokens.values())))
                write_whole(self._path, msgspec.json.format(document, indent=2) + b"\n")
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}") from error


def digest(secret: str) -> str:
    """What is kept of a token. It has 256 random bits, so that a fast hash is as good as a slow one."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
