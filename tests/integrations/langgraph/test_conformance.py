"""LangGraph's own conformance suite, every capability, on every kind of store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

import nacre
from nacre.integrations.langgraph import NacreSaver

TESTS = 81


def test_the_suite_passes_with_every_capability(place: str) -> None:
    async def make() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        with nacre.open(place) as sessions:
            yield NacreSaver(sessions)

    run_suite(make)


def test_the_suite_passes_with_async_sessions(place: str) -> None:
    async def make() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        async with nacre.open_async(place) as sessions:
            yield NacreSaver(sessions)

    run_suite(make)


def run_suite(make: object) -> None:
    report = asyncio.run(validate(checkpointer_test(name="NacreSaver")(make)))
    failures = [failure for result in report.results.values() for failure in result.failures]
    assert failures == []
    assert all(result.detected for result in report.results.values())
    assert sum(result.tests_passed for result in report.results.values()) >= TESTS
