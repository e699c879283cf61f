"""The calls of one answer: which run side by side, and what is in the log in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from nacre.agent.kernel import Kernel
from nacre.agent.ports import Ask, Called, Effect, Guard, Output, Returned, Scene, Spec, Tool
from nacre.agent.tool_calls import run_side_by_side
from nacre.errors import Stopped, StoreError
from nacre.messages import ToolCall
from nacre.providers.scripted import Call, Scripted
from nacre.sessions import Sessions
from tests.agent.scene import SCHEMA, Echo, Watching, agent, call, converse, lines, words


class Meeting:
    """A read that ends only when so many are running."""

    def __init__(self, needed: int) -> None:
        self.spec = Spec(name="meet", description="Wait for the others.", parameters=SCHEMA)
        self.effect: Effect = "read"
        self._needed = needed
        self.here = self.most = 0
        self._all = anyio.Event()

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        self.here += 1
        self.most = max(self.most, self.here)
        if self.here == self._needed:
            self._all.set()
        await self._all.wait()
        await anyio.lowlevel.checkpoint()
        self.here -= 1
        return Output(text=f"met {arguments['x']}")


class Noting:
    """A tool with an effect that notes when it begins and ends."""

    def __init__(self, name: str, effect: Effect, notes: list[str]) -> None:
        self.spec = Spec(name=name, description="Note it.", parameters=SCHEMA)
        self.effect: Effect = effect
        self._notes = notes

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        self._notes.append(f"{self.spec.name} {arguments['x']}")
        await anyio.sleep(0.001)
        self._notes.append(f"{self.spec.name} {arguments['x']} ended")
        return Output(text="")


def meetings(count: int) -> list[Call]:
    return [call("meet", str(number)) for number in range(count)]


def test_five_reads_have_all_begun_before_one_ends(sessions: Sessions) -> None:
    converse(sessions, [meetings(5), "done"], "go", tools=[Meeting(5)])
    assert lines(sessions)[2:] == [*(f"tool: met {number}" for number in range(5)), "assistant: done"]


def test_only_so_many_run_at_once(sessions: Sessions) -> None:
    tool = Meeting(8)
    converse(sessions, [meetings(20), "done"], "go", tools=[tool])
    assert tool.most == 8
    assert lines(sessions)[-1] == "assistant: done"


def test_results_are_in_the_order_of_the_calls_whichever_ends_first(sessions: Sessions) -> None:
    ended: list[str] = []
    events = {x: anyio.Event() for x in "abc"}
    after = {"a": "b", "b": "c"}

    async def act(x: str) -> str:
        if x in after:
            await events[after[x]].wait()
        ended.append(x)
        events[x].set()
        return x

    converse(sessions, [[call(x=x) for x in "abc"], "done"], "go", tools=[Echo(act=act)])
    assert ended == ["c", "b", "a"]
    assert [message.content for message in sessions.get_history("k") if message.role == "tool"] == ["a", "b", "c"]
    kinds = [entry.kind for entry in sessions.records("k")]
    assert kinds == ["open", "msg", "msg", "use", "tool", "tool", "tool", "msg", "msg", "msg", "msg", "use"]


def test_a_write_waits_for_the_reads_before_it_and_the_reads_after_it_wait_for_it(sessions: Sessions) -> None:
    notes: list[str] = []
    tools = [Noting("look", "read", notes), Noting("change", "write", notes), Noting("start", "run", notes)]
    order = [("look", "1"), ("look", "2"), ("change", "a"), ("change", "b"), ("start", "a"), ("look", "3")]
    calls = [call(name, x) for name, x in order]
    converse(sessions, [calls, "done"], "go", tools=tools)
    assert notes[:2] == ["look 1", "look 2"]
    assert sorted(notes[2:4]) == ["look 1 ended", "look 2 ended"]
    alone = ("change a", "change b", "start a", "look 3")
    assert notes[4:] == [note for name in alone for note in (name, f"{name} ended")]


def test_what_was_refused_or_failed_keeps_its_place(sessions: Sessions) -> None:
    def some(key: str, ask: Ask | None) -> Guard:
        async def decide(tool: Tool, asked: ToolCall) -> str:
            return "no" if asked.arguments["x"] == "b" else ""

        return decide

    async def act(x: str) -> str:
        if x == "c":
            raise StoreError("broken")
        return x

    watching = Watching()
    answering = agent(Scripted([[call(x=x) for x in "abcd"], "done"]), Echo(act=act), guard=some)

    async def play() -> None:
        async with Kernel(sessions, lambda _: answering) as kernel:
            await kernel.deliver(words("go"), emit=watching)

    anyio.run(play)
    assert lines(sessions)[2:] == [
        "tool: a",
        "tool: no",
        "tool: the tool echo failed: StoreError: broken",
        "tool: d",
        "assistant: done",
    ]
    assert [entry.data["call"] for entry in sessions.records("k", "tool")] == ["call_1", "call_3", "call_4"]
    seen = [event.call.arguments["x"] for event in watching.events if isinstance(event, (Called, Returned))]
    assert "".join(seen) == "acd" + "abcd"


def test_stopping_ends_all_and_keeps_the_results_that_were_there(sessions: Sessions) -> None:
    model = Scripted([[call(x=x) for x in "abc"], "hello"])
    ended: list[str] = []

    async def play() -> None:
        begun = [anyio.Event() for _ in range(2)]

        async def act(x: str) -> str:
            if x == "a":
                return "a"
            begun["bc".index(x)].set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(x)
            return x

        def stop(event: object) -> None:
            if isinstance(event, Returned):
                returned.set()

        returned = anyio.Event()
        answering = agent(model, Echo(act=act))
        async with Kernel(sessions, lambda _: answering) as kernel, anyio.create_task_group() as tasks:

            async def deliver() -> None:
                with pytest.raises(Stopped):
                    await kernel.deliver(words("go"), emit=stop)

            tasks.start_soon(deliver)
            for event in (*begun, returned):
                await event.wait()
            assert kernel.stop("k")
        async with Kernel(sessions, lambda _: agent(model)) as kernel:
            await kernel.deliver(words("again"))

    anyio.run(play)
    assert sorted(ended) == ["b", "c"]
    shown = [str(message.content) for message in model.contexts[1].messages if message.role == "tool"]
    assert shown[0] == "a"
    assert all("outcome unknown" in text for text in shown[1:])


async def _play(work: Sequence[Any], keep: Any) -> list[str]:
    return await run_side_by_side(work, keep, limit=2)


async def _kept(at: int, text: str) -> None:
    pass


@pytest.mark.parametrize("place", ["work", "keep"])
def test_a_failure_is_raised_as_itself_and_ends_the_others(place: str) -> None:
    ended: list[int] = []

    async def forever() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)
        return ""

    async def fail(*_: object) -> str:
        raise StoreError("the disk is full")

    async def give() -> str:
        return "x"

    work, keep = ([fail, forever], _kept) if place == "work" else ([give, forever], fail)
    with pytest.raises(StoreError, match="the disk is full"):
        anyio.run(_play, work, keep)
    assert ended == [1]
