"""Tool calling for models that only know text: tools told in the system text, calls read out of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from nacre.agent.ports import Context, Emit, Provider, Reply, Spec, Text
from nacre.entries import Message
from nacre.errors import ProviderError
from nacre.history.text import text_of
from nacre.providers.held import Said, read_held, schema_of
from nacre.providers.text_tools.parser import Answer, read
from nacre.providers.text_tools.stream_filter import Sieve, sift
from nacre.providers.written import with_answer

_HOW = """\
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
_HOW_HELD = """\
# Tools

Answer with one JSON object. To speak:
{{"reply": "what you say"}}
To call a tool, with arguments that follow its JSON schema:
{example}
The result comes in the next message, between <tool_response> tags. The tools:
{tools}\
"""
_HOW_BRIEFLY = """\
You may call these tools:
{tools}

To call one, answer with this form and nothing else:
{example}
Otherwise answer in plain words.\
"""
_PLACEHOLDERS: dict[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


class Holds(Protocol):
    """A provider that can hold its answer to a JSON schema."""

    async def complete(self, context: Context, *, emit: Emit, schema: dict[str, Any] | None = None) -> Reply:
        """Answer; with a schema, in JSON that follows it."""


class Prompted:
    """Wraps a provider whose model has no tool calls of its own; what is logged is the same as with one that has.

    Where it is `strict`, the provider inside is given a `schema` that its answer must follow. Where it is
    `brief`, tools are told in one line each, for models that understand no more.
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
        if self._is_strict and context.tools:
            return await self._held(context, emit)
        sieve = Sieve(context.tools)
        reply = await self._inner.complete(rendered(context, brief=self._is_brief), emit=sift(sieve, emit))
        answer = read(text_of(reply.message), context.tools, cut=reply.finish == "length")
        _emit_rest(answer, sieve.shown, emit)
        return with_answer(reply, answer)

    async def _held(self, context: Context, emit: Emit) -> Reply:
        inner: Any = self._inner
        holding: Holds = inner
        said = Said()
        shown = rendered(context, held=True, brief=self._is_brief)
        try:
            reply = await holding.complete(shown, emit=sift(said, emit), schema=schema_of(context.tools))
        except TypeError as error:
            if "schema" not in str(error):
                raise
            problem = (
                f"provider {type(inner).__name__} cannot force an answer to follow a schema: use it without strict=True"
            )
            raise ProviderError(problem) from error
        answer = read_held(text_of(reply.message), context.tools, cut=reply.finish == "length")
        _emit_rest(answer, said.shown, emit)
        return with_answer(reply, answer)


def _emit_rest(answer: Answer, shown: str, emit: Emit) -> None:
    if answer.content.startswith(shown) and len(answer.content) > len(shown):
        emit(Text(answer.content[len(shown) :]))


# ---- what the model is shown


def rendered(context: Context, *, held: bool = False, brief: bool = False) -> Context:
    """The context as text alone: tools in the system text, calls and results in messages.

    The same tools give the same bytes, so that a server's cache of the prompt holds from turn to turn.
    """
    held = held and bool(context.tools)
    system = context.system
    if context.tools:
        system = "\n\n".join(filter(None, (system, _told(context.tools, held=held, brief=brief))))
    messages: list[Message] = []
    for message in context.messages:
        _append(messages, _as_text(message, held=held))
    return Context(system=system, messages=tuple(messages))


def _told(tools: Sequence[Spec], *, held: bool, brief: bool) -> str:
    how = _HOW_HELD if held else _HOW_BRIEFLY if brief else _HOW
    lines = "\n".join(_signature(tool) if brief else _json(_described(tool)) for tool in tools)
    return how.format(tools=lines, example=_example(tools, held=held))


def _signature(tool: Spec) -> str:
    """Tell a tool in one line, as in `read_file(path: string, limit?: integer): Read a file`."""
    required = tool.parameters.get("required", ())
    taken = (
        f"{name}{'' if name in required else '?'}: {schema.get('type', 'any') if isinstance(schema, dict) else 'any'}"
        for name, schema in tool.parameters.get("properties", {}).items()
    )
    return f"{tool.name}({', '.join(taken)}): {tool.description.partition('. ')[0].partition(chr(10))[0]}"


def call_text(name: str, arguments: Any, *, held: bool = False) -> str:
    """A call as the model writes it; arguments that could not be read stand as they were written."""
    if isinstance(arguments, str):
        return arguments if held else f"<tool_call>\n{arguments}\n</tool_call>"
    call = _json({"name": name, "arguments": arguments})
    return call if held else f"<tool_call>\n{call}\n</tool_call>"


def _as_text(message: Message, *, held: bool) -> Message:
    if message.role == "tool":
        return Message(role="user", content=_response(message), media=message.media)
    if message.role != "assistant" or not (message.tool_calls or held):
        return message
    calls = [call_text(call.name, call.arguments, held=held) for call in message.tool_calls]
    said = text_of(message)
    words = _json({"reply": said}) if held and not calls else said
    return Message(role="assistant", content="\n".join(filter(None, (words, *calls))), reasoning=message.reasoning)


def _response(message: Message) -> str:
    text = text_of(message).replace("</tool_response>", "<\\/tool_response>")
    name = f' name="{message.name}"' if message.name else ""
    return f"<tool_response{name}>\n{text}\n</tool_response>"


def _append(messages: list[Message], message: Message) -> None:
    """Add a message; the user's texts in a row become one, for many chat templates refuse two."""
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or message.role != "user":
        messages.append(message)
    elif isinstance(last.content, str) and isinstance(message.content, str):
        media = (*last.media, *message.media)
        messages[-1] = Message(role="user", content=f"{last.content}\n\n{message.content}", media=media)
    else:
        messages.append(message)


def _described(tool: Spec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _example(tools: Sequence[Spec], *, held: bool) -> str:
    return call_text(tools[0].name, _example_arguments(tools[0].parameters), held=held)


def _example_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    required = schema.get("required") or list(properties)[:1]
    return {name: _placeholder(properties.get(name), name) for name in required}


def _placeholder(schema: Any, name: str) -> Any:
    schema = schema if isinstance(schema, dict) else {}
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    return _PLACEHOLDERS.get(kind, f"the {name}") if isinstance(kind, str) else f"the {name}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
