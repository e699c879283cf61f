"""The checks of `nacre serve --check`: whether a daemon could start, or how the one is that runs."""

from __future__ import annotations

import errno
import os
from argparse import Namespace
from collections.abc import Iterator

from nacre import config
from nacre.cli import running_daemon
from nacre.cli.commands.diagnostics import Check, settings_checks
from nacre.cli.commands.serve import TOKEN_HINT, VARIABLE, needs_token, prefix_of
from nacre.cli.one_line import several
from nacre.cli.output import Out
from nacre.cli.store_choice import main_root
from nacre.errors import ConfigError


def serve_checks(args: Namespace, out: Out) -> Iterator[Check]:
    """Whether `nacre serve` could start with these options; if it runs, whether it is ready and could be restarted."""
    pid = running_daemon.pid_of(main_root(args))
    places = running_daemon.listens_at(pid)
    if pid:
        yield _running(args, pid, places)
        yield from _agents(args, pid)
    yield _address(args, places, pid)
    if needs_token(args):
        yield Check("token", "fail", f"a daemon on {args.host} needs a token that you chose", TOKEN_HINT)
    else:
        yield _token(args, f"in {VARIABLE}" if os.environ.get(VARIABLE) else "generated at each start")
    yield from _prefix(args)
    yield from settings_checks(args, out, model=args.model)


def _token(args: Namespace, owners: str) -> Check:
    """Where the owner's token comes from, and whether those of others can be read."""
    from nacre.runtime.access_tokens import Tokens  # noqa: PLC0415 - optional

    try:
        others = sum(not token.revoked for token in Tokens(main_root(args)).all())
    except ConfigError as error:
        return Check("token", "fail", str(error), "nacre serve tokens list")
    return Check("token", "ok", f"{owners}; {several(others, 'token')} of others" if others else owners)


def _running(args: Namespace, pid: int, places: list[running_daemon.Address]) -> Check:
    """How the daemon is that runs."""
    who = f"process {pid}" if pid > 0 else "another process"
    token = os.environ.get(VARIABLE, "")
    # Where the system does not tell, it may well be where these options would have it.
    found = (running_daemon.ask(place, token) for place in places or [(args.host, args.port)])
    answer = next((one for one in found if one is not None), None)
    if answer is None:
        where = " and ".join(f"{host}, port {port}" for host, port in places) or f"{args.host}, port {args.port}"
        hint = "read its log; if it hangs, stop it and start it again: nothing that was acknowledged is lost"
        return Check("daemon", "fail", f"{who} serves this store, but does not answer at {where}", hint)
    who = f"{who} serves this store at {answer.address[0]}, port {answer.address[1]}"
    if not answer.is_ready:
        more = "\n".join(answer.reasons)
        hint = "" if more else f"with its token in {VARIABLE} this check tells the reasons, as its log does"
        return Check(
            "daemon",
            "fail",
            "\n".join(filter(None, (f"{who}; it is not ready: {', '.join(answer.failing)}", more))),
            hint,
        )
    if token and not answer.knows_token:
        return Check(
            "daemon",
            "warn",
            f"{who}, and is ready; it has another token than {VARIABLE} here",
            "restart it to change its token",
        )
    return Check("daemon", "ok", f"{who}, and is ready")


def _agents(args: Namespace, pid: int) -> Iterator[Check]:
    """Agents of the configuration that the daemon does not run: it was started, or read it, before they were added."""
    from nacre.runtime.assembly import store_of  # noqa: PLC0415 - optional

    try:
        names = config.load().agents
    except ConfigError:
        return  # the checks of the configuration say why
    root = main_root(args)
    others = [name for name in names if name != config.MAIN and running_daemon.pid_of(store_of(root, name)) != pid]
    if others:
        hint = f"kill -HUP {pid}" if pid > 0 else "send it SIGHUP"
        yield Check(
            "agents", "warn", f"the daemon does not run every agent of the configuration: {', '.join(others)}", hint
        )


def _address(args: Namespace, places: list[running_daemon.Address], pid: int) -> Check:
    """Whether a daemon could listen there."""
    from nacre.web.server import listening  # noqa: PLC0415 - only for a daemon

    where = f"{args.host}, port {args.port}"
    try:
        for one in listening(args.host, args.port):
            one.close()
    except ConfigError as error:
        is_taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        if not is_taken:
            return Check("address", "fail", str(error), "choose another with --host")
        if args.port in {port for _, port in places} or (pid and not places):
            return Check("address", "ok", f"{where}: the daemon listens there")
        holder = "a daemon with another store" if running_daemon.ask((args.host, args.port), "") else "another program"
        return Check("address", "fail", f"{where} is in use by {holder}", "choose another with --port or --host")
    return Check("address", "ok", where)


def _prefix(args: Namespace) -> Iterator[Check]:
    """Whether a path below which a proxy has the daemon is one of its own; nothing if there is none."""
    from nacre.web.server import check_prefix  # noqa: PLC0415 - only for a daemon

    try:
        prefix = prefix_of(args)
    except ConfigError:
        return  # the checks of the configuration say why
    try:
        check_prefix(prefix)
    except ConfigError as error:
        yield Check("prefix", "fail", str(error), "nacre config set serve.prefix /nacre")
    else:
        if prefix:
            yield Check("prefix", "ok", prefix)
