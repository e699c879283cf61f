"""OpenAI's chat completions: the agent for clients that know nothing of it, and the bare model for those with tools."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any
from urllib.parse import quote

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nacre.agent.model_request import Terms, with_terms
from nacre.agent.ports import Called, Text, Thought, Usage
from nacre.runtime.structured_output import check_schema
from nacre.web.api.api_routes import decode_body, respond
from nacre.web.api.openai_messages import SYSTEM, calls_of, choice_of, form_of, message_of, specs_of, text_of
from nacre.web.api.openai_models import choose_agent
from nacre.web.api.openai_requests import Answer, ParsedRequest, finish_of, is_short, work
from nacre.web.api.openai_schemas import Chat
from nacre.web.api.retries import is_retry, request_id
from nacre.web.caller import Caller, agent, begin, check_user, session_for
from nacre.web.http_errors import Fault, fault_of
from nacre.web.running_turns import Running
from nacre.web.sse import BEAT, event

_FINISHES = {"stop": "stop", "calls": "tool_calls", "length": "length"}


async def chat(request: Request) -> Response:
    """Answer; a turn of a session continues when its client disconnects, anything else is stopped."""
    wanted = await decode_body(request, Chat)
    choose_agent(request, wanted.model)
    _check(wanted)
    session = wanted.session_id or request.headers.get("x-session-id", "")
    check_user(request, wanted.user)
    who, key = session_for(request, session=session, user=wanted.user or "")
    app = agent(request, who)
    # A client may send a very long history, and nobody else is to wait for its being read.
    parse = partial(_parse, wanted, request.headers, who, key)
    asked = parse() if is_short(request.headers) else await to_thread.run_sync(parse)
    if asked.terms.form is not None:
        await check_schema(asked.terms.form.schema)
    answering = work(app, request.app.state.turns, asked)
    running = begin(request, answering, key=key, who=who, is_watched=bool(wanted.stream))
    frame = _Frame(wanted, app.provider.model)
    stream = _stream(running, frame, request.app.state.limits.heartbeat) if wanted.stream else None
    response = await respond(request, running, stream=stream, whole=frame.whole, is_kept=bool(key))
    if key:
        response.headers["x-session-key"] = quote(key, safe=":")
    return response


routes = [Route("/v1/chat/completions", chat, methods=["POST"])]


# ---- what is asked


def _check(wanted: Chat) -> None:
    """Refuse what would be answered otherwise than it was meant."""
    if wanted.n not in (None, 1):
        raise Fault("usage", f"n must be 1, not {wanted.n}: there is one answer", param="n")
    if wanted.logprobs or wanted.top_logprobs:
        raise Fault("usage", "logprobs are not supported", param="logprobs" if wanted.logprobs else "top_logprobs")
    if "audio" in (wanted.modalities or ()) or wanted.audio is not None:
        param = "audio" if wanted.audio is not None else "modalities"
        raise Fault("usage", "answers are text: audio is not supported", param=param)
    if wanted.functions or wanted.function_call:
        param = "functions" if wanted.functions else "function_call"
        raise Fault("usage", f"{param} is not supported any more: use tools and tool_choice", param=param)
    if wanted.moderation is not None:
        raise Fault("usage", "moderation is not supported: leave it out", param="moderation")
    if wanted.web_search_options is not None:
        reason = "web_search_options is not supported: the agent searches with its own tools"
        raise Fault("usage", reason, param="web_search_options")


def _parse(wanted: Chat, headers: Headers, who: Caller, key: str) -> ParsedRequest:
    messages = [message_of(one, param=f"messages[{at}]") for at, one in enumerate(wanted.messages)]
    spoken = [one for one in messages if one.role not in SYSTEM]
    is_offered, must_call, names = choice_of(wanted.tool_choice)
    tools = None
    if wanted.tools:
        found = specs_of((tool.function for tool in wanted.tools), names)
        tools = found if is_offered else []
    elif wanted.messages[-1].role == "tool":
        # Its client has tools, and offers none now: it is not for the agent to go on with them.
        tools = []
    elif must_call or names:
        raise Fault("usage", "tool_choice asks for a call, and there are no tools", param="tool_choice")
    if not spoken or (spoken[-1].role != "user" and (tools is None or spoken[-1].role != "tool")):
        reason = "the last message must be a user's message or a tool's result: it is the one that is answered"
        raise Fault("usage", reason, param="messages")
    terms = Terms(form=form_of(wanted.response_format))
    return ParsedRequest(
        key=key,
        nowhere=who.key() if who.is_guest else "",
        id=request_id(headers),
        is_retry=is_retry(headers),
        system="\n\n".join(text_of(one, between="\n") or "" for one in messages if one.role in SYSTEM),
        messages=with_terms(spoken, terms),
        tools=tools,
        must_call=must_call,
        one_call=wanted.parallel_tool_calls is False,
        sender=wanted.user or "api",
        terms=terms,
    )


# ---- how it is answered


class _Frame:
    """What stands around an answer."""

    def __init__(self, wanted: Chat, model: str) -> None:
        self._wants_usage = wanted.stream_options is not None and bool(wanted.stream_options.include_usage)
        self._model = model
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())

    def whole(self, answer: Answer) -> dict[str, Any]:
        said = answer.message
        message: dict[str, Any] = {"role": "assistant", "content": text_of(said), "refusal": None}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.tool_calls:
            message["tool_calls"] = calls_of(said)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISHES[finish_of(said)]}
        # A session may have a model of its own.
        model = said.model or self._model
        return {**self._head("chat.completion"), "model": model, "choices": [choice], "usage": _usage(answer.usage)}

    def piece(self, delta: dict[str, Any], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def end(self, answer: Answer, *, said: bool) -> list[bytes]:
        """The last pieces: words that did not come one by one, calls, why it ends, what it cost."""
        pieces = []
        if not said and answer.message.content:
            pieces.append(self.piece({"content": text_of(answer.message)}))
        calls = [{"index": at, **call} for at, call in enumerate(calls_of(answer.message))]
        if calls:
            pieces.append(self.piece({"tool_calls": calls}))
        pieces.append(self.piece({}, finish=_FINISHES[finish_of(answer.message)]))
        if self._wants_usage:
            pieces.append(event({**self._head("chat.completion.chunk"), "choices": [], "usage": _usage(answer.usage)}))
        return pieces

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


async def _stream(running: Running[Answer], frame: _Frame, heartbeat: float) -> AsyncGenerator[bytes, None]:
    """The answer piece by piece; of what the agent does meanwhile, a client without its tools sees nothing."""
    said, is_apart = False, False
    yield frame.piece({"role": "assistant", "content": ""})
    async for happened in running.events(silence=heartbeat):
        match happened:
            case None:
                yield BEAT
            case Text(text):
                yield frame.piece({"content": f"\n\n{text}" if said and is_apart else text})
                said, is_apart = True, False
            case Thought(text):
                yield frame.piece({"reasoning_content": text})
            case Called():
                is_apart = True
            case _:
                pass
    try:
        answer = running.outcome()
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is a piece now
        yield event(fault_of(error).to_openai())
        return
    for piece in frame.end(answer, said=said):
        yield piece
    yield b"data: [DONE]\n\n"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }
