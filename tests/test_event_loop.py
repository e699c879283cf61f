"""A coroutine that holds up the event loop is found, and no other."""

from __future__ import annotations

import asyncio

import pytest

import nacre
from tests.event_loop import AsyncCall, assert_loop_goes_on, async_methods


def prepare(sessions: nacre.Sessions) -> None:
    sessions.add_message("k", "user", "hello")


async def read_in_a_thread(sessions: nacre.Sessions) -> None:
    await asyncio.to_thread(sessions.get_history, "k")


async def read_at_once(sessions: nacre.Sessions) -> None:
    sessions.get_history("k")


async def compute(_: nacre.Sessions) -> None:
    list(map(lambda n: n, range(200)))  # noqa: C417 - a call for each


@pytest.mark.parametrize("call", [read_in_a_thread, lambda sessions: nacre.AsyncSessions.of(sessions).get_history("k")])
def test_what_is_done_in_a_thread_is_no_fault(call: AsyncCall) -> None:
    assert_loop_goes_on(prepare, call, most=100)


@pytest.mark.parametrize(("call", "words"), [(read_at_once, "read of the store"), (compute, "functions were called")])
def test_what_is_done_in_the_thread_of_the_loop_is_found(call: AsyncCall, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        assert_loop_goes_on(prepare, call, most=100)


def test_the_methods_of_an_adapter_are_its_public_coroutines() -> None:
    assert {"get_history", "call", "close"} <= async_methods(nacre.AsyncSessions)
    assert {"submit", "blocking", "__aenter__"}.isdisjoint(async_methods(nacre.AsyncSessions))
