"""One turn: what is committed, in which order, and what the model is shown."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Ask, Called, Guard, Notice, Output, Returned, Scene, Text, Tool
from nacre.errors import ContextOverflow, ProviderError, ToolError
from nacre.history.tokens import cost
from nacre.messages import ToolCall
from nacre.providers.scripted import Call, Scripted, Stops, Thinks
from nacre.sessions import Sessions
from tests.agent.scene import Echo, Watching, agent, call, converse, lines, said, words


def test_words_and_answer_are_in_the_log(sessions: Sessions) -> None:
    converse(sessions, ["hello"], "hi")
    assert lines(sessions) == ["user: hi", "assistant: hello"]


def test_a_call_is_run_and_its_result_shown(sessions: Sessions) -> None:
    echo = Echo()
    model = converse(sessions, [["let me see", call(x="1")], "done"], "go", tools=[echo])
    assert lines(sessions) == [
        "user: go",
        "assistant: let me see echo({'x': '1'})",
        "tool: <1>",
        "assistant: done",
    ]
    assert echo.ran == ["1"]
    assert [message.role for message in model.contexts[1].messages] == ["user", "assistant", "tool"]


def test_every_step_is_in_the_log_before_the_next(sessions: Sessions) -> None:
    echo = Echo()
    echo.effect = "write"
    converse(sessions, [[call(x="1"), call(x="2")], "done"], "go", tools=[echo])
    kinds = [entry.kind for entry in sessions.records("k")]
    assert kinds == ["open", "msg", "msg", "use", "tool", "msg", "tool", "msg", "msg", "use"]
    assert next(sessions.records("k", "tool")).data == {"call": "call_1", "name": "echo"}


def test_a_tool_runs_only_when_it_is_on_record(sessions: Sessions) -> None:
    seen: list[list[str]] = []

    async def look(_: str) -> str:
        seen.append([entry.kind for entry in sessions.records("k")])
        return "ok"

    converse(sessions, [call(), "done"], "go", tools=[Echo(act=look)])
    assert seen[0][-1] == "tool"


def test_usage_is_recorded_once_per_request(sessions: Sessions) -> None:
    converse(sessions, [call(), "done"], "go", tools=[Echo()])
    requests = [entry.data["request"] for entry in sessions.records("k", "use")]
    assert requests == ["request_1", "request_2"]


def test_the_system_prompt_is_on_record_before_the_model_sees_it(sessions: Sessions) -> None:
    model = Scripted(["a", "b"])
    anyio.run(said, sessions, agent(model, system=lambda: "Be kind."), "1", "2")
    assert sessions.get_meta("k") == {"system": "Be kind."}
    assert [context.system for context in model.contexts] == ["Be kind.", "Be kind."]
    assert len(list(sessions.records("k", "meta"))) == 1


# What goes wrong


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (Call("nothing", {"x": "1"}), "there is no tool 'nothing'; there are: echo"),
        (Call("echo", '{"x": "1'), "the arguments of echo are not a JSON object"),
        (Call("echo", {}), "the tool echo failed: KeyError: 'x'"),
    ],
    ids=["unknown", "cut", "missing"],
)
def test_a_call_that_cannot_be_run_is_answered(sessions: Sessions, wrong: Call, told: str) -> None:
    echo = Echo()
    logging.disable()
    converse(sessions, [wrong, "sorry"], "go", tools=[echo])
    logging.disable(logging.NOTSET)
    result = sessions.get_history("k")[2]
    assert str(result.content).startswith(told)
    assert result.extra == {"failed": True}
    assert echo.ran == []


def test_an_answer_that_was_cut_is_told_and_marked(sessions: Sessions) -> None:
    watching = Watching()

    async def ask() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted([["The first half of the sen", Stops()]]))) as kernel:
            await kernel.deliver(words("hi"), emit=watching)

    anyio.run(ask)
    answer = sessions.get_history("k")[-1]
    assert (answer.content, answer.extra) == ("The first half of the sen", {"stopped": "length"})
    assert any(isinstance(event, Notice) and "cut off" in event.text for event in watching.events)


def test_a_call_that_was_cut_is_not_run(sessions: Sessions) -> None:
    echo = Echo()
    converse(sessions, [[call(x="1"), call(x="2"), Stops()], "sorry"], "go", tools=[echo])
    assert echo.ran == ["1"]
    assert "nothing was run" in lines(sessions)[3]
    assert sessions.get_history("k")[3].extra == {"failed": True}
    assert sessions.get_history("k")[4].extra == {}


def test_a_tool_s_failure_is_a_result(sessions: Sessions) -> None:
    async def fail(_: str) -> str:
        raise ToolError("the disk is full")

    converse(sessions, [call(), "sorry"], "go", tools=[Echo(act=fail)])
    assert lines(sessions)[2] == "tool: the disk is full"


def test_a_call_that_is_refused_is_not_run(sessions: Sessions) -> None:
    def refusing(key: str, ask: Ask | None) -> Guard:
        async def refuse(tool: Tool, call: ToolCall) -> str:
            return f"{call.name} is forbidden"

        return refuse

    echo = Echo()
    anyio.run(said, sessions, agent(Scripted([call(), "ok"]), echo, guard=refusing), "go")
    assert (lines(sessions)[2], echo.ran) == ("tool: echo is forbidden", [])
    assert list(sessions.records("k", "tool")) == []


def test_a_call_that_is_refused_while_it_runs_counts_as_refused(sessions: Sessions) -> None:
    class Elsewhere(Echo):
        async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
            raise ToolError(await scene.permit({"x": "elsewhere"}))

    def guarding(key: str, ask: Ask | None) -> Guard:
        async def refuse(tool: Tool, call: ToolCall) -> str:
            return "not there" if call.arguments == {"x": "elsewhere"} else ""

        return refuse

    watching, answering = Watching(), agent(Scripted([call(x="1"), "done"]), Elsewhere(), guard=guarding)

    async def ask() -> None:
        async with Kernel(sessions, lambda _: answering) as kernel:
            await kernel.deliver(words("go"), emit=watching)

    anyio.run(ask)
    outputs = [event.output for event in watching.events if isinstance(event, Returned)]
    assert outputs == [Output(text="not there", failed=True, is_refused=True)]


def test_a_provider_s_error_reaches_who_asked_and_the_words_stay(sessions: Sessions) -> None:
    model = Scripted([ProviderError("no server"), "hello again"])
    with pytest.raises(ProviderError, match="no server"):
        anyio.run(said, sessions, agent(model), "hi")
    assert lines(sessions) == ["user: hi"]
    anyio.run(said, sessions, agent(model), "still there?")
    assert lines(sessions) == ["user: hi", "user: still there?", "assistant: hello again"]


def test_an_overflow_is_tried_again_with_less(sessions: Sessions) -> None:
    for index in range(20):
        sessions.add_messages(
            "k", [{"role": "user", "content": f"{index}" * 400}, {"role": "assistant", "content": "."}]
        )
    model = Scripted([ContextOverflow("too long"), "ok"])
    watching = Watching()

    async def ask() -> None:
        async with Kernel(sessions, lambda _: agent(model, tokens=lambda: 2000)) as kernel:
            await kernel.deliver(words("hi"), emit=watching)

    anyio.run(ask)
    assert len(model.contexts[1].messages) < len(model.contexts[0].messages)
    assert any(isinstance(event, Notice) and "too long" in event.text for event in watching.events)


def test_an_overflow_that_stays_is_raised(sessions: Sessions) -> None:
    model = Scripted([ContextOverflow("it takes 2 tokens")])
    with pytest.raises(ContextOverflow, match=r"it takes 2 tokens\n.*smallest request .* about 5 tokens"):
        anyio.run(said, sessions, agent(model), "hi")
    assert len(model.contexts) == 1


def test_every_request_after_an_overflow_is_smaller_until_nothing_is_left_to_cut(sessions: Sessions) -> None:
    model = Scripted([ContextOverflow("too long")] * 8)
    with pytest.raises(ContextOverflow):
        anyio.run(said, sessions, agent(model, system=lambda: "Be kind. " * 900), "word " * 30_000)
    sizes = [cost(context) for context in model.contexts]
    assert len(sizes) == 8
    assert sizes == sorted(set(sizes), reverse=True)


def test_a_turn_without_an_end_is_ended(sessions: Sessions) -> None:
    model = Scripted([call()] * 3)
    anyio.run(said, sessions, agent(model, Echo(), steps=3), "go")
    assert lines(sessions)[-1] == "assistant: [stopped after 3 steps]"


class Fails(Echo):
    """A tool that fails, but for the arguments that it likes."""

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        done = await super().run(arguments, scene)
        if arguments["x"] != "good":
            raise ToolError("there is no such file")
        return done


@pytest.mark.parametrize(
    ("steps", "requests"),
    [
        ([call()] * 9, 3),
        ([[call(x="1"), call(x="2")]] * 9, 3),
        ([Call("nothing", {})] * 9, 3),
        ([Call("echo", "{")] * 9, 3),
        ([call(), call(), call(x="other"), *[call()] * 9], 6),
        ([call(), call(), call(x="good"), *[call()] * 9], 6),
    ],
    ids=["alone", "two", "unknown tool", "broken arguments", "another in between", "a success in between"],
)
def test_a_call_that_fails_again_and_again_ends_the_turn(sessions: Sessions, steps: list[Any], requests: int) -> None:
    model = converse(sessions, steps, "go", tools=[Fails()])
    end = sessions.get_history("k")[-1]
    assert len(model.contexts) == requests
    assert end.extra == {"stopped": "repeated"}
    assert str(end.content).endswith("failed 3 times in a row with the same arguments]")


@pytest.mark.parametrize(
    "step",
    [[call(x="good")], [call(), call(x="good")], [call(x="good"), call()]],
    ids=["good", "bad first", "bad last"],
)
def test_a_step_in_which_something_succeeds_is_no_repetition(sessions: Sessions, step: list[Any]) -> None:
    model = converse(sessions, [*[step] * 5, "done"], "go", tools=[Fails()])
    assert len(model.contexts) == 6
    assert lines(sessions)[-1] == "assistant: done"


@pytest.mark.parametrize("nothing", ["", "  \n", Thinks("Hm.")], ids=["empty", "blank", "only thought"])
def test_an_empty_answer_is_asked_for_once_more(sessions: Sessions, nothing: Any) -> None:
    model = converse(sessions, [nothing, "hello"], "hi")
    assert len(model.contexts) == 2
    assert lines(sessions) == ["user: hi", "assistant: hello"]
    assert [entry.data["request"] for entry in sessions.records("k", "use")] == ["request_1", "request_2"]


@pytest.mark.parametrize("nothing", ["", Thinks("Hm.")], ids=["empty", "only thought"])
def test_a_second_empty_answer_is_the_answer(sessions: Sessions, nothing: Any) -> None:
    model = converse(sessions, [nothing, nothing, "never"], "hi")
    assert len(model.contexts) == 2
    assert lines(sessions) == ["user: hi", "assistant: "]


def test_an_empty_answer_that_was_cut_is_not_asked_for_again(sessions: Sessions) -> None:
    model = converse(sessions, [[Thinks("Hm."), Stops()], "never"], "hi")
    assert len(model.contexts) == 1
    assert sessions.get_history("k")[-1].extra == {"stopped": "length"}


# What is seen meanwhile


def test_what_happens_is_told_as_it_happens(sessions: Sessions) -> None:
    watching = Watching()

    async def ask() -> None:
        async with Kernel(sessions, lambda _: agent(Scripted([["hm", call()], "done"]), Echo())) as kernel:
            await kernel.deliver(words("go"), emit=watching)

    anyio.run(ask)
    assert [type(event) for event in watching.events] == [Text, Called, Returned, Text]


def test_what_is_left_out_is_said(sessions: Sessions) -> None:
    for index in range(10):
        sessions.add_messages("k", [{"role": "user", "content": f"{index}"}, {"role": "assistant", "content": "."}])
    watching, model = Watching(), Scripted(["ok"])

    async def ask() -> None:
        async with Kernel(sessions, lambda _: agent(model, max_messages=6)) as kernel:
            await kernel.deliver(words("hi"), emit=watching)

    anyio.run(ask)
    assert [event.text for event in watching.events if isinstance(event, Notice)] == [
        "16 earlier messages are not shown to the model"
    ]
    shown = [str(message.content) for message in model.contexts[0].messages]
    assert shown == ["[16 earlier messages are not shown]", "8", ".", "9", ".", "hi"]


def test_a_long_result_is_kept_whole(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    class Long(Echo):
        async def run(self, arguments: Any, scene: Any) -> Any:
            return nacre.agent.ports.Output(text="short", whole="long" * 30_000)

    converse(sessions, [call(), "ok"], "go", tools=[Long()])
    assert sessions.get_history("k")[2].extra == {"whole": "long" * 30_000}
