"""`nacre chat` in scripts: what a pipe gets and when, what JSON says, and the exit code."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.everyday.conftest import PATIENCE, Person
from tests.everyday.model import Call, Model, Piece, Refusal, Reply, Request, Thinking, echo
from tests.everyday.terminal import Screen

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class InPieces:
    """A model that sends its second piece when it is told to."""

    def __init__(self, first: str, second: str = " the end") -> None:
        self.first, self.second = first, second
        self.may_end = threading.Event()

    def __call__(self, request: Request) -> Reply:
        return self._pieces() if request.said.endswith("tell me") else "nothing"

    def _pieces(self) -> Iterator[Piece]:
        yield self.first
        assert self.may_end.wait(PATIENCE)
        yield self.second


def once(*replies: Reply) -> Callable[[Request], Reply]:
    """A model that gives these replies to the turn, one per request, and nothing to other requests."""
    waiting = list(replies)
    return lambda request: waiting.pop(0) if request.tools and waiting else "nothing"


def test_a_pipe_gets_each_piece_before_the_answer_ends(person: Person, model: Model) -> None:
    model.answer = answer = InPieces("the beginning")
    with person.start("chat", "tell me") as process:
        assert process.stdout is not None
        assert process.stdout.read(len("the beginning")) == "the beginning"
        answer.may_end.set()
        assert process.stdout.read() == " the end\n"
    assert process.returncode == 0


def test_jsonl_prints_events_as_they_happen(person: Person, model: Model) -> None:
    model.answer = answer = InPieces("the beginning")
    folder = person.folder("work")
    with person.start("chat", "--jsonl", "tell me", at=folder) as process:
        assert process.stdout is not None
        session = json.loads(process.stdout.readline())
        events = [session]
        while events[-1]["type"] != "text":
            events.append(json.loads(process.stdout.readline()))
        assert events[-1] == {"schema_version": 1, "type": "text", "text": "the beginning"}
        answer.may_end.set()
        *_, last, done = [json.loads(line) for line in process.stdout]
    assert (session["type"], session["model"], session["folder"]) == ("session", "ollama/gemma4:e4b", str(folder))
    assert last["text"] == " the end"
    assert (done["type"], done["ok"], done["session"]) == ("done", True, session["session"])
    assert done["answer"] == "the beginning the end"
    assert done["usage"]["requests"] == 1


def test_jsonl_has_thoughts_and_tool_calls_in_order(person: Person, model: Model) -> None:
    folder = person.folder("work", readme="hello")
    model.answer = once([Thinking("hm"), "Let me look.", Call("list_files", {})], ["It has ", "a readme."])
    done = person.nacre("chat", "--jsonl", "what is here?", at=folder)
    events = [event for event in done.lines if event["type"] not in {"session", "notice"}]
    assert [event["type"] for event in events] == [
        *("thinking", "text", "tool_call", "tool_result", "text", "text", "done"),
    ]
    call, result = events[2:4]
    assert (call["id"], call["name"]) == (result["id"], "list_files")
    assert "readme" in result["text"]
    assert (events[-1]["answer"], done.code) == ("It has a readme.", 0)
    assert all(event["schema_version"] == 1 for event in done.lines)


@pytest.mark.parametrize("form", ["plain", "--json", "--jsonl"])
def test_a_failed_answer_gives_its_text_and_then_the_error(person: Person, model: Model, form: str) -> None:
    model.answer = once(["half of ", "it", Refusal(500, "gone")])
    done = person.nacre("chat", *(() if form == "plain" else (form,)), "go")
    assert done.code == 1, done
    assert person.nacre("sessions", "list", "--json").json["items"][0]["title"] == "go"
    if form == "plain":
        assert done.out == "half of it\n"
        assert "nacre: " in done.err
        return
    last = done.lines[-1]
    assert (last["schema_version"], last["ok"], last["answer"]) == (1, False, "half of it")
    assert last["session"].startswith("chat-")
    assert last["error"]["message"]
    assert (last.get("type"), len(done.lines) > 1) == (("error", True) if form == "--jsonl" else (None, False))


@pytest.mark.parametrize("reply", [[""], [Thinking("I think and think")]], ids=["empty", "only thoughts"])
def test_an_answer_without_text_is_exit_12(person: Person, model: Model, reply: list[Piece]) -> None:
    model.answer = once(reply, reply, reply)
    done = person.nacre("chat", "say something")
    assert (done.code, done.out) == (12, "")
    assert "the model gave no answer" in done.err


def test_a_refused_tool_is_one_line_on_stderr_and_exit_10(person: Person, model: Model) -> None:
    folder = person.trust(person.folder("work"))
    model.answer = once([Call("write_file", {"path": "x", "content": "y"})], "I could not write it.")
    done = person.nacre("chat", "write x", at=folder)
    assert (done.code, done.out) == (10, "I could not write it.\n")
    assert len([line for line in done.err.splitlines() if "refused" in line and "write_file" in line]) == 1
    assert not (folder / "x").exists()


def test_jsonl_tells_calls_with_the_same_id_apart(person: Person, model: Model) -> None:
    person.config(f'[agent]\nprovider = "openai"\nmodel = "gemma4:e4b"\n[openai]\nbase_url = "{model.host}/v1"\n')
    folder = person.trust(person.folder("work"))
    write = Call("write_file", {"path": "x", "content": "y"})
    look, delegate = Call("list_files", {}), Call("delegate", {"task": "write x"})

    def answer(request: Request) -> Reply:
        results = sum(message["role"] == "tool" for message in request.messages)
        is_child = any(message["role"] == "user" and "write x" in str(message) for message in request.messages)
        steps: list[Reply] = [[write], "no"] if is_child else [[look], [delegate], [write], "no"]
        return steps[results] if request.tools else "nothing"

    model.answer = answer
    done = person.nacre("chat", "--jsonl", "--allow", "delegate", "go", at=folder)
    key = done.lines[0]["session"]
    calls = [
        (event["type"], event["id"], event["name"], event.get("session"))
        for event in done.lines
        if event["type"] in {"tool_call", "tool_result"}
    ]
    assert calls == [
        ("tool_call", "call_0", "list_files", None),
        ("tool_result", "call_0", "list_files", None),
        ("tool_call", "call_0", "delegate", None),
        ("tool_call", "call_0", "write_file", f"{key}/call_0"),
        ("tool_result", "call_0", "write_file", f"{key}/call_0"),
        ("tool_result", "call_0", "delegate", None),
        ("tool_call", "call_0", "write_file", None),
        ("tool_result", "call_0", "write_file", None),
    ]


def test_a_refused_tool_in_json_has_the_answer_and_the_error(person: Person, model: Model) -> None:
    folder = person.trust(person.folder("work"))
    model.answer = once([Call("write_file", {"path": "x", "content": "y"})], "I could not write it.")
    done = person.nacre("chat", "--json", "write x", at=folder)
    assert (done.code, done.json["ok"], done.json["answer"]) == (10, False, "I could not write it.")
    assert done.json["error"]["type"] == "tool_refused"


def test_too_many_steps_are_exit_11(person: Person, model: Model) -> None:
    model.answer = lambda request: ["Looking.", Call("list_files", {})] if request.tools else "nothing"
    done = person.nacre("chat", "look", NACRE_AGENT_MAX_STEPS="2")
    assert (done.code, done.out) == (11, "Looking.\n\nLooking.\n")
    assert "maximum number of steps" in done.err


def test_a_call_that_fails_again_and_again_is_exit_11(person: Person, model: Model) -> None:
    model.answer = lambda request: [Call("read_file", {"path": "missing"})] if request.tools else "nothing"
    done = person.nacre("chat", "--json", "look")
    assert (done.code, done.json["error"]["type"], done.json["answer"]) == (11, "limit_reached", "")
    assert done.json["error"]["message"].endswith("the model repeated a call of read_file that fails")
    assert len(done.json["calls"]) == 3


def test_piped_input_follows_the_prompt(person: Person, model: Model) -> None:
    done = person.nacre("chat", "-p", "explain this", stdin="+ a line\n- another\n")
    assert (done.code, done.out) == (0, "You said: - another\n")
    assert any(request.said.endswith("explain this\n\n+ a line\n- another") for request in model.chats)


def test_files_are_attached(person: Person, model: Model) -> None:
    folder = person.folder("work", report="profits fell")
    (folder / "chart.png").write_bytes(PIXEL)
    model.capabilities = ("completion", "tools", "vision")
    done = person.nacre("chat", "--attach", "report", "--attach", "chart.png", "do they agree?", at=folder)
    assert done.code == 0, done
    turn = next(request for request in model.chats if request.tools)
    asked = next(message for message in turn.messages if message["role"] == "user")
    assert "profits fell" in json.dumps(asked)
    assert "do they agree?" in json.dumps(asked)
    assert asked["images"] == [base64.b64encode(PIXEL).decode()]
    assert person.nacre("chat", "--attach", "nowhere", "x", at=folder).code == 2


def test_system_replaces_the_persona_for_one_run(person: Person, model: Model) -> None:
    person.ask("--system", "Speak like a pirate.", "hello")
    person.ask("-c", "and now?")
    first, second = (request.system for request in model.chats if request.tools)
    assert first.startswith("Speak like a pirate.")
    assert "pirate" not in second


def test_print_is_plain_on_a_terminal(person: Person, model: Model) -> None:
    model.answer = lambda _: "It is **bold**."
    folder = person.trust(person.folder("work"))
    with Screen(person, "chat", "-p", "hello", at=folder) as screen:
        screen.until("It is **bold**.")
        assert screen.code() == 0


def test_an_answer_that_was_killed_can_be_resumed(person: Person, model: Model) -> None:
    model.answer = answer = InPieces("the beginning")
    with person.start("chat", "--jsonl", "tell me") as process:
        assert process.stdout is not None
        key = json.loads(process.stdout.readline())["session"]
        while "the beginning" not in process.stdout.readline():
            pass
        process.kill()
    answer.may_end.set()
    model.answer = echo
    again = person.ask("-c", "are you there?")
    assert (again["session"], again["answer"]) == (key, "You said: are you there?")
    assert person.said(key)[0] == "tell me"


def test_ctrl_c_ends_with_the_text_so_far_and_130(person: Person, model: Model) -> None:
    model.answer = answer = InPieces("the beginning")
    with person.start("chat", "tell me") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(len("the beginning")) == "the beginning"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "\n"
        assert "stopped by SIGINT" in process.stderr.read()
    answer.may_end.set()
    assert process.returncode == 130


def test_a_reader_that_leaves_ends_it_quietly(person: Person, model: Model) -> None:
    has_left, is_over = threading.Event(), threading.Event()

    def endless() -> Iterator[Piece]:
        yield "one line\n"
        assert has_left.wait(PATIENCE)
        yield "another\n"
        is_over.wait(PATIENCE)

    model.answer = lambda request: endless() if request.tools else "nothing"
    read, write = os.pipe()
    process = subprocess.Popen(
        person.command("chat", "-q", "tell me"),
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        cwd=person.home,
        env=person.env,
    )
    os.close(write)
    assert os.read(read, 100) == b"one line\n"
    os.close(read)
    has_left.set()
    _, complaint = process.communicate(timeout=PATIENCE)
    is_over.set()
    assert (process.returncode, complaint) == (141, "")
    with person.sessions() as sessions:
        (info,) = sessions.list()
    assert person.said(info.key)[-1].endswith("[stopped by the user]")


def test_a_model_that_is_not_there_is_exit_13(person: Person, model: Model) -> None:
    done = person.nacre("chat", "--json", "hello", OLLAMA_HOST="http://127.0.0.1:9", NACRE_AGENT_PROVIDER="ollama")
    assert done.code == 13, done
    assert (done.json["schema_version"], done.json["error"]["type"]) == (1, "model_unavailable")
    assert not model.chats


def test_a_file_of_prompts_is_answered_line_by_line(person: Person, tmp_path: Path) -> None:
    """The loop that everybody writes: the command does not eat the input of the loop."""
    lines = tmp_path / "prompts"
    lines.write_text("first\nsecond\n")
    nacre = " ".join(person.command("chat", "-q"))
    loop = f'while read -r line; do {nacre} "$line" </dev/null; done <{lines}'
    done = subprocess.run(
        ["sh", "-c", loop], check=False, capture_output=True, text=True, cwd=person.home, env=person.env
    )
    assert done.stdout == "You said: first\nYou said: second\n"


def _in_shell(person: Person, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in which `nacre` is the command; gives its output and exit code."""
    script = f'nacre() {{ {shlex.join(person.command())} "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, text=True, cwd=person.home, env=person.env
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")  # noqa: PTH110
@pytest.mark.parametrize("line", ["chat -q hi", "chat -q --json hi", "chat -q --jsonl hi", "config show"])
def test_output_that_cannot_be_written_is_one_line_and_exit_1(person: Person, line: str) -> None:
    done = _in_shell(person, f"nacre {line} > /dev/full")
    assert done.returncode == 1, done
    assert done.stderr == "nacre: the output could not be written: No space left on device\n"


def test_closed_streams_lose_no_answer_in_silence(person: Person) -> None:
    done = _in_shell(person, "nacre chat -q hi 2>&-")
    assert (done.returncode, done.stdout) == (0, "You said: hi\n")
    done = _in_shell(person, "nacre chat -q hi >&-")
    assert (done.returncode, done.stderr) == (1, "nacre: the output could not be written: stdout is closed\n")


def test_a_server_that_fails_in_a_turn_is_exit_1_and_the_message_is_stored(person: Person, model: Model) -> None:
    model.answer = lambda _: Refusal(501, "not today")
    done = person.nacre("chat", "--json", "hello")
    assert (done.code, done.json["answer"]) == (1, ""), done
    assert person.said(done.json["session"]) == ["hello"]
    model.answer = lambda _: Refusal(500, "the runner has died")
    done = person.nacre("chat", "--json", "hello")
    assert (done.code, done.json["error"]["type"]) == (1, "server_failed"), done
