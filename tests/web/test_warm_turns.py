"""A turn over HTTP in a session that is open here: nothing is read again, and what others wrote is seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import nacre
from nacre.history import tokens
from nacre.history.window import Turns
from nacre.messages import Message
from nacre.storage.system import System
from tests.web.conftest import Echo, Serve, Site

KEY = "api::x::"


def say(site: Site, text: str, **headers: str) -> Any:
    body = {"model": "nacre", "messages": [{"role": "user", "content": text}], "session_id": "x"}
    answer = site.client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def respond(site: Site, text: str, previous: str | None) -> Any:
    body = {"model": "nacre", "input": text, "previous_response_id": previous}
    answer = site.client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of everything that is read from files of the store."""
    sizes: list[int] = []
    pread = System.pread

    def counted(self: System, fd: int, size: int, offset: int) -> bytes:
        found = pread(self, fd, size, offset)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(System, "pread", counted)
    return sizes


def test_a_warm_completion_reads_nothing_again(echo: Site, read: list[int]) -> None:
    for number in range(20):
        say(echo, f"question {number}")
    read.clear()
    answers = [say(echo, "one"), say(echo, "two", **{"Idempotency-Key": "a"}), say(echo, "three")]
    assert read == []
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == [
        "echo: one",
        "echo: two",
        "echo: three",
    ]
    assert [answer["usage"]["total_tokens"] for answer in answers] == [5, 5, 5]
    # A repeat is known without reading, too.
    assert say(echo, "two", **{"Idempotency-Key": "a"})["choices"][0]["message"]["content"] == "echo: two"
    assert read == []
    assert len(echo.said(KEY)) == 46


def test_a_warm_response_after_another_reads_nothing_again(echo: Site, read: list[int]) -> None:
    last = respond(echo, "hello", None)["id"]
    for number in range(3):
        last = respond(echo, f"question {number}", last)["id"]
    read.clear()
    answer = respond(echo, "more", last)
    assert read == []
    assert answer["usage"]["total_tokens"] == 5
    assert respond(echo, "and more", answer["id"])["output"][0]["content"][0]["text"] == "echo: and more"
    assert read == []
    [info] = echo.sessions.list()
    assert info.messages == 12


def test_a_response_that_is_not_the_last_is_still_forked(echo: Site) -> None:
    first = respond(echo, "hello", None)["id"]
    respond(echo, "a", first)
    respond(echo, "b", first)
    assert sorted(info.messages for info in echo.sessions.list()) == [4, 4]


def test_a_response_after_an_answer_that_was_undone_is_forked(echo: Site, root: Path) -> None:
    first = respond(echo, "hello", None)["id"]
    respond(echo, "a", first)
    [info] = echo.sessions.list()
    with nacre.open(root) as other:
        other.pop(info.key)
        other.pop(info.key)
    respond(echo, "b", first)
    assert len(list(echo.sessions.list())) == 2


def test_a_guest_reads_nothing_again_either(server: Serve, read: list[int]) -> None:
    site = server(provider=Echo(), settings={"serve": {"users_are_guests": True}})
    body = {"model": "nacre", "messages": [{"role": "user", "content": "hi"}], "session_id": "x", "user": "ann"}
    for _ in range(3):
        assert site.client.post("/v1/chat/completions", json=body).status_code == 200
    read.clear()
    assert site.client.post("/v1/chat/completions", json=body).status_code == 200
    assert read == []


# ---- what others write in between


def seen(site: Site, text: str) -> list[Any]:
    """What the model is shown when something is said."""
    say(site, text)
    provider: Any = site.app.provider.current.provider
    return [message.content for message in provider.contexts[-1].messages]


def elsewhere(root: Path, code: str) -> None:
    """Do something to the sessions in another process."""
    script = f"import nacre, sys\nwith nacre.open(sys.argv[1]) as sessions:\n    {code}"
    subprocess.run([sys.executable, "-c", script, str(root)], check=True)


Change = Callable[[nacre.Sessions], object]
CHANGES: dict[str, tuple[Change, list[str]]] = {
    "a message": (
        lambda other: other.add_message(KEY, "user", "from elsewhere"),
        ["a", "echo: a", "b", "echo: b", "from elsewhere", "c"],
    ),
    "a rewind": (lambda other: other.rewind(KEY, to=other.snapshot(KEY).numbers[1] + 1), ["a", "echo: a", "c"]),
    "a truncation": (lambda other: other.truncate_history(KEY, 2), ["b", "echo: b", "c"]),
    "a summary": (
        lambda other: other.set_summary(KEY, "letters", upto=other.snapshot(KEY).numbers[1]),
        ["[summary of what was said before]\nletters", "b", "echo: b", "c"],
    ),
    "an erased message": (
        lambda other: other.redact(KEY, other.snapshot(KEY).numbers[0]),
        ["[erased]", "echo: a", "b", "echo: b", "c"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_another_store_wrote_is_seen_in_the_next_turn(echo: Site, root: Path, name: str) -> None:
    change, shown = CHANGES[name]
    say(echo, "a")
    say(echo, "b")
    with nacre.open(root) as other:
        change(other)
    assert seen(echo, "c") == shown
    # And it goes on from there.
    assert seen(echo, "d") == [*shown, "echo: c", "d"]


def test_what_another_process_wrote_is_seen_in_the_next_turn(echo: Site, root: Path) -> None:
    say(echo, "a")
    say(echo, "b")
    elsewhere(root, f"sessions.add_messages({KEY!r}, [nacre.Message(role='user', content='from elsewhere')])")
    assert seen(echo, "c") == ["a", "echo: a", "b", "echo: b", "from elsewhere", "c"]
    elsewhere(root, f"sessions.truncate_history({KEY!r}, 0)")
    assert seen(echo, "d") == ["d"]
    elsewhere(root, f"sessions.archive({KEY!r})")
    assert seen(echo, "e") == ["e"]
    assert seen(echo, "f") == ["e", "echo: e", "f"]


def test_a_model_that_was_chosen_elsewhere_answers_from_the_next_turn_on(echo: Site, root: Path) -> None:
    say(echo, "a")
    say(echo, "b")
    elsewhere(root, f"sessions.set_meta({KEY!r}, chosen_model='nobody/large')")
    body = {"model": "nacre", "messages": [{"role": "user", "content": "c"}], "session_id": "x"}
    answer = echo.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 502, answer.text
    assert "nobody" in answer.text
    elsewhere(root, f"sessions.set_meta({KEY!r}, chosen_model=None)")
    assert seen(echo, "d")[-1] == "d"


def test_a_turn_that_others_used_tokens_in_counts_them(echo: Site, root: Path) -> None:
    """What was used is read where not all of it was committed here."""
    say(echo, "a")

    class Other(Echo):
        """A model during whose answer somebody else stores what they used."""

        async def complete(self, context: Any, *, emit: Any) -> Any:
            with nacre.open(root) as other:
                other.append(KEY, "use", {"prompt": 10, "completion": 1})
            return await super().complete(context, emit=emit)

    echo.app.provider.current.provider.complete = Other().complete  # type: ignore[method-assign]
    assert say(echo, "b")["usage"]["total_tokens"] == 16


# ---- how often something is worked out


def test_only_what_is_new_is_estimated_in_a_further_turn(server: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = server(provider=Echo())
    for number in range(20):
        say(site, f"question {number}")
    estimated: list[Any] = []
    kept: list[Any] = []
    sizes, keep = tokens.sizes, Turns.keep

    def counted(text: str) -> Any:
        estimated.append(text)
        return sizes(text)

    def keeping(self: Turns, turn: Any) -> None:
        kept.append([message.content for message in turn.said])
        keep(self, turn)

    monkeypatch.setattr(tokens, "sizes", counted)
    monkeypatch.setattr(Turns, "keep", keeping)
    say(site, "the last one")
    assert kept == [["echo: question 19", "question 19"]]
    assert [text for text in estimated if text in {f"question {number}" for number in range(19)}] == []
    assert "the last one" in estimated


def test_a_snapshot_of_the_kernel_is_that_of_the_store(echo: Site) -> None:
    for number in range(140):
        say(echo, f"question {number}")
    known = echo.call(lambda: echo.app.kernel.snapshot(KEY))
    stored = echo.sessions.snapshot(KEY, last=len(known.messages))
    # When a message was stored is known to who reads it.
    assert replace(known, messages=[replace(one, created=None) for one in known.messages]) == replace(
        stored, messages=[replace(one, created=None) for one in stored.messages]
    )
    assert len(known.messages) in (256, 257)
    assert echo.call(lambda: echo.app.kernel.snapshot("api::nobody::")) is None
    assert echo.call(lambda: echo.app.kernel.used_since("api::nobody::", 0)) is None


def test_a_guest_is_not_shown_what_others_have_open(echo: Site) -> None:
    say(echo, "a")
    assert echo.call(lambda: echo.app.known_session(KEY)) is not None
    assert echo.call(lambda: echo.app.for_guest("api:ann:").known_session(KEY)) is None


def test_messages_are_values_that_the_kernel_does_not_share(echo: Site) -> None:
    say(echo, "a")
    known = echo.call(lambda: echo.app.kernel.snapshot(KEY))
    known.messages.append(Message(role="user", content="not said"))
    assert seen(echo, "b") == ["a", "echo: a", "b"]
