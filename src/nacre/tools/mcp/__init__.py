"""MCP servers: their tools, resources and prompts, by the official client package.

Nothing here loads that package before a server is used; `connection`, `transports`, `content`, `offers` and `oauth`
need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nacre.tools.mcp.client_types import Config, Login, LoginNeeded, Offer, Prompt
from nacre.tools.mcp.servers import Server, Servers, servers_of

__all__ = ["Config", "LoginNeeded", "Offer", "Prompt", "Server", "Servers", "login_from", "servers_of"]


def login_from(folder: Path) -> Login:
    """Log in with the tokens that are in a folder; where a person is needed, raise LoginNeeded."""

    def login(config: Config) -> Any:
        from nacre.tools.mcp.oauth import silent  # noqa: PLC0415 - it needs the package
        from nacre.tools.mcp.token_file import TokenFile  # noqa: PLC0415 - the same

        return silent(config, TokenFile(folder, config))

    return login
