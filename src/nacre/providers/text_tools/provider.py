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

from nacre.agent.ports import Context, Emit, Event, Provider, Reply, Spec, Text, Thought
from nacre.client_shapes import describe_bytes
from nacre.errors import ProviderError
from nacre.history.message_text import text_of
from nacre.messages import Message, ToolCall
from nacre.providers.text_tools import lenient_json, parser
from nacre.providers.text_tools.call_shapes import ParsedCall
from nacre.providers.wire import new_id

_TAGS = (
    *("tool_call", "tool_calls", "toolcall", "toolcalls", "tool-call", "tool-calls", "tools"),
    *("function_call", "function_calls", "function-call", "function-calls", "functioncall", "functioncalls"),
    *("think", "thinking", "thought", "seed:tool_call", "minimax:tool_call", "tool_use"),
)
_DSML_TAGS = ("function_calls>", "tool_calls>", "invoke name=")
_CHANNELS = ("commentary to=functions.", "analysis to=functions.", "analysis<|message|>", "final<|message|>")


# What may follow in the marks of DeepSeek and Kimi, whose words are joined by a line of either kind.
_SECTIONS = [f"{words}{end}" for words in ("{0}", "s{0}", "s{0}section{0}") for end in ("begin", "end")]
_MARKS = (
    *(f"<{tag}>" for tag in _TAGS),
    *(f"</{tag}>" for tag in _TAGS),
    *("<|tool_call|>", "<|tool_call>", "<tool_call|>", "<|/tool_call|>", "[tool_calls]", "<|python_tag|>"),
    *("<function=", "<function name=", "<invoke name=", "<tool_response", "<|channel>thought", "```", "~~~"),
    *("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "[think]", "[/think]"),
    *("<|start_action|>", "<|end_action|>", "<|start_thinking|>", "<|end_thinking|>", "<|start_response|>"),
    *("<|end_response|>", "<|tool_call_start|>", "<|python_start|>", "<|python_end|>", "<|call|>"),
    *(
        f"<{bar}tool{line}call{rest.format(line)}{bar}>"
        for bar in "\uff5c|"
        for line in "\u2581_"
        for rest in _SECTIONS
    ),
    *(f"<{slash}\uff5cdsml\uff5c{tag}" for slash in ("", "/") for tag in _DSML_TAGS),
    *(f"{start}<|channel|>{channel}" for start in ("", "<|start|>assistant") for channel in _CHANNELS),
    *("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>", "<mm:think>", "</mm:think>", "<|function_call|>"),
    *("<|tools_prefix|>", "<|tools_suffix|>", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    *("<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    *("<|close|>message<|sep|>", "<|open|>message<|sep|>"),
    *("<|start|>assistant to=functions.", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
)
_WORDS = ("functools[{", "to=functions.")
"""Marks that look like any word: only the first one of a line is held back."""
_WORD_START = re.compile(
    r"\n ?(?:" + "|".join(re.escape(word[:length]) for word in _WORDS for length in range(1, len(word))) + r")\Z"
)
_MARK_STARTS = frozenset(mark[:length] for mark in _MARKS for length in range(1, len(mark) + 1))
_MAX_MARK = max(map(len, _MARKS))
_ENDINGS = (
    *("</thinking>", "</thought>", "<channel|>", "[/think]", "<|end_thinking|>", "<|end|>", "</mm:think>"),
    "<|close|>think<|sep|>",
)
_ENDING_STARTS = frozenset(mark[:length] for mark in _ENDINGS for length in range(1, len(mark)))
_MAYBE_FENCE = re.compile(r"\n[ \t]*[`~]{0,3}[ \t]*\Z|(?<=[}\]>])[ \t]*`{1,3}[ \t]*\Z")
_TRIM = 4096
_LOOK_BACK = 32


def filter_text(feed: Callable[[str], Sequence[Event]], emit: Emit) -> Emit:
    """An `emit` that passes text through a filter, which gives what may be shown now, and everything else as it is."""

    def emit_filtered(event: Event) -> None:
        for piece in feed(event.text) if isinstance(event, Text) else (event,):
            emit(piece)

    return emit_filtered


class StreamFilter:
    """Takes pieces of an answer and gives what of them may be shown.

    Shown text is always a beginning of the content that `parser.read` finds in the whole answer, but for
    answers that close a thought that they never opened. Where it is `native`, `parser.read_native` reads the
    answer, and nothing is shown after what may be a call: it may turn out to be text.
    """

    def __init__(self, tools: Sequence[Spec], *, native: bool = False) -> None:
        self._tools, self._is_native = tools, native
        self._text, self._at, self._mode = "\n", 1, "text"
        self._called = self._is_after_calls = False
        # What came while a call is held back, until it may be complete.
        self._until, self._waiting, self._grown = parser.FENCE_END, list[str](), 0
        self._shown: list[str] = []
        self._space = ""

    @property
    def shown(self) -> str:
        """All the text that was given so far."""
        return "".join(self._shown)

    @property
    def tail(self) -> str:
        """What was held back only because it could begin a mark; nothing where a call seems to have begun."""
        return self._text[self._at :] if self._mode in {"text", "block"} else ""

    def feed(self, piece: str) -> list[Text | Thought]:
        """Take the next piece; gives what may be shown now."""
        if self._mode == "over" or (self._mode == "held" and not self._is_ripe(piece)):
            return []
        self._text = f"{self._text}{''.join(self._waiting)}{piece}"
        self._waiting.clear()
        self._grown = 0
        given: list[Text | Thought] = []
        # Each goes one stretch on, and says whether there may be more.
        modes = {"thinking": self._think, "block": self._pass_block}
        while modes.get(self._mode, self._scan)(given):
            pass
        if self._at > _TRIM:
            # What stands before is looked back at: where a line begins, where a thought ends.
            self._text, self._at = self._text[self._at - _LOOK_BACK :], _LOOK_BACK
        return given

    def _is_ripe(self, piece: str) -> bool:
        """Whether enough has come to look again; looking at every piece would cost too much in long calls."""
        before = self._waiting[-1][-16:] if self._waiting else self._text[-16:]
        self._waiting.append(piece)
        self._grown += len(piece)
        is_ripe = self._grown * 8 > len(self._text) - 512 and bool(self._until.search(before + piece))
        is_ripe = is_ripe or self._grown * 2 > len(self._text)
        if is_ripe:
            self._waiting.pop()
        return is_ripe

    def _scan(self, given: list[Text | Thought]) -> bool:
        self._mode = "text"
        scan = parser.Scan(self._text, self._tools, final=False, native=self._is_native)
        scan.called, scan.has_said = self._called, bool(self._shown)
        ends = (parser.Calls, parser.ThoughtEnd)
        for at, step in scan.steps(self._at):
            # What follows these can be shown only when the whole answer is there.
            is_end = isinstance(step, ends) or (isinstance(step, parser.Thinking) and bool(self._shown))
            if self._is_native and is_end:
                self._mode = "over"
                return False
            match step:
                case parser.Prose(end):
                    self._say(self._text[at : self._safe(end)], given)
                    self._at = self._safe(end)
                    if self._at < end:
                        return False
                case parser.Wait(until, kind, start):
                    self._mode, self._until = kind, until
                    if kind == "block":
                        self._say(self._text[self._at : start], given)
                    is_passing = kind in {"block", "thinking"}
                    self._at = start if is_passing else self._at
                    return is_passing
                case parser.Thinking(thought, end):
                    self._at = end
                    given += [Thought(thought)] if thought else []
                case parser.ThoughtEnd(end):
                    self._at = end
                case parser.Calls(_, end):
                    self._at = end
                    self._called = True
                    self._is_after_calls, self._space = True, ""
        return False

    def _safe(self, end: int) -> int:
        """How far text may be shown: not what may yet become a mark, nor the space before it."""
        if end < len(self._text):
            return end
        if self._is_after_calls and not self._text[self._at : end].strip(" \n\t}]"):
            return self._at
        tail = self._text[max(self._at, end - _MAX_MARK) : end].lower()
        partial = _start_length(tail, _MARK_STARTS)
        word = _WORD_START.search(self._text, max(self._at - 1, end - _MAX_MARK), end)
        partial = max(partial, end - word.start() - 1) if word else partial
        if self._is_native:
            # Most answers are text: a line is whole when its end has come.
            return end - partial
        shown = len(self._text[self._at : end - partial].rstrip())
        return max(self._at + shown, end - partial - _TRIM)

    def _say(self, text: str, given: list[Text | Thought]) -> None:
        """Show text, with the space before it; at the end of an answer or before a call there is none."""
        body = text if self._is_native and (self._shown or not text.isspace()) else text.rstrip()
        if body:
            start = f"{self._space}{body}"
            if not self._shown:
                start = start.lstrip()
            elif self._is_after_calls:
                start = f"\n{start.lstrip()}"
            self._shown.append(start)
            given.append(Text(start))
            self._is_after_calls, self._space = False, ""
        self._space += text[len(body) :]

    def _think(self, given: list[Text | Thought]) -> bool:
        closing = parser.AFTER_THOUGHT.search(self._text, self._at)
        end = closing.start() if closing else len(self._text)
        tail = self._text[max(self._at, end - _MAX_MARK) : end].lower()
        end -= 0 if closing else _start_length(tail, _ENDING_STARTS)
        thought = self._text[self._at : end]
        given += [Thought(thought)] if thought else []
        self._at = closing.end() if closing else end
        self._mode = "text" if closing else "thinking"
        return closing is not None

    def _pass_block(self, given: list[Text | Thought]) -> bool:
        closing = parser.FENCE_END.search(self._text, max(self._at - 1, 1))
        is_over = closing is not None and closing.end() < len(self._text)
        maybe = None if is_over else _MAYBE_FENCE.search(self._text, max(self._at - 1, 1))
        end = closing.end() if closing and is_over else maybe.start() if maybe else len(self._text)
        end = max(end, self._at)
        self._say(self._text[self._at : end], given)
        self._at = end
        self._mode = "text" if is_over else "block"
        return is_over


def _start_length(text: str, starts: frozenset[str]) -> int:
    """How many characters at the end of a text may be the start of a mark."""
    return next((len(text) - i for i in range(len(text)) if text[i:] in starts), 0)


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
        parse = read_json_answer if is_strict else parser.read
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
    is_cut = reply.finish == "length"
    answer = parser.Answer(content=text) if has_called else parser.read_native(text, tools, cut=is_cut)
    return _finish(reply, answer, shown.shown, emit, native=True)


def _finish(reply: Reply, answer: parser.Answer, shown: str, emit: Emit, *, native: bool = False) -> Reply:
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
    return msgspec.json.encode(describe_bytes(value)).decode()


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


def read_json_answer(text: str, tools: Sequence[Spec], *, cut: bool = False) -> parser.Answer:
    """Read such an answer; one that does not follow the schema is read like any other text.

    A reply that was cut short is given as far as it came; a call never is.
    """
    try:
        value, _ = lenient_json.Source(text).read_strict(len(text) - len(text.lstrip()))
    except lenient_json.NotJson:
        beginning = ReplyFilter()
        beginning.feed(text)
        return parser.Answer(content=beginning.shown) if beginning.shown else parser.read(text, tools, cut=cut)
    match value:
        case {"reply": str(reply)} if len(value) == 1:
            return parser.Answer(content=reply)
        case {"name": str(name), "arguments": dict(arguments)}:
            call = parser.normalize_call(ParsedCall(name=name, arguments=arguments), {tool.name for tool in tools})
            return parser.Answer(calls=(call,))
        case _:
            return parser.read(text, tools, cut=cut)


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
