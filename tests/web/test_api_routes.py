"""The API for sessions: what the command line prints as JSON, over HTTP, and records as they come."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

import nacre
from nacre.agent.kernel import Kernel
from nacre.agent.ports import Effect, Output, Scene, Spec
from nacre.errors import ProviderError
from nacre.messages import Hit
from nacre.providers.scripted import Call, Pause, Scripted
from nacre.web import sse
from nacre.web.api import queries
from nacre.web.api.schemas import SearchQuery
from nacre.web.gate import Limits
from tests.packages import only_installed
from tests.paths import log_of
from tests.web.conftest import Echo, Serve, Site, events


def fill(site: Site, key: str, *texts: str) -> None:
    for at, text in enumerate(texts):
        site.sessions.add_message(key, "assistant" if at % 2 else "user", text)


def get(site: Site, path: str, **query: Any) -> Any:
    answer = site.client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def texts(document: Any) -> list[str]:
    return [item["message"]["content"] for item in document["items"]]


# ---- lists


def test_a_list_is_what_the_command_line_prints(echo: Site) -> None:
    fill(echo, "telegram:42", "hello", "hi")
    found = get(echo, "/api/sessions")
    (item,) = found.pop("items")
    assert found == {"schema_version": 1, "count": 1, "total": 1, "has_more": False, "next_cursor": None}
    fields = ["key", "title", "messages", "created", "updated", "bytes", "archived"]
    assert list(item) == [*fields, "pinned", "tags", "cwd", "role", "model", "quarantine"]
    assert (item["key"], item["messages"], item["archived"]) == ("telegram:42", 2, False)
    assert item["created"].endswith("Z")


def test_a_log_that_was_found_empty_is_not_a_session_that_never_was(echo: Site) -> None:
    fill(echo, "telegram:42", "hello")
    echo.sessions.close()
    log_of(echo.sessions.location, "telegram:42").write_bytes(b"")
    for scope in ("live", "whole"):
        answer = echo.client.get("/api/sessions/telegram:42", params={"scope": scope})
        assert answer.status_code >= 500
        assert "is empty (0 bytes)" in answer.json()["detail"]
    assert echo.client.get("/api/sessions/telegram:43").status_code == 404


def test_a_reading_of_everything_that_is_not_whole_says_so_each_time(echo: Site) -> None:
    fill(echo, "telegram:42", *(f"message {at} " * 9 for at in range(3000)))
    echo.sessions.truncate_history("telegram:42", 1)
    echo.sessions.save("telegram:42")
    assert get(echo, "/api/sessions/telegram:42", scope="whole")["unreadable"] is None
    (cold,) = (Path(echo.sessions.location) / "cold").iterdir()
    data = bytearray(cold.read_bytes())
    data[len(data) // 2] ^= 4
    cold.write_bytes(data)
    assert get(echo, "/api/sessions/telegram:42")["unreadable"] is None
    for _ in range(2):
        pages = [get(echo, "/api/sessions/telegram:42", scope="whole", limit=500)]
        while cursor := pages[-1]["next_cursor"]:
            pages.append(get(echo, "/api/sessions/telegram:42", scope="whole", limit=500, cursor=cursor))
        found, *same = [page["unreadable"] for page in pages if page["unreadable"]]
        assert all(one == found for one in same)
        assert found["records"] > 0
        assert found["text"] == f"{found['records']:,} records cannot be read"
        assert found["command"] == "nacre sessions verify telegram:42"
        there = {item["n"] for page in pages for item in page["items"]}
        after_lost = max(set(range(2, 3002)) - there) + 1
        page = echo.client.get("/s/telegram:42", params={"all": "1", "at": after_lost}).text
        assert found["text"] in page
        assert found["command"] in page


def test_a_session_with_something_in_quarantine_says_so_until_it_is_settled(echo: Site) -> None:
    fill(echo, "telegram:42", "hello")
    echo.sessions.add_messages("telegram:42", [{"role": "user", "content": f"part {i}"} for i in range(2)])
    log = log_of(echo.sessions.location, "telegram:42")
    log.write_bytes(log.read_bytes().replace(b"part 1", b"part l"))
    echo.sessions.get_history("telegram:42")
    told = {
        "records": 1,
        "bytes": echo.sessions.quarantine()[0].bytes,
        "text": "1 record of this session is in quarantine",
        "command": "nacre sessions quarantine show telegram:42",
    }
    assert get(echo, "/api/sessions")["items"][0]["quarantine"] == told
    assert get(echo, "/api/sessions/telegram:42")["quarantine"] == told
    echo.sessions.restore("telegram:42")
    assert get(echo, "/api/sessions")["items"][0]["quarantine"] is None
    assert get(echo, "/api/sessions/telegram:42")["quarantine"] is None


def test_a_list_is_filtered_sorted_and_paged(echo: Site) -> None:
    for key in ("a:1", "a:2", "a:3", "b:1"):
        fill(echo, key, "x")
    echo.sessions.archive("a:3")
    first = get(echo, "/api/sessions", prefix="a:", sort="key", state="all", limit=2)
    assert ([item["key"] for item in first["items"]], first["total"], first["has_more"]) == (["a:1", "a:2"], 3, True)
    second = get(echo, "/api/sessions", prefix="a:", sort="key", state="all", cursor=first["next_cursor"])
    assert [(item["key"], item["archived"]) for item in second["items"]] == [("a:3", True)]
    assert get(echo, "/api/sessions", sort="key", order="reverse")["items"][0]["key"] == "b:1"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 400),
        ("limit=x", 400),
        ("sort=age", 400),
        ("age=1", 400),
        ("limit=1&limit=2", 400),
        ("cursor=x", 404),
    ],
)
def test_a_query_that_means_nothing_is_refused(echo: Site, query: str, status: int) -> None:
    answer = echo.client.get(f"/api/sessions?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["code"] == {400: "usage", 404: "not_found"}[status]


def test_a_search_by_meaning_needs_embeddings(echo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    only_installed(monkeypatch)
    answer = echo.client.get("/api/search?q=x&meaning=true")
    assert answer.status_code == 501
    assert "nacre setup embeddings" in answer.text


def test_a_search_by_meaning_where_embeddings_are_installed(root: Path) -> None:
    asked: list[object] = []

    class Searched(nacre.Sessions):
        def search(self, query: str, **given: Any) -> list[Hit]:
            asked.append((query, given["meaning"]))
            return []

    with nacre.open(root) as sessions:
        wanted = SearchQuery(q="x", meaning=True)
        assert queries.search(Searched(sessions._store), wanted, is_installed=lambda: True).items == []
    assert asked == [("x", True)]


def test_a_search_finds_words(echo: Site) -> None:
    fill(echo, "k", "the disk is full", "oh")
    (item,) = get(echo, "/api/search", q="disk")["items"]
    assert (item["key"], item["n"], item["role"]) == ("k", 2, "user")
    assert "**disk**" in item["snippet"]
    assert item["generation"] == ""
    echo.sessions.archive("k")
    (item,) = get(echo, "/api/search", q="disk")["items"]
    assert item["generation"] == get(echo, "/api/sessions/k", scope="whole")["items"][0]["generation"] != ""


# ---- one session


def test_a_session_is_read_page_by_page_from_its_end(echo: Site) -> None:
    fill(echo, "k", *map(str, range(7)))
    pages = [get(echo, "/api/sessions/k", limit=3)]
    while cursor := pages[-1]["next_cursor"]:
        pages.append(get(echo, "/api/sessions/k", limit=3, cursor=cursor))
    assert [texts(page) for page in pages] == [["4", "5", "6"], ["1", "2", "3"], ["0"]]
    assert (pages[-1]["total"], pages[-1]["count"], pages[-1]["has_more"]) == (7, 1, False)


def test_the_whole_of_a_session_has_what_is_no_longer_live(echo: Site) -> None:
    fill(echo, "k", "old")
    echo.sessions.archive("k")
    fill(echo, "k", "a", "b", "c")
    echo.sessions.truncate_history("k", 1)
    assert texts(get(echo, "/api/sessions/k")) == ["c"]
    whole = get(echo, "/api/sessions/k", scope="whole")
    assert [(item["message"]["content"], item["live"]) for item in whole["items"]] == [
        ("old", False),
        ("a", False),
        ("b", False),
        ("c", True),
    ]
    page = get(echo, "/api/sessions/k", scope="whole", limit=2)
    assert texts(get(echo, "/api/sessions/k", scope="whole", limit=2, cursor=page["next_cursor"])) == ["old", "a"]


def test_tokens_are_counted_on_request(echo: Site) -> None:
    echo.client.post("/api/sessions/k/messages", json={"content": "hello"})
    assert get(echo, "/api/sessions/k")["tokens"] is None
    assert get(echo, "/api/sessions/k", tokens="yes")["tokens"] == {"input": 3, "output": 2, "total": 5}


@pytest.mark.parametrize("key", ["a/b", "a%2Fb", "../../etc/passwd", "späß: ✓", "a b?c#d", "events", "a/messages"])
def test_any_key_is_one_segment_of_the_path(echo: Site, key: str) -> None:
    path = f"/api/sessions/{quote(key, safe='').replace('.', '%2E')}"
    assert echo.client.post(f"{path}/messages", json={"content": "hello"}).json()["key"] == key
    assert get(echo, path)["key"] == key
    assert [info.key for info in echo.sessions.list()] == [key]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "/events", None),
        ("PATCH", "", {"title": "x"}),
        ("POST", "/fork", {}),
        ("POST", "/archive", None),
        ("POST", "/unarchive", None),
        ("POST", "/stop", None),
        ("DELETE", "", None),
    ],
)
def test_what_is_not_there_is_not_found_and_not_made(echo: Site, method: str, path: str, body: Any) -> None:
    answer = echo.client.request(method, f"/api/sessions/nobody{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert not echo.sessions.exists("nobody")


# ---- what changes something


def test_a_session_is_read_by_another_name_and_says_its_key(echo: Site) -> None:
    fill(echo, "k", "x")
    echo.sessions.add_alias("k", "old")
    for scope in ("live", "whole"):
        found = get(echo, "/api/sessions/old", scope=scope)
        assert (found["key"], texts(found)) == ("k", ["x"])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("DELETE", "", None), ("POST", "/archive", None), ("POST", "/unarchive", None), ("POST", "/fork", {})],
)
def test_nothing_is_erased_moved_or_forked_by_another_name(echo: Site, method: str, path: str, body: Any) -> None:
    fill(echo, "k", "x")
    echo.sessions.add_alias("k", "old")
    answer = echo.client.request(method, f"/api/sessions/old{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "'k'" in answer.json()["detail"]
    assert [info.key for info in echo.sessions.list()] == ["k"]


def test_a_title_is_given_and_taken_away(echo: Site) -> None:
    fill(echo, "k", "x")
    assert echo.client.patch("/api/sessions/k", json={"title": "Tax"}).json()["previous"] == ""
    answer = echo.client.patch("/api/sessions/k", json={"title": ""}).json()
    assert answer == {
        "schema_version": 1,
        "ok": True,
        "operation": "rename",
        "dry_run": False,
        "key": "k",
        "title": "",
        "previous": "Tax",
    }
    assert echo.sessions.get_meta("k") == {}


def test_what_is_archived_is_not_begun_anew_by_a_title(echo: Site) -> None:
    fill(echo, "k", "x")
    echo.sessions.archive("k")
    assert echo.client.patch("/api/sessions/k", json={"title": "Tax"}).status_code == 409
    assert list(echo.sessions.list()) == []


def test_a_session_is_forked(echo: Site) -> None:
    fill(echo, "k", "a", "b", "c")
    answer = echo.client.post("/api/sessions/k/fork", json={"at": 3, "title": "Second try"})
    assert (answer.status_code, answer.json()["key"], answer.json()["at"]) == (201, "k-2", 3)
    assert [text for _, text in echo.said("k-2")] == ["a", "b"]
    assert echo.sessions.get_meta("k-2")["title"] == "Second try"
    assert echo.client.post("/api/sessions/k/fork", json={"key": "k-2"}).status_code == 409


def test_a_session_is_closed_opened_and_erased(echo: Site) -> None:
    fill(echo, "k", "a")

    def post(verb: str) -> tuple[int, str]:
        answer = echo.client.post(f"/api/sessions/k/{verb}")
        return answer.status_code, answer.json().get("status")

    assert [post("archive"), post("archive")] == [(200, "archived"), (409, 409)]
    assert [post("unarchive"), post("unarchive")] == [(200, "active"), (404, 404)]
    assert echo.client.delete("/api/sessions/k").json()["status"] == "erased"
    assert not echo.sessions.exists("k")


@pytest.mark.parametrize(
    ("data", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"content": "\xff"}', "application/json", 400),
        (b'{"content": 5}', "application/json", 400),
        (b'{"content": "x", "mood": 1}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"", "application/json", 400),
        (b'{"content": "x"}', "text/plain", 415),
        (b"content=x", "application/x-www-form-urlencoded", 415),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_and_nothing_is_stored(
    echo: Site, data: bytes, kind: str, status: int
) -> None:
    answer = echo.client.post("/api/sessions/k/messages", content=data, headers={"content-type": kind})
    assert answer.status_code == status
    assert not echo.sessions.exists("k")


# ---- sending


def test_words_are_sent_and_the_answer_waited_for(echo: Site) -> None:
    answer = echo.client.post("/api/sessions/k/messages", json={"content": "hello"}).json()
    assert (answer["ok"], answer["joined"], answer["answer"]["content"]) == (True, False, "echo: hello")
    assert echo.said("k") == [("user", "hello"), ("assistant", "echo: hello")]


class Look:
    """A tool."""

    spec = Spec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
    effect: Effect = "read"

    async def run(self, arguments: Any, scene: Scene) -> Output:
        return Output(text="seen")


def test_a_turn_is_streamed_with_its_tools(server: Serve) -> None:
    site = server(["hm ", Call("look")], "done", tools={"look": Look()})
    with site.client.stream("POST", "/api/sessions/k/messages", json={"content": "go", "stream": True}) as response:
        told = list(events(response.iter_lines()))
    assert [one["event"] for one in told] == ["text", "called", "returned", "text", "answer"]
    assert told[1]["data"]["call"]["function"]["name"] == "look"
    assert told[-1]["data"]["answer"]["content"] == "done"


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_fails_is_a_problem(server: Serve, stream: bool) -> None:
    site = server(ProviderError("the server is away"))
    answer = site.client.post("/api/sessions/k/messages", json={"content": "go", "stream": stream})
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (
        502,
        "provider",
        "the server is away",
    )


def test_a_turn_that_fails_in_the_middle_is_told_as_an_event(server: Serve) -> None:
    go_on = anyio.Event()
    site = server(["one", Pause(go_on), ProviderError("the line is dead")])
    with site.client.stream("POST", "/api/sessions/k/messages", json={"content": "go", "stream": True}) as response:
        stream = events(response.iter_lines())
        assert next(stream)["event"] == "text"
        site.call(go_on.set)
        (last,) = stream
    assert (last["event"], last["data"]["detail"]) == ("problem", "the line is dead")


def test_words_under_an_id_count_once(server: Serve) -> None:
    site = server(ProviderError("no"), "one", "two")

    def send(text: str, id: str) -> Any:
        answer = site.client.post("/api/sessions/k/messages", json={"content": text}, headers={"Idempotency-Key": id})
        return answer.status_code, (answer.json().get("answer") or {}).get("content")

    told = [send("a", "1"), send("a", "1"), send("b", "2"), send("a", "1"), send("c", "1")]
    assert told == [(502, None), (200, "one"), (200, "two"), (200, "one"), (409, None)]
    assert len(site.said("k")) == 4


def test_words_under_an_id_count_once_when_a_summary_has_taken_their_place(echo: Site) -> None:
    def send(text: str, id: str) -> Any:
        answer = echo.client.post("/api/sessions/k/messages", json={"content": text}, headers={"Idempotency-Key": id})
        return answer.status_code, (answer.json().get("answer") or {}).get("content")

    for text in ("a", "b", "c"):
        send(text, text)
    echo.sessions.set_summary("k", "What was said.", upto=echo.sessions.snapshot("k").numbers[3])
    told = [send("a", "a"), send("b", "b"), send("c", "c"), send("d", "b")]
    assert told == [(200, "echo: a"), (200, "echo: b"), (200, "echo: c"), (409, None)]
    assert [text for _, text in echo.said("k")] == ["c", "echo: c"]


def test_words_that_are_repeated_while_they_are_answered_get_their_answer(server: Serve) -> None:
    go_on, reached = anyio.Event(), threading.Event()
    site = server([Pause(go_on, reached), "one ", Call("look")], "two", tools={"look": Look()})

    def send() -> Any:
        request = ("/api/sessions/k/messages", {"content": "a"}, {"Idempotency-Key": "1"})
        return site.client.post(request[0], json=request[1], headers=request[2]).json()

    with ThreadPoolExecutor() as pool:
        sent = [pool.submit(send)]
        assert reached.wait(5)
        sent += [pool.submit(send), pool.submit(send)]
        while 'nacre_messages_accepted_total{channel="http"} 3' not in site.client.get("/metrics").text:
            pass
        site.call(go_on.set)
        told = [one.result(10) for one in sent]
    assert [(one["joined"], one["answer"]["content"]) for one in told] == [(False, "two")] * 3
    assert [text for _, text in site.said("k")] == ["a", "one ", "seen", "two"]


@contextmanager
def paused(server: Serve, **parts: Any) -> Iterator[tuple[Site, anyio.Event]]:
    """A server in the middle of a turn that another client began."""
    go_on, reached = anyio.Event(), threading.Event()
    site = server([Pause(go_on, reached), "one ", Call("look")], "two", tools={"look": Look()})
    first = threading.Thread(
        target=site.client.post, args=("/api/sessions/k/messages",), kwargs={"json": {"content": "a"}}
    )
    first.start()
    assert reached.wait(5)
    yield site, go_on
    site.call(go_on.set)
    first.join(10)


def test_words_in_the_middle_of_a_turn_join_it(server: Serve) -> None:
    with paused(server) as (site, go_on):
        second = threading.Thread(
            target=lambda: told.append(site.client.post("/api/sessions/k/messages", json={"content": "b"}))
        )
        told: list[Any] = []
        second.start()
        kernel = site.app.kernel
        assert isinstance(kernel, Kernel)
        while not site.call(lambda: len(kernel._actors["k"]._mailbox)):
            pass
        site.call(go_on.set)
        second.join(10)
    assert (told[0].json()["joined"], told[0].json()["answer"]) == (True, None)
    assert [text for _, text in site.said("k")] == ["a", "one ", "seen", "b", "two"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/archive"), ("DELETE", "")])
def test_a_session_at_work_is_neither_closed_nor_erased(server: Serve, method: str, path: str) -> None:
    with paused(server) as (site, _):
        answer = site.client.request(method, f"/api/sessions/k{path}")
    assert (answer.status_code, answer.json()["code"]) == (409, "locked")
    assert len(site.said("k")) == 4


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/archive"), ("POST", "/unarchive"), ("DELETE", "")], ids=["archive", "open", "erase"]
)
def test_a_session_in_which_somebody_else_is_at_work_is_left_alone(echo: Site, method: str, path: str) -> None:
    fill(echo, "k", "hello", "hi")
    if path == "/unarchive":
        echo.sessions.archive("k")
    hold = nacre.open(echo.sessions.location).hold("k")
    hold.take()
    refused = echo.client.request(method, f"/api/sessions/k{path}")
    hold.close()
    done = echo.client.request(method, f"/api/sessions/k{path}")
    assert (refused.status_code, refused.json()["code"], done.status_code) == (409, "locked", 200)
    assert echo.client.post("/api/sessions/k/messages", json={"content": "b"}).status_code == 200


def test_a_session_with_a_turn_of_a_client_with_its_own_tools_is_left_alone(server: Serve) -> None:
    go_on, reached = anyio.Event(), threading.Event()
    site = server([Pause(go_on, reached), "one"])
    tool = {"type": "function", "function": {"name": "look"}}
    body = {"model": "nacre", "session_id": "s", "messages": [{"role": "user", "content": "a"}], "tools": [tool]}
    with ThreadPoolExecutor() as pool:
        turn = pool.submit(site.client.post, "/v1/chat/completions", json=body)
        assert reached.wait(5)
        refused = site.client.post("/api/sessions/api::s::/archive")
        site.call(go_on.set)
        assert turn.result(10).status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (409, "locked")
    assert [text for _, text in site.said("api::s::")] == ["a", "one"]


def test_a_turn_is_stopped(server: Serve) -> None:
    with paused(server) as (site, _):
        assert site.client.post("/api/sessions/k/stop").json()["status"] == "stopped"
    assert site.client.post("/api/sessions/k/stop").json()["status"] == "idle"
    assert site.said("k")[-1] == ("assistant", "[stopped by the user]")


# ---- events


def test_records_come_as_events_and_go_on_where_they_ended(echo: Site) -> None:
    fill(echo, "k", "a", "b")
    with echo.client.stream("GET", "/api/sessions/k/events") as response:
        stream = events(response.iter_lines())
        assert [(one["id"], one["event"]) for one in (next(stream), next(stream), next(stream))] == [
            ("1", "open"),
            ("2", "msg"),
            ("3", "msg"),
        ]
        echo.sessions.add_message("k", "user", "c")
        found = next(stream)
        assert found["data"]["data"]["content"] == "c"
    echo.sessions.add_message("k", "user", "d")
    with echo.client.stream("GET", "/api/sessions/k/events", headers={"Last-Event-ID": found["id"]}) as response:
        assert next(events(response.iter_lines()))["data"]["data"]["content"] == "d"
    with echo.client.stream("GET", "/api/sessions/k/events?after=3") as response:
        assert next(events(response.iter_lines()))["id"] == "4"


def test_events_end_with_the_last_record_for_those_who_do_not_wait(echo: Site) -> None:
    fill(echo, "k", "a", "b")
    with echo.client.stream("GET", "/api/sessions/k/events?wait=no&after=1") as response:
        assert [one["id"] for one in events(response.iter_lines())] == ["2", "3"]
    assert echo.client.get("/api/sessions/k/events?wait=no&after=3").text == ": still here\n\n"


def test_a_stream_is_woken_by_what_is_written_here_and_elsewhere(server: Serve, root: Path) -> None:
    echo = server(provider=Echo(), limits=Limits(heartbeat=3600.0))
    echo.web.state.changes = sse.Changes(echo.web.state.closing, look=3600.0)
    fill(echo, "k", "a")
    program = "import nacre, sys; nacre.open(sys.argv[1]).add_message(sys.argv[2], 'user', 'elsewhere')"
    with echo.client.stream("GET", "/api/sessions/k/events?after=2") as response:
        stream = events(response.iter_lines())
        echo.sessions.add_message("k", "user", "here")
        assert next(stream)["data"]["data"]["content"] == "here"
        subprocess.run([sys.executable, "-c", program, str(root), "other"], check=True)
        subprocess.run([sys.executable, "-c", program, str(root), "k"], check=True)
        assert next(stream)["data"]["data"]["content"] == "elsewhere"
        echo.sessions.delete("k")
        assert [one["event"] for one in stream] == ["deleted"]


def test_a_stream_by_another_name_is_woken_by_what_is_written(server: Serve) -> None:
    echo = server(provider=Echo(), limits=Limits(heartbeat=3600.0))
    echo.web.state.changes = sse.Changes(echo.web.state.closing, look=3600.0)
    fill(echo, "k", "a")
    echo.sessions.add_alias("k", "old")
    with echo.client.stream("GET", "/api/sessions/old/events?after=3") as response:
        lines = response.iter_lines()
        assert next(lines) == ": still here"
        echo.sessions.add_message("k", "user", "here")
        assert next(events(lines))["data"]["data"]["content"] == "here"


def test_where_changes_are_not_told_they_are_looked_for(echo: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    fill(echo, "k", "a")
    with echo.client.stream("GET", "/api/sessions/k/events?after=2") as response:
        stream = events(response.iter_lines())
        echo.sessions.add_message("k", "user", "b")
        assert next(stream)["data"]["data"]["content"] == "b"


def test_a_store_is_watched_for_as_long_as_somebody_waits(root: Path) -> None:
    async def main() -> list[int]:
        watched = sse.Changes(anyio.Event())
        with nacre.open(root) as sessions:
            with watched.of(sessions, "k") as bell, watched.of(sessions, "k"):
                counts = [len(watched._watched)]
                watched._watched[sessions.location].watch.changed = lambda: {""}  # type: ignore[method-assign]
                watched._watched[sessions.location].ring()
                await bell.wait(3600)
            return [*counts, len(watched._watched)]

    assert anyio.run(main) == [1, 0]


def test_events_go_on_in_a_session_that_is_begun_anew_and_end_when_it_is_deleted(echo: Site) -> None:
    fill(echo, "k", "a", "b", "c")
    with echo.client.stream("GET", "/api/sessions/k/events?after=4") as response:
        lines = response.iter_lines()
        assert next(lines) == ": still here"
        stream = events(lines)
        echo.sessions.archive("k")
        fill(echo, "k", "new")
        assert [next(stream)["id"], next(stream)["data"]["data"]["content"]] == ["1", "new"]
        echo.sessions.delete("k")
        assert [one["event"] for one in stream] == ["deleted"]


def test_a_number_of_an_earlier_life_gives_everything(echo: Site) -> None:
    fill(echo, "k", "a")
    with echo.client.stream("GET", "/api/sessions/k/events", headers={"Last-Event-ID": "99"}) as response:
        assert next(events(response.iter_lines()))["id"] == "1"


def test_the_head_of_a_stream_is_only_its_head(echo: Site) -> None:
    fill(echo, "k", "a")
    answer = echo.client.head("/api/sessions/k/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_many_watchers_that_come_and_go_leave_no_thread_behind(echo: Site) -> None:
    fill(echo, "k", "a")
    before = threading.active_count()
    for _ in range(60):
        with echo.client.stream("GET", "/api/sessions/k/events") as response:
            next(events(response.iter_lines()))
    # The pool has at most 40; a thread that waited for each would be 60.
    assert threading.active_count() <= before + 40


def test_records_come_from_sessions_in_ram(server: Serve) -> None:
    site = server(root=":memory:", provider=Echo())
    site.client.post("/api/sessions/k/messages", json={"content": "hello"})
    with site.client.stream("GET", "/api/sessions/k/events") as response:
        stream = events(response.iter_lines())
        kinds = [next(stream)["event"] for _ in range(4)]
    assert kinds.count("msg") == 2
    assert site.client.get("/api/search?q=x").status_code == 501


def test_a_server_that_closes_ends_its_streams(server: Serve, stack: Any) -> None:
    site = server(provider=Scripted([]))
    fill(site, "k", "a")
    with (
        site.visitor(dict(site.client.headers)) as watcher,
        watcher.stream("GET", "/api/sessions/k/events") as response,
    ):
        stream = events(response.iter_lines())
        next(stream)
        stack.close()
        assert [one["event"] for one in stream] == ["msg"]


def test_sessions_of_nacres_own_are_read_by_their_key_and_not_changed(echo: Site) -> None:
    fill(echo, "k", "hello")
    echo.sessions.with_internal_keys().add_message("nacre:x", "user", "hello")
    assert [item["key"] for item in get(echo, "/api/sessions", state="all")["items"]] == ["k"]
    assert [item["key"] for item in get(echo, "/api/search", q="hello")["items"]] == ["k"]
    assert texts(get(echo, "/api/sessions/nacre:x")) == ["hello"]
    answers = [
        echo.client.post("/api/sessions/nacre:x/messages", json={"content": "more"}),
        echo.client.post("/api/sessions/nacre:new/messages", json={"content": "more"}),
        echo.client.patch("/api/sessions/nacre:x", json={"title": "Mine"}),
        echo.client.post("/api/sessions/nacre:x/archive"),
        echo.client.delete("/api/sessions/nacre:x"),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(403, "forbidden")] * 5
    assert echo.client.post("/api/sessions/k/fork", json={"key": "nacre:new"}).status_code == 400
    assert echo.client.post("/api/sessions/nacre:x/fork", json={}).status_code == 403


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/sessions/api%3A%3As%3A%3A/messages", {"content": "How deep is the lake?\nAnd why?"}),
        (
            "/v1/chat/completions",
            {
                "model": "nacre",
                "session_id": "s",
                "messages": [{"role": "user", "content": "How deep is the lake?\nAnd why?"}],
            },
        ),
    ],
    ids=["ours", "OpenAI's"],
)
def test_a_session_of_a_program_is_named_after_its_first_words(echo: Site, path: str, body: dict[str, Any]) -> None:
    assert echo.client.post(path, json=body).status_code == 200
    assert echo.sessions.get_meta("api::s::")["title"] == "How deep is the lake?"


def test_one_message_is_erased_and_the_session_goes_on(echo: Site) -> None:
    fill(echo, "k", "a secret that was said", "b")
    done = echo.client.delete("/api/sessions/k/messages/2")
    assert (done.status_code, done.json()["operation"], done.json()["erased"]) == (200, "redact", [2])
    assert [text for _, text in echo.said("k")] == ["", "b"]
    echo.client.post("/api/sessions/k/messages", json={"content": "go on"})
    statuses = [echo.client.delete(f"/api/sessions/k/messages/{n}").status_code for n in ("2", "1", "99", "x", "0")]
    assert statuses == [200, 409, 409, 400, 400]
    assert echo.client.delete("/api/sessions/none/messages/2").status_code == 404
