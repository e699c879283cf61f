"""The documented rules of providers for the body of a request, as strict as the strictest of their servers.

Each function raises BrokenRule for the first rule that a body breaks.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_PERSON = re.compile(r"[^\s<|\\/>]{1,64}")
_MAX_ID = 40
_Name = Callable[[Mapping[str, Any]], str]


class BrokenRule(AssertionError):
    """A server would refuse the request."""


def openai(body: Mapping[str, Any]) -> None:
    """Check a request to `/v1/chat/completions`.

    Beyond OpenAI's own rules: a system message only at the beginning, and a user's first after it,
    as the templates of many models on compatible servers demand.
    """
    _json(body)
    _fields(body, "body", needed="model messages", allowed=_OPENAI_OPTIONS)
    _text(body["model"], "model")
    if "tools" in body:
        for at, tool in enumerate(_list(body["tools"], "tools")):
            _function_tool(tool, f"tools[{at}]")
        _unique([tool["function"]["name"] for tool in body["tools"]], "tools")
    for choice in ("tool_choice", "parallel_tool_calls"):
        _demand("tools" in body or choice not in body, choice, "is only allowed when tools are given")
    _demand("stream_options" not in body or body.get("stream") is True, "stream_options", "is only for a stream")
    messages = _list(body["messages"], "messages")
    for at, message in enumerate(messages):
        _openai_message(message, f"messages[{at}]")
    _begins_with_user(messages, heads=("system", "developer"))
    _results(messages, lambda call: str(call["id"]), lambda result: str(result["tool_call_id"]))


def anthropic(body: Mapping[str, Any]) -> None:
    """Check a request to `/v1/messages`; roles must alternate, which the server would do by merging."""
    _json(body)
    _fields(body, "body", needed="model messages max_tokens", allowed=_ANTHROPIC_OPTIONS)
    _text(body["model"], "model")
    limit = body["max_tokens"]
    _demand(type(limit) is int and limit > 0, "max_tokens", f"is a positive number, not {limit!r}")
    _anthropic_system(body.get("system", ""))
    tools = _list(body["tools"], "tools") if body.get("tools") else []
    for at, tool in enumerate(tools):
        _fields(_object(tool, f"tools[{at}]"), f"tools[{at}]", needed="name input_schema", allowed=_TOOL_FIELDS)
        _named(tool["name"], f"tools[{at}].name")
        _schema(tool["input_schema"], f"tools[{at}].input_schema")
    _unique([tool["name"] for tool in tools], "tools")
    _demand(tools or "tool_choice" not in body, "tool_choice", "is only allowed when tools are given")
    messages = _list(body["messages"], "messages")
    for at, message in enumerate(messages):
        _anthropic_message(message, f"messages[{at}]", is_first=at == 0)
    for at, (before, message) in enumerate(pairwise(messages), 1):
        _demand(before["role"] != message["role"], f"messages[{at}].role", "is the same as before; roles alternate")
    _anthropic_results(messages)
    if messages[-1]["role"] == "assistant":
        content = messages[-1]["content"]
        text = content if isinstance(content, str) else content[-1].get("text", "")
        _demand(text == text.rstrip(), "messages", "the last answer ends with white space")


def ollama(body: Mapping[str, Any]) -> None:
    """Check a request to `/api/chat`; calls are answered directly after them, in order, by name."""
    _json(body)
    _fields(body, "body", needed="model messages", allowed=_OLLAMA_OPTIONS)
    _text(body["model"], "model")
    _demand(isinstance(body.get("options", {}), dict), "options", "is an object")
    for switch in ("stream", "truncate", "shift"):
        _demand(isinstance(body.get(switch, False), bool), switch, "is true or false")
    _demand(isinstance(body.get("think", False), bool | str), "think", "is true, false or a level")
    for at, tool in enumerate(body.get("tools", ())):
        _function_tool(tool, f"tools[{at}]")
    messages = _list(body["messages"], "messages")
    for at, message in enumerate(messages):
        _ollama_message(message, f"messages[{at}]")
    _begins_with_user(messages, heads=("system",))
    _results(
        messages,
        lambda call: f"{call.get('id') or ''} {call['function']['name']}",
        lambda result: f"{result.get('tool_call_id') or ''} {result.get('tool_name')}",
    )


# ---- OpenAI

_OPENAI_OPTIONS = (
    "stream stream_options tools tool_choice parallel_tool_calls max_tokens max_completion_tokens temperature top_p "
    "stop seed response_format reasoning_effort verbosity user n store metadata frequency_penalty presence_penalty "
    "logit_bias logprobs top_logprobs service_tier prompt_cache_key safety_identifier modalities prediction"
)


def _openai_message(message: Any, where: str) -> None:
    _object(message, where)
    match message.get("role"):
        case "system" | "developer":
            _fields(message, where, needed="role content", allowed="name")
            _openai_content(message["content"], where, kinds=("text",))
        case "user":
            _fields(message, where, needed="role content", allowed="name")
            _openai_content(message["content"], where, kinds=("text", "image_url", "input_audio", "file"))
        case "assistant":
            _fields(message, where, needed="role", allowed="content name tool_calls refusal audio")
            has_calls = "tool_calls" in message
            if message.get("content") is not None:
                _openai_content(message["content"], where, kinds=("text", "refusal"), may_be_empty=has_calls)
            else:
                _demand(has_calls, where, "an assistant's message needs content or tool_calls")
            for at, call in enumerate(_list(message["tool_calls"], f"{where}.tool_calls") if has_calls else ()):
                _openai_call(call, f"{where}.tool_calls[{at}]")
        case "tool":
            _fields(message, where, needed="role content tool_call_id", allowed="")
            _openai_content(message["content"], where, kinds=("text",), may_be_empty=True)
            _text(message["tool_call_id"], f"{where}.tool_call_id")
        case role:
            _broken(f"{where}.role", f"is not one of OpenAI's: {role!r}")
    name = message.get("name", "x")
    _demand(isinstance(name, str) and _PERSON.fullmatch(name), f"{where}.name", f"does not fit: {name!r}")


def _openai_call(call: Any, where: str) -> None:
    _fields(_object(call, where), where, needed="id type function", allowed="")
    _demand(call["type"] == "function", f"{where}.type", f"is 'function', not {call['type']!r}")
    id = _text(call["id"], f"{where}.id")
    _demand(len(id) <= _MAX_ID, f"{where}.id", f"is longer than {_MAX_ID}: {id!r}")
    function = _object(call["function"], f"{where}.function")
    _fields(function, f"{where}.function", needed="name arguments", allowed="")
    _named(function["name"], f"{where}.function.name")
    arguments = function["arguments"]
    _demand(isinstance(arguments, str), f"{where}.function.arguments", "is JSON text, not an object")
    try:
        value = json.loads(arguments)
    except ValueError:
        _broken(f"{where}.function.arguments", f"is not JSON: {arguments!r}")
    _demand(isinstance(value, dict), f"{where}.function.arguments", f"is not an object in JSON: {arguments!r}")


def _openai_content(content: Any, where: str, *, kinds: Sequence[str], may_be_empty: bool = False) -> None:
    if isinstance(content, str):
        _demand(content or may_be_empty, f"{where}.content", "is empty")
        return
    for at, part in enumerate(_list(content, f"{where}.content")):
        place = f"{where}.content[{at}]"
        kind = _object(part, place).get("type")
        _demand(kind in kinds, f"{place}.type", f"is not taken here: {kind!r}")
        _fields(part, place, needed=f"type {kind}", allowed="")
        if kind == "text":
            _text(part["text"], f"{place}.text")
        if kind == "image_url":
            _fields(_object(part["image_url"], place), place, needed="url", allowed="detail")
            _text(part["image_url"]["url"], f"{place}.url")


def _function_tool(tool: Any, where: str) -> None:
    _fields(_object(tool, where), where, needed="type function", allowed="")
    _demand(tool["type"] == "function", f"{where}.type", f"is 'function', not {tool['type']!r}")
    function = _object(tool["function"], f"{where}.function")
    _fields(function, f"{where}.function", needed="name", allowed="description parameters strict")
    _named(function["name"], f"{where}.function.name")
    if "parameters" in function:
        _schema(function["parameters"], f"{where}.function.parameters")


# ---- Anthropic

_ANTHROPIC_OPTIONS = (
    "system tools tool_choice stream temperature top_p top_k stop_sequences metadata thinking service_tier "
    "cache_control output_config container context_management"
)
_MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf")
_BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
}


def _anthropic_system(system: Any) -> None:
    if isinstance(system, str):
        _demand(not system or system.strip(), "system", "has only white space")
        return
    for at, block in enumerate(_list(system, "system")):
        _demand(_object(block, f"system[{at}]").get("type") == "text", f"system[{at}].type", "is 'text'")
        _text_block(block, f"system[{at}]")


_TOOL_FIELDS = "description cache_control strict type"


def _anthropic_message(message: Any, where: str, *, is_first: bool) -> None:
    _fields(_object(message, where), where, needed="role content", allowed="")
    role, content = message["role"], message["content"]
    _demand(role in _BLOCKS, f"{where}.role", f"is 'user' or 'assistant', not {role!r}")
    _demand(role == "user" or not is_first, f"{where}.role", "the first message is a user's")
    if isinstance(content, str):
        _demand(content.strip(), f"{where}.content", "is empty or has only white space")
        return
    for at, block in enumerate(_list(content, f"{where}.content")):
        place = f"{where}.content[{at}]"
        kind = _object(block, place).get("type")
        _demand(kind in _BLOCKS[role], f"{place}.type", f"is not taken from a {role}: {kind!r}")
        _anthropic_block(block, place)
    # Results before all else, thoughts before all else, calls after all else.
    kinds = [block["type"] for block in content]
    for first in ("tool_result", "thinking"):
        _demand({*kinds[: kinds.count(first)]} <= {first}, where, f"{first} blocks come first")
    others = kinds[: len(kinds) - kinds.count("tool_use")]
    _demand("tool_use" not in others, where, "tool_use blocks come last")


def _anthropic_block(block: Mapping[str, Any], where: str) -> None:
    match block["type"]:
        case "text":
            _text_block(block, where)
        case "tool_use":
            _fields(block, where, needed="type id name input", allowed="cache_control")
            _id(block["id"], f"{where}.id")
            _named(block["name"], f"{where}.name")
            _object(block["input"], f"{where}.input")
        case "tool_result":
            _fields(block, where, needed="type tool_use_id", allowed="content is_error cache_control")
            _id(block["tool_use_id"], f"{where}.tool_use_id")
            _demand(isinstance(block.get("is_error", False), bool), f"{where}.is_error", "is true or false")
            content = block.get("content", "")
            for at, part in enumerate(() if isinstance(content, str) else _list(content, f"{where}.content")):
                place = f"{where}.content[{at}]"
                kind = _object(part, place).get("type")
                _demand(kind in ("text", "image", "document"), f"{place}.type", f"is not taken in a result: {kind!r}")
                _anthropic_block(part, place)
        case "thinking":
            _fields(block, where, needed="type thinking signature", allowed="")
            _text(block["signature"], f"{where}.signature")
        case "redacted_thinking":
            _fields(block, where, needed="type data", allowed="")
        case _:
            _fields(block, where, needed="type source", allowed="cache_control title context citations")
            _source(block["source"], f"{where}.source")


def _text_block(block: Mapping[str, Any], where: str) -> None:
    _fields(block, where, needed="type text", allowed="cache_control citations")
    _demand(_text(block["text"], f"{where}.text").strip(), f"{where}.text", "has only white space")


def _source(source: Any, where: str) -> None:
    match _object(source, where).get("type"):
        case "base64":
            _fields(source, where, needed="type media_type data", allowed="")
            _demand(source["media_type"] in _MEDIA, f"{where}.media_type", f"is not taken: {source['media_type']!r}")
            _base64(source["data"], f"{where}.data")
        case "url":
            _fields(source, where, needed="type url", allowed="")
            url = _text(source["url"], f"{where}.url")
            _demand(url.startswith("https://"), f"{where}.url", f"is not https: {url!r}")
        case kind:
            _broken(f"{where}.type", f"is 'base64' or 'url', not {kind!r}")


def _anthropic_results(messages: Sequence[Mapping[str, Any]]) -> None:
    asked: list[str] = []
    seen: list[str] = []
    for at, message in enumerate(messages):
        answers = [block["tool_use_id"] for block in _blocks(message, "tool_result")]
        _unique(answers, f"messages[{at}]")
        _demand(set(answers) >= set(asked), f"messages[{at}]", f"has no tool_result for each of {asked}")
        _demand(set(answers) <= set(asked), f"messages[{at}]", f"has a tool_result without its tool_use: {answers}")
        asked = [block["id"] for block in _blocks(message, "tool_use")]
        seen += asked
    _demand(not asked, "messages", f"end with tool_use without tool_result: {asked}")
    _unique(seen, "messages")


def _blocks(message: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    content = message["content"]
    return [] if isinstance(content, str) else [block for block in content if block["type"] == kind]


# ---- Ollama

_OLLAMA_OPTIONS = "tools format options stream think keep_alive truncate shift logprobs top_logprobs"


def _ollama_message(message: Any, where: str) -> None:
    _fields(_object(message, where), where, needed="role content", allowed=_OLLAMA_FIELDS)
    role = message["role"]
    _demand(role in ("system", "user", "assistant", "tool"), f"{where}.role", f"is not one of Ollama's: {role!r}")
    for field in ("content", "thinking", "tool_name", "tool_call_id"):
        value = message.get(field, "")
        _demand(isinstance(value, str), f"{where}.{field}", f"is text, not {value!r:.60}")
    says_something = message["content"] or message.get("tool_calls") or message.get("images") or role == "tool"
    _demand(says_something, where, "has neither content nor images nor calls")
    _demand(role == "tool" or not message.get("tool_name"), f"{where}.tool_name", "is for a tool's result")
    _demand(role == "assistant" or "tool_calls" not in message, f"{where}.tool_calls", "are the assistant's")
    for at, image in enumerate(message.get("images", ())):
        _base64(image, f"{where}.images[{at}]")
    for at, call in enumerate(message.get("tool_calls", ())):
        place = f"{where}.tool_calls[{at}]"
        _fields(_object(call, place), place, needed="function", allowed="id")
        function = _object(call["function"], f"{place}.function")
        _fields(function, f"{place}.function", needed="name arguments", allowed="index")
        _named(function["name"], f"{place}.function.name")
        _object(function["arguments"], f"{place}.function.arguments")


_OLLAMA_FIELDS = "thinking images tool_calls tool_name tool_call_id"


# ---- what they have in common


def _results(messages: Sequence[Mapping[str, Any]], call_id: _Name, result_id: _Name) -> None:
    """Every call has one result, directly after it and in order, and every result its call."""
    waiting: list[str] = []
    seen: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            answer = result_id(message)
            _demand(waiting and waiting[0] == answer, f"messages[{at}]", f"answers no call before it: {answer!r}")
            waiting.pop(0)
            continue
        _demand(not waiting, f"messages[{at}]", f"comes before the results of {waiting}")
        waiting = [call_id(call) for call in message.get("tool_calls", ())]
        seen += [id for id in waiting if not id.startswith(" ")]
    _demand(not waiting, "messages", f"end before the results of {waiting}")
    _unique(seen, "messages")


def _begins_with_user(messages: Sequence[Mapping[str, Any]], *, heads: Sequence[str]) -> None:
    rest = [message["role"] for message in messages]
    while rest and rest[0] in heads:
        rest.pop(0)
    _demand(rest and rest[0] == "user", "messages", "do not begin with a user's message")
    _demand(not set(heads) & set(rest), "messages", "have a system message that is not at the beginning")


def _demand(holds: Any, where: str, what: str) -> None:
    if not holds:
        _broken(where, what)


def _broken(where: str, what: str) -> NoReturn:
    raise BrokenRule(f"{where} {what}")


def _fields(found: Mapping[str, Any], where: str, *, needed: str, allowed: str) -> None:
    must, may = _words(needed), _words(allowed)
    if missing := must - found.keys():
        _broken(where, f"has no {sorted(missing)}")
    if unknown := found.keys() - must - may:
        _broken(where, f"has unknown fields {sorted(unknown)}")


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BrokenRule(f"{where} is an object, not {value!r:.60}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise BrokenRule(f"{where} is a list with something in it, not {value!r:.60}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise BrokenRule(f"{where} is a text that is not empty, not {value!r:.60}")
    return value


def _named(name: Any, where: str) -> None:
    _demand(isinstance(name, str) and _NAME.fullmatch(name), where, f"does not fit {_NAME.pattern}: {name!r:.100}")


def _id(id: Any, where: str) -> None:
    _demand(isinstance(id, str) and _ID.fullmatch(id), where, f"does not fit {_ID.pattern}: {id!r:.100}")


def _unique(names: Sequence[str], where: str) -> None:
    if len(set(names)) != len(names):
        _broken(where, f"use a name or id twice: {sorted(names)}")


def _schema(schema: Any, where: str) -> None:
    _demand(_object(schema, where).get("type") == "object", where, "is the schema of an object")


def _base64(data: Any, where: str) -> None:
    try:
        base64.b64decode(_text(data, where), validate=True)
    except (binascii.Error, ValueError):
        _broken(where, "is not base64")


def _json(body: Mapping[str, Any]) -> None:
    """A body is sent as it is: JSON says the same when it is read again."""
    try:
        sent = json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BrokenRule(f"body is not JSON: {error}") from None
    _demand(json.loads(sent) == body, "body", "has keys or lists that JSON does not have")
