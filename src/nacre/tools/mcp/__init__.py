"""MCP servers: their tools, resources and prompts, by the official client package.

Nothing here loads that package before a server is used; `connection.py`, `stdio.py`, `http.py` and `oauth.py` need it.
"""

from nacre.tools.mcp.client_types import LoginNeeded, Offer, Prompt
from nacre.tools.mcp.config import Config
from nacre.tools.mcp.login import login_from
from nacre.tools.mcp.servers import Server, Servers, servers_of

__all__ = ["Config", "LoginNeeded", "Offer", "Prompt", "Server", "Servers", "login_from", "servers_of"]
