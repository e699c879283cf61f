"""What the API for sessions takes and gives, in the shapes that `nacre sessions … --json` prints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Key = Annotated[str, Meta(min_length=1, max_length=1024, pattern="^[^\\x00]*$")]
Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=500)]


# ---- what is asked for


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter, order and cursor of a list."""

    state: Literal["active", "archived", "all"] = "active"
    prefix: Annotated[str, Meta(max_length=1024)] = ""
    sort: Literal["updated", "created", "size", "messages", "key"] = "updated"
    order: Literal["usual", "reverse"] = "usual"
    limit: Limit = 50
    cursor: str = ""


class ReadQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to read: the current history, or all; the newest page first."""

    scope: Literal["live", "whole"] = "live"
    tokens: Literal["no", "yes"] = "no"
    limit: Limit = 50
    cursor: str = ""


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query; `"a phrase"`, `-not`, `role:`, `tool:`, `session:`, `since:` and `until:` narrow it."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Limit = 50
    meaning: Annotated[bool, Meta(description="find messages in other words too; needs embeddings")] = False


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record to start after, and whether to wait for new ones."""

    after: Number = 0
    wait: Literal["yes", "no"] = "yes"


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing."""


class Send(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message for a session."""

    content: Annotated[str, Meta(min_length=1)]
    stream: bool = False


class Rename(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A title; an empty one removes it."""

    title: Annotated[str, Meta(max_length=1000)]


class Fork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key, start and title of a fork; the default key is the old one with a number."""

    key: Key | None = None
    at: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    title: Annotated[str, Meta(max_length=1000)] = ""


# ---- what OpenAI's clients ask for

ROLES = ("system", "developer", "user", "assistant", "tool")
_TEXT = {"type": ["string", "null"]}
_FUNCTION = {"type": "object", "properties": {"name": {"type": "string"}}}
_CALL = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "type": {"const": "function"}, "function": _FUNCTION},
}
_MESSAGE = {
    "properties": {
        "role": {"enum": list(ROLES)},
        "content": {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "null"}]},
        "name": _TEXT,
        "tool_call_id": _TEXT,
        "tool_calls": {"type": ["array", "null"], "items": _CALL},
    },
    "required": ["role"],
}
Given = Annotated[dict[str, Any], Meta(extra_json_schema=_MESSAGE)]


class StreamOptions(Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool = False


class Function(Struct, frozen=True):
    """A function that the client runs."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(Struct, frozen=True):
    """A tool of the client's."""

    type: Literal["function"]
    function: Function


FormName = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]


class TextFormat(Struct, frozen=True, tag="text"):
    """An answer in words."""


class JsonObjectFormat(Struct, frozen=True, tag="json_object"):
    """An answer that is a JSON object."""


class JsonSchema(Struct, frozen=True, kw_only=True):
    """A JSON schema, and whether it keeps to the rules of OpenAI's strict mode."""

    name: FormName
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, frozen=True, kw_only=True, tag="json_schema"):
    """An answer that follows a JSON schema."""

    json_schema: JsonSchema


class Chat(Struct, frozen=True, kw_only=True):
    """A request; other fields are ignored. The last message is the user's, or a tool's result."""

    model: str
    messages: Annotated[list[Given], Meta(min_length=1)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[ClientTool] | None = None
    tool_choice: Any = None
    n: int | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    logprobs: bool | None = None
    session_id: str | None = None
    user: str | None = None


class FlatJsonSchemaFormat(Struct, frozen=True, kw_only=True, tag="json_schema"):
    """An answer that follows a JSON schema, as responses are asked for it."""

    name: FormName
    schema: dict[str, Any]
    strict: bool | None = None


class ResponseText(Struct, frozen=True):
    """The form of a response's text."""

    format: TextFormat | JsonObjectFormat | FlatJsonSchemaFormat | None = None


_TOOL = {
    "properties": {
        "type": {"const": "function"},
        "name": {"type": "string"},
        "parameters": {"type": ["object", "null"]},
    },
    "required": ["type", "name"],
}
GivenTool = Annotated[dict[str, Any], Meta(extra_json_schema=_TOOL)]
_ITEM = {"properties": {"type": {"type": ["string", "null"]}, "role": _TEXT, "call_id": _TEXT}}
InputItem = Annotated[dict[str, Any], Meta(extra_json_schema=_ITEM)]


class Respond(Struct, frozen=True, kw_only=True):
    """A request for a response; other fields are ignored. The last item is the user's, or a function's result."""

    model: str
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(min_length=1)]
    instructions: str | None = None
    text: ResponseText | None = None
    tools: list[GivenTool] | None = None
    tool_choice: Any = None
    previous_response_id: str | None = None
    store: bool | None = True
    stream: bool | None = False
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    top_logprobs: int | None = None
    metadata: dict[str, str] | None = None
    session_id: str | None = None
    user: str | None = None


_TEXTS = {"items": {"type": "string", "minLength": 1}}


class Embed(Struct, frozen=True, kw_only=True):
    """Texts whose meaning is asked for as numbers; other fields are ignored."""

    model: str
    input: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Any], Meta(min_length=1, max_length=2048, extra_json_schema=_TEXTS)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


# ---- … and are given


class Model(Struct, frozen=True, kw_only=True):
    """A model or an agent, by one of its names."""

    id: str
    object: Literal["model"]
    created: Count
    owned_by: str


class ModelList(Struct, frozen=True, kw_only=True):
    """The available models."""

    object: Literal["list"]
    data: list[Model]


class Choice(Struct, frozen=True, kw_only=True):
    """The answer; there is always one."""

    index: Literal[0]
    message: dict[str, Any]
    logprobs: None
    finish_reason: Literal["stop", "tool_calls", "length"]


class Cost(Struct, frozen=True, kw_only=True):
    """The tokens of a request and its answer."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: dict[str, Count]


class Completion(Struct, frozen=True, kw_only=True):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"]
    created: Count
    model: str
    choices: Annotated[list[Choice], Meta(min_length=1, max_length=1)]
    usage: Cost


class ResponseCost(Struct, frozen=True, kw_only=True):
    """The tokens of a response."""

    input_tokens: Count
    input_tokens_details: dict[str, Count]
    output_tokens: Count
    output_tokens_details: dict[str, Count]
    total_tokens: Count


class ResponseDocument(Struct, frozen=True, kw_only=True):
    """A response: what was answered, and in which state the answer is."""

    id: str
    object: Literal["response"] = "response"
    created_at: Count
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[dict[str, Any]] = []
    usage: ResponseCost | None = None
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, str] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    metadata: dict[str, str] = {}
    text: dict[str, Any] = {}
    store: bool = True
    tools: list[dict[str, Any]] = []
    tool_choice: Any = "auto"
    parallel_tool_calls: bool = True
    background: bool = False
    temperature: None = None
    top_p: None = None
    max_output_tokens: None = None
    truncation: Literal["auto"] = "auto"
    user: str | None = None


class ResponseDeleted(Struct, frozen=True, kw_only=True):
    """A response that is gone, with the session that it was in."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class Vector(Struct, frozen=True, kw_only=True):
    """The meaning of a text: numbers, or base64 of them as 32-bit floats, the lowest byte first."""

    object: Literal["embedding"] = "embedding"
    index: Count
    embedding: list[float] | str


class VectorList(Struct, frozen=True, kw_only=True):
    """A vector for each text, in their order."""

    object: Literal["list"] = "list"
    data: list[Vector]
    model: str
    usage: dict[str, Count]


class OpenAIReason(Struct, frozen=True, kw_only=True):
    """An error in the shape that OpenAI's clients expect."""

    message: str
    type: str
    param: None
    code: str


class OpenAIError(Struct, frozen=True, kw_only=True):
    """An error."""

    error: OpenAIReason


# ---- what is given


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether new messages can be stored and answered; with the token, also what fails and why."""

    ready: bool
    failing: list[Literal["store", "channels", "agents"]]
    reasons: list[str]


class Aside(Struct, frozen=True, kw_only=True):
    """What of a session is in quarantine until somebody settles it, and the command that shows it."""

    records: Count
    bytes: Count
    text: str
    command: str


class Unreadable(Struct, frozen=True, kw_only=True):
    """What of a session could not be read because it is damaged or lost, and the command that shows more."""

    records: Count
    payloads: Count
    text: str
    command: str


class Session(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    key: str
    title: str
    messages: Count
    created: Moment
    updated: Moment
    bytes: Count
    archived: bool
    pinned: bool
    tags: list[str]
    cwd: str
    role: str
    model: str
    quarantine: Aside | None = None


class SessionList(Struct, frozen=True, kw_only=True):
    """A page of sessions; `next_cursor` goes to `cursor`."""

    schema_version: Literal[1] = 1
    count: Count
    total: Count
    has_more: bool
    next_cursor: str | None
    items: list[Session]


class Item(Struct, frozen=True, kw_only=True):
    """A message of a session, in OpenAI's chat shape, with its number; `live` if it is in the history now."""

    generation: str
    n: Count
    ts: Moment
    live: bool
    message: dict[str, Any]


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens that went in and came out."""

    input: Count
    output: Count
    total: Count


class Conversation(Struct, frozen=True, kw_only=True):
    """A page of a session, oldest message first; `next_cursor` goes to `cursor` and leads further back."""

    schema_version: Literal[1] = 1
    key: str
    title: str
    created: Moment | None
    summary: str
    tokens: Tokens | None
    quarantine: Aside | None = None
    unreadable: Unreadable | None = None
    count: Count
    total: Count
    has_more: bool
    next_cursor: str | None
    items: list[Item]


class Found(Struct, frozen=True, kw_only=True):
    """A message that a search found."""

    key: str
    n: Count
    ts: Moment
    role: str
    snippet: str


class FoundList(Struct, frozen=True, kw_only=True):
    """The results of a search, best first."""

    schema_version: Literal[1] = 1
    count: Count
    total: Count
    has_more: bool
    next_cursor: str | None
    items: list[Found]


class Done(Struct, frozen=True, kw_only=True):
    """The result of an operation on a session."""

    schema_version: Literal[1] = 1
    ok: bool = True
    operation: Literal["archive", "unarchive", "rm", "stop"]
    dry_run: bool = False
    key: str
    status: Literal["archived", "active", "erased", "stopped", "idle"]


class Renamed(Struct, frozen=True, kw_only=True):
    """A session's new and old title."""

    schema_version: Literal[1] = 1
    ok: bool = True
    operation: Literal["rename"] = "rename"
    dry_run: bool = False
    key: str
    title: str
    previous: str


class Forked(Struct, frozen=True, kw_only=True):
    """A session that shares the history of another."""

    ok: bool = True
    operation: Literal["fork"] = "fork"
    dry_run: bool = False
    source: str
    at: int | None
    key: str


class Sent(Struct, frozen=True, kw_only=True):
    """The answer to a message; `joined` if it joined a running turn, whose answer goes to the client that began it."""

    ok: bool = True
    operation: Literal["send"] = "send"
    key: str
    joined: bool
    answer: dict[str, Any] | None


class Record(Struct, frozen=True, kw_only=True):
    """One record of a session, as an event's data."""

    generation: str
    n: Count
    ts: Moment
    kind: str
    data: Any
