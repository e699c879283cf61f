"""nacre mcp: the MCP servers of the configuration, and logging in to those that want it."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.store_choice import root_of
from nacre.cli.table import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.tools.mcp import Config

EXAMPLES = (
    ("the servers, whether they answer, and what they offer", "nacre mcp"),
    ("log in to one, in the browser", "nacre mcp login desk"),
    ("on another machine: forward a port with ssh -L, and name it", "nacre mcp login desk --no-browser --port 8123"),
    ("forget its tokens", "nacre mcp logout desk"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "login", "logout"), nargs="?", default="list", help="default: list")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the server, as it is called in the configuration")
    parser.add_argument("--no-browser", action="store_true", help="login: print the address, and open no browser")
    parser.add_argument("--port", type=int, default=0, help="login: port of this machine that the page leads back to")


def run(args: Namespace, out: Out) -> int:
    import anyio  # noqa: PLC0415 - not needed for help

    from nacre import config as settings  # noqa: PLC0415 - the same
    from nacre.tools.mcp import servers_of  # noqa: PLC0415 - the same

    if (args.action == "list") == bool(args.name):
        problem = "takes no name" if args.name else "needs the name of a server"
        raise Failure("usage", f"`nacre mcp {args.action}` {problem}", hint="`nacre mcp` lists the servers")
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
            described = f"{len(tools)} tools{f', {len(prompts)} prompts' if prompts else ''}"
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

    from nacre.errors import ToolError, install_command  # noqa: PLC0415 - the same

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
    return out.receipt(document, f"{state}: it has {len(tools)} tools")
