"""A real server of the official SDK, for the tests to start."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("peer")
PIXEL = "iVBORw0KGgo="


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("on purpose")


@server.tool()
def lines() -> str:
    """Say what looks like the end of a line."""
    return "a\u2028b\u2029c\u0085d"


@server.tool()
def long() -> str:
    """Say much."""
    return "y" * 3_000_000


@server.tool()
def look() -> CallToolResult:
    """Show all kinds of content."""
    inside = TextResourceContents(uri="file:///a", text="in a file")
    return CallToolResult(
        content=[
            TextContent(type="text", text="before"),
            ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            AudioContent(type="audio", data=PIXEL, mime_type="audio/wav"),
            EmbeddedResource(type="resource", resource=inside),
            ResourceLink(type="resource_link", uri="file:///b", name="b.txt"),
        ]
    )


@server.resource("pic://one", mime_type="image/png")
def picture() -> bytes:
    """A picture."""
    return bytes.fromhex("89504e470d0a1a0a")


@server.resource("note://{number}")
def note(number: str) -> str:
    """A note."""
    return f"note {number}"


@server.prompt()
def greet(name: str, tone: str = "plain") -> str:
    """Greet somebody."""
    return f"Greet {name} in a {tone} way."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
