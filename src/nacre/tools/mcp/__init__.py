"""MCP servers: their tools, resources and prompts, by the official client package.

Nothing here loads that package before a server is used; `connection`, `transports`, `offers` and `oauth` need it.
"""

from nacre.tools.mcp.client_types import Config, LoginNeeded, Offer, Prompt
from nacre.tools.mcp.servers import Server, Servers, login_from, servers_of

__all__ = ["Config", "LoginNeeded", "Offer", "Prompt", "Server", "Servers", "login_from", "servers_of"]
