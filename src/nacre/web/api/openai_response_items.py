"""A response as it is given: the items of an answer, whole or as a stream of events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from nacre.agent.ports import Called, Event, Form, Text, Thought
from nacre.messages import Message
from nacre.web.api.openai_messages import calls_of, text_of
from nacre.web.api.openai_requests import Answer, finish_of
from nacre.web.api.openai_schemas import Respond, ResponseCost, ResponseDocument
from nacre.web.http_errors import fault_of
from nacre.web.running_turns import Running
from nacre.web.sse import BEAT, event

Kind = Literal["message", "reasoning"]


def text_config(form: Form | None) -> dict[str, Any]:
    if form is None:
        return {"format": {"type": "text"}}
    return {"format": {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": form.strict}}


def end(document: ResponseDocument, answer: Answer, output: list[dict[str, Any]]) -> ResponseDocument:
    """A document that has its answer."""
    is_cut, usage = finish_of(answer.message) == "length", answer.usage
    return replace(
        document,
        # A session may have a model of its own.
        model=answer.message.model or document.model,
        status="incomplete" if is_cut else "completed",
        incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
        output=output,
        usage=ResponseCost(
            input_tokens=usage.prompt,
            input_tokens_details={"cached_tokens": usage.cached, "cache_write_tokens": 0},
            output_tokens=usage.completion,
            output_tokens_details={"reasoning_tokens": 0},
            total_tokens=usage.prompt + usage.completion,
        ),
    )


def items_of(id: str, message: Message) -> list[dict[str, Any]]:
    """The items of a whole answer, named as those of a stream are."""
    found: list[dict[str, Any]] = []
    if message.reasoning:
        found.append(_item("reasoning", id, 0, message.reasoning))
    calls = calls_of(message)
    text = text_of(message) or ""
    if text or not calls:
        found.append(_item("message", id, len(found), text, is_cut=finish_of(message) == "length"))
    return [*found, *(_call(call, id, at) for at, call in enumerate(calls, len(found)))]


def _item(kind: Kind, id: str, at: int, text: str | None, *, is_cut: bool = False) -> dict[str, Any]:
    """An item of words or thoughts; one that has only begun has no text yet."""
    status = "in_progress" if text is None else "incomplete" if is_cut else "completed"
    content = [] if text is None else [_words(kind, text)]
    if kind == "reasoning":
        return {"id": f"rs_{id[5:]}{at}", "type": "reasoning", "summary": [], "content": content, "status": status}
    return {"id": f"msg_{id[5:]}{at}", "type": "message", "role": "assistant", "content": content, "status": status}


def _words(kind: Kind, text: str) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(call: Mapping[str, Any], id: str, at: int) -> dict[str, Any]:
    return {
        "id": f"fc_{id[5:]}{at}",
        "type": "function_call",
        "call_id": call["id"],
        "name": call["function"]["name"],
        "arguments": call["function"]["arguments"],
        "status": "completed",
    }


class Frame:
    """What stands around an answer."""

    def __init__(self, id: str, model: str, wanted: Respond, *, form: Form | None, is_stored: bool) -> None:
        self.begun = ResponseDocument(
            id=id,
            created_at=int(time.time()),
            status="in_progress",
            model=model,
            instructions=wanted.instructions,
            previous_response_id=wanted.previous_response_id,
            metadata=wanted.metadata or {},
            text=text_config(form),
            store=is_stored,
            tools=list(wanted.tools or ()),
            tool_choice=wanted.tool_choice or "auto",
            parallel_tool_calls=wanted.parallel_tool_calls is not False,
            user=wanted.user,
        )

    def whole(self, answer: Answer) -> ResponseDocument:
        return end(self.begun, answer, items_of(self.begun.id, answer.message))


async def stream(running: Running[Answer], frame: Frame, heartbeat: float) -> AsyncGenerator[bytes, None]:
    """The answer as it comes; words before a tool of the agent's are an item of their own."""
    sent = _Stream(frame.begun.id)
    yield sent.send("response.created", response=frame.begun)
    yield sent.send("response.in_progress", response=frame.begun)
    async for happened in running.events(silence=heartbeat):
        if happened is None:
            yield BEAT
            continue
        for piece in sent.take(happened):
            yield piece
    try:
        answer = running.outcome()
    except Exception as error:  # noqa: BLE001 - the status is sent; what went wrong is an event now
        fault = fault_of(error)
        code = "rate_limit_exceeded" if fault.kind == "rate_limited" else "server_error"
        failed = replace(frame.begun, status="failed", error={"code": code, "message": fault.detail})
        yield sent.send("response.failed", response=failed)
        return
    for piece in sent.end(answer):
        yield piece
    whole = end(frame.begun, answer, sent.output)
    yield sent.send(f"response.{whole.status}", response=whole)


class _Stream:
    """The events of a response, numbered, and the items that they make."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._sent = 0
        self._kind: Kind | None = None
        self._said: list[str] = []
        self.output: list[dict[str, Any]] = []

    def send(self, kind: str, **fields: Any) -> bytes:
        sent = event({"type": kind, "sequence_number": self._sent, **fields}, name=kind)
        self._sent += 1
        return sent

    def take(self, happened: Event) -> Iterator[bytes]:
        """What an event of the turn is to the client, who sees nothing of the agent's tools."""
        match happened:
            case Text(text):
                yield from self._add("message", text)
            case Thought(text):
                yield from self._add("reasoning", text)
            case Called():
                yield from self._close()
            case _:
                pass

    def _add(self, kind: Kind, text: str) -> Iterator[bytes]:
        """Say or think something further."""
        if self._kind != kind:
            yield from self._close()
            self._kind = kind
            item = _item(kind, self._id, len(self.output), None)
            yield self.send("response.output_item.added", output_index=len(self.output), item=item)
            yield self._send("response.content_part.added", part=_words(kind, ""))
        self._said.append(text)
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._send(f"response.{_EVENT[kind]}.delta", delta=text, **more)

    def _close(self, *, is_cut: bool = False) -> Iterator[bytes]:
        """End the item that is open, if there is one."""
        kind, text = self._kind, "".join(self._said)
        if kind is None:
            return
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._send(f"response.{_EVENT[kind]}.done", text=text, **more)
        yield self._send("response.content_part.done", part=_words(kind, text))
        item = _item(kind, self._id, len(self.output), text, is_cut=is_cut)
        yield self.send("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)
        self._kind, self._said = None, []

    def end(self, answer: Answer) -> Iterator[bytes]:
        """What did not come piece by piece: words, and calls."""
        calls = calls_of(answer.message)
        text = text_of(answer.message) or ""
        if self._kind != "message" and (text or not calls):
            yield from self._add("message", text)
        yield from self._close(is_cut=finish_of(answer.message) == "length")
        for call in calls:
            at, item = len(self.output), _call(call, self._id, len(self.output))
            begun = {**item, "arguments": "", "status": "in_progress"}
            place = {"item_id": item["id"], "output_index": at}
            yield self.send("response.output_item.added", output_index=at, item=begun)
            yield self.send("response.function_call_arguments.delta", delta=item["arguments"], **place)
            yield self.send(
                "response.function_call_arguments.done", arguments=item["arguments"], name=item["name"], **place
            )
            yield self.send("response.output_item.done", output_index=at, item=item)
            self.output.append(item)

    def _send(self, kind: str, **fields: Any) -> bytes:
        """An event of the item that is open."""
        at = len(self.output)
        item = _item(self._kind or "message", self._id, at, None)
        return self.send(kind, item_id=item["id"], output_index=at, content_index=0, **fields)


_EVENT = {"message": "output_text", "reasoning": "reasoning_text"}
