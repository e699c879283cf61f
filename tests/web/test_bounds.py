"""Answers over HTTP, and what a server holds in memory for them, are bounded however long a session's messages are."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from starlette.types import Message as Sent

import nacre
from nacre.agent.ports import Context, Emit, Event, Reply, Text
from nacre.messages import Message
from nacre.sessions import Sessions
from nacre.web import sse
from nacre.web.api import queries
from nacre.web.api.schemas import ListQuery, SearchQuery
from nacre.web.http_errors import Fault
from nacre.web.running_turns import Running
from tests.web.browser.site import got
from tests.web.conftest import Serve, Site

MB = 1_000_000


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        yield found


def fill(sessions: Sessions, key: str, count: int, size: int = MB) -> None:
    """Store long messages, each of them another."""
    for number in range(count):
        sessions.add_message(key, "user", f"{number} " + "x" * size)


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """What tells how many bytes were in use at once, at most, besides those that were before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# ---- events


def test_a_stream_of_long_records_holds_a_few_of_them(sessions: Sessions) -> None:
    fill(sessions, "k", 64)

    async def follow() -> list[int]:
        stream = sse.records(sessions, "k", after=1, changes=None, heartbeat=15)
        return [len(one) async for one in stream if one != sse.BEAT]

    with memory() as peak:
        sizes = anyio.run(follow)
        # 64 MB in all. Read at once: 8 MiB and what it takes to read one more; made into events: 1 MiB and one more.
        assert peak() < 30 * MB
    assert len(sizes) == 64
    assert min(sizes) > MB


def test_a_long_event_is_sent_in_pieces_and_arrives_whole() -> None:
    sent: list[bytes] = []
    made = [sse.event({"text": "a" * MB}), sse.BEAT]

    async def events() -> Any:
        for one in made:
            yield one

    async def receive() -> Sent:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Sent) -> None:
        sent.append(message.get("body", b""))

    anyio.run(sse.EventStream(events()), {"type": "http"}, receive, send)
    assert max(map(len, sent)) == 64 * 1024
    assert b"".join(sent) == b"".join(made)


def test_a_client_that_reads_too_slowly_gets_no_more_of_a_turn_and_the_rest_is_not_kept() -> None:
    async def work(emit: Emit) -> str:
        for _ in range(20):
            emit(Text("x" * MB))
        return "done"

    async def watch() -> tuple[list[Event | None], str]:
        slow, waits = Running[str](), Running[str]()
        await slow.run(work)
        with pytest.raises(Fault) as caught:
            slow.outcome()
        assert caught.value.kind == "timeout"
        found = [one async for one in slow.events(silence=15)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waits.over)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(waits.run, work)
        return found, waits.outcome()

    with memory() as peak:
        assert anyio.run(watch) == ([], "done")
        assert peak() < 12 * MB


class Flood:
    """A model that says more at once than any client reads."""

    model = "flood"

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        for _ in range(20):
            emit(Text("x" * MB))
        return Reply(message=Message(role="assistant", content="long", model=self.model))

    async def close(self) -> None:
        """Nothing to release."""


def test_a_client_that_reads_too_slowly_is_told_and_the_answer_is_stored(server: Serve) -> None:
    site = server(provider=Flood())
    answer = site.client.post("/api/sessions/k/messages", json={"content": "hello", "stream": True})
    assert len(answer.content) < 10 * MB
    problem = json.loads(answer.text.partition("event: problem\ndata: ")[2])
    assert (problem["code"], problem["status"]) == ("timeout", 408)
    whole = site.client.post("/api/sessions/k/messages", json={"content": "again"})
    assert whole.json()["answer"]["content"] == "long"
    assert site.said("k") == [("user", "hello"), ("assistant", "long"), ("user", "again"), ("assistant", "long")]


# ---- whole sessions


@pytest.mark.parametrize("suffix", ["json", "md"])
def test_a_whole_session_is_sent_without_being_held(echo: Site, suffix: str) -> None:
    fill(echo.sessions, "k", 64)
    plain = {"Accept-Encoding": "identity"}
    with memory() as peak, echo.client.stream("GET", f"/s/k.{suffix}", headers=plain) as response:
        size = sum(map(len, response.iter_raw()))
        # 8 MiB are read at a time; one message is being made, and one sent.
        assert peak() < 40 * MB
    assert size > 64 * MB


def test_a_whole_session_has_every_message_once(sessions: Sessions) -> None:
    fill(sessions, "k", 20)
    sessions.add_messages("k", [{"role": "user", "content": str(number)} for number in range(100)])
    found = json.loads(got(sessions, "/s/k.json"))
    expected = [str(at) if at < 20 else str(at - 20) for at in range(120)]
    assert [item["message"]["content"].split()[0] for item in found["items"]] == expected
    assert found["count"] == 120
    assert got(sessions, "/s/k.md").count("\n## user") == 120


# ---- lists


def test_a_page_of_the_list_is_bounded_and_its_cursor_leads_to_the_rest(sessions: Sessions) -> None:
    for number in range(12):
        sessions.add_message(f"k{number:02}", "user", "hello")
        sessions.set_meta(f"k{number:02}", title="t" * MB, tags=["x" * 1000] * 500)
    keys: list[str] = []
    sizes: list[int] = []
    page = queries.list_sessions(sessions, ListQuery(sort="key"))
    while True:
        keys += [item.key for item in page.items]
        sizes.append(len(msgspec.json.encode(page)))
        if page.next_cursor is None:
            break
        page = queries.list_sessions(sessions, ListQuery(sort="key", cursor=page.next_cursor))
    assert keys == [f"k{number:02}" for number in range(12)]
    assert max(sizes) < 8 * 1024 * 1024 + 1000


def test_a_row_that_is_longer_than_a_page_is_alone_on_one(sessions: Sessions) -> None:
    for key in ("a", "b"):
        sessions.add_message(key, "user", "hello")
        sessions.set_meta(key, title="t" * 9 * MB)
    page = queries.list_sessions(sessions, ListQuery(sort="key"))
    assert ([item.key for item in page.items], page.has_more, page.total) == (["a"], True, 2)


@pytest.mark.parametrize("path", ["/", "/index.json", "/index.md", "/search?q=needle", "/side"])
def test_lists_for_people_show_the_beginning_of_long_titles_and_a_few_tags(sessions: Sessions, path: str) -> None:
    sessions.add_full_message("k", Message(role="assistant", content="needle", model="m" * MB))
    sessions.set_meta("k", title="t" * MB, tags=[f"{number} " + "x" * 1000 for number in range(1000)], cwd="/" * MB)
    assert len(got(sessions, path)) < 30_000


@pytest.mark.parametrize("query", ["needle*", "needle", "role"])
def test_what_a_search_shows_of_a_message_is_short(sessions: Sessions, query: str) -> None:
    sessions.add_message("a", "user", "needle" * 200_000)
    sessions.add_message("b", "user", "needle " + "x" * MB)
    sessions.add_message("c", "r" * MB, "needle role")
    found = queries.search(sessions, SearchQuery(q=query))
    assert found.items
    assert all(len(item.snippet) < 1_300 and len(item.role) <= 160 for item in found.items)


# ---- what OpenAI's clients ask for


def test_a_response_is_read_without_what_was_said_after_it(echo: Site) -> None:
    made = echo.client.post("/v1/responses", json={"model": "nacre", "input": "hello"}).json()
    (info,) = echo.sessions.list()
    fill(echo.sessions, info.key, 40)
    with memory() as peak:
        again = echo.client.get(f"/v1/responses/{made['id']}")
        assert peak() < 5 * MB
    assert len(again.content) < 10_000
    assert again.json()["output"][0]["content"][0]["text"] == "echo: hello"


# ---- the page


def test_the_page_shows_the_beginning_of_long_messages_and_says_where_the_rest_is(sessions: Sessions) -> None:
    fill(sessions, "k", 10)
    html = got(sessions, "/s/k")
    assert html.count("more characters: the .json version has all of them") == 10
    assert 10 * 200_000 < len(html) < 10 * 210_000
