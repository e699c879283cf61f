"""use_skill and delegate: tools over what is passed in."""

from __future__ import annotations

import pytest

from nacre.errors import ToolError
from nacre.tools.delegate import Limits, Report, Task, delegate_tool
from nacre.tools.skill import skill_tool
from tests.tools.scenes import output, text


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
    tool = delegate_tool(family, Limits(depth=2, steps=9, tokens=500))
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
