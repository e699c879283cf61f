"""Tool calling for models that only know text: tools described in the system text, calls read out of the answer.

Models that call tools natively sometimes write a call as text anyway: `read_written_calls` turns it into one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nacre.agent.ports import Context, Emit, Provider, Reply, Spec, Text
from nacre.entries import Message, ToolCall
from nacre.errors import ProviderError
from nacre.history.message_text import text_of
from nacre.providers.text_tools import lenient_json
from nacre.providers.text_tools.call_shapes import ParsedCall
from nacre.providers.text_tools.parser import Answer, normalize_call, read, read_native
from nacre.providers.text_tools.stream_filter import StreamFilter, filter_text
from nacre.providers.wire import new_id

_PROMPT = """\
# Tools

You may call tools. Each is described by a JSON object:
<tools>
{tools}
</tools>

To call a tool, write its name and its arguments as one JSON object between these tags, and nothing after it:
{example}
To call several, write one such block for each. Arguments follow the tool's JSON schema; inside JSON strings, \
line breaks are \\n and quotes are \\". Do not put calls into code blocks, and do not invent results: they come \
in the next message, between <tool_response> tags. If no tool is needed, answer in plain words, without these tags.\
"""
_PROMPT_SCHEMA = """\
# Tools

Answer with one JSON object. To speak:
{{"reply": "what you say"}}
To call a tool, with arguments that follow its JSON schema:
{example}
The result comes in the next message, between <tool_response> tags. The tools:
{tools}\
"""
_PROMPT_BRIEF = """\
You may call these tools:
{tools}

To call one, answer with this form and nothing else:
{example}
Otherwise answer in plain words.\
"""
_PLACEHOLDERS: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
_REPLY = re.compile(r'\s*\{\s*"reply"\s*:\s*"')
_STRING = re.compile(
    r'(?:[^"\\]|\\(?:[^u]|u(?![dD][89abAB])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}))*'
)


class TextToolProvider:
    """Wraps a provider whose model has no tool calls of its own; what is logged is the same as with one that has.

    Where it is `strict`, the provider inside is given a `schema` that its answer must follow. Where it is
    `brief`, tools are described in one line each, for models that understand no more.
    """

    def __init__(self, inner: Provider, *, strict: bool = False, brief: bool = False) -> None:
        self._inner = inner
        self._is_strict = strict
        self._is_brief = brief

    @property
    def model(self) -> str:
        """Which model answers."""
        return self._inner.model

    def __getattr__(self, name: str) -> Any:
        """What else the provider inside has: its window, its list of models."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Close the provider inside."""
        await self._inner.close()

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        """Answer with text or calls; the raw text of a call is never emitted."""
        tools, is_strict = context.tools, self._is_strict and bool(context.tools)
        shown: StreamFilter | ReplyFilter = ReplyFilter() if is_strict else StreamFilter(tools)
        inner: Any = self._inner
        more = {"schema": answer_schema(tools)} if is_strict else {}
        text = render(context, schema=is_strict, brief=self._is_brief)
        try:
            reply: Reply = await inner.complete(text, emit=filter_text(shown.feed, emit), **more)
        except TypeError as error:
            if not is_strict or "schema" not in str(error):
                raise
            name = type(inner).__name__
            problem = f"provider {name} cannot force an answer to follow a schema: use it without strict=True"
            raise ProviderError(problem) from error
        parse = read_json_answer if is_strict else read
        return _finish(reply, parse(text_of(reply.message), tools, cut=reply.finish == "length"), shown.shown, emit)


async def read_written_calls(ask: Callable[[Emit], Awaitable[Reply]], tools: Sequence[Spec], emit: Emit) -> Reply:
    """Ask a model that calls tools natively; a call that it wrote as text instead becomes one, and is not shown."""
    if not tools:
        return await ask(emit)
    shown = StreamFilter(tools, native=True)
    try:
        reply = await ask(filter_text(shown.feed, emit))
    except BaseException:
        # An answer that breaks off is shown as far as it came.
        if shown.tail:
            emit(Text(shown.tail))
        raise
    text = text_of(reply.message)
    # A model that made a call natively means what it wrote next to it as text.
    has_called = bool(reply.message.tool_calls)
    answer = Answer(content=text) if has_called else read_native(text, tools, cut=reply.finish == "length")
    return _finish(reply, answer, shown.shown, emit, native=True)


def _finish(reply: Reply, answer: Answer, shown: str, emit: Emit, *, native: bool = False) -> Reply:
    """Emit what was held back of an answer; gives the reply with its text taken apart."""
    text = answer.content.lstrip() if native and shown else answer.content
    if text.startswith(shown) and len(text) > len(shown):
        emit(Text(text[len(shown) :]))
    message = reply.message
    found = (ToolCall(id=new_id(), name=call.name, arguments=call.arguments) for call in answer.calls)
    reasoning = "\n".join(filter(None, (message.reasoning, answer.reasoning)))
    calls = (*message.tool_calls, *found)
    message = replace(message, content=answer.content, tool_calls=calls, reasoning=reasoning or None)
    return replace(reply, message=message, finish="calls" if answer.calls else reply.finish)


# ---- what the model is shown


def render(context: Context, *, schema: bool = False, brief: bool = False) -> Context:
    """The context as text alone: tools in the system text, calls and results in messages.

    With a `schema`, an answer is one JSON object. The same tools give the same bytes, so that a server's cache of
    the prompt holds from turn to turn.
    """
    system, tools = context.system, context.tools
    schema = schema and bool(tools)
    if tools:
        prompt = _PROMPT_SCHEMA if schema else _PROMPT_BRIEF if brief else _PROMPT
        described = "\n".join(_signature(tool) if brief else _json(tool) for tool in tools)
        example = call_text(tools[0].name, _example_arguments(tools[0].parameters), bare=schema)
        system = "\n\n".join(filter(None, (system, prompt.format(tools=described, example=example))))
    messages: list[Message] = []
    for given in context.messages:
        message, text = given, text_of(given)
        if given.role == "tool":
            text = text.replace("</tool_response>", "<\\/tool_response>")
            name = f' name="{given.name}"' if given.name else ""
            content = f"<tool_response{name}>\n{text}\n</tool_response>"
            message = Message(role="user", content=content, media=given.media)
        elif given.role == "assistant" and (given.tool_calls or schema):
            calls = [call_text(call.name, call.arguments, bare=schema) for call in given.tool_calls]
            text = _json({"reply": text}) if schema and not calls else text
            content = "\n".join(filter(None, (text, *calls)))
            message = Message(role="assistant", content=content, reasoning=given.reasoning)
        match [*messages[-1:], message]:
            # The user's texts in a row become one, for many chat templates refuse two.
            case [Message(role="user", content=str(before)) as last, Message(role="user", content=str(after))]:
                media = (*last.media, *message.media)
                messages[-1] = Message(role="user", content=f"{before}\n\n{after}", media=media)
            case _:
                messages.append(message)
    return Context(system=system, messages=tuple(messages))


def _signature(tool: Spec) -> str:
    """Describe a tool in one line, as in `read_file(path: string, limit?: integer): Read a file`."""
    required = tool.parameters.get("required", ())
    parameters = (
        f"{name}{'' if name in required else '?'}: {schema.get('type', 'any') if isinstance(schema, dict) else 'any'}"
        for name, schema in tool.parameters.get("properties", {}).items()
    )
    return f"{tool.name}({', '.join(parameters)}): {tool.description.partition('. ')[0].partition(chr(10))[0]}"


def _example_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """A value for each argument that a tool needs, or for its first one."""
    properties = schema.get("properties", {})
    found: dict[str, Any] = {}
    for name in schema.get("required") or list(properties)[:1]:
        own = properties.get(name)
        own = own if isinstance(own, dict) else {}
        found[name] = own["enum"][0] if own.get("enum") else _PLACEHOLDERS.get(str(own.get("type")), f"the {name}")
    return found


def call_text(name: str, arguments: Any, *, bare: bool = False) -> str:
    """A call as the model writes it, `bare` without tags; arguments that could not be read are left unchanged."""
    text = arguments if isinstance(arguments, str) else _json({"name": name, "arguments": arguments})
    return text if bare else f"<tool_call>\n{text}\n</tool_call>"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# ---- answers that follow a schema: one JSON object that is either a reply or a call


def answer_schema(tools: Sequence[Spec]) -> dict[str, Any]:
    """The schema of an answer: a reply, or a call of one of these tools."""
    return {"anyOf": [_closed_object({"reply": {"type": "string"}}), *map(call_schema, tools)]}


def call_schema(tool: Spec) -> dict[str, Any]:
    """The schema of a call of a tool."""
    return _closed_object({"name": {"const": tool.name}, "arguments": tool.parameters})


def _closed_object(properties: dict[str, Any]) -> dict[str, Any]:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def read_json_answer(text: str, tools: Sequence[Spec], *, cut: bool = False) -> Answer:
    """Read such an answer; one that does not follow the schema is read like any other text.

    A reply that was cut short is given as far as it came; a call never is.
    """
    try:
        value, _ = lenient_json.Source(text).read_strict(len(text) - len(text.lstrip()))
    except lenient_json.NotJson:
        beginning = ReplyFilter()
        beginning.feed(text)
        return Answer(content=beginning.shown) if beginning.shown else read(text, tools, cut=cut)
    match value:
        case {"reply": str(reply)} if len(value) == 1:
            return Answer(content=reply)
        case {"name": str(name), "arguments": dict(arguments)}:
            call = normalize_call(ParsedCall(name=name, arguments=arguments), {tool.name for tool in tools})
            return Answer(calls=(call,))
        case _:
            return read(text, tools, cut=cut)


class ReplyFilter:
    """Gives the reply of such an answer as it comes, without the JSON around it."""

    def __init__(self) -> None:
        self._text = ""
        self._at: int | None = None
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        """All that was given so far."""
        return "".join(self._shown)

    def feed(self, piece: str) -> list[Text]:
        """Take the next piece; gives what may be shown now."""
        self._text += piece
        if self._at is None:
            found = _REPLY.match(self._text)
            if found is None:
                return []
            self._at = found.end()
        found = _STRING.match(self._text, self._at)
        raw = found[0] if found else ""
        self._text, self._at = self._text[self._at + len(raw) :], 0
        text = json.loads(f'"{raw}"', strict=False) if raw else ""
        self._shown += [text] if text else []
        return [Text(text)] if text else []
