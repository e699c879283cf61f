"""What OpenAI's clients ask for and are given: every parameter is checked, those that nobody knows are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nacre.web.api.schemas import Count

# ---- values

Name = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}(?!\n)$")]
ToolName = Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}(?!\n)$")]
Bounded = Annotated[str, Meta(max_length=1024)]
Natural = Annotated[int, Meta(ge=1, le=2**53)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Logprobs = Annotated[int, Meta(ge=0, le=20)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
Choice = Literal["none", "auto", "required"]
"""Whether the model may, must or must not call a tool."""


class Function(Struct, frozen=True):
    """A function that the client runs."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


# ---- chat completions


class CalledFunction(Struct, frozen=True):
    """A function that was called; its arguments are JSON."""

    name: Annotated[str, Meta(min_length=1)]
    arguments: str | dict[str, Any] = ""


class Call(Struct, frozen=True, kw_only=True):
    """A call of an earlier answer."""

    id: Annotated[str, Meta(min_length=1)]
    type: Literal["function"] = "function"
    function: CalledFunction


_PART = {"properties": {"type": {"enum": ["text", "image_url", "refusal"]}}, "required": ["type"]}
Part = Annotated[dict[str, Any], Meta(extra_json_schema=_PART)]


class ChatMessage(Struct, frozen=True, kw_only=True):
    """A message; other fields of it are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Meta(min_length=1)] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Call] | None = None


class StreamOptions(Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = False
    include_obfuscation: bool | None = None


class ClientTool(Struct, frozen=True):
    """A tool of the client's."""

    type: Literal["function"]
    function: Function


class NamedFunction(Struct, frozen=True):
    """A function by its name."""

    name: str


class ChosenTool(Struct, frozen=True, tag="function"):
    """The function that the model must call."""

    function: NamedFunction


class OfferedTool(Struct, frozen=True):
    """A function that the model may call."""

    type: Literal["function"]
    function: NamedFunction


class Offer(Struct, frozen=True):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[OfferedTool]


class OfferedTools(Struct, frozen=True, tag="allowed_tools"):
    """Some of the tools."""

    allowed_tools: Offer


class TextFormat(Struct, frozen=True, tag="text"):
    """An answer in words."""


class JsonObjectFormat(Struct, frozen=True, tag="json_object"):
    """An answer that is a JSON object."""


class JsonSchema(Struct, frozen=True, kw_only=True):
    """A JSON schema, and whether it keeps to the rules of OpenAI's strict mode."""

    name: Name
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, frozen=True, kw_only=True, tag="json_schema"):
    """An answer that follows a JSON schema."""

    json_schema: JsonSchema


class Chat(Struct, frozen=True, kw_only=True):
    """A request; fields that are not named here are ignored. The last message is the user's, or a tool's result."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[ClientTool] | None = None
    tool_choice: Choice | ChosenTool | OfferedTools | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    session_id: str | None = None
    user: str | None = None
    # These are refused where they would change the answer.
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    modalities: Annotated[list[Literal["text", "audio"]], Meta(min_length=1)] | None = None
    audio: dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    moderation: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    # These are checked and not used: the agent and its model have settings of their own.
    temperature: Temperature | None = None
    top_p: Share | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    max_tokens: Natural | None = None
    max_completion_tokens: Natural | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    prediction: dict[str, Any] | None = None
    prompt_cache_key: Bounded | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: Bounded | None = None
    safety_identifier: Bounded | None = None
    service_tier: Bounded | None = None


# ---- responses


class FlatJsonSchemaFormat(Struct, frozen=True, kw_only=True, tag="json_schema"):
    """An answer that follows a JSON schema, as responses are asked for it."""

    name: Name
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class ResponseText(Struct, frozen=True):
    """The form of a response's text."""

    format: TextFormat | JsonObjectFormat | FlatJsonSchemaFormat | None = None
    verbosity: Verbosity | None = None


class ChosenFunction(Struct, frozen=True, tag="function"):
    """The function that the model must call, as responses are asked for it."""

    name: str


class OfferedFunction(Struct, frozen=True):
    """A function that the model may call, as responses are asked for it."""

    type: Literal["function"]
    name: str


class OfferedFunctions(Struct, frozen=True, tag="allowed_tools"):
    """Some of the functions, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[OfferedFunction]


class Reasoning(Struct, frozen=True):
    """How the model thinks."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


_TOOL = {
    "properties": {
        "type": {"const": "function"},
        "name": {"type": "string"},
        "parameters": {"type": ["object", "null"]},
    },
    "required": ["type", "name"],
}
GivenTool = Annotated[dict[str, Any], Meta(extra_json_schema=_TOOL)]
_WORD = {"type": ["string", "null"]}
_ITEM = {"properties": {"type": _WORD, "role": _WORD, "call_id": _WORD}}
InputItem = Annotated[dict[str, Any], Meta(extra_json_schema=_ITEM)]


class Respond(Struct, frozen=True, kw_only=True):
    """A request for a response; fields that are not named here are ignored.

    The last item is the user's, or a function's result.
    """

    model: str
    input: Annotated[str, Meta(min_length=1)] | Annotated[list[InputItem], Meta(min_length=1)]
    instructions: str | None = None
    text: ResponseText | None = None
    tools: list[GivenTool] | None = None
    tool_choice: Choice | ChosenFunction | OfferedFunctions | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    store: bool | None = True
    stream: bool | None = False
    metadata: Metadata | None = None
    session_id: str | None = None
    user: str | None = None
    # These are refused where they would change the answer.
    background: bool | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    top_logprobs: Logprobs | None = None
    include: list[Bounded] | None = None
    moderation: dict[str, Any] | None = None
    # These are checked and not used: the agent and its model have settings of their own.
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    max_output_tokens: Natural | None = None
    max_tool_calls: Natural | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[dict[str, Any]] | None = None
    prompt_cache_key: Bounded | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: Bounded | None = None
    safety_identifier: Bounded | None = None
    service_tier: Bounded | None = None


# ---- embeddings

_TEXTS = {"items": {"type": "string", "minLength": 1}}


class Embed(Struct, frozen=True, kw_only=True):
    """Texts whose meaning is asked for as numbers; fields that are not named here are ignored."""

    model: str
    input: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Any], Meta(min_length=1, max_length=2048, extra_json_schema=_TEXTS)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Natural | None = None
    user: str | None = None


# ---- what is given


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


class Answer(Struct, frozen=True, kw_only=True):
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
    choices: Annotated[list[Answer], Meta(min_length=1, max_length=1)]
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
    param: str | None
    code: str


class OpenAIError(Struct, frozen=True, kw_only=True):
    """An error."""

    error: OpenAIReason
