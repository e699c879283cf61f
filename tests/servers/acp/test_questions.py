"""Questions about calls: each shows the call that will run, whole, and a change of mode or a no holds at once."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.servers.acp.conftest import Editor, Place, run
from tests.servers.acp.test_turns import WRITE, begin

TASK = {"call": "delegate", "task": "Summarise README.md"}
TOUCH = {"call": "shell", "command": "touch made"}


def texts(call: Any) -> list[str]:
    return [part.content.text for part in call.content if part.type == "content"]


def shown(editor: Editor) -> list[tuple[str, str]]:
    """The title and the status of each call."""
    return [(card.title, card.status) for card in editor.cards.values()]


def no_to(word: str) -> Any:
    return lambda call, options: "no" if word in json.dumps(call.raw_input) else "yes"


# ---- delegated tasks


def test_each_call_of_a_delegated_task_is_asked_about_as_itself(place: Place) -> None:
    place.model.script = [[TASK], [TOUCH], [WRITE], ["Child done."], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "go")
            _, (task, _), (shell, _), (write, _) = editor.questions
            assert len({call.tool_call_id for call in (task, shell, write)}) == 3
            assert [shell.title, write.title] == ["shell: touch made", "write_file: a.txt"]
            asking = "Asked by the delegated task: `Summarise README.md`"
            assert texts(shell) == [asking, "`command`\n```\ntouch made\n```"]
            assert texts(write) == [asking]
            assert [part.new_text for part in write.content if part.type == "diff"] == ["pearl\n"]
            assert shown(editor) == [
                ("delegate: Summarise README.md", "completed"),
                ("shell: touch made", "completed"),
                ("write_file: a.txt", "completed"),
            ]
            assert [one.status for one in editor.of("tool_call_update") if one.tool_call_id == shell.tool_call_id] == [
                "in_progress",
                "completed",
            ]

    run(talk())
    assert (place.folder / "made").exists()


def test_a_no_to_a_call_of_a_delegated_task_fails_that_call_alone(place: Place) -> None:
    place.model.script = [[TASK], [TOUCH, WRITE], ["Child done."], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = no_to("touch")
            await editor.ask(await begin(editor, place), "go")
            assert shown(editor) == [
                ("delegate: Summarise README.md", "completed"),
                ("shell: touch made", "failed"),
                ("write_file: a.txt", "completed"),
            ]

    run(talk())
    assert not (place.folder / "made").exists()


def test_a_task_of_a_task_has_calls_of_its_own(place: Place) -> None:
    inner = {"call": "delegate", "task": "Count the words"}
    place.model.script = [[TASK], [inner], [TOUCH], ["3"], ["Child done."], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "go")
            assert [texts(call)[0] for call, _ in editor.questions[2:]] == [
                "Asked by the delegated task: `Summarise README.md`",
                "Asked by the delegated task: `Count the words`",
            ]
            assert {status for _, status in shown(editor)} == {"completed"}
            assert len(shown(editor)) == 3

    run(talk())


def test_what_a_delegated_task_does_unasked_is_not_shown(place: Place) -> None:
    place.model.script = [[TASK], [{"call": "list_files"}], ["Child done."], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "go")
            assert shown(editor) == [("delegate: Summarise README.md", "completed")]

    run(talk())


# ---- what a question shows


@pytest.mark.parametrize(
    ("arguments", "title", "content"),
    [
        ({"command": "ls"}, "shell: ls", ["`command`\n```\nls\n```"]),
        (
            {"timeout": "5", "command": "touch made"},
            "shell: touch made",
            ["`command`\n```\ntouch made\n```", "`timeout`\n```\n5\n```"],
        ),
        (
            {"command": "echo hi # just a comment\ntouch made"},
            "shell: echo hi # just a comment\\ntouch made",
            ["`command`\n```\necho hi # just a comment\ntouch made\n```"],
        ),
        (
            {"command": "echo \u202e\x1b[2K"},
            "shell: echo \\u202e\\x1b[2K",
            ["`command`\n```\necho \\u202e\\x1b[2K\n```"],
        ),
        (
            {"command": "echo '\n```\n# Harmless'"},
            "shell: echo '\\n```\\n# Harmless'",
            ["`command`\n````\necho '\n```\n# Harmless'\n````"],
        ),
        (
            {"command": "echo" + " a" * 200 + "; touch made"},
            "shell: echo" + " a" * 94 + " …",
            ["`command`\n```\necho" + " a" * 200 + "; touch made\n```"],
        ),
        (
            {"": "harmless", "command": "touch made"},
            "shell: touch made",
            ["`command`\n```\ntouch made\n```", "``\n```\nharmless\n```"],
        ),
        (
            {"`a`\n": {"b": "\u202e"}, "command": "ls"},
            "shell: ls",
            ["`command`\n```\nls\n```", '`` `a`\\n ``\n```\n{"b": "\\u202e"}\n```'],
        ),
    ],
)
def test_a_question_shows_all_of_what_will_run_and_hides_nothing(
    place: Place, arguments: dict[str, Any], title: str, content: list[str]
) -> None:
    place.model.script = [[{"call": "shell", **arguments}], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            editor.answer = lambda call, options: "yes" if call.title.startswith("Trust") else "no"
            await editor.ask(await begin(editor, place), "go")
            call, _ = editor.questions[1]
            assert (call.title, texts(call)) == (title, content)

    run(talk())


def test_a_write_that_cannot_be_previewed_shows_its_arguments(place: Place) -> None:
    place.model.script = [[{"call": "write_file", "content": "harmless.txt", "path": "evil\0.txt"}], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "go")
            call, _ = editor.questions[1]
            assert call.title == "write_file: evil\\x00.txt"
            assert texts(call) == ["`path`\n```\nevil\\x00.txt\n```", "`content`\n```\nharmless.txt\n```"]

    run(talk())


def test_the_answer_always_names_the_skill_that_wants_it(place: Place) -> None:
    skill = place.folder / ".agents" / "skills" / "toucher"
    skill.mkdir(parents=True)
    head = "---\nname: toucher\ndescription: Touches.\nallowed-tools: Bash(touch:*)\n---\n"
    (skill / "SKILL.md").write_text(f"{head}Touch it.")
    place.model.script = [[{"call": "use_skill", "name": "toucher"}], [TOUCH], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "go")
            _, options = editor.questions[1]
            assert options[1].name == "Always in this session, as the skill toucher wants: shell(touch *)"

    run(talk())


# ---- a stricter mode in the middle of a turn


@pytest.mark.parametrize(
    ("mode", "rules"), [("yolo", ""), ("ask", '[permissions]\nallow = ["shell(touch)", "write_file(**)"]\n')]
)
@pytest.mark.parametrize("is_delegated", [False, True])
def test_read_only_in_the_middle_of_a_turn_refuses_what_needs_no_question(
    place: Place, mode: str, rules: str, is_delegated: bool
) -> None:
    place.configure(rules)
    reached, go = threading.Event(), threading.Event()
    before: dict[str, Any] = {"call": "shell", "command": "touch before"}
    work: list[list[Any]] = [[before], [{"reach": reached}, {"wait": go}, TOUCH, WRITE], ["I may not."]]
    place.model.script = [["Hello."], *([[TASK], *work, ["Done."]] if is_delegated else work)]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "hello")
            await editor.agent.set_session_mode(session_id=key, mode_id=mode)
            turn = asyncio.create_task(editor.ask(key, "make it"))
            await asyncio.to_thread(reached.wait, 60)
            await editor.agent.set_session_mode(session_id=key, mode_id="read-only")
            go.set()
            assert await turn == "end_turn"

    run(talk())
    assert [file.name for file in place.folder.iterdir()] == ["before"]
    refused = json.dumps([request["messages"] for request in place.model.requests])
    assert "this conversation is read-only" in refused


def test_a_yes_to_a_question_that_was_open_when_read_only_was_set_changes_nothing(place: Place) -> None:
    place.model.script = [["Hello."], [TOUCH], ["I may not."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "hello")
            editor.may_answer.clear()
            turn = asyncio.create_task(editor.ask(key, "make it"))
            await editor.until(lambda: len(editor.questions) == 2)
            await editor.agent.set_session_mode(session_id=key, mode_id="read-only")
            editor.may_answer.set()
            assert await turn == "end_turn"
            assert shown(editor) == [("shell: touch made", "failed")]

    run(talk())
    assert not (place.folder / "made").exists()


def test_ask_in_the_middle_of_a_yolo_turn_asks_from_then_on(place: Place) -> None:
    go = threading.Event()
    place.model.script = [["Hello."], ["Wait. ", {"wait": go}, TOUCH], ["I may not."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "hello")
            await editor.agent.set_session_mode(session_id=key, mode_id="yolo")
            turn = asyncio.create_task(editor.ask(key, "make it"))
            await editor.until(lambda: editor.text().endswith("Wait. "))
            await editor.agent.set_session_mode(session_id=key, mode_id="ask")
            editor.answer = no_to("touch")
            go.set()
            await turn
            assert len(editor.questions) == 2

    run(talk())
    assert not (place.folder / "made").exists()


# ---- answers that are none


YES = {"result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}


@pytest.mark.parametrize(
    ("answer", "is_made"),
    [
        (YES, True),
        ({**YES, "error": None}, True),
        ({**YES, "error": {"code": 1, "message": "no"}}, False),
        ({**YES, "error": {}}, False),
        ({"error": {"code": 1, "message": "no"}}, False),
        ({"error": None}, False),
        ({"result": None}, False),
        ({"result": {"outcome": {"outcome": "selected", "optionId": "YES"}}}, False),
    ],
)
def test_only_a_yes_without_an_error_is_a_yes(place: Place, answer: dict[str, Any], is_made: bool) -> None:
    place.model.script = [[TOUCH], ["Done."]]

    async def talk() -> None:
        process = await place.start()
        assert process.stdin is not None
        assert process.stdout is not None

        def send(message: dict[str, Any]) -> None:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")  # type: ignore[union-attr] # it is a pipe

        send({"id": 1, "method": "initialize", "params": {"protocolVersion": 1}})
        send({"id": 2, "method": "session/new", "params": {"cwd": str(place.folder), "mcpServers": []}})
        while True:
            message = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
            if message.get("method") == "session/request_permission":
                is_trust = message["params"]["toolCall"]["toolCallId"].startswith("question:")
                send({"id": message["id"], **(YES if is_trust else answer)})
            elif message.get("id") == 2:
                text = [{"type": "text", "text": "go"}]
                params = {"sessionId": message["result"]["sessionId"], "prompt": text}
                send({"id": 3, "method": "session/prompt", "params": params})
            elif message.get("id") == 3:
                assert message["result"]["stopReason"] == "end_turn"
                break
        process.stdin.close()
        await process.stdout.read()
        assert await asyncio.wait_for(process.wait(), 30) == 0

    run(talk())
    assert Path(place.folder, "made").exists() is is_made
