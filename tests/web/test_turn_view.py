"""Turns begun on the page: a tool that needs permission asks the person there, and silence means no."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import TaskGroup

import nacre
from nacre.agent.ports import Approval, Ask
from nacre.errors import NacreError
from nacre.messages import ToolCall
from nacre.providers.scripted import Call
from nacre.sessions import Sessions
from nacre.tools.functions import Function
from nacre.web.pages import turn_view
from nacre.web.pages.turn_view import Audience, Question, Questions
from nacre.web.server import application
from tests.web.browser.site import HEADERS, HOSTS, TOKEN, made, posted, said


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        yield found


def tool() -> Function:
    def wipe(path: str) -> str:
        """Wipe a file.

        Args:
            path: the file
        """
        return f"wiped {path}"

    return Function(wipe, effect="write")


async def asked_in(
    run: Callable[[Questions, list[Any], Audience, TaskGroup], Awaitable[None]], seconds: float = 60.0
) -> None:
    async with anyio.create_task_group() as tasks:
        await run(Questions(timeout=seconds), [], Audience(), tasks)


def asker(questions: Questions, heard: list[Any], audience: Audience) -> Ask:
    return questions.asker("k", heard.append, audience)


async def asking_for(ask: Ask, skill: str = "", *always: str) -> None:
    await ask(Approval(tool=tool(), call=CALL, skill=skill, always=always))


CALL = ToolCall(id="1", name="wipe", arguments={"path": "<b>.txt"})


@pytest.mark.parametrize("answer", ["yes", "no", "always"])
def test_what_a_person_says_is_the_answer(answer: str) -> None:
    answers: list[str] = []

    async def run(questions: Questions, heard: list[Any], audience: Audience, tasks: TaskGroup) -> None:
        async def ask() -> None:
            answers.append(await asker(questions, heard, audience)(Approval(tool=tool(), call=CALL)))

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        [question] = questions.of("k")
        assert heard == [question]
        questions.answer("k", question.id, answer)

    anyio.run(asked_in, run)
    assert answers == [answer]


def test_a_page_that_is_gone_means_no_after_a_while() -> None:
    async def run(questions: Questions, heard: list[Any], audience: Audience, _: TaskGroup) -> None:
        audience.leave()
        assert await asker(questions, heard, audience)(Approval(tool=tool(), call=CALL)) == "no"
        assert questions.of("k") == []

    anyio.run(asked_in, run, 0.0)


def test_a_page_that_is_there_has_all_the_time() -> None:
    async def run(questions: Questions, heard: list[Any], audience: Audience, tasks: TaskGroup) -> None:
        tasks.start_soon(asking_for, asker(questions, heard, audience))
        await anyio.wait_all_tasks_blocked()
        assert len(questions.of("k")) == 1
        audience.leave()

    anyio.run(asked_in, run, 0.0)


def test_only_the_session_s_own_open_questions_are_answered() -> None:
    async def run(questions: Questions, heard: list[Any], audience: Audience, tasks: TaskGroup) -> None:
        tasks.start_soon(asking_for, asker(questions, heard, audience))
        await anyio.wait_all_tasks_blocked()
        [question] = questions.of("k")
        for key, id, answer in (("other", question.id, "yes"), ("k", "x", "yes"), ("k", question.id, "maybe")):
            with pytest.raises(NacreError):
                questions.answer(key, id, answer)
        questions.answer("k", question.id, "no")

    anyio.run(asked_in, run)


def test_a_question_shows_exactly_what_would_be_done() -> None:
    call = ToolCall(id="1", name="shell", arguments={"command": "rm -rf <x>\necho hidden?"})
    html = turn_view.question_html(Question("", id='"i', key="a/b", call=call, effect="run"))
    assert '<pre tabindex="0">$ rm -rf &lt;x&gt;\necho hidden?</pre>' in html
    assert 'action="/do/answer/a%2Fb"' in html
    assert 'value="&quot;i"' in html
    assert re.findall('value="(yes|no|always)"', html) == ["yes", "no", "always"]


def test_a_question_says_what_always_would_allow_for_a_skill() -> None:
    async def run(questions: Questions, heard: list[Any], audience: Audience, tasks: TaskGroup) -> None:
        tasks.start_soon(asking_for, asker(questions, heard, audience), "<pdf>", "shell(git *)", "write_file")
        await anyio.wait_all_tasks_blocked()
        [question] = questions.of("k")
        wanted = "Always allows shell(git *), write_file, as the skill &lt;pdf&gt; wants."
        assert wanted in turn_view.question_html(question)
        questions.answer("k", question.id, "no")

    anyio.run(asked_in, run)


async def over_http(sessions: Sessions, answer: str) -> tuple[str, str]:
    """A turn on the page in which a tool asks: its events, and the page meanwhile."""
    app = made(sessions, [Call("wipe", {"path": "a.txt"}), "Wiped."], {"wipe": tool()})
    web = application(app, token=TOKEN, hosts=HOSTS)
    pages: list[str] = []

    async def reply(client: httpx.AsyncClient) -> None:
        while not (id := re.search('class="ask".*?name="id" value="([^"]+)"', pages[-1] if pages else "")):
            pages.append((await client.get("/s/k")).text)
        given = await client.post("/do/answer/k", data={"id": id[1], "answer": answer})
        assert given.status_code == 303

    transport = httpx.ASGITransport(app=web)
    async with (
        app.kernel,
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as client,
        anyio.create_task_group() as tasks,
    ):
        sessions.add_messages("k", [said("user", "hi"), said("assistant", "hello")])
        tasks.start_soon(reply, client)
        told = await client.post("/turn/k", data={"content": "wipe it", "id": "1"})
    return told.text, pages[-1]


@pytest.mark.parametrize(
    ("answer", "result"),
    [("yes", "wiped a.txt"), ("no", "wipe was not run: the user said no."), ("always", "wiped a.txt")],
)
def test_a_turn_on_the_page_asks_before_a_tool_runs(sessions: Sessions, answer: str, result: str) -> None:
    events, page = anyio.run(over_http, sessions, answer)
    assert "<b>wipe</b> wants to write <code>a.txt</code>" in page
    assert re.findall("event: (questions|answer|problem)", events) == ["questions", "questions", "answer"]
    history = sessions.get_history("k")
    assert str(history[4].content).startswith(result)
    assert history[5].content == "Wiped."
    assert sessions.get_meta("k").get("approvals") == (["wipe"] if answer == "always" else None)


def test_an_answer_that_nobody_waits_for_is_refused(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    assert posted(sessions, "/do/answer/k", id="x", answer="yes").status_code == 409


def test_words_that_wait_for_an_answer_are_not_said_twice(sessions: Sessions) -> None:
    async def run() -> list[str]:
        app = made(sessions, ["late answer"])
        sessions.add_full_message("k", {"role": "user", "content": "hi", "origin": {"id": "1"}})
        transport = httpx.ASGITransport(app=application(app, token=TOKEN, hosts=HOSTS))
        async with (
            app.kernel,
            httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as client,
        ):
            return [(await client.post("/turn/k", data={"content": "hi", "id": "1"})).text for _ in range(2)]

    first, second = anyio.run(run)
    assert 'data: {"joined":false}' in first
    assert 'data: {"joined":false}' in second
    assert [one.content for one in sessions.get_history("k")] == ["hi", "late answer"]


def test_of_two_answers_the_first_counts_and_the_second_is_told() -> None:
    answers: list[str] = []

    async def run(questions: Questions, heard: list[Any], audience: Audience, tasks: TaskGroup) -> None:
        async def ask() -> None:
            answers.append(await asker(questions, heard, audience)(Approval(tool=tool(), call=CALL)))

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        [question] = questions.of("k")
        questions.answer("k", question.id, "no")
        with pytest.raises(NacreError, match="no longer open"):
            questions.answer("k", question.id, "yes")

    anyio.run(asked_in, run)
    assert answers == ["no"]


@pytest.mark.parametrize("path", [["/etc/passwd"], {"of": "/etc/passwd"}, 7])
def test_nothing_that_a_call_is_given_is_left_out_of_the_question(path: Any) -> None:
    call = ToolCall(id="1", name="x", arguments={"command": "rm", "path": path, "content": "c"})
    shown = turn_view.question_html(Question("", id="i", key="k", call=call, effect="run"))
    assert "passwd" in shown or "path=7" in shown
    assert "content=" in shown
