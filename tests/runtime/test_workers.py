"""Turns in processes of their own: answered once, whatever ends, hangs or is replaced."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.kernel import Kernel
from nacre.agent.ports import STOPPED, Answer, Approval, Event, Notice, Text
from nacre.backoff import Backoff
from nacre.config import Settings
from nacre.errors import (
    ConfigError,
    Conflict,
    DurabilityUnknown,
    InvalidKey,
    InvalidMessage,
    NacreError,
    RateLimited,
    SessionBusy,
    Stopped,
)
from nacre.providers.scripted import Scripted
from nacre.runtime import App
from nacre.runtime.app import Options
from nacre.runtime.assembly import Part, run_agent
from nacre.runtime.counters import Work
from nacre.runtime.worker import make_kernel
from nacre.runtime.worker_frames import WorkerFault
from nacre.runtime.workers import Pace, WorkerKernel, WorkerLost, WorkerSetup
from nacre.storage.system import System
from tests import ollama_server
from tests.runtime.odd_worker import Obedient
from tests.runtime.wires import House, Voice, Wire, house, wired

PROJECT = Path(__file__).resolve().parents[2]
HOME, OFFICE = "home::c::ann", "office::c::ann"
QUICK = Pace(beat=0.05, missed=400, dying=10.0, backoff=Backoff(first=0.01))
IMPATIENT = msgspec.structs.replace(QUICK, missed=20, dying=0.5, taking_over=60.0)
SETUP = WorkerSetup(count=2, module="nacre.web.worker", pace=QUICK)
ODD = msgspec.structs.replace(SETUP, module="tests.runtime.odd_worker")
PATIENT_START = 60.0


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> dict[str, Wire]:
    return wired(monkeypatch)


@pytest.fixture(autouse=True)
def odd(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Choose which odd worker there is; they are modules of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("NACRE_ODD", "scripted")
    return lambda name: monkeypatch.setenv("NACRE_ODD", name)


def kernel_of(house: House, name: str = "main") -> WorkerKernel:
    kernel = house.agents.apps[name].kernel
    assert isinstance(kernel, WorkerKernel)
    return kernel


def play(
    wires: dict[str, Wire],
    act: Callable[[House], Coroutine[Any, Any, None]],
    *,
    setup: WorkerSetup = SETUP,
    **sections: Any,
) -> None:
    async def run() -> None:
        with anyio.fail_after(2 * PATIENT_START):
            async with house(wires, workers=setup, **sections) as made:
                await act(made)

    anyio.run(run)


def said(home: Path, key: str, agent: str = "") -> list[tuple[str, Any]]:
    with nacre.open(home / "nacre_home" / agent) as sessions:
        return [(message.role, message.content) for message in sessions.get_history(key)]


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that another process brings about."""
    with anyio.fail_after(PATIENT_START):
        while not is_so():  # noqa: ASYNC110 - it says by no event that it happens
            await anyio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- what it does


def test_the_turns_of_each_agent_run_in_its_own_workers(home: Path, wires: dict[str, Wire]) -> None:
    pids: list[int] = []

    async def act(house: House) -> None:
        wires["home"].say("pearl")
        wires["office"].say("oyster")
        assert await wires["home"].hears() == ["main heard pearl"]
        assert await wires["office"].hears() == ["clerk heard oyster"]
        pids.extend([*kernel_of(house).pids, *kernel_of(house, "clerk").pids])
        assert len({os.getpid(), *pids}) == 5
        # The daemon itself has asked no model.
        assert [app.work.requests.total() for app in house.agents.apps.values()] == [0, 0]
        wires["home"].say("/status")
        assert (await wires["home"].hears(2))[1].endswith("; 2 of 2 workers")

    play(wires, act)
    assert said(home, HOME) == [("user", "pearl"), ("assistant", "main heard pearl")]
    assert said(home, OFFICE, "agents/clerk") == [("user", "oyster"), ("assistant", "clerk heard oyster")]
    assert [pid for pid in pids if is_alive(pid)] == []


def test_sessions_are_spread_over_the_workers_and_what_they_count_is_added_up(
    home: Path, wires: dict[str, Wire]
) -> None:
    async def act(house: House) -> None:
        kernel = kernel_of(house)
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(kernel.deliver, UserMessage(key=f"k{number}", content="hi", id="1"))

        def counted() -> Work:
            work = Work()
            kernel.add_work(work)
            return work

        await until(lambda: sum(counted().turns.counts) == 12)
        assert (counted().requests["gemma4:e4b"], counted().tokens_in["gemma4:e4b"]) == (12, 132)
        await until(lambda: len(kernel) == 12)
        # What a worker has counted is not lost with it.
        os.kill(kernel.pids[0], signal.SIGKILL)
        await until(lambda: kernel.restarts == 1)
        assert sum(counted().turns.counts) == 12
        load = house.agents.apps["main"].sessions.load()
        assert load is not None
        assert kernel.add_load(load).batches - load.batches == 24
        assert 0 < len(kernel) < 12

    play(wires, act)
    assert said(home, "k11") == [("user", "hi"), ("assistant", "main heard hi")]


def test_a_turn_is_stopped_where_it_runs(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        wires["home"].say("held")
        await house.main.asked.wait()
        kernel = kernel_of(house)
        assert (kernel.is_at_work(HOME), kernel.running, kernel.stop("nobody")) == (True, 1, False)
        wires["home"].say("/stop")
        assert await wires["home"].hears() == ["Stopped."]
        await until(lambda: not kernel.is_at_work(HOME))

    play(wires, act)
    assert said(home, HOME) == [("user", "held"), ("assistant", STOPPED)]


def test_a_message_joins_the_turn_that_runs(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        kernel = kernel_of(house)
        answers: dict[str, Any] = {}

        async def ask(id: str, text: str) -> None:
            answers[id] = await kernel.deliver(UserMessage(key="k", content=text, id=id))
            if answers[id] is None:
                assert kernel.ids_answered("k") in (["a", "b"], [])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "a", "held")
            await house.main.asked.wait()
            tasks.start_soon(ask, "b", "more")
            await until(lambda: kernel.is_at_work("k"))
            house.main.opened.set()
        assert answers["a"].extra["answers"][0] == "a"

    play(wires, act)
    assert [role for role, _ in said(home, "k")].count("user") == 2


class Writing(ollama_server.OllamaServer):
    """A model that writes a file."""

    def answer(self, path: str, body: Any) -> ollama_server.Answer:
        if path != "/api/chat":
            return super().answer(path, body)
        if body["messages"][-1]["role"] == "tool":
            return ollama_server.Answer(chunks=(ollama_server.said("done"), ollama_server.done()))
        call = ollama_server.called("write_file", {"path": "pearl.txt", "content": "round"})
        return ollama_server.Answer(chunks=(call, ollama_server.done()))


def test_what_happens_in_a_turn_is_emitted_here_and_a_person_here_is_asked(home: Path, wires: dict[str, Wire]) -> None:
    (home / "nacre_home" / "workspace").mkdir(parents=True)

    async def act(house: House) -> None:
        asked: list[Approval] = []
        happened: list[Event] = []

        async def ask(approval: Approval) -> Answer:
            asked.append(approval)
            return "yes" if len(asked) == 1 else "no"

        kernel = kernel_of(house)
        async with ollama_server.serving(Writing([], {"gemma4:e4b": ["completion", "tools"]})) as model:
            settings = house.settings(ollama={"host": model.host})
            assert await house.agents.change(settings) == ["main"]
            kernel = kernel_of(house)
            for id in ("1", "2"):
                message = UserMessage(key="k", content="write", id=id)
                answer = await kernel.deliver(message, emit=happened.append, ask=ask)
                assert answer is not None
                assert answer.content == "done"
        assert [approval.tool.spec.name for approval in asked] == ["write_file", "write_file"]
        assert asked[0].change is not None
        assert (asked[0].change.path, asked[0].change.after) == ("pearl.txt", "round")
        names = [type(event).__name__ for event in happened if not isinstance(event, Notice)]
        assert names == ["Called", "Returned", "Text", "Returned", "Text"]

    play(wires, act)
    assert (home / "nacre_home" / "workspace" / "pearl.txt").read_text() == "round"


def test_a_reload_gives_an_agent_new_workers(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        before, others = kernel_of(house).pids, kernel_of(house, "clerk").pids
        settings = house.settings(agent={"max_steps": 7})
        await house.agents.change(settings)
        assert not {*before} & {*kernel_of(house).pids}
        assert [pid for pid in before if is_alive(pid)] == []
        wires["home"].say("pearl")
        assert await wires["home"].hears() == ["main heard pearl"]
        assert len(others) == 2

    play(wires, act)
    assert said(home, HOME) == [("user", "pearl"), ("assistant", "main heard pearl")]


def test_a_channel_that_keeps_nothing_is_answered_in_the_daemon(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        wires["home"].say("pearl")
        assert await wires["home"].hears() == ["main heard pearl"]
        assert house.agents.apps["main"].work.requests.total() == 1

    play(wires, act, channels={"session_persistence": False, "home": {"kind": "wire"}})
    with nacre.open(home / "nacre_home") as sessions:
        assert not sessions.exists(HOME)


def test_a_store_that_cannot_be_used_has_no_workers(home: Path, wires: dict[str, Wire]) -> None:
    """What stands in for it is for one process."""
    (home / "nacre_home").write_text("not a directory")

    async def act(house: House) -> None:
        wires["home"].say("pearl")
        assert await wires["home"].hears() == ["main heard pearl"]
        app = house.agents.apps["main"]
        assert "the store cannot be used" in app.trouble
        assert isinstance(app.kernel, Kernel)

    play(wires, act)


def test_a_worker_does_not_start_without_the_store(
    home: Path, wires: dict[str, Wire], caplog: pytest.LogCaptureFixture
) -> None:
    async def act(house: House) -> None:
        kernel, store = kernel_of(house), home / "nacre_home"
        store.rename(home / "elsewhere")
        store.write_text("not a directory")
        os.kill(kernel.pids[0], signal.SIGKILL)
        await until(lambda: "a worker could not be started; retrying" in caplog.text)
        assert kernel.up == [False, True]
        store.unlink()
        (home / "elsewhere").rename(store)
        await until(lambda: kernel.up == [True, True])
        wires["home"].say("pearl")
        assert await wires["home"].hears() == ["main heard pearl"]

    play(wires, act)
    assert said(home, HOME) == [("user", "pearl"), ("assistant", "main heard pearl")]


def test_a_warm_turn_in_a_worker_reads_nothing_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what is done after it: finding out whether it is time for a summary."""
    del home
    sizes: list[int] = []
    pread = System.pread

    def counted(self: System, fd: int, size: int, offset: int) -> bytes:
        found = pread(self, fd, size, offset)
        sizes.append(len(found))
        return found

    async def run() -> None:
        async with ollama_server.serving(Voice("main")) as model:
            settings = Settings({"memory": {"enabled": False}, "ollama": {"host": model.host}}, {})
            async with run_agent(settings, part=Part.WORKER, kernel=make_kernel) as app:
                for number in range(5):
                    await app.kernel.deliver(UserMessage(key="k", content=f"question {number}"))
                    await app.compactor.finish("k")
                monkeypatch.setattr(System, "pread", counted)
                for number in range(3):
                    await app.kernel.deliver(UserMessage(key="k", content=f"more {number}"))
                    await app.compactor.finish("k")
                assert sizes == []

    anyio.run(run)


# ---- what each process does for the whole store


def test_what_is_done_for_a_whole_store_is_done_by_one_process() -> None:
    parts = [Part.FRONT, Part.FIRST_WORKER, Part.WORKER, Part.WORKER]
    assert [part.finishes_redactions for part in parts] == [True, False, False, False]
    assert [part.serves_store for part in parts] == [False, True, False, False]
    assert [part.learns for part in parts] == [False, True, True, True]
    assert (Part.ALL.finishes_redactions, Part.ALL.serves_store, Part.ALL.learns) == (True, True, True)


@pytest.mark.parametrize(("part", "is_read"), [(Part.FIRST_WORKER, True), (Part.WORKER, False)])
def test_the_first_worker_reads_what_no_process_has_learned_from(home: Path, part: Part, is_read: bool) -> None:
    sections = {"memory": {"enabled": True, "embeddings": "off"}}

    async def run() -> None:
        async with ollama_server.serving(Voice("main")) as model:
            settings = Settings({**sections, "ollama": {"host": model.host}}, {})
            with nacre.open(home / "nacre_home") as sessions:
                async with run_agent(settings, part=Part.FRONT) as app:
                    assert app.learner is None
                for role in ("user", "assistant"):
                    sessions.add_message("k", role, "I like pearls.")
            async with run_agent(settings, part=part) as app:
                assert app.learner is not None
                await app.learner.rest()
            assert len(model.chats) == is_read

    anyio.run(run)


def test_what_was_said_is_learned_by_the_workers_once(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        kernel = kernel_of(house)
        assert house.agents.apps["main"].learner is None
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(kernel.deliver, UserMessage(key=f"k{number}", content=f"I like {number}.", id="1"))
        await until(lambda: len(house.main.chats) == 8)
        models.append(house.main)

    models: list[Any] = []
    play(wires, act, memory={"enabled": True, "embeddings": "off"})
    # Each turn was asked about once, by the worker that ran it.
    asked = [chat["messages"][-1]["content"] for chat in models[0].chats]
    assert [sum(f"I like {number}." in text for text in asked) for number in range(4)] == [2, 2, 2, 2]


# ---- when a worker ends


def test_a_worker_that_is_killed_is_replaced_and_its_message_has_one_answer(
    home: Path, wires: dict[str, Wire], caplog: pytest.LogCaptureFixture
) -> None:
    async def act(house: House) -> None:
        kernel = kernel_of(house)
        before = kernel.pids
        wires["home"].say("held")
        await house.main.asked.wait()
        house.main.asked.clear()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await house.main.asked.wait()
        house.main.opened.set()
        assert await wires["home"].hears() == ["main heard held"]
        await until(lambda: kernel.restarts == 2)
        assert not {*before} & {*kernel.pids}

    with caplog.at_level(logging.INFO):
        play(wires, act)
    assert said(home, HOME) == [("user", "held"), ("assistant", "main heard held")]
    assert [record.message for record in caplog.records if "worker" in record.message].count(
        "a worker is lost; it is replaced"
    ) == 2


def test_a_worker_that_is_stuck_is_killed_and_its_message_has_one_answer(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        kernel = kernel_of(house)
        before = kernel.pids
        wires["home"].say("held")
        await house.main.asked.wait()
        house.main.asked.clear()
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        await house.main.asked.wait()
        house.main.opened.set()
        assert await wires["home"].hears() == ["main heard held"]
        assert [pid for pid in before if is_alive(pid)] == []

    play(wires, act, setup=msgspec.structs.replace(SETUP, pace=IMPATIENT))
    assert said(home, HOME) == [("user", "held"), ("assistant", "main heard held")]


def test_one_that_cannot_be_killed_and_wakes_up_late_stores_nothing(
    home: Path, wires: dict[str, Wire], odd: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd("deaf")
    notes = home / "notes"
    monkeypatch.setenv("NACRE_NOTES", str(notes))
    stuck: list[int] = []

    async def act(house: House) -> None:
        before = kernel_of(house).pids
        wires["home"].say("held")
        await house.main.asked.wait()
        house.main.asked.clear()
        stuck.extend(before)
        for pid in before:
            os.kill(pid, signal.SIGSTOP)
        # The one that replaces it asks the model again, with the turn that was taken over.
        await house.main.asked.wait()
        assert all(map(is_alive, before))
        house.main.opened.set()
        assert await wires["home"].hears() == ["main heard held"]
        for pid in before:
            os.kill(pid, signal.SIGCONT)
        await until(lambda: notes.exists() and "LeaseLost" in notes.read_text())
        wires["home"].say("more")
        assert await wires["home"].hears(2) == ["main heard held", "main heard more"]
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, before)))

    def leave_alone(pid: int) -> None:
        if pid not in stuck:
            os.kill(pid, signal.SIGKILL)

    try:
        play(wires, act, setup=msgspec.structs.replace(ODD, pace=IMPATIENT, kill=leave_alone))
    finally:
        for pid in stuck:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    heard = [("user", "held"), ("assistant", "main heard held"), ("user", "more"), ("assistant", "main heard more")]
    assert said(home, HOME) == heard


@pytest.mark.parametrize(
    ("way", "reason", "starts"),
    [
        ("absent", r"worker \d ended before it was ready", {3}),
        # It may not have come as far as noting that it began.
        ("silent", r"worker \d was not ready within 5 seconds", {0, 1}),
    ],
)
def test_an_agent_whose_workers_do_not_start_does_not_start(
    home: Path,
    wires: dict[str, Wire],
    odd: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    reason: str,
    starts: set[int],
) -> None:
    odd(way)
    monkeypatch.setenv("NACRE_NOTES", str(home / "notes"))
    (home / "notes").touch()
    starting = PATIENT_START if way == "absent" else 5.0
    setup = msgspec.structs.replace(ODD, count=1, pace=msgspec.structs.replace(QUICK, starting=starting))

    async def run() -> None:
        async with house(wires, start=False, workers=setup) as made:
            with pytest.raises(NacreError, match=reason):
                await made.agents.start(made.settings())
            assert made.agents.apps == {}

    anyio.run(run)
    assert (home / "nacre_home").exists()
    assert (home / "notes").read_text().count("began") in starts


def test_a_worker_that_is_killed_while_the_agent_starts_is_started_again(
    home: Path, wires: dict[str, Wire], odd: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd("late")
    monkeypatch.setenv("NACRE_NOTES", str(home / "notes"))

    async def act(house: House) -> None:
        del house
        wires["home"].say("pearl")
        assert await wires["home"].hears() == ["main heard pearl"]

    play(wires, act, setup=ODD)
    # Two workers of two agents, of which the first process of each ended.
    assert (home / "notes").read_text().count("began") == 8


def test_a_worker_says_why_it_cannot_start(home: Path, wires: dict[str, Wire], odd: Callable[[str], None]) -> None:
    odd("refusing")

    async def run() -> None:
        async with house(wires, start=False, workers=ODD) as made:
            with pytest.raises(ConfigError, match="there is no pearl"):
                await made.agents.start(made.settings())

    anyio.run(run)
    assert (home / "nacre_home").exists()


# ---- what comes back from a worker


@asynccontextmanager
async def scripted(
    store: Path, *, wrap: Callable[[nacre.Sessions], Any] = lambda sessions: sessions, **changes: Any
) -> AsyncIterator[WorkerKernel]:
    """Workers whose model does what it hears; `wrap` gives the sessions that the daemon has."""
    settings = Settings({}, {})
    setup = msgspec.structs.replace(ODD, **changes)
    with nacre.open(store) as sessions:
        app = App(settings, wrap(sessions), Scripted([]))
        kernel = WorkerKernel(app, setup, settings=settings, options=Options(store=str(store)))
        with anyio.fail_after(PATIENT_START):
            async with kernel:
                yield kernel


def ask(store: Path, text: str, *, id: str = "", **options: Any) -> Any:
    """Say something to a scripted worker; what it answered."""

    async def run() -> Any:
        async with scripted(store) as kernel:
            try:
                return await kernel.deliver(UserMessage(key="k", content=text, id=id), **options)
            finally:
                assert kernel.running == 0

    return anyio.run(run)


def test_an_answer_comes_in_pieces_and_as_a_whole(tmp_path: Path) -> None:
    happened: list[Event] = []
    answer = ask(tmp_path / "store", "pearl", emit=happened.append)
    assert (answer.content, answer.model) == ("I heard pearl", "obedient")
    assert "".join(event.text for event in happened if isinstance(event, Text)) == "I heard pearl"


def test_an_error_of_the_model_is_the_callers(tmp_path: Path) -> None:
    with pytest.raises(RateLimited, match="too many requests") as found:
        ask(tmp_path / "store", "limit")
    assert found.value.wait == 2.5


def test_a_bug_is_an_internal_error_and_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(WorkerFault, match="something unexpected happened in a worker; its log has the details"):
        ask(tmp_path / "store", "bug")
    assert "a request failed in a worker" in capfd.readouterr().err


def test_an_id_that_was_used_for_other_words_is_refused(tmp_path: Path) -> None:
    ask(tmp_path / "store", "pearl", id="1")
    with pytest.raises(Conflict):
        ask(tmp_path / "store", "oyster", id="1")


def test_a_request_without_an_id_is_not_sent_again(tmp_path: Path) -> None:
    with pytest.raises(WorkerLost, match="the process that was answering has ended; send the request again"):
        ask(tmp_path / "store", "end")


def test_an_answer_that_has_begun_is_not_begun_again(tmp_path: Path) -> None:
    happened: list[Event] = []
    with pytest.raises(WorkerLost):
        ask(tmp_path / "store", "begin and end", id="1", emit=happened.append)
    assert happened == [Text("half")]


def fail_beside_another(tmp_path: Path, kind: type[Exception], failing: UserMessage, **options: Any) -> str:
    """Why a message fails, while another one is being answered by the same worker, which goes on."""

    async def run() -> str:
        gate, answers = tmp_path / "gate", list[Any]()

        async def wait(kernel: WorkerKernel) -> None:
            answers.append(await kernel.deliver(UserMessage(key="other", content=f"wait for {gate}")))

        async with scripted(tmp_path / "store", count=1) as kernel, anyio.create_task_group() as tasks:
            before = kernel.pids
            tasks.start_soon(wait, kernel)
            await until(lambda: kernel.is_at_work("other"))
            with pytest.raises(kind) as found:
                await kernel.deliver(failing, **options)
            gate.touch()
            await until(lambda: answers != [])
            assert answers[0].content == f"I heard wait for {gate}"
            assert (kernel.pids, kernel.restarts) == (before, 0)
        assert type(found.value) is kind
        return str(found.value)

    return anyio.run(run)


def test_a_watcher_that_raises_fails_its_own_request_only(tmp_path: Path) -> None:
    def emit(_: Event) -> None:
        raise ZeroDivisionError("by the watcher")

    found = fail_beside_another(tmp_path, ZeroDivisionError, UserMessage(key="k", content="pearl"), emit=emit)
    assert found == "by the watcher"


def test_an_event_that_cannot_be_read_fails_its_own_request_only(tmp_path: Path) -> None:
    found = fail_beside_another(tmp_path, WorkerFault, UserMessage(key="k", content="wrong event"), emit=print)
    assert found == "worker 0 sent what cannot be read"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"content": 7}, "a message's content must be text, a list of parts or None, not int"),
        ({"content": [object()]}, "content has a object, which JSON cannot represent"),
        ({"content": "x", "extra": {"n": 2**70}}, "extra has an integer of more than 64 bits: "),
        ({"content": "x", "id": 7}, "an id must be text in valid Unicode, not 7 (int)"),
        ({"content": "x", "id": "\ud800"}, "an id must be text in valid Unicode, not "),
        ({"content": "x", "meta": "no"}, "a message cannot be passed to its worker: Expected `object`, got `str`"),
        ({"content": "x", "sender": object()}, "a message cannot be passed to its worker: "),
    ],
)
def test_a_message_that_no_store_takes_fails_by_itself(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    found = fail_beside_another(tmp_path, InvalidMessage, UserMessage(key="k", **wrong))
    assert found.startswith(reason)


def test_a_message_that_ends_every_worker_is_given_up(tmp_path: Path) -> None:
    async def run() -> int:
        async with scripted(tmp_path / "store") as kernel:
            with pytest.raises(WorkerLost):
                await kernel.deliver(UserMessage(key="k", content="end", id="1"))
            return kernel.restarts

    assert anyio.run(run) == 4
    with nacre.open(tmp_path / "store") as sessions:
        assert [message.content for message in sessions.get_history("k")] == ["end"]


# ---- what is the same in one process


@asynccontextmanager
async def alone(store: Path) -> AsyncIterator[Kernel]:
    """The same model without workers."""
    with nacre.open(store) as sessions:
        app = App(Settings({}, {}), sessions, Obedient())
        kernel = Kernel(sessions, app.agent_for)
        with anyio.fail_after(PATIENT_START):
            async with kernel:
                yield kernel


both_kernels = pytest.mark.parametrize("start", [alone, scripted], ids=["alone", "workers"])


@both_kernels
def test_a_turn_goes_on_when_its_caller_is_cancelled_and_can_be_stopped(tmp_path: Path, start: Any) -> None:
    def is_stored() -> bool:
        with nacre.open(tmp_path / "store") as sessions:
            return sessions.exists("k")

    async def run() -> None:
        async with start(tmp_path / "store") as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kernel.deliver, UserMessage(key="k", content=f"wait for {tmp_path / 'gate'}"))
                await until(is_stored)
                tasks.cancel_scope.cancel()
            assert kernel.is_at_work("k")
            # A later request is answered by the same process, which has heard by then that nobody waits.
            assert (await kernel.deliver(UserMessage(key="k1", content="pearl"))).content == "I heard pearl"
            assert kernel.is_at_work("k")
            assert kernel.stop("k")
            await until(lambda: not kernel.is_at_work("k"))
            assert not kernel.stop("k")

    anyio.run(run)
    with nacre.open(tmp_path / "store") as sessions:
        assert sessions.get_history("k")[-1].content == STOPPED


@both_kernels
def test_a_turn_whose_caller_was_cancelled_comes_to_its_end(tmp_path: Path, start: Any) -> None:
    async def run() -> None:
        gate = tmp_path / "gate"
        async with start(tmp_path / "store") as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kernel.deliver, UserMessage(key="k", content=f"wait for {gate}"))
                await until(lambda: kernel.is_at_work("k"))
                tasks.cancel_scope.cancel()
            assert kernel.is_at_work("k")
            gate.touch()
            await until(lambda: not kernel.is_at_work("k"))

    anyio.run(run)
    with nacre.open(tmp_path / "store") as sessions:
        assert sessions.get_history("k")[-1].content == f"I heard wait for {tmp_path / 'gate'}"


@both_kernels
def test_a_watcher_that_raises_is_its_callers_error(tmp_path: Path, start: Any) -> None:
    def emit(_: Event) -> None:
        raise ZeroDivisionError("by the watcher")

    async def run() -> None:
        async with start(tmp_path / "store") as kernel:
            with pytest.raises(ZeroDivisionError, match="by the watcher"):
                await kernel.deliver(UserMessage(key="k", content="pearl"), emit=emit)
            await until(lambda: not kernel.is_at_work("k"))
            assert (await kernel.deliver(UserMessage(key="k", content="oyster"))).content == "I heard oyster"

    anyio.run(run)


@both_kernels
def test_wrong_content_is_refused_and_nothing_is_stopped_before_a_turn(tmp_path: Path, start: Any) -> None:
    wrong: Any = {"content": 7}

    async def run() -> None:
        async with start(tmp_path / "store") as kernel:
            assert (kernel.stop("k"), kernel.is_at_work("k")) == (False, False)
            with pytest.raises(InvalidMessage, match="a message's content must be text, a list of parts or None"):
                await kernel.deliver(UserMessage(key="k", **wrong))
            with pytest.raises(InvalidKey, match="lone surrogate"):
                await kernel.deliver(UserMessage(key="\ud800", content="x"))
            assert (kernel.stop("k"), kernel.is_at_work("k")) == (False, False)

    anyio.run(run)


# ---- when one is stuck


class OneThatFails:
    """Sessions, one of which cannot be reached."""

    def __init__(self, sessions: nacre.Sessions) -> None:
        self._sessions = sessions

    def hold(self, key: str) -> Any:
        if key == "a":
            raise DurabilityUnknown("the disk of a fails")
        return self._sessions.hold(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)


def test_a_turn_that_cannot_be_taken_over_keeps_none_of_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck: list[int] = []
    outcomes: dict[str, Any] = {}

    def leave_alone(pid: int) -> None:
        if pid not in stuck:
            os.kill(pid, signal.SIGKILL)

    async def wait(kernel: WorkerKernel, key: str) -> None:
        try:
            answer = await kernel.deliver(UserMessage(key=key, content=f"wait for {tmp_path / 'gate'}", id="1"))
            outcomes[key] = None if answer is None else answer.content
        except SessionBusy:
            outcomes[key] = "busy"

    def are_stored() -> bool:
        with nacre.open(tmp_path / "store") as sessions:
            return all(sessions.exists(key) for key in ("a", "b", "c"))

    async def run() -> None:
        changes: Any = {"count": 1, "pace": IMPATIENT, "kill": leave_alone, "wrap": OneThatFails}
        async with scripted(tmp_path / "store", **changes) as kernel, anyio.create_task_group() as tasks:
            for key in ("a", "b", "c"):
                tasks.start_soon(wait, kernel, key)
            await until(are_stored)
            stuck.extend(kernel.pids)
            os.kill(stuck[0], signal.SIGSTOP)
            await until(lambda: kernel.restarts == 1)
            (tmp_path / "gate").touch()
            await until(lambda: len(outcomes) == 3)
            os.kill(stuck[0], signal.SIGKILL)
            await until(lambda: not is_alive(stuck[0]))

    try:
        anyio.run(run)
    finally:
        for pid in stuck:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    heard = f"I heard wait for {tmp_path / 'gate'}"
    assert outcomes == {"a": "busy", "b": heard, "c": heard}
    warnings: list[Any] = [record for record in caplog.records if "not taken over" in record.message]
    assert [(record.session, record.reason) for record in warnings] == [("a", "DurabilityUnknown: the disk of a fails")]


def test_requests_wait_while_their_worker_is_replaced(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with scripted(tmp_path / "store", count=1) as kernel:
            os.kill(kernel.pids[0], signal.SIGKILL)
            await until(lambda: kernel.up == [False])
            assert not kernel.stop("k")
            found = await kernel.deliver(UserMessage(key="k", content="pearl"))
            assert kernel.up == [True]
            return [found]

    assert [message.content for message in anyio.run(run)] == ["I heard pearl"]


def test_a_turn_that_was_stopped_while_its_worker_is_replaced_is_not_begun_again(tmp_path: Path) -> None:
    def is_stored() -> bool:
        with nacre.open(tmp_path / "store") as sessions:
            return sessions.exists("k")

    async def run() -> None:
        async def deliver() -> None:
            with pytest.raises(Stopped):
                await kernel.deliver(UserMessage(key="k", content=f"wait for {tmp_path / 'gate'}", id="1"))

        async with scripted(tmp_path / "store", count=1) as kernel:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(deliver)
                await until(is_stored)
                os.kill(kernel.pids[0], signal.SIGKILL)
                await until(lambda: kernel.up == [False])
                assert kernel.stop("k")
            assert not kernel.is_at_work("k")
            # What comes afterwards is answered.
            assert await kernel.deliver(UserMessage(key="k", content="pearl")) is not None

    anyio.run(run)
    with nacre.open(tmp_path / "store") as sessions:
        assert [message.role for message in sessions.get_history("k")] == ["user", "user", "assistant"]


def test_those_who_wait_learn_that_the_agent_ends(tmp_path: Path) -> None:
    async def run() -> list[str]:
        errors: list[str] = []
        slow = msgspec.structs.replace(QUICK, backoff=Backoff(first=600))

        async def wait(kernel: WorkerKernel) -> None:
            try:
                await kernel.deliver(UserMessage(key="k", content="pearl", id="1"))
            except Stopped as error:
                errors.append(str(error))

        async with anyio.create_task_group() as tasks:  # noqa: SIM117 - it waits beyond the end of the workers
            async with scripted(tmp_path / "store", count=1, pace=slow) as kernel:
                os.kill(kernel.pids[0], signal.SIGKILL)
                await until(lambda: kernel.up == [False])
                tasks.start_soon(wait, kernel)
                await until(lambda: kernel.is_at_work("k"))
        return errors

    assert anyio.run(run) == ["the agent is shutting down"]


def test_callers_of_a_worker_that_hangs_do_not_wait_for_its_end(tmp_path: Path) -> None:
    def is_stored() -> bool:
        with nacre.open(tmp_path / "store") as sessions:
            return sessions.exists("k")

    async def run() -> bool:
        found: list[bool] = []

        async def deliver(kernel: WorkerKernel) -> None:
            [pid] = kernel.pids
            with pytest.raises(Stopped):
                await kernel.deliver(UserMessage(key="k", content=f"wait for {tmp_path / 'gate'}"))
            found.append(is_alive(pid))
            os.kill(pid, signal.SIGKILL)

        pace = msgspec.structs.replace(ODD.pace, ending=20.0)
        async with anyio.create_task_group() as tasks, scripted(tmp_path / "store", count=1, pace=pace) as kernel:
            tasks.start_soon(deliver, kernel)
            await until(is_stored)
            os.kill(kernel.pids[0], signal.SIGSTOP)
        return found[0]

    assert anyio.run(run)


def test_a_session_has_the_same_worker_after_a_restart(tmp_path: Path) -> None:
    """Which worker a key has must not depend on the process: Python's own hash does."""

    async def run() -> list[int]:
        async with scripted(tmp_path / "store", count=3) as kernel:
            return [kernel.number_of(key) for key in ("telegram:1", "telegram:2", "api::desk::", "é")]

    assert anyio.run(run) == [1, 2, 2, 2]
