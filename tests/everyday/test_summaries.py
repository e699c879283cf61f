"""Long conversations of one-shot turns: summaries are made after the answer, and said."""

from __future__ import annotations

import json
import signal

from tests import provider_rules
from tests.everyday.conftest import Person
from tests.everyday.model import Call, Model, Reply, Request, echo

LIMIT = 12
SUMMARY = "The user counts turns aloud, and the assistant repeats each number after them."


def is_summary(request: Request) -> bool:
    return "You keep the record of a conversation" in request.system


def summarising(request: Request) -> Reply:
    """Answer as usual, and write a summary when asked for one."""
    return SUMMARY if is_summary(request) else echo(request)


def talks(model: Model) -> list[Request]:
    return [request for request in model.chats if "You are nacre" in request.system]


def limited(person: Person, model: Model) -> None:
    person.config(f"[agent]\nmax_history_messages = {LIMIT}\n")
    model.answer = summarising


def test_thirty_turns_in_a_row_are_one_conversation_with_summaries(person: Person, model: Model) -> None:
    limited(person, model)
    key = person.ask("turn 0")["session"]
    for turn in range(1, 30):
        document = person.ask("-c", f"turn {turn}")
        assert (document["session"], document["answer"]) == (key, f"You said: turn {turn}")
    assert person.said(key)[0::2] == [f"turn {turn}" for turn in range(30)]
    with person.sessions() as sessions:
        assert SUMMARY in sessions.get_summary(key)
        assert len(list(sessions.records(key, "sum"))) >= 4
    assert len(talks(model)) == 30
    for request in talks(model):
        provider_rules.ollama(request.body)
        assert len([message for message in request.messages if message["role"] != "system"]) <= LIMIT


def fill(person: Person) -> str:
    """A conversation whose next turn is followed by a summary."""
    with person.sessions() as sessions:
        for turn in range(5):
            sessions.add_message("talk", "user", f"turn {turn}")
            sessions.add_message("talk", "assistant", "yes")
    return "talk"


def test_a_summary_is_said_on_stderr_after_the_answer(person: Person, model: Model) -> None:
    limited(person, model)
    done = person.nacre("chat", "-r", fill(person), "one more")
    assert (done.code, done.out) == (0, "You said: one more\n")
    assert "earlier messages were summarised" in done.err


def test_a_summary_is_a_notice_before_the_last_line_of_jsonl(person: Person, model: Model) -> None:
    limited(person, model)
    *_, notice, last = person.nacre("chat", "--jsonl", "-r", fill(person), "one more").lines
    assert (notice["type"], last["type"]) == ("notice", "done")
    assert "earlier messages were summarised" in notice["text"]


def test_ctrl_c_during_a_summary_loses_nothing(person: Person, model: Model) -> None:
    limited(person, model)
    key = fill(person)
    process = person.start("chat", "-r", key, "one more")

    def interrupted(request: Request) -> Reply:
        if is_summary(request):
            process.send_signal(signal.SIGINT)
            process.wait(60)
        return summarising(request)

    model.answer = interrupted
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "You said: one more\n"), err
    model.answer = summarising
    done = person.nacre("chat", "-r", key, "and another")
    assert done.out == "You said: and another\n"
    assert "earlier messages were summarised" in done.err
    assert person.said(key)[-4::2] == ["one more", "and another"]


def test_a_signal_during_a_summary_is_not_followed_by_another_wait(person: Person, model: Model) -> None:
    limited(person, model)
    process = person.start("chat", "--jsonl", "-r", fill(person), "one more")

    def interrupted(request: Request) -> Reply:
        if is_summary(request):
            process.send_signal(signal.SIGTERM)
        if is_summary(request) or not request.tools:
            process.wait(60)
        return summarising(request)

    model.answer = interrupted
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert json.loads(out.splitlines()[-1])["type"] == "done"


def test_a_model_that_cannot_summarise_is_not_asked_after_every_turn(person: Person, model: Model) -> None:
    person.config(f"[agent]\nmax_history_messages = {LIMIT}\n")
    model.answer = lambda request: "no" if is_summary(request) else echo(request)
    key = fill(person)
    assert "could not summarise" in person.nacre("chat", "-r", key, "one").err
    before = len([request for request in model.chats if is_summary(request)])
    assert person.ask("-r", key, "two")["answer"] == "You said: two"
    assert before == 1
    assert person.said(key)[-2:] == ["two", "You said: two"]


def test_a_session_of_one_long_turn_has_nothing_to_summarise_and_says_nothing(person: Person) -> None:
    person.config("[agent]\nmax_context_tokens = 4000\n")
    done = person.nacre("chat", "what is this?", stdin="many words " * 5000)
    assert done.code == 0, done
    assert "summarise" not in done.err


def test_a_turn_of_many_calls_is_summarised_while_it_runs_and_keeps_its_question(person: Person, model: Model) -> None:
    person.config("[agent]\nmax_context_tokens = 8000\n")
    folder = person.folder("project", **{"long.txt": "a line of a file that is rather long\n" * 100})

    def work(request: Request) -> Reply:
        if is_summary(request):
            return "The user wants long.txt read often; the assistant has read the file several times so far."
        return [Call("read_file", {"path": "long.txt"})] if len(talks(model)) < 20 else "done"

    model.answer = work
    done = person.nacre("chat", "--trust", "read long.txt often", at=folder)
    assert (done.code, done.out) == (0, "done\n"), done
    assert "earlier messages were summarised" in done.err
    for request in talks(model):
        provider_rules.ollama(request.body)
        assert request.tokens <= 8000
        assert "read long.txt often" in str(request.messages)
