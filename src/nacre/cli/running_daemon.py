"""The daemon that serves a store now: which process it is, where it listens, and whether it is ready."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from nacre.opening import holder_of
from nacre.runtime.gateway.inbox import KEYS

Address = tuple[str, int]
_PATIENCE = 15.0
"""Seconds for an answer: a daemon may take five to find out that its disk does not respond."""
_LONGEST = 100_000
_LISTENS = "0A"
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where nobody can be asked


class Answer(NamedTuple):
    """What a daemon says of itself at an address; `reasons` only if the token was right."""

    address: Address
    is_ready: bool
    failing: Sequence[str]
    reasons: Sequence[str]
    knows_token: bool


def pid_of(root: str) -> int:
    """The process that serves a store: 0 if there is none, or it cannot be asked; -1 if it is unknown which."""
    # A daemon has the turn of its inbox as long as it serves.
    return holder_of(root, KEYS[0])


def listens_at(pid: int) -> list[Address]:
    """Where a process accepts connections, as far as the system tells."""
    try:
        links = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
        rows = [line.split() for name in ("tcp", "tcp6") for line in _lines(f"/proc/{pid}/net/{name}")]
    except OSError:
        return []
    return [_address(row[1]) for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in links]


def ask(address: Address, token: str, *, patience: float = _PATIENCE) -> Answer | None:
    """What the daemon at an address says of itself; None if there is none that speaks nacre's language."""
    status, told = _readiness(address, token, patience)
    is_refused = status in (401, 403)
    if is_refused:
        status, told = _readiness(address, "", patience)
    if not isinstance(told, dict) or not isinstance(told.get("ready"), bool):
        return None
    failing, reasons = (list(map(str, told.get(name) or ())) for name in ("failing", "reasons"))
    return Answer(address, told["ready"], failing, reasons, knows_token=bool(token) and not is_refused)


def _readiness(address: Address, token: str, patience: float) -> tuple[int, object]:
    host, port = address
    connection = HTTPConnection(_LOOPBACK.get(host, host), port, timeout=patience)
    try:
        connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(_LONGEST))
    except (OSError, HTTPException, ValueError, RecursionError):
        return 0, None
    finally:
        connection.close()


def _lines(path: str) -> list[str]:
    with open(path, encoding="ascii") as file:
        return file.readlines()[1:]


def _address(text: str) -> Address:
    """An address as the kernel's table has it: words of four bytes, as the machine orders them, and the port."""
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)), int(port, 16)
