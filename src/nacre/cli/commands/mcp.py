"""nacre mcp: the MCP servers of the configuration, logging in to those that want it, and nacre as one itself."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import signal
import stat
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacre.cli import table
from nacre.cli.failures import OK, Failure, require_extra
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.store_choice import main_root, open_store, root_of
from nacre.cli.table import Column
from nacre.cli.verbs import MAIN
from nacre.errors import install_command, ungroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.tools.mcp import Config

EXAMPLES = (
    ("the servers, whether they answer, and what they offer", "nacre mcp"),
    ("log in to one, in the browser", "nacre mcp login desk"),
    ("on another machine: forward a port with ssh -L, and name it", "nacre mcp login desk --no-browser --port 8123"),
    ("forget its tokens", "nacre mcp logout desk"),
    ("let other agents read and search past sessions, over stdio", "nacre mcp serve"),
    ("let them append to sessions too whose key begins so", "nacre mcp serve --write agent:"),
    ("over HTTP on loopback, with a generated token", "nacre mcp serve --http"),
)

VARIABLE = "NACRE_MCP_TOKEN"
_HOST = "127.0.0.1"
_ADDRESS = f"{_HOST}:8090"
_MIN_TOKEN = 16
_MAX_TOKEN = 4096
_MAX_PORT = 65535


def add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("list", "login", "logout", "serve"),
        nargs="?",
        help="default: list, or serve if another program started it, with pipes",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the server, as it is called in the configuration")
    parser.add_argument("--no-browser", action="store_true", help="login: print the address, and open no browser")
    parser.add_argument("--port", type=int, default=0, help="login: port of this machine that the page leads back to")
    parser.add_argument(
        "--write", metavar="PREFIX", help="serve: messages may be appended to sessions whose key begins with PREFIX"
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=_ADDRESS,
        help=f"serve: over HTTP instead of stdio (default: {_ADDRESS}); HOST: may be left out; port 0: any free port",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"serve: file with the token that clients must show (default: {VARIABLE}, else one is made and printed)",
    )
    parser.add_argument("--remote", action="store_true", help="serve: --http may name an address other than loopback")
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="HOST",
        help="serve: another host name that requests may use, without a port",
    )


def run(args: Namespace, out: Out) -> int:
    is_asked_for = args.http is not None or args.write is not None
    if args.action is None:
        args.action = "serve" if is_asked_for or (not out.json and _is_started_by_client()) else "list"
    if (args.action in {"list", "serve"}) == bool(args.name):
        problem = "takes no name" if args.name else "needs the name of a server"
        raise Failure("usage", f"`nacre mcp {args.action}` {problem}", hint="`nacre mcp list` lists the servers")
    if args.action != "login" and (args.no_browser or args.port):
        raise Failure("usage", f"`nacre mcp {args.action}` takes no --no-browser and no --port", hint="login does")
    if args.action == "serve":
        return _serve(args, out)
    options = {"--http": args.http is not None, "--write": args.write is not None}
    options |= {"--token-file": args.token_file is not None, "--remote": args.remote, "--host-name": args.host_name}
    if given := [name for name, is_given in options.items() if is_given]:
        raise Failure("usage", f"`nacre mcp {args.action}` takes no {' and no '.join(given)}", hint="serve does")
    with require_extra("mcp", f"`nacre mcp {args.action}` needs"):
        import anyio  # noqa: PLC0415 - not needed for help

        from nacre import config as settings  # noqa: PLC0415 - the same
        from nacre.tools.mcp import servers_of  # noqa: PLC0415 - the same
    servers = servers_of(settings.load().for_agent(args.agent).table("mcp"))
    configs = {server.name: server.config for server in servers}
    if args.action == "list":
        anyio.run(_list, configs, _folder(args), out)
        return OK
    config = configs.get(args.name)
    if config is None:
        known = ", ".join(configs) or "none"
        problem = f"there is no MCP server {args.name!r}; there are: {known}"
        raise Failure("not_found", problem, hint="see docs/tools.md")
    if args.action == "logout":
        from nacre.tools.mcp.client_types import TokenFile  # noqa: PLC0415 - not needed for help

        is_erased = TokenFile(_folder(args), config).erase()
        text = f"the tokens of {clean(config.name)} are erased" if is_erased else "you were not logged in"
        return out.receipt({"operation": "logout", "name": config.name, "erased": is_erased}, text)
    if not config.url:
        raise Failure("usage", f"{config.name} is a program: there is nothing to log in to", hint=EXAMPLES[0][1])
    return anyio.run(_login, config, args, out)


def _folder(args: Namespace) -> Path:
    return Path(root_of(args)) / "mcp"


async def _list(configs: Mapping[str, Config], folder: Path, out: Out) -> None:
    from nacre.tools.mcp import Server, Servers, login_from  # noqa: PLC0415 - not needed for help
    from nacre.tools.mcp.client_types import TokenFile  # noqa: PLC0415 - the same

    with out.progress("asking the servers"):
        async with Servers(Server(config, login=login_from(folder)) for config in configs.values()) as servers:
            offers, problems = await servers.offers()
    items: list[dict[str, Any]] = []
    rows: list[tuple[str, ...]] = []
    for name, config in configs.items():
        where = config.url or config.command
        is_logged_in = TokenFile(folder, config).read().tokens is not None
        tools = prompts = None
        described = "no answer"
        if (offer := offers.get(name)) is not None:
            tools, prompts = [tool.spec.name for tool in offer.tools], list(offer.prompts)
            described = several(len(tools), "tool")
            if prompts:
                described += f", {several(len(prompts), 'prompt')}"
        item = {"name": name, "where": where, "is_logged_in": is_logged_in, "tools": tools, "prompts": prompts}
        items.append(item)
        rows.append((clean(name), clean(where), described, "yes" if is_logged_in else "-"))
    if out.json:
        out.document({"servers": items, "problems": problems})
        return
    columns = [Column("SERVER", style=out.bold), Column("WHERE", shrinks=True), Column("OFFERS"), Column("LOGIN")]
    table.show(out, columns, rows)
    for problem in problems:
        out.warn(clean(problem))
    if not items:
        out.note("no MCP server is configured: docs/tools.md shows how")


async def _login(config: Config, args: Namespace, out: Out) -> int:
    from importlib.util import find_spec  # noqa: PLC0415 - not needed for help

    from nacre.errors import ToolError  # noqa: PLC0415 - the same

    if find_spec("mcp") is None:
        raise Failure("unavailable", "MCP servers need another package", hint=install_command("mcp"))
    from nacre.tools.mcp.client_types import TokenFile  # noqa: PLC0415 - not needed for help
    from nacre.tools.mcp.servers import log_in  # noqa: PLC0415 - the same

    async def show(address: str) -> None:
        out.note(f"log in to {clean(config.name)} at this address:\n{clean(address)}")
        # On Linux a browser can be seen only where there is a display.
        is_linux = os.name == "posix" and os.uname().sysname != "Darwin"
        if not args.no_browser and (not is_linux or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
            import webbrowser  # noqa: PLC0415 - needed only here

            webbrowser.open(address)

    try:
        is_done, tools = await log_in(config, TokenFile(_folder(args), config), show=show, port=args.port)
    except ToolError as error:
        raise Failure("failed", str(error)) from error
    state = f"logged in to {clean(config.name)}" if is_done else f"{clean(config.name)} wants no login"
    document = {"operation": "login", "name": config.name, "tools": tools}
    return out.receipt(document, f"{state}: it has {several(len(tools), 'tool')}")


# ---- nacre as a server


def _is_started_by_client() -> bool:
    """Tell whether another program is at both ends: with a terminal, a file or nothing at one, nobody would answer."""
    try:
        modes = [os.fstat(stream.fileno()).st_mode for stream in (sys.stdin, sys.stdout)]
    except (AttributeError, OSError, ValueError):
        return False
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


def _serve(args: Namespace, out: Out) -> int:
    """Serve until the client is gone or, over HTTP, until a signal comes."""
    from nacre import config  # noqa: PLC0415 - not needed for help

    address = _check_serve(args)
    with require_extra("mcp", "`nacre mcp serve` needs"):
        import anyio  # noqa: PLC0415 - not needed for help

        from nacre.servers.mcp import make_server, open_archive, serve_stdio  # noqa: PLC0415 - loads the package
    token = _token(args) if address else ""
    is_named = bool(args.store) or args.agent != MAIN
    # The default store may begin while this runs; one that was named and is not there is a mistake.
    with open_store(args, create=bool(args.write) or not is_named) as sessions:
        found = open_archive(
            sessions,
            config.load().for_agent(args.agent),
            root=root_of(args),
            main_root=main_root(args),
            write=args.write or "",
        )
        try:
            if address:
                anyio.run(_serve_http, make_server(found), address, token, args, out)
            else:
                # The thread that reads stdin cannot be stopped; nothing that was acknowledged is lost.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                if sys.stdin is not None and sys.stdin.isatty():
                    out.note(
                        "waiting for an MCP client on stdin; clients start this command themselves, with pipes, "
                        "see docs/mcp-server.md; Ctrl-C stops it"
                    )
                anyio.run(serve_stdio, make_server(found))
        except BaseExceptionGroup as group:
            raise ungroup(group) from group
        finally:
            if found.memory is not None:
                found.memory.close()
    return OK


def _check_serve(args: Namespace) -> tuple[str, int] | None:
    """The host and the port to listen at, None for stdio; raises Failure for options that do not fit."""
    from nacre.keys import is_internal  # noqa: PLC0415 - not needed for help

    if args.write == "":
        raise Failure("usage", "--write needs how the keys begin that may be written to, such as agent:")
    if args.write is not None and is_internal(args.write):
        raise Failure("usage", "--write cannot name sessions of nacre's own (nacre:…)")
    if args.http is None:
        if args.token_file is not None or args.remote or args.host_name:
            raise Failure(
                "usage", "--token-file, --remote and --host-name are for --http", hint="nacre mcp serve --http"
            )
        return None
    for name in args.host_name:
        if not _is_host(name):
            problem = f"--host-name is a name or an address without scheme and port, such as desk.lan, not {name!r}"
            raise Failure("usage", problem)
    host, colon, port = str(args.http).rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else _HOST
    if not host or not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) <= _MAX_PORT):  # noqa: PLR2004 - digits
        raise Failure("usage", f"--http is HOST:PORT or PORT, such as {_ADDRESS}, not {args.http!r}")
    with require_extra("mcp,serve", "`nacre mcp serve --http` needs"):
        from nacre.servers.mcp_http import is_loopback  # noqa: PLC0415 - loads a web server
    if not is_loopback(host) and not args.remote:
        hint = "--remote allows it; put a proxy with TLS before it, since the token and all texts are sent as they are"
        raise Failure("usage", f"{host} is not loopback: others could reach past conversations there", hint=hint)
    return host, int(port)


def _is_host(name: str) -> bool:
    """Tell whether requests can name a host so, besides its port."""
    try:
        return bool(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        return re.fullmatch(r"[\w.-]+", name, re.ASCII) is not None


def _token(args: Namespace) -> str:
    """The token of the file or the variable; "" if one is to be made. Raises Failure for one that cannot be used."""
    hint = "make one with: (umask 077; openssl rand -hex 32 > token)"
    token = os.environ.get(VARIABLE, "")
    if args.token_file:
        try:
            with open(args.token_file, encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise Failure("usage", f"others may read {args.token_file}", hint=f"chmod 600 {args.token_file}")
                token = file.read(_MAX_TOKEN + 1).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure("usage", f"the token in {args.token_file} cannot be read: {error}", hint=hint) from error
    if not token and (args.token_file or args.remote):
        where = args.token_file or VARIABLE
        raise Failure("usage", f"there is no token in {where}, and this server needs one of your choice", hint=hint)
    if token and not (_MIN_TOKEN <= len(token) <= _MAX_TOKEN and token.isascii() and token.isprintable()):
        raise Failure("usage", f"a token has {_MIN_TOKEN} to {_MAX_TOKEN} printable ASCII characters", hint=hint)
    return token


async def _serve_http(server: Any, address: tuple[str, int], token: str, args: Namespace, out: Out) -> None:
    """Serve over HTTP until a signal comes; a second one ends the process at once."""
    import anyio  # noqa: PLC0415 - not needed for help

    from nacre.servers.mcp_http import PATH, application, serve_http  # noqa: PLC0415 - the same

    made = "" if token else secrets.token_urlsafe(32)
    host, port = address

    def report(port: int) -> None:
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"
        if out.json:
            # The program that started it waits for this line.
            out.line({"ok": True, "url": url, "port": port, "pid": os.getpid(), **({"token": made} if made else {})})
            return
        out.warn(f"serving MCP at {url}; Ctrl-C stops it")
        out.warn(f"clients send: Authorization: Bearer {made or '(your token)'}")

    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            served = application(server, token=token or made, hosts=[host, *args.host_name])
            await serve_http(served, host=host, port=port, ready=report)

        tasks.start_soon(serve)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                break
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        tasks.cancel_scope.cancel()
