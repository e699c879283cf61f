"""use_skill and delegate: tools over what is passed in."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nacre.errors import ToolError
from nacre.tools.builtin import DelegateLimits, Report, Task, delegate_tool, skill_tool
from nacre.tools.tool_output import harmless
from tests.tools.scenes import output, text


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
    tool = delegate_tool(family, DelegateLimits(depth=2, steps=9, tokens=500))
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
