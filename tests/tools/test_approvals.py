"""Who may run what, and who is asked."""

from __future__ import annotations

import anyio
import pytest

from nacre.agent.ports import Answer, Approval, Effect, Guard, Tool
from nacre.messages import ToolCall
from nacre.tools import Function
from nacre.tools.approvals import Approvals, Grounds, Mode, Policy
from nacre.tools.permission_rules import Verdict

CALL = ToolCall(id="1")


def named(name: str, effect: Effect) -> Function:
    def act() -> None:
        """Act."""

    return Function(act, effect=effect, name=name)


class Person:
    """Gives the answers it was told to give."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, approval: Approval) -> Answer:
        self.asked.append(approval.tool.spec.name)
        await anyio.lowlevel.checkpoint()
        return self._answers.pop(0)


def decided(guard: Guard, *tools: Tool) -> list[str]:
    async def each() -> list[str]:
        return [await guard(tool, CALL) for tool in tools]

    return anyio.run(each)


@pytest.mark.parametrize(
    ("name", "effect", "rule"),
    [
        ("read_file", "read", "allow"),
        ("write_file", "write", "ask"),
        ("shell", "run", "ask"),
        ("web_fetch", "read", "ask"),
    ],
)
def test_reading_is_allowed_and_the_rest_asks(name: str, effect: Effect, rule: Verdict) -> None:
    assert Policy().rule(named(name, effect)) == rule


def test_a_name_comes_before_a_pattern_and_a_pattern_before_the_effect() -> None:
    policy = Policy(
        tools={"gh_*": "allow", "gh_delete": "deny", "*_x": "deny"}, effects={"run": "allow", "read": "deny"}
    )
    rules = [policy.rule(named(name, "run")) for name in ("gh_list", "gh_delete", "gh_x", "other")]
    assert rules == ["allow", "deny", "deny", "allow"]
    assert policy.rule(named("other", "read")) == "deny"


def test_the_answers_decide_and_always_is_remembered() -> None:
    person = Person("yes", "no", "always")
    guard = Approvals(Policy(), ask=person)
    shell = named("shell", "run")
    answers = decided(guard, shell, shell, shell, shell)
    assert [bool(answer) for answer in answers] == [False, True, False, False]
    assert "the user said no" in answers[1]
    assert guard.remembered == ("shell",)
    assert len(person.asked) == 3


def test_what_was_remembered_is_not_asked_again_but_a_denial_holds() -> None:
    shell = named("shell", "run")
    assert decided(Approvals(Policy(), ask=Person(), remembered=["shell"]), shell) == [""]
    assert decided(Approvals(Policy(), remembered=["shell"]), shell) == [""]
    denied = decided(Approvals(Policy(tools={"shell": "deny"}), remembered=["shell"]), shell)
    assert denied == ["shell was not run: a rule of the configuration denies it. Do without it."]


def test_without_somebody_to_ask_it_is_a_refusal_in_words() -> None:
    (answer,) = decided(Approvals(Policy()), named("shell", "run"))
    assert "nobody can be asked here" in answer


def test_two_questions_at_once_are_asked_one_after_the_other() -> None:
    person = Person("always")
    guard = Approvals(Policy(), ask=person)

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(guard, named("shell", "run"), CALL)
            group.start_soon(guard, named("shell", "run"), CALL)

    anyio.run(both)
    assert person.asked == ["shell"]


def test_a_question_to_the_user_is_put_to_them_also_by_a_tool_that_is_allowed() -> None:
    asked: list[Approval] = []

    async def refuse(approval: Approval) -> Answer:
        asked.append(approval)
        return "no"

    call = ToolCall(id="1", arguments={"question": "Delete all?", "answer": {"sure": True}})
    guard = Approvals(Policy(tools={"desk_*": "allow"}), ask=refuse, remembered=["desk_clean"])
    assert "the user said no" in anyio.run(guard, named("desk_clean", "run"), call)
    assert [approval.always for approval in asked] == [()]


@pytest.mark.parametrize(
    ("mode", "limit", "verdicts"),
    [
        ("yolo", "yolo", ("allow", "allow", "allow")),
        ("yolo", "ask", ("allow", "ask", "ask")),
        ("yolo", "read-only", ("allow", "deny", "deny")),
        ("ask", "yolo", ("allow", "ask", "ask")),
        ("ask", "read-only", ("allow", "deny", "deny")),
        ("read-only", "yolo", ("allow", "deny", "deny")),
    ],
)
def test_the_stricter_of_the_mode_and_its_limit_holds(mode: Mode, limit: Mode, verdicts: tuple[Verdict, ...]) -> None:
    tools = [named("read_file", "read"), named("write_file", "write"), named("shell", "run")]
    guard = Approvals(Grounds(mode=mode, limit=lambda: limit, confined=frozenset({"write_file", "shell"})))
    assert tuple(guard.verdict(tool, CALL) for tool in tools) == verdicts


def test_a_limit_that_is_set_while_a_person_is_asked_comes_before_their_yes() -> None:
    limits: list[Mode] = ["yolo"]

    async def ask(_: Approval) -> Answer:
        limits.append("read-only")
        return "yes"

    guard = Approvals(Grounds(limit=lambda: limits[-1]), ask=ask)
    [refusal] = decided(guard, named("shell", "run"))
    assert refusal == "shell was not run: this conversation is read-only. Do without it."
