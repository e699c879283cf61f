"""A real server of the official SDK, for the tests to start."""

from __future__ import annotations

import sys

from mcp.server import MCPServer

server = MCPServer("peer")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
