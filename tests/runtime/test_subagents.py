"""Sessions that work for another: what is reported of them."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.ports import Called, ChildReturned, Emit, Event, Output, Returned, Text, ignore
from nacre.messages import Message, ToolCall
from nacre.runtime.subagents import Delegated
from nacre.sessions import Sessions
from nacre.tools.builtin import Report, Task


def task(text: str, call: str = "call_0") -> Task:
    return Task(parent="k", call=call, text=text, depth=1, steps=5, tokens=9999)


def delegated(sessions: Sessions, *tasks: Task, **extra: str) -> list[Report]:
    """Have tasks done one after the other, by children that answer with the words that they were given."""

    async def deliver(inbound: UserMessage, _parent: str, _emit: Emit) -> Message:
        answer = Message(role="assistant", content=f"did: {inbound.content}", extra=dict(extra))
        sessions.add_messages(inbound.key, [Message(role="user", content=inbound.content), answer])
        return answer

    async def run() -> list[Report]:
        return [await Delegated(sessions, deliver).run(each, ignore) for each in tasks]

    return anyio.run(run)


@pytest.mark.parametrize("why", ["steps", "length"])
def test_why_a_child_stopped_is_reported(home: Path, why: str) -> None:
    with nacre.open() as sessions:
        [report] = delegated(sessions, task("count"), stopped=why)
    assert (report.status, report.answer) == (why, "did: count")


@pytest.mark.parametrize("second", ["delete the drafts", "count the invoices"])
def test_a_call_with_the_id_of_an_earlier_one_has_a_child_of_its_own(home: Path, second: str) -> None:
    with nacre.open() as sessions:
        reports = delegated(sessions, task("count the invoices"), task(second), task("third"))
        assert [report.key for report in reports] == ["k/call_0", "k/call_0-2", "k/call_0-3"]
        assert [report.answer for report in reports] == ["did: count the invoices", f"did: {second}", "did: third"]
        assert [sessions.get_meta(report.key)["title"] for report in reports] == ["count the invoices", second, "third"]
        assert [len(sessions.get_history(report.key)) for report in reports] == [2, 2, 2]


def test_what_the_calls_of_a_child_gave_is_passed_on_with_its_session(home: Path) -> None:
    call, refused = ToolCall(id="call_0", name="shell"), Output(text="no", failed=True, is_refused=True)
    below = ChildReturned("k/call_0/call_0", call, Output(text="deep"))
    happened: list[Event] = []

    async def deliver(_inbound: UserMessage, _parent: str, emit: Emit) -> None:
        for event in (
            Text("said"),
            Called(call),
            Returned(call, Output(text="short", whole="long", images=({"type": "image_url"},))),
            Returned(call, refused),
            below,
            Returned(call, refused, session="k/call_0/call_0"),
        ):
            emit(event)

    with nacre.open() as sessions:
        anyio.run(Delegated(sessions, deliver).run, task("go"), happened.append)
    assert happened == [
        ChildReturned("k/call_0", call, Output(text="short")),
        Returned(call, refused, session="k/call_0"),
        below,
        Returned(call, refused, session="k/call_0/call_0"),
    ]
