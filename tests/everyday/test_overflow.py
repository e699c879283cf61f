"""Servers that take less than is configured: every turn is answered, and what was cut is said."""

from __future__ import annotations

import re

import pytest

from tests import provider_rules
from tests.everyday.conftest import Person
from tests.everyday.model import DEFAULT_MODEL, Call, Model, Reply, Request
from tests.everyday.terminal import Screen

CONFIGURED = 32_000
LONG = "- Keep the module boundaries as they are, and write a test for every change.\n" * 700  # some 11,000 tokens
PASTED = "what is wrong in this log?\n" + "at 12:00 the worker said that all was well\n" * 2_000  # some 20,000 tokens
MARK = "of which the middle is not shown"


def claims_much(model: Model, window: int) -> None:
    """Let the server take less than it claims, so that only its refusal tells."""
    model.models[DEFAULT_MODEL], model.shows = window, 131_072


def answered(model: Model) -> list[Request]:
    """The requests to answer a person that the server took; memory and titles ask for themselves."""
    found = [request for request in model.chats if request.tokens <= model.models[DEFAULT_MODEL]]
    return [request for request in found if "You are nacre" in request.system]


def sizes(model: Model) -> list[int]:
    return [request.tokens for request in model.chats if "You are nacre" in request.system]


@pytest.mark.parametrize(
    ("window", "per_token"), [(4_096, 4), (4_096, 3), (8_192, 4), (16_384, 4), (16_384, 3), (131_072, 4)]
)
def test_every_turn_is_answered_whatever_the_window(person: Person, model: Model, window: int, per_token: int) -> None:
    claims_much(model, window)
    model.per_token = per_token
    folder = person.folder("project", **{"AGENTS.md": LONG})
    key = person.ask("--trust", "hello", at=folder)["session"]
    long = person.nacre("chat", "--trust", "--json", "-r", key, at=folder, stdin=PASTED)
    assert long.code == 0, long
    assert person.ask("--trust", "-r", key, "and now?", at=folder)["answer"] == "You said: and now?"
    assert person.said(key)[0::2] == ["hello", PASTED.strip(), "and now?"]
    for request in answered(model):
        provider_rules.ollama(request.body)
    [pasted] = [request for request in answered(model) if PASTED[:40] in request.said]
    assert (MARK in pasted.said) == (window < 30_000), pasted.said[:200]
    assert pasted.said.endswith("all was well")


def test_a_server_of_2k_tokens_answers_too(person: Person, model: Model) -> None:
    claims_much(model, 2_048)
    folder = person.folder("project", **{"AGENTS.md": LONG})
    assert person.nacre("chat", "--trust", "--json", at=folder, stdin=PASTED).code == 0


def test_a_server_that_takes_next_to_nothing_gets_an_error_with_the_sizes(person: Person, model: Model) -> None:
    claims_much(model, 20)
    done = person.nacre("chat", "--trust", "hello", at=person.folder("project", **{"AGENTS.md": LONG}))
    assert done.code != 0
    assert "> 20 tokens" in done.err
    assert "about" in done.err
    assert "tokens" in done.err
    assert "a larger context" in done.err


def test_a_server_that_does_not_say_its_window_gets_smaller_requests_until_one_fits(
    person: Person, model: Model
) -> None:
    claims_much(model, 4_096)
    model.refusal = "the input length exceeds the context length"
    person.ask("--trust", "hello", at=person.folder("project", **{"AGENTS.md": LONG}))
    tried = sizes(model)
    assert 2 <= len(tried) <= 8
    assert tried == sorted(set(tried), reverse=True)
    assert tried[-1] <= 4_096


def test_the_next_process_knows_what_the_server_takes(person: Person, model: Model) -> None:
    claims_much(model, 4_096)
    folder = person.folder("project", **{"AGENTS.md": LONG})
    person.ask("--trust", "hello", at=folder)
    refused = len([size for size in sizes(model) if size > 4_096])
    person.ask("--trust", "hello again", at=folder)
    assert refused == 1
    assert len([size for size in sizes(model) if size > 4_096]) == 1


def test_a_turn_of_many_tool_calls_goes_on_in_a_small_window(person: Person, model: Model) -> None:
    claims_much(model, 4_096)
    folder = person.folder("project", **{"long.txt": "a line of a file that is rather long\n" * 400})

    def work(request: Request) -> Reply:
        return [Call("read_file", {"path": "long.txt"})] if len(answered(model)) < 12 and request.tools else "done"

    model.answer = work
    document = person.ask("--trust", "read it often", at=folder)
    assert document["answer"] == "done"
    for request in answered(model):
        provider_rules.ollama(request.body)


def test_the_footer_and_context_show_what_is_sent_and_not_what_was_cut(person: Person, model: Model) -> None:
    claims_much(model, 4_096)
    folder = person.folder("project", **{"AGENTS.md": LONG})
    with Screen(person, "chat", "--trust", columns=100, rows=40, at=folder) as screen:
        screen.until("/32.0k tokens")
        screen.say("hello")
        screen.until("You said: hello")
        screen.until("/4.1k tokens")
        screen.say("/context")
        screen.until("of 4,096 tokens")
        shown = re.search(r"about ([\d,]+) of 4,096 tokens", screen.text)
        assert shown is not None
        assert int(shown[1].replace(",", "")) < 4_096
        assert screen.leave() == 0
