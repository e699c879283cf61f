"""Streams in the shapes that real servers send them, each with what must be understood of it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from nacre.messages import ToolCall

Kind = Literal["openai", "anthropic", "ollama"]
OSLO = {"city": "Oslo"}


class Stream(Struct, frozen=True, kw_only=True):
    """The pieces of one answer, in order, and the answer."""

    kind: Kind
    pieces: list[dict[str, Any] | str]
    content: str = ""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    prompt: int = 0


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def _called(**fields: Any) -> list[dict[str, Any]]:
    """A call in a piece; `name` and `arguments` belong into its function."""
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return [{"index": 0, **fields, "function": function}]


def _call(id: str, **extra: Any) -> tuple[ToolCall, ...]:
    return (ToolCall(id=id, name="weather", arguments=OSLO, extra=extra),)


def _usage(prompt: int) -> dict[str, Any]:
    details = {"prompt_tokens_details": {"cached_tokens": 0}}
    return {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5, **details}


_SIGNED = {"google": {"thought_signature": "c2ln"}}

STREAMS = {
    "OpenAI, text": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": "", "refusal": None}, system_fingerprint="fp", usage=None),
            _chunk({"content": "Hel"}, obfuscation="xYz"),
            _chunk({"content": "lo."}),
            _chunk({}, "stop"),
            {"id": "c-1", "object": "chat.completion.chunk", "choices": [], "usage": _usage(8)},
            "[DONE]",
        ],
        content="Hello.",
        prompt=8,
    ),
    "OpenAI, a call": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": None, "tool_calls": _called(id="call_1", type="function",
                                                                                 name="weather", arguments="")}),
            _chunk({"tool_calls": _called(arguments='{"city":')}),
            _chunk({"tool_calls": _called(arguments=' "Oslo"}')}),
            _chunk({}, "tool_calls"),
            "[DONE]",
        ],
        calls=_call("call_1"),
        finish="calls",
    ),
    "OpenAI, a call of the first models": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ""}}),
            _chunk({"function_call": {"arguments": '{"city": "Oslo"}'}}),
            _chunk({}, "function_call"),
            "[DONE]",
        ],
        calls=_call(""),
        finish="calls",
    ),
    "Groq": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": ""}, x_groq={"id": "req_1"}),
            _chunk({"reasoning": "Hm.", "channel": "analysis"}),
            _chunk({"tool_calls": _called(id="fc_1", type="function", name="weather", arguments='{"city":"Oslo"}')}),
            _chunk({}, "tool_calls", x_groq={"id": "req_1", "usage": _usage(9)}, usage=_usage(9)),
            "[DONE]",
        ],
        reasoning="Hm.",
        calls=_call("fc_1"),
        finish="calls",
        prompt=9,
    ),
    "OpenRouter": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": "", "reasoning": "Let ", "reasoning_details": [
                {"type": "reasoning.text", "text": "Let ", "format": "anthropic-claude-v1", "index": 0}]},
                provider="Anthropic"),
            _chunk({"content": "", "reasoning": "me see.", "reasoning_details": [
                {"type": "reasoning.text", "text": "me see.", "format": "anthropic-claude-v1", "index": 0}]}),
            _chunk({"content": "", "reasoning": None, "reasoning_details": [
                {"type": "reasoning.text", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0}]}),
            _chunk({"content": "Yes."}, native_finish_reason=None),
            _chunk({"content": ""}, "stop", native_finish_reason="end_turn", usage=_usage(10) | {"cost": 0.0001}),
            "[DONE]",
        ],
        content="Yes.",
        reasoning="Let me see.",
        prompt=10,
    ),
    "OpenRouter, thoughts in details alone": Stream(
        kind="openai",
        pieces=[
            _chunk({"content": "", "reasoning_details": [{"type": "reasoning.summary", "summary": "Hm.", "index": 0}]}),
            _chunk({"content": "", "reasoning_details": [{"type": "reasoning.encrypted", "data": "eA==", "index": 1}]}),
            _chunk({"content": "Yes."}, "stop"),
            "[DONE]",
        ],
        content="Yes.",
        reasoning="Hm.",
    ),
    "Mistral": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": ""}),
            _chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}]}]}),
            _chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "yes."}]}]}),
            _chunk({"content": [{"type": "text", "text": "Snow"}]}),
            _chunk({"content": "."}),
            _chunk({"content": "", "tool_calls": [
                {"id": "D681PevKs", "function": {"name": "weather", "arguments": OSLO}, "index": 0}]},
                "tool_calls", usage=_usage(11)),
            "[DONE]",
        ],
        content="Snow.",
        reasoning="Hm, yes.",
        calls=_call("D681PevKs"),
        finish="calls",
        prompt=11,
    ),
    "DeepSeek": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
            _chunk({"content": None, "reasoning_content": "Hm."}),
            _chunk({"content": "Yes.", "reasoning_content": None}),
            _chunk({"content": "", "reasoning_content": None}, "stop", usage=_usage(12)),
            "[DONE]",
        ],
        content="Yes.",
        reasoning="Hm.",
        prompt=12,
    ),
    "Gemini over OpenAI's wire": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "tool_calls": [
                {"extra_content": _SIGNED, "function": {"arguments": '{"city":"Oslo"}', "name": "weather"},
                 "id": "function-call-1", "type": "function"}]}, "tool_calls", usage=_usage(13)),
            "[DONE]",
        ],
        calls=_call("function-call-1", extra_content=_SIGNED),
        finish="calls",
        prompt=13,
    ),
    "llama.cpp": Stream(
        kind="openai",
        pieces=[
            _chunk({"role": "assistant", "content": None}),
            _chunk({"content": "Hello."}),
            _chunk({}, "stop", timings={"prompt_n": 3, "prompt_ms": 1.5}),
            {"choices": [], "usage": {"completion_tokens": 5, "prompt_tokens": 14, "total_tokens": 19}, "timings": {}},
            "[DONE]",
        ],
        content="Hello.",
        prompt=14,
    ),
    "a whole answer where a stream was asked for": Stream(
        kind="openai",
        pieces=[{
            "id": "c-1", "object": "chat.completion", "usage": _usage(15),
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
        }],
        content="Hello.",
        prompt=15,
    ),
    "Anthropic": Stream(
        kind="anthropic",
        pieces=[
            {"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": None, "usage": {"input_tokens": 16, "cache_read_input_tokens": 0, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0,
             "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "ping"},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Snow."}},
            {"type": "content_block_stop", "index": 1},
            {"type": "content_block_start", "index": 2,
             "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}},
            {"type": "content_block_delta", "index": 2,
             "delta": {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'}},
            {"type": "content_block_stop", "index": 2},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
             "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ],
        content="Snow.",
        reasoning="Hm.",
        calls=_call("toolu_1"),
        finish="calls",
        prompt=16,
    ),
    "a whole message where a stream was asked for": Stream(
        kind="anthropic",
        pieces=[{
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "text", "text": "Snow."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": OSLO},
            ],
            "stop_reason": "tool_use", "usage": {"input_tokens": 17, "output_tokens": 5},
        }],
        content="Snow.",
        reasoning="Hm.",
        calls=_call("toolu_1"),
        finish="calls",
        prompt=17,
    ),
    "Ollama": Stream(
        kind="ollama",
        pieces=[
            {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False,
             "message": {"role": "assistant", "content": "", "thinking": "Hm."}},
            {"model": "m", "message": {"role": "assistant", "content": "Snow."}, "done": False},
            {"model": "m", "done": False, "message": {"role": "assistant", "content": "", "tool_calls": [
                {"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": OSLO}}]}},
            {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
             "total_duration": 1, "load_duration": 1, "prompt_eval_count": 18, "eval_count": 5},
        ],
        content="Snow.",
        reasoning="Hm.",
        calls=_call("call_1"),
        finish="calls",
        prompt=18,
    ),
}  # fmt: skip
