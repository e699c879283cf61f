"""The built-in tools that pass a call on: shell, delegate, use_skill, remember and forget."""

from __future__ import annotations

import re
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nacre.agent.ports import Finished, Output, Sandbox, Scene
from nacre.errors import NacreError, ToolError
from nacre.messages import ToolCall
from nacre.tools.builtin import Report, Task, delegate_tool, memory_tools, shell_tool, skill_tool
from nacre.tools.functions import Function
from nacre.tools.tool_output import harmless
from tests.tools.scenes import output, text

# ---- shell


class Canned:
    """A sandbox that runs nothing and remembers what it was asked."""

    name = "canned"

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self.asked: list[tuple[Sequence[str], float]] = []

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - the port's
        self.asked.append((command, timeout))
        return self._finished


@pytest.mark.parametrize(
    ("finished", "said", "failed"),
    [
        (Finished(status=0, output=b"hi\n"), "hi", False),
        (Finished(status=0, output=b""), "(no output)", False),
        (Finished(status=2, output=b"bad\n"), "bad\n[exit status 2]", True),
        (Finished(status=-9, output=b""), "(no output)\n[killed by SIGKILL]", True),
        (Finished(status=-9, output=b"x", timed_out=True), "x\n[stopped after 120 s: timeout]", True),
        (Finished(status=0, output=b"\x1b[31mred\x1b[0m \xff"), "red \ufffd", False),
    ],
)
def test_output_and_ending_are_told(finished: Finished, said: str, failed: bool) -> None:
    found = output(shell_tool(Canned(finished)), command="x")
    assert (found.text, found.failed) == (said, failed)


def test_long_output_keeps_its_head_its_tail_and_its_ending() -> None:
    data = b"first\n" + b"x" * 100_000 + b"\nlast\n"
    found = output(shell_tool(Canned(Finished(status=1, output=data, cut=True))), command="x")
    assert found.text.startswith("first\n")
    assert found.text.endswith("last\n[it printed more than 4,000,000 bytes; the rest was not kept]\n[exit status 1]")
    assert found.whole is not None
    assert len(found.whole) > 100_000


def test_the_command_goes_to_a_shell_with_a_bounded_time() -> None:
    sandbox = Canned(Finished(status=0, output=b""))
    port: Sandbox = sandbox
    text(shell_tool(port), command="echo 'a b'", timeout="9999")
    assert sandbox.asked[0][0][1:] == ["-c", "echo 'a b'"]
    assert sandbox.asked[0][1] == 600


# ---- delegate and use_skill


@given(
    text=st.text(alphabet="ab \n\té\x1b", max_size=400).map(lambda text: text * 400),
    pad=st.integers(min_value=0, max_value=40_000),
)
@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
def test_a_skill_of_any_length_is_read_to_its_end(text: str, pad: int) -> None:
    whole = "x" * pad + text
    tool = skill_tool(["a"], lambda *_: whole)
    parts, offset = [], 0
    while True:
        part = output(tool, name="a", offset=offset).text
        assert len(part) <= 16_000
        more = re.search(r"\n\[[\d,]+ of [\d,]+ characters follow; offset=(\d+) continues\]\Z", part)
        parts.append(part[: more.start()] if more else part)
        if more is None:
            break
        offset = int(more[1])
    assert "".join(parts) == harmless(whole)


@pytest.mark.parametrize("offset", [-1, 3, 4])
def test_a_skill_has_no_text_after_its_end(offset: int) -> None:
    with pytest.raises(ToolError, match="from 0 to 2"):
        output(skill_tool(["a"], lambda *_: "abc"), name="a", offset=offset)


def test_a_skill_is_chosen_from_a_sorted_list_and_loaded() -> None:
    tool = skill_tool(["b", "a"], lambda name, file: f"{name}:{file}")
    assert tool.spec.parameters["properties"]["name"]["enum"] == ["a", "b"]
    assert text(tool, name="b") == "b:"
    assert text(tool, name="a", file="x.md") == "a:x.md"
    with pytest.raises(ToolError, match="one of a, b"):
        output(tool, name="c")


class Family:
    """Runs children by saying what it was asked."""

    def __init__(self, depth: int, report: Report) -> None:
        self._depth = depth
        self._report = report
        self.tasks: list[Task] = []

    def depth(self, key: str) -> int:
        return self._depth

    async def run(self, task: Task, _: object) -> Report:
        self.tasks.append(task)
        return self._report


def test_a_child_is_linked_to_its_parent_and_limited() -> None:
    family = Family(0, Report(key="cli:1/a", status="done", answer="42", steps=3, tokens=1200))
    tool = delegate_tool(family, max_depth=2, max_steps=9, max_tokens=500)
    assert text(tool, task="count", steps=99) == "[session cli:1/a: done; 3 steps, 1,200 tokens]\n\n42"
    assert family.tasks == [Task(parent="cli:1", call="call_1", text="count", depth=1, steps=9, tokens=500)]


@pytest.mark.parametrize("status", ["steps", "tokens", "length", "failed", "interrupted"])
def test_a_child_that_did_not_finish_is_a_failed_result_with_its_status(status: str) -> None:
    report = Report(key="k", status=status, steps=1)  # type: ignore[arg-type] # each of them is a status
    found = output(delegate_tool(Family(1, report)), task="x")
    assert found.failed
    assert found.text.startswith("[session k: ")
    assert "1 step," in found.text


def test_too_deep_and_empty_tasks_are_refused_before_anything_runs() -> None:
    family = Family(2, Report(key="k", status="done"))
    with pytest.raises(ToolError, match="already 2 levels deep"):
        output(delegate_tool(family), task="x")
    with pytest.raises(ToolError, match="task is empty"):
        output(delegate_tool(Family(0, Report(key="k", status="done"))), task=" ")
    assert family.tasks == []


# ---- remember and forget


class Kept:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, str, str]] = []

    def remember(self, text: str, subject: str, key: str) -> str:
        self.facts.append((text, subject, key))
        return text

    def forget(self, text: str) -> str:
        for fact in self.facts:
            if text in fact[0]:
                self.facts.remove(fact)
                return fact[0]
        raise NacreError(f"no fact matches {text!r}")


def run(tool: Function, **arguments: str) -> Output:
    scene = Scene(key="telegram:42", call=ToolCall(id="c", name=tool.spec.name), emit=lambda _: None)
    return anyio.run(tool.run, arguments, scene)


def test_a_fact_is_kept_with_the_session_it_was_said_in_and_taken_out_again() -> None:
    kept = Kept()
    remember, forget = memory_tools(kept.remember, kept.forget)
    assert (
        run(remember, fact="Release day is Thursday", subject="releases").text == "remembered: Release day is Thursday"
    )
    assert kept.facts == [("Release day is Thursday", "releases", "telegram:42")]
    assert run(forget, fact="Thursday").text == "forgotten: Release day is Thursday"
    assert kept.facts == []


def test_what_is_not_known_is_told_to_the_model() -> None:
    _, forget = memory_tools(Kept().remember, Kept().forget)
    with pytest.raises(ToolError, match="no fact matches"):
        run(forget, fact="Friday")


def test_the_model_is_told_of_fact_and_subject_only() -> None:
    remember, forget = memory_tools(Kept().remember, Kept().forget)
    assert set(remember.spec.parameters["properties"]) == {"fact", "subject"}
    assert remember.spec.parameters["required"] == ["fact"]
    assert set(forget.spec.parameters["properties"]) == {"fact"}
    assert remember.effect == forget.effect == "write"
