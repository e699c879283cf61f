"""The checks of `nacre serve --check`: whether a daemon could start, or how the one is that runs."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from argparse import Namespace
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from nacre import config
from nacre.cli.commands.diagnostics import Check, code_of, print_checks, settings_checks
from nacre.cli.commands.serve_tokens import TOKEN_HINT, VARIABLE, needs_token
from nacre.cli.failures import OK
from nacre.cli.one_line import several
from nacre.cli.output import Out
from nacre.cli.store_choice import is_url, main_root, main_store
from nacre.errors import ConfigError
from nacre.opening import holder_of, store_of
from nacre.runtime.gateway.inbox import KEYS

Address = tuple[str, int]
_TIMEOUT = 15.0
"""Seconds for an answer: a daemon may take five to find out that its disk does not respond."""
_MAX_ANSWER = 100_000
_LISTENS = "0A"
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where nobody can be asked


def print_serve_checks(args: Namespace, out: Out) -> int:
    """Say whether a daemon could start; returns the exit code."""
    found = print_checks(_checks(args, out), out)
    code = code_of(found)
    if out.json:
        out.document({"ok": code == OK, "checks": [check._asdict() for check in found]})
    return code


def _checks(args: Namespace, out: Out) -> Iterator[Check]:
    """Whether `nacre serve` could start with these options; if it runs, whether it is ready and could be restarted."""
    from nacre.runtime.access_tokens import Tokens  # noqa: PLC0415 - optional

    pid = _pid_of(_store(args))
    places = listens_at(pid)
    if pid:
        yield _check_running(args, pid, places)
        yield from _check_agents(args, pid)
    yield _check_address(args, places, pid)
    # Where the owner's token comes from, and whether those of others can be read.
    if needs_token(args):
        yield Check("token", "fail", f"a daemon on {args.host} needs a token that you chose", TOKEN_HINT)
    else:
        owners = f"in {VARIABLE}" if os.environ.get(VARIABLE) else "generated at each start"
        try:
            others = sum(not token.revoked for token in Tokens(main_root(args)).all())
        except ConfigError as error:
            yield Check("token", "fail", str(error), "nacre serve tokens list")
        else:
            yield Check("token", "ok", f"{owners}; {several(others, 'token')} of others" if others else owners)
    yield from _check_prefix(args)
    yield from _check_workers(args)
    yield from settings_checks(args, out, model=args.model)


def _check_running(args: Namespace, pid: int, places: list[Address]) -> Check:
    """How the daemon is that runs."""
    who = f"process {pid}" if pid > 0 else "another process"
    token = os.environ.get(VARIABLE, "")
    # Where the system does not tell, it may well be where these options would have it.
    found = (ask(place, token) for place in places or [(args.host, args.port)])
    answer = next((one for one in found if one is not None), None)
    if answer is None:
        where = " and ".join(f"{host}, port {port}" for host, port in places) or f"{args.host}, port {args.port}"
        hint = "read its log; if it hangs, stop it and start it again: nothing that was acknowledged is lost"
        return Check("daemon", "fail", f"{who} serves this store, but does not answer at {where}", hint)
    who = f"{who} serves this store at {answer.address[0]}, port {answer.address[1]}"
    if not answer.is_ready:
        hint = "" if answer.reasons else f"with its token in {VARIABLE} this check tells the reasons, as its log does"
        detail = "\n".join((f"{who}; it is not ready: {', '.join(answer.failing)}", *answer.reasons))
        return Check("daemon", "fail", detail, hint)
    if token and not answer.knows_token:
        detail = f"{who}, and is ready; it has another token than {VARIABLE} here"
        return Check("daemon", "warn", detail, "restart it to change its token")
    return Check("daemon", "ok", f"{who}, and is ready")


def _check_agents(args: Namespace, pid: int) -> Iterator[Check]:
    """Agents of the configuration that the daemon does not run: it was started, or read it, before they were added."""
    try:
        names = config.load().agents
    except ConfigError:
        return  # the checks of the configuration say why
    store = _store(args)
    others = ", ".join(name for name in names if name != config.MAIN and _pid_of(store_of(store, name)) != pid)
    if others:
        hint = f"kill -HUP {pid}" if pid > 0 else "send it SIGHUP"
        yield Check("agents", "warn", f"the daemon does not run every agent of the configuration: {others}", hint)


def _check_address(args: Namespace, places: list[Address], pid: int) -> Check:
    """Whether a daemon could listen there."""
    from nacre.web.server import listen  # noqa: PLC0415 - only for a daemon

    where = f"{args.host}, port {args.port}"
    try:
        for one in listen(args.host, args.port):
            one.close()
    except ConfigError as error:
        is_taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        if not is_taken:
            return Check("address", "fail", str(error), "choose another with --host")
        if args.port in {port for _, port in places} or (pid and not places):
            return Check("address", "ok", f"{where}: the daemon listens there")
        daemon = "a daemon" if is_url(_store(args)) else "a daemon with another store"
        holder = daemon if ask((args.host, args.port), "") else "another program"
        return Check("address", "fail", f"{where} is in use by {holder}", "choose another with --port or --host")
    return Check("address", "ok", where)


def _check_prefix(args: Namespace) -> Iterator[Check]:
    """Whether the path below which a proxy has the daemon is one of its own; nothing if there is none."""
    from nacre.web.server import check_prefix  # noqa: PLC0415 - only for a daemon

    try:
        prefix = config.load().text("serve.prefix") if args.prefix is None else str(args.prefix)
    except ConfigError:
        return  # the checks of the configuration say why
    try:
        check_prefix(prefix)
    except ConfigError as error:
        yield Check("prefix", "fail", str(error), "nacre config set serve.prefix /nacre")
    else:
        if prefix:
            yield Check("prefix", "ok", prefix)


# ---- the daemon that serves a store now


class _Answer(NamedTuple):
    """What a daemon says of itself at an address; `reasons` only if the token was right."""

    address: Address
    is_ready: bool
    failing: Sequence[str]
    reasons: Sequence[str]
    knows_token: bool


def _check_workers(args: Namespace) -> Iterator[Check]:
    """How many workers run the turns; nothing if there are none."""
    try:
        settings = config.load()
        count = settings.number("serve.workers") if args.workers is None else int(args.workers)
    except ConfigError:
        return  # the checks of the configuration say why
    if count:
        agents = len(settings.agents)
        each = f"{several(count, 'process', 'processes')} for the turns" + (" of each agent" if agents > 1 else "")
        yield Check("workers", "ok", each)


def _store(args: Namespace) -> str:
    """The main agent's store; the local folder if the configuration, whose checks say why, does not tell."""
    try:
        return main_store(args)
    except ConfigError:
        return main_root(args)


def _pid_of(store: str) -> int:
    """The process that serves a store: 0 if there is none, or it cannot be asked; -1 if it is unknown which."""
    # A daemon has the turn of its inbox as long as it serves. A database may be served by several, on other machines.
    return 0 if is_url(store) else holder_of(store, KEYS[0])


def listens_at(pid: int) -> list[Address]:
    """Where a process accepts connections, as far as the system tells."""
    rows: list[list[str]] = []
    try:
        links = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
        for name in ("tcp", "tcp6"):
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as file:
                rows += [line.split() for line in file.readlines()[1:]]
    except OSError:
        return []
    found: list[Address] = []
    for row in rows:
        if row[3] == _LISTENS and f"socket:[{row[9]}]" in links:
            # The kernel's table has an address as words of four bytes, as the machine orders them, and the port.
            digits, _, port = row[1].partition(":")
            words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
            family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
            found.append((socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)), int(port, 16)))
    return found


def ask(address: Address, token: str, *, timeout: float = _TIMEOUT) -> _Answer | None:
    """What the daemon at an address says of itself; None if there is none that speaks nacre's language."""
    status, answer = _readiness(address, token, timeout)
    is_refused = status in (401, 403)
    if is_refused:
        status, answer = _readiness(address, "", timeout)
    if not isinstance(answer, dict) or not isinstance(answer.get("ready"), bool):
        return None
    failing, reasons = (list(map(str, answer.get(name) or ())) for name in ("failing", "reasons"))
    return _Answer(address, answer["ready"], failing, reasons, knows_token=bool(token) and not is_refused)


def _readiness(address: Address, token: str, timeout: float) -> tuple[int, object]:
    host, port = address
    connection = HTTPConnection(_LOOPBACK.get(host, host), port, timeout=timeout)
    try:
        connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(_MAX_ANSWER))
    except (OSError, HTTPException, ValueError, RecursionError):
        return 0, None
    finally:
        connection.close()
