"""nacre serve: the agents as a daemon, with their channels, their HTTP interface and their page."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from nacre.cli.commands.serve_tokens import LOOPBACK, TOKEN_HINT, VARIABLE, needs_token
from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out
from nacre.cli.store_choice import is_url, main_root, main_store, shown_store
from nacre.config import PREFIX, STORE_URL, WORKERS, is_prefix, is_worker_count
from nacre.errors import describe_error, install_command, ungroup

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from nacre.runtime import App
    from nacre.runtime.agents import Agents

EXAMPLES = (
    ("on loopback, with a generated token", "nacre serve"),
    ("on a fixed port, with your token", "NACRE_SERVE_TOKEN=$(cat token) nacre serve --port 8080"),
    ("for a network, behind a proxy with TLS", "NACRE_SERVE_TOKEN=… nacre serve --host 10.0.0.5 --name nacre.lan"),
    ("at https://host/nacre/, behind a proxy", "NACRE_SERVE_TOKEN=… nacre serve --prefix /nacre --name host"),
    ("with two processes for the turns", "nacre serve --workers 2"),
    ("check that it can start", "nacre serve --check"),
    ("a token for somebody else", "nacre serve tokens add bob --role guest"),
    ("start it with the machine", "nacre serve --unit > ~/.config/systemd/user/nacre.service"),
)

logger = logging.getLogger(__name__)

WORKER = "nacre.web.worker"
"""The program of a worker."""
_ENDING = (signal.SIGINT, signal.SIGTERM)
_MAX_SHUTDOWN = 9.5
"""Seconds after which a daemon that was asked to end is gone, whatever hangs."""
_MAX_FILES = 8192
_MAX_DIGITS = 20
_UNIT = """\
# nacre serve --unit > ~/.config/systemd/user/nacre.service
# systemctl --user daemon-reload && systemctl --user enable --now nacre
[Unit]
Description=nacre, an agent with durable sessions

[Service]
Type=notify
NotifyAccess=main
{database}EnvironmentFile=-%E/nacre/serve.env
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# Turns have 8 seconds to finish; those that are cut off are resumed at the next start.
TimeoutStopSec=15
KillMode=mixed
UMask=0077

# The sandbox for programs that tools run needs user and mount namespaces, and a /proc that nothing is mounted over:
# RestrictNamespaces, ProtectProc, ProtectKernelTunables and system call filters would break it.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
_UNIT_DATABASE = """\
# The same address with its password, if it has one, belongs into this file: NACRE_STORE_URL='postgresql://…'
"""


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, metavar="N", help="port (default: 8080); 0: any free port")
    parser.add_argument("--name", action="append", default=[], help="another host name that requests may use")
    parser.add_argument("--prefix", metavar="PATH", help="path below which a proxy has it, as /nacre")
    parser.add_argument(
        "--workers", metavar="N", help="processes that run the turns of each agent (default: 0, in this process)"
    )
    parser.add_argument("--model", help="model that answers, as `provider/model`")
    parser.add_argument("--check", action="store_true", help="check whether it can start, and change nothing")
    parser.add_argument("--unit", action="store_true", help="print a systemd unit")
    parser.add_argument(
        "--log-format", choices=("json", "text"), help="format of the log on stderr (default on a terminal: text)"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="lowest level that is logged (default: info)",
    )


def run(args: Namespace, out: Out) -> int:
    try:
        import anyio  # noqa: PLC0415 - only the verbs that need it load it
        import uvicorn  # noqa: F401, PLC0415
    except ImportError as error:
        raise Failure("unavailable", f"`nacre serve` needs {error.name}", hint=install_command("serve")) from error
    if args.agent != "main":
        raise Failure("usage", "a daemon serves every agent of the configuration: remove --agent")
    if not is_prefix(args.prefix or ""):
        raise Failure("usage", f"--prefix is {PREFIX}, not {args.prefix!r}")
    if args.workers is not None and not (_is_number(args.workers) and is_worker_count(int(args.workers))):
        raise Failure("usage", f"--workers is {WORKERS}, not {args.workers!r}")
    if args.unit:
        store = _named_store(args)
        database = _UNIT_DATABASE if store is not None and is_url(store) else ""
        out.write(_UNIT.format(database=database, command=" ".join(map(_quote, _command(args)))))
        return OK
    if args.check:
        from nacre.cli.commands.serve_check import print_serve_checks  # noqa: PLC0415 - only to check

        return print_serve_checks(args, out)
    if needs_token(args):
        raise Failure("usage", f"a daemon on {args.host} needs a token of your choice", hint=TOKEN_HINT)
    from nacre.runtime.daemon_log import logged, secrets_in  # noqa: PLC0415 - only for a daemon

    token = os.environ.get(VARIABLE) or secrets.token_urlsafe(24)
    args.log_format = args.log_format or ("text" if sys.stderr.isatty() else "json")
    hidden = [token, *secrets_in(os.environ)]
    _allow_files()
    with logged(sys.stderr, form=args.log_format, level=args.log_level, secrets=hidden):
        try:
            anyio.run(_serve, args, out, token, hidden)
        except BaseExceptionGroup as group:
            raise ungroup(group) from group
    return OK


def _command(args: Namespace) -> list[str]:
    """The command line that starts the same daemon, wherever it is started."""
    given = {"--host": args.host, "--port": args.port, "--store": _named_store(args)}
    given |= {"--model": args.model, "--prefix": args.prefix, "--workers": args.workers}
    if named := os.environ.get("NACRE_CONFIG"):
        given["--config"] = os.path.abspath(named)
    pairs = [*given.items(), *(("--name", name) for name in args.name)]
    words = [str(word) for option, value in pairs if value is not None for word in (option, value)]
    return [sys.executable, "-P", "-m", "nacre.cli", "serve", *words]


def _named_store(args: Namespace) -> str | None:
    """The store, without a password, if an option or a variable names it that a unit would not have."""
    return shown_store(args) if args.store or os.environ.get("NACRE_STORE_URL") else None


def _quote(word: str) -> str:
    """A word, quoted for a systemd unit."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(char.isspace() or char in "\"'\\;" for char in word) or not word else escaped


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS


def _allow_files() -> None:
    """Let this process have more files open than most systems let one have by default: every connection is one."""
    import resource  # noqa: PLC0415 - only for a daemon

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(_MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _say(args: Namespace, out: Out, text: str) -> None:
    """Print a message for a person, or log it where a program reads the log."""
    if args.log_format == "json":
        logger.info(text)
    else:
        out.note(text)


async def _serve(args: Namespace, out: Out, token: str, hidden: Sequence[str]) -> None:
    """Serve until a signal comes; then everything is closed in order: channels, turns, models, stores."""
    import anyio  # noqa: PLC0415 - only for a daemon

    from nacre.config import MAIN, load  # noqa: PLC0415 - the same
    from nacre.runtime.access_tokens import Tokens  # noqa: PLC0415 - the same
    from nacre.runtime.agents import Agents  # noqa: PLC0415 - the same
    from nacre.runtime.retention import keep  # noqa: PLC0415 - the same
    from nacre.runtime.workers import WorkerSetup  # noqa: PLC0415 - the same
    from nacre.web.server import application, check_prefix, listen, serve  # noqa: PLC0415 - the same

    def say_notes(app: App) -> None:
        for note in app.notes:
            _say(args, out, note if app.name == MAIN else f"{app.name}: {note}")

    settings = load()
    prefix = settings.text("serve.prefix") if args.prefix is None else str(args.prefix)
    check_prefix(prefix)
    count = settings.number("serve.workers") if args.workers is None else int(args.workers)
    workers = WorkerSetup(
        count=count, module=WORKER, log_form=args.log_format, log_level=args.log_level, secrets=hidden
    )
    # Until it is up there is nothing to read again, and that is no reason to end.
    signal.signal(signal.SIGHUP, lambda *_: None)
    for one in listen(args.host, args.port):
        # A daemon that has no place to listen must not begin to answer messages.
        one.close()
    async with Agents(
        store=main_store(args), model=args.model, started=say_notes, workers=workers if count else None
    ) as agents:
        await agents.start(settings)
        web = application(
            agents.apps[MAIN],
            token=token,
            hosts=[args.host, *LOOPBACK, *args.name],
            agents=agents.apps,
            gateways=agents.gateways,
            missing=agents.missing,
            prefix=prefix,
            tokens=Tokens(main_root(args)),
            settings=lambda: agents.settings,
        )
        async with anyio.create_task_group() as ending, anyio.create_task_group() as tasks:
            ready = partial(_report_ready, args, out, token, prefix)
            tasks.start_soon(lambda: serve(web, host=args.host, port=args.port, ready=ready))
            tasks.start_soon(keep, agents.apps)
            await _wait_for_end(agents, tasks)
            _say(args, out, "shutting down")
            ending.start_soon(agents.end)
            tasks.cancel_scope.cancel()


def _report_ready(args: Namespace, out: Out, token: str, prefix: str, port: int) -> None:
    _notify("READY=1")
    url = f"http://{f'[{args.host}]' if ':' in args.host else args.host}:{port}{prefix}/"
    if out.json:
        # The program that started it waits for this line, the last for a long time.
        out.line({"ok": True, "url": url, "port": port, "pid": os.getpid()})
    elif os.environ.get(VARIABLE):
        _say(args, out, f"serving on {url} with the token in {VARIABLE}; Ctrl-C stops it")
    elif args.log_format == "text":
        # The address is alone on its line, so that it can be selected whole.
        out.note(f"serving; Ctrl-C stops it. Log in at\n{url}login#token={token}")
    else:
        logger.warning("serving; the token is not logged", extra={"port": port, "set": VARIABLE})


async def _wait_for_end(agents: Agents, tasks: TaskGroup) -> None:
    """Wait for a signal to end; SIGHUP means to read the configuration again. A second signal ends at once."""
    import anyio  # noqa: PLC0415 - only for a daemon

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        # The receiver hears of them all the same; this is for a loop that something keeps from hearing.
        for number in _ENDING:
            signal.signal(number, _hurry)
        async for number in signals:
            if number != signal.SIGHUP:
                break
            tasks.start_soon(_reload, agents)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _notify("STOPPING=1")


def _hurry(*_: object) -> None:
    """Let a second signal end the process at once, and the system end it after a while, whatever hangs.

    What was acknowledged is durable, so that nothing is lost with it.
    """
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _MAX_SHUTDOWN)


async def _reload(agents: Agents) -> None:
    """Read the configuration again and apply it; one that is not valid changes nothing."""
    from nacre.config import load  # noqa: PLC0415 - only for a daemon
    from nacre.errors import ConfigError  # noqa: PLC0415 - the same

    _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
    before = agents.settings.text(STORE_URL)
    try:
        changed = await agents.change(load())
    except ConfigError as error:
        logger.warning("the configuration is not valid; nothing was changed", extra={"reason": describe_error(error)})
    except Exception:
        # A channel of another package may raise anything for its table; those who are being served must not notice.
        logger.exception("the configuration is not valid; nothing was changed")
    else:
        logger.info("configuration reloaded", extra={"changed": ", ".join(changed) or "nothing"})
        if agents.settings.text(STORE_URL) != before:
            logger.warning("store.url has changed; the daemon keeps its store until it is restarted")
    _notify("READY=1")


def _notify(state: str) -> None:
    """Tell systemd the state of the daemon, if systemd started it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as wire:
        try:
            wire.sendto(state.encode(), f"\0{address[1:]}" if address[0] == "@" else address)
        except OSError:
            # The daemon works without it.
            return
