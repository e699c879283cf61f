"""A server for the conformance kit, which cannot send a token: each request gets it before it comes to our door.

`ours` is nacre's own server. `example` has the tools, resources and prompts that the kit asks for by name, behind the
same door: what it passes is about how nacre carries the protocol over HTTP.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from starlette.types import ASGIApp, Receive, Scope, Send

import nacre
from nacre.config import load
from nacre.servers.mcp import make_server, open_archive
from nacre.servers.mcp_http import application, serve_http

TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105 - it opens only servers of the tests
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
_IMAGE = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")


class WithToken:
    """Adds the token to each request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*scope.get("headers", ()), (b"authorization", f"Bearer {TOKEN}".encode())]
        await self._app({**scope, "headers": headers}, receive, send)


def text(said: str) -> types.TextContent:
    return types.TextContent(type="text", text=said)


def say(said: str) -> types.CallToolResult:
    return types.CallToolResult(content=[text(said)])


def embedded(uri: str, said: str) -> types.EmbeddedResource:
    content = types.TextResourceContents(uri=uri, mime_type="text/plain", text=said)
    return types.EmbeddedResource(type="resource", resource=content)


CONTENTS: dict[str, list[types.ContentBlock]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [_IMAGE],
    "test_audio_content": [types.AudioContent(type="audio", data=SOUND, mime_type="audio/wav")],
    "test_embedded_resource": [embedded("test://embedded-resource", "This is an embedded resource content.")],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        _IMAGE,
        embedded("test://mixed-content-resource", '{"test":"data","value":123}'),
    ],
}
RESOURCES: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PIXEL),
    "test://template/123/data": types.TextResourceContents(
        uri="test://template/123/data", mime_type="application/json", text='{"id":"123","templateTest":true}'
    ),
}
ANYTHING = {"type": "object", "properties": {}}
EXACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
FORMS: dict[str, dict[str, Any]] = {
    "test_elicitation": {"username": {"type": "string"}, "email": {"type": "string"}},
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}
OTHERS = ("test_error_handling", "test_tool_with_progress", "test_tool_with_logging", "test_sampling")


async def list_tools(*_: Any) -> types.ListToolsResult:
    named = [types.Tool(name=name, description=name, input_schema=ANYTHING) for name in (*CONTENTS, *FORMS, *OTHERS)]
    exact = types.Tool(name="json_schema_2020_12_tool", description="a schema as it is", input_schema=EXACT)
    return types.ListToolsResult(tools=[*named, exact])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    session, arguments, name = context.session, params.arguments or {}, params.name
    if name in CONTENTS:
        return types.CallToolResult(content=CONTENTS[name])
    if name in FORMS:
        form = {"type": "object", "properties": FORMS[name]}
        found = await session.elicit_form(str(arguments.get("message", "")), form, context.request_id)
        return say(f"Elicitation completed: action={found.action}, content={found.content}")
    if name == "test_error_handling":
        return types.CallToolResult(content=[text("This tool intentionally returns an error")], is_error=True)
    if name == "test_tool_with_progress":
        for done in (0, 50, 100):
            await session.report_progress(done, 100, f"Completed step {done} of 100")
        return say("done")
    if name == "test_tool_with_logging":
        for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await session.send_log_message("info", step, related_request_id=context.request_id)
        return say("done")
    if name == "test_sampling":
        asked = types.SamplingMessage(role="user", content=text(str(arguments.get("prompt", ""))))
        found = await session.create_message([asked], max_tokens=100, related_request_id=context.request_id)
        return say(f"LLM response: {found.content.text}")
    raise MCPError(types.INVALID_PARAMS, f"there is no tool {name}")


async def list_resources(*_: Any) -> types.ListResourcesResult:
    static = [one for uri, one in RESOURCES.items() if "template" not in uri]
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=one.uri, name=one.uri, description=one.uri, mime_type=one.mime_type) for one in static
        ]
    )


async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[RESOURCES[str(params.uri)]])


async def list_templates(*_: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(name="template", uri_template="test://template/{id}/data")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def accept(*_: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def list_prompts(*_: Any) -> types.ListPromptsResult:
    arguments = [types.PromptArgument(name=name, description=name, required=True) for name in ("arg1", "arg2")]
    simple = types.Prompt(name="test_simple_prompt", description="simple")
    return types.ListPromptsResult(
        prompts=[simple, types.Prompt(name="test_prompt_with_arguments", description="args", arguments=arguments)]
    )


async def get_prompt(_: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    given = params.arguments or {}
    said: dict[str, list[types.ContentBlock]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            embedded(str(given.get("resourceUri", "")), "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [_IMAGE, text("Please analyze the image above.")],
    }
    messages = [types.PromptMessage(role="user", content=content) for content in said[params.name]]
    return types.GetPromptResult(messages=messages)


async def complete(*_: Any) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))


def example() -> Server[Any]:
    return Server(
        "example",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_resource_templates=list_templates,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=accept,
    )


def main(which: str) -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_message("cli:1", "user", "What is nacre?")
        ours = make_server(open_archive(sessions, load(), root="/nowhere", main_root="/nowhere", write="agent:"))
        served = application(ours if which == "ours" else example(), token=TOKEN, hosts=())
        served.add_middleware(WithToken)
        anyio.run(lambda: serve_http(served, host="127.0.0.1", port=0, ready=lambda port: print(port, flush=True)))  # noqa: T201 - it is waited for


if __name__ == "__main__":
    main(sys.argv[1])
