"""Requests: what is retried and what is not, how long it waits, and what a person is told."""

from __future__ import annotations

import json
import logging
import socket
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anyio
import pytest

from nacre.agent.ports import Reply
from nacre.errors import ConfigError, ContextOverflow, ModelUnavailable, ProviderError, RateLimited, ServerFailed
from nacre.providers.model_server import Timeouts, is_local
from nacre.providers.openai import OpenAI
from nacre.providers.wire import Failure, events, lines, token_count
from tests.ollama_server import Answer, OllamaServer, refusal
from tests.providers.peers import Listener, asked, replayed, sse

PIECE = {"choices": [{"delta": {"content": "Hi."}}]}
END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
FINE = Answer(chunks=(sse(PIECE, END, "[DONE]"),))
KEY = "sk-very-secret-0123456789"


async def _ask(server: OllamaServer, listener: Listener, *, read: float = 5.0, **times: float) -> Reply:
    timeouts = Timeouts(sleep=listener.sleep, read=read, attempts=4, **times)
    provider = OpenAI("m", base_url=server.host, key=KEY, timeouts=timeouts)
    try:
        return await provider.complete(asked("Hello"), emit=listener)
    finally:
        await provider.close()


def _outcome(*answers: Answer, listener: Listener, **times: float) -> tuple[Reply, int]:
    """The reply, and how many requests it took."""

    async def run() -> tuple[Reply, int]:
        async with replayed(*answers) as server:
            return await _ask(server, listener, **times), len(server.requests)

    return anyio.run(run)


def _error(*answers: Answer, listener: Listener, **times: float) -> str:
    with pytest.raises(ProviderError) as caught:
        _outcome(*answers, listener=listener, **times)
    return str(caught.value)


# ---- lines and events


async def _collected(cut: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in cut]


async def _chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def test_lines_are_whole_wherever_the_bytes_are_cut() -> None:
    text = "Grüße 🦪\r\n\u2028 and \x85 end no line\nlast".encode()
    whole = ["Grüße 🦪".encode(), "\u2028 and \x85 end no line".encode(), b"last"]
    for at in range(len(text) + 1):
        assert anyio.run(_collected, lines(_chunks(text[:at], text[at:]))) == whole


def test_an_event_is_its_data_lines_and_nothing_else() -> None:
    given = [b": a comment", b"event: x", b"data: one", b"data:two", b"", b"id: 3", b"", b"data: last"]
    assert anyio.run(_collected, events(_chunks(*given))) == [b"one\ntwo", b"last"]


# ---- what is asked again


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_a_server_that_cannot_answer_now_is_asked_again(status: int) -> None:
    listener = Listener()
    reply, requests = _outcome(refusal("busy", status=status), FINE, listener=listener)
    assert (reply.message.content, requests, len(listener.waits)) == ("Hi.", 2, 1)
    assert f"answered {status}: busy; asking again in" in listener.notices[0]


def test_waits_grow_and_end_after_the_last_attempt() -> None:
    listener = Listener()
    assert "answered 503: busy" in _error(refusal("busy", status=503), listener=listener)
    first, second, third = listener.waits
    assert 0.25 <= first <= 0.5 <= second <= 1.0 <= third <= 2.0


def test_a_request_that_is_wrong_is_not_asked_again() -> None:
    listener = Listener()
    assert "answered 400: no such field" in _error(refusal("no such field", status=400), FINE, listener=listener)
    assert listener.waits == []


@pytest.mark.parametrize(
    ("name", "value", "wait"), [("retry_after", "7", 7.0), ("retry_after_ms", "250", 0.25), ("retry_after", "-3", 0.0)]
)
def test_a_server_says_how_long_to_wait(name: str, value: str, wait: float) -> None:
    listener = Listener()
    _outcome(refusal("busy", status=429, **{name: value}), FINE, listener=listener)
    assert listener.waits == [wait]


def test_a_server_says_until_when_to_wait() -> None:
    listener = Listener()
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    _outcome(refusal("busy", status=503, retry_after=until), FINE, listener=listener)
    assert 25 < listener.waits[0] <= 30


def test_a_server_that_takes_no_more_is_told_with_the_time_that_it_asks_to_wait() -> None:
    with pytest.raises(RateLimited, match="answered 429: come back tomorrow") as caught:
        _outcome(refusal("come back tomorrow", status=429, retry_after="86400"), listener=Listener())
    assert caught.value.wait == 86400
    with pytest.raises(RateLimited) as caught:
        _outcome(*[refusal("busy", status=429)] * 4, listener=Listener())
    assert caught.value.wait is None


def test_a_wait_that_no_one_would_sit_through_is_an_error() -> None:
    listener = Listener()
    said = _error(refusal("come back tomorrow", status=429, retry_after="86400"), listener=listener)
    assert said.endswith("answered 429: come back tomorrow (it asks to wait 86400 seconds)")
    assert listener.waits == []


def test_a_connection_that_was_kept_too_long_is_replaced_at_once() -> None:
    listener = Listener()

    async def run() -> int:
        async with replayed(FINE, Answer(end="cut"), FINE) as server:
            provider = OpenAI("m", base_url=server.host, timeouts=Timeouts(sleep=listener.sleep))
            for _ in range(2):
                await provider.complete(asked("Hello"), emit=listener)
            await provider.close()
            return server.connections

    assert anyio.run(run) == 2
    assert listener.waits == []


def test_connections_are_used_again() -> None:
    async def run() -> int:
        async with replayed(FINE) as server:
            provider = OpenAI("m", base_url=server.host)
            for _ in range(3):
                await provider.complete(asked("Hello"), emit=Listener())
            await provider.close()
            await provider.close()
            return server.connections

    assert anyio.run(run) == 1


def test_an_answer_that_breaks_off_before_its_first_word_is_asked_for_again() -> None:
    listener = Listener()
    reply, requests = _outcome(Answer(chunks=(b": hold on\n\n",), end="cut"), FINE, listener=listener)
    assert (reply.message.content, requests) == ("Hi.", 2)


def test_an_answer_that_breaks_off_after_its_first_word_is_not() -> None:
    listener = Listener()
    said = _error(Answer(chunks=(sse(PIECE),), end="cut"), FINE, listener=listener)
    assert "closed the connection in the middle of its answer" in said
    assert (listener.text, listener.waits) == ("Hi.", [])


def test_an_answer_that_ends_early_is_an_error() -> None:
    assert "ended its answer before it was complete" in _error(Answer(chunks=(sse(PIECE),)), listener=Listener())


# ---- how long it takes


def test_a_server_that_falls_silent_is_given_up() -> None:
    listener = Listener()
    said = _error(Answer(chunks=(sse(PIECE),), end="hang"), listener=listener, read=0.1)
    assert "was silent for 0.1 seconds" in said


def test_a_server_that_never_begins_is_given_up_without_asking_again() -> None:
    listener = Listener()
    assert "did not begin to answer within 0.1 seconds" in _error(Answer(end="hang"), listener=listener, read=0.1)
    assert listener.waits == []


def test_a_whole_answer_has_its_time() -> None:
    slow = Answer(chunks=[sse(PIECE)] * 1000, pause=0.01)
    assert "did not finish its answer within 0.1 seconds" in _error(slow, listener=Listener(), whole=0.1)


def test_a_server_that_does_not_hang_up_after_its_answer_is_not_waited_for() -> None:
    reply, _ = _outcome(Answer(chunks=FINE.chunks, end="hang"), listener=Listener(), read=60, whole=3, grace=0.05)
    assert reply.message.content == "Hi."


@pytest.mark.parametrize(
    "rest", ["data: \n\n", 'data: {"error": {"message": "no usage"}}\n\n', 'data: {"id": "1", "us']
)
def test_what_comes_behind_the_end_of_an_answer_does_not_cost_it(rest: str) -> None:
    answer = Answer(chunks=(sse(PIECE, END), rest.encode()))
    reply, requests = _outcome(answer, listener=Listener())
    assert (reply.message.content, reply.finish, requests) == ("Hi.", "stop", 1)


# ---- what a person is told


def test_no_server_says_where_and_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    listener = Listener()
    provider = OpenAI("m", base_url=address, timeouts=Timeouts(sleep=listener.sleep, attempts=2))
    with pytest.raises(ProviderError, match=f"the server at {address} cannot be reached .*; check that"):
        anyio.run(lambda: provider.complete(asked("Hello"), emit=listener))
    assert len(listener.waits) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "it is broken", "type": "x"}}', "it is broken"),
        (b'{"error": "{\\"error\\": {\\"code\\": 400, \\"message\\": \\"wrapped twice\\"}}"}', "wrapped twice"),
        (b'{"object": "error", "message": "in the open", "code": 400}', "in the open"),
        (b'{"detail": "said FastAPI"}', "said FastAPI"),
        (b"<html><h1>Bad  gateway</h1></html>", "Bad gateway"),
        (b"plain \xff words", "plain \ufffd words"),
        (b"", "Bad Request"),
    ],
)
def test_errors_of_every_shape_become_words(body: bytes, words: str) -> None:
    answer = Answer(chunks=(body,) if body else (), status=400)
    assert _error(answer, listener=Listener()).endswith(f"answered 400: {words}")


def test_a_redirect_says_where_to() -> None:
    moved = Answer(status=301, headers={"location": "https://user:pass@elsewhere/v1?key=1"})
    assert "it has moved to https://elsewhere/v1; set the address to that" in _error(moved, listener=Listener())


def test_what_is_not_json_is_named() -> None:
    assert "sent something that is not JSON: b'{nonsense'" in _error(
        Answer(chunks=(sse("{nonsense"),)), listener=Listener()
    )


def test_a_key_is_in_no_message_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = _error(refusal(f"Incorrect API key provided: {KEY}", status=401), listener=Listener())
    assert said.endswith("refuses the key: Incorrect API key provided: …")
    assert KEY not in caplog.text


def test_white_space_around_a_key_is_none_of_it_and_other_signs_are_refused() -> None:
    OpenAI("m", key=f"{KEY}\n")
    with pytest.raises(ConfigError) as caught:
        OpenAI("m", key=f"{KEY}\nx")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("context_length_exceeded invalid_request_error", "too much"),
        ("exceed_context_size_error", "request (5031 tokens) exceeds the available context size (2048 tokens)"),
        ("BadRequestError", "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
        ("", "The decoder prompt (length 5031) is longer than the maximum model length of 4096."),
        ("", "the input length exceeds the context length"),
        ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        ("", "Your input exceeds the context window of this model."),
    ],
)
def test_every_servers_way_to_say_too_long_is_understood(kind: str, message: str) -> None:
    assert Failure(message, status=400, kind=kind).overflow


@pytest.mark.parametrize("message", ["Rate limit reached: 30000 tokens per min", "max_tokens is too large", "busy"])
def test_other_failures_are_not_taken_for_an_overflow(message: str) -> None:
    assert not Failure(message, status=400).overflow


def test_an_overflow_is_not_asked_again_whatever_its_status() -> None:
    listener = Listener()
    with pytest.raises(ContextOverflow):
        _outcome(refusal("exceeds the available context size", status=500), FINE, listener=listener)
    assert listener.waits == []


@pytest.mark.parametrize(
    ("address", "local"),
    [("http://localhost:1", True), ("http://127.0.0.9", True), ("http://[::1]:1", True), ("http://example.org", False)],
)
def test_only_the_world_outside_is_behind_a_proxy(address: str, local: bool) -> None:
    assert is_local(address) is local


# ---- servers that send garbage


@pytest.mark.parametrize(
    "piece", ["[" * 100_000, '{"choices": 5}', '{"choices": [5]}', '{"choices": [{"delta": {"tool_calls": [5]}}]}']
)
def test_garbage_is_a_failure_of_the_server(piece: str) -> None:
    with pytest.raises(ServerFailed, match="sent something that is not"):
        _outcome(Answer(chunks=(sse(piece),)), listener=Listener())


def test_an_error_body_that_is_nested_without_end_is_an_error() -> None:
    assert "answered 400" in _error(Answer(status=400, chunks=(b"[" * 100_000,)), listener=Listener())


@pytest.mark.parametrize(("count", "expected"), [("1e400", 0), ("-5", 0), ('"many"', 0), ("7", 7)])
def test_a_number_of_tokens_that_makes_no_sense_is_ignored(count: str, expected: int) -> None:
    assert token_count(json.loads(count)) == expected


def test_a_key_that_the_server_repeats_is_in_no_traceback() -> None:
    with pytest.raises(ProviderError) as caught:
        _outcome(refusal(f"bad key {KEY}", status=401), listener=Listener())
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_connection_that_is_refused_is_said_in_plain_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        provider = OpenAI("m", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", timeouts=Timeouts(attempts=1))
        with pytest.raises(ModelUnavailable, match=r"cannot be reached \(connection refused\)"):
            anyio.run(lambda: provider.complete(asked("Hello"), emit=Listener()))
