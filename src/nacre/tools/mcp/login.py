"""How a server is told who we are, without its package being loaded before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nacre.tools.mcp.client_types import Login
from nacre.tools.mcp.config import Config


def login_from(folder: Path) -> Login:
    """Log in with the tokens that are in a folder; where a person is needed, raise LoginNeeded."""

    def login(config: Config) -> Any:
        from nacre.tools.mcp.oauth import silent  # noqa: PLC0415 - it needs the package
        from nacre.tools.mcp.token_file import TokenFile  # noqa: PLC0415 - the same

        return silent(config, TokenFile(folder, config))

    return login
