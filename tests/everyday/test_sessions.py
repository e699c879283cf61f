"""Which session a command means, with memory on: the newest chat of this folder, and never nacre's own sessions."""

from __future__ import annotations

import json
import signal
import threading

import httpx
import pytest

from nacre.memory.store import KEY as MEMORY
from tests.everyday.conftest import Person
from tests.everyday.model import Model, Reply, Request, echo
from tests.everyday.terminal import Screen
from tests.paths import log_of

TURNS = 30


def keys(person: Person, *flags: str) -> list[str]:
    done = person.nacre("sessions", "list", "--json", *flags)
    assert done.code == 0, done
    return [item["key"] for item in done.json["items"]]


def test_thirty_one_shot_turns_with_continue_are_one_conversation(person: Person) -> None:
    here = person.folder("work")
    key = person.ask("turn 1", at=here)["session"]
    for number in range(2, TURNS + 1):
        assert person.ask("-c", f"turn {number}", at=here)["session"] == key
    said = person.said(key)
    assert [text for text in said if text.startswith("turn ")] == [f"turn {n}" for n in range(1, TURNS + 1)]
    with person.sessions() as sessions:
        assert sessions.exists(MEMORY)


@pytest.mark.parametrize("act", [("tag", "done"), ("pin",), ("rename", "Topic A"), ("repair",)], ids=lambda act: act[0])
def test_continue_takes_the_last_conversation_whatever_was_done_to_others(person: Person, act: tuple[str, ...]) -> None:
    here = person.folder("work")
    first, second = (person.ask(text, at=here)["session"] for text in ("topic A", "topic B"))
    verb, *words = act
    if verb == "repair":
        log = log_of(person.store, first)
        log.write_bytes(log.read_bytes().replace(b"topic A", b"topic X", 1))
    done = person.nacre("sessions", verb, first, *words)
    assert done.code == (7 if verb == "repair" else 0), done
    assert keys(person) == [second, first]
    assert person.nacre("sessions", "show", "@last", "--json").json["key"] == second
    assert person.ask("-c", "go on", at=here)["session"] == second


def test_continue_takes_the_chat_of_the_folder_it_is_in(person: Person) -> None:
    folders = [person.folder(name) for name in ("one", "two", "three")]
    begun = [person.ask(f"about {place.name}", at=place)["session"] for place in folders]
    continued = [person.ask("-c", f"more about {place.name}", at=place)["session"] for place in folders]
    assert continued == begun
    assert len(set(begun)) == len(folders)
    with person.sessions() as sessions:
        assert [sessions.get_meta(key)["cwd"] for key in begun] == [str(place.resolve()) for place in folders]


def test_continue_where_nothing_was_said_names_the_newest_elsewhere(person: Person) -> None:
    key = person.ask("hello", at=person.folder("work"))["session"]
    done = person.nacre("chat", "-c", "and here?", at=person.folder("other"))
    assert done.code == 3
    assert key in done.err
    assert str(person.home / "work") in done.err
    document = person.nacre("chat", "-c", "--json", "and here?", at=person.folder("other")).json
    assert document["error"]["type"] == "not_found"


def test_continue_never_takes_the_session_of_a_channel(person: Person) -> None:
    here = person.folder("work")
    key = person.ask("hello", at=here)["session"]
    with person.sessions() as sessions:
        sessions.add_message("telegram::42::7", "user", "from a phone")
    done = person.nacre("chat", "-r", "@last", "answered at a desk", at=here)
    assert (done.code, "this session belongs to the channel telegram" in done.err) == (0, True)
    assert person.ask("-c", "back to work", at=here)["session"] == key


def test_continue_and_last_never_take_a_delegated_task_or_a_schedule(person: Person) -> None:
    here = person.folder("work")
    key = person.ask("hello", at=here)["session"]
    child = f"{key}/call_1"
    with person.sessions() as sessions:
        sessions.set_meta(child, parent=key, depth=1, cwd=str(here.resolve()))
        sessions.add_message(child, "user", "do this")
        sessions.add_message("schedule::morning::", "user", "good morning")
    assert person.nacre("sessions", "show", "@last", "--json").json["key"] == key
    assert person.ask("-c", "and now?", at=here)["session"] == key


def test_last_and_the_first_row_are_never_the_memory(person: Person) -> None:
    key = person.ask("hello")["session"]
    person.ask("-r", key, "and more")
    assert keys(person) == [key]
    for ref in ("@last", "@1"):
        assert person.nacre("sessions", "show", ref, "--json").json["key"] == key
    assert person.nacre("sessions", "show", "@last~1").code == 3


def test_removing_the_last_session_leaves_the_memory_alone(person: Person) -> None:
    key = person.ask("hello")["session"]
    done = person.nacre("sessions", "rm", "@last")
    assert (done.code, done.out) == (0, f"{key}: in the trash\n")
    assert person.nacre("sessions", "rm", "@last").code == 3
    refused = person.nacre("sessions", "rm", MEMORY)
    assert refused.code == 2
    assert "--internal" in refused.err
    with person.sessions() as sessions:
        assert sessions.exists(MEMORY)


def test_summarize_last_means_the_conversation(person: Person, model: Model) -> None:
    here = person.folder("work")
    key = person.ask("hello", at=here)["session"]
    person.ask("-c", "and more", at=here)
    model.answer = lambda _: "## Goal\nThe user said hello and wanted more.\n## Done\nThe assistant repeated it."
    done = person.nacre("sessions", "summarize", "@last", "--json")
    assert done.code == 0, done
    assert done.json["key"] == key


def test_internal_sessions_are_found_by_their_exact_key_only(person: Person) -> None:
    person.ask("the blue server is in Faro")
    assert keys(person, "--prefix", "nacre") == []
    assert MEMORY in keys(person, "--internal")
    for ref in ("nacre", "nacre:mem", "what nacre remembers"):
        assert person.nacre("sessions", "show", ref).code == 3
    assert person.nacre("sessions", "tail", MEMORY).code == 0
    assert MEMORY not in person.nacre("__complete", "--", "sessions", "show", "na").out
    assert MEMORY not in person.nacre("sessions", "stats", "--by", "session").out
    checked = person.nacre("sessions", "verify", "--json").json["sessions"]
    assert checked == len(keys(person, "--internal"))


def test_changing_an_internal_session_needs_a_flag(person: Person) -> None:
    person.ask("hello")
    for words in (
        ("archive", MEMORY),
        ("rename", MEMORY, "mine"),
        ("tag", MEMORY, "mine"),
        ("compact", MEMORY),
        ("summarize", MEMORY),
        ("fork", "@last", "nacre:mine"),
        ("fork", MEMORY, "other"),
    ):
        done = person.nacre("sessions", *words)
        assert done.code == 2, (words, done)
        assert "--internal" in done.err
    done = person.nacre("chat", "-r", MEMORY, "who are you?")
    assert (done.code, "--internal" in done.err) == (2, True)
    assert person.nacre("sessions", "pin", MEMORY, "--internal").code == 0


def test_a_title_is_matched_whatever_its_case(person: Person) -> None:
    key = person.ask("Tax Return for 2025")["session"]
    assert person.nacre("sessions", "list", "--json").json["items"][0]["title"] == "Tax Return for 2025"
    assert person.ask("-r", "tax return FOR 2025", "more")["session"] == key


def test_a_fork_is_continued_if_it_is_the_newest(person: Person) -> None:
    here = person.folder("work")
    key = person.ask("hello", at=here)["session"]
    fork = person.nacre("sessions", "fork", key, "try-2", "--json").json["key"]
    person.ask("-r", fork, "in the fork", at=here)
    assert person.ask("-c", "still there", at=here)["session"] == fork
    assert "still there" not in person.said(key)


def test_a_killed_turn_is_continued_in_its_session(person: Person, model: Model) -> None:
    here = person.folder("work")
    asked, is_over = threading.Event(), threading.Event()

    def hang(request: Request) -> Reply:
        asked.set()
        is_over.wait(100)
        return echo(request)

    model.answer = hang
    running = person.start("chat", "--json", "first question", at=here)
    assert asked.wait(100)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    model.answer = echo
    is_over.set()
    found = person.ask("-c", "second question", at=here)
    said = [text for text in person.said(found["session"]) if text.endswith(" question")]
    assert said[:2] == ["first question", "second question"]


def test_resume_without_a_reference_lists_the_candidates_in_a_script(person: Person) -> None:
    key = person.ask("hello there")["session"]
    done = person.nacre("chat", "-r")
    assert done.code == 2
    assert key in done.err
    assert MEMORY not in done.err
    assert "hello there  (~)" in done.err
    (found,) = person.nacre("chat", "-r", "--json").json["error"]["candidates"]
    assert found == {"key": key, "title": "hello there", "cwd": str(person.home)}


def test_resuming_from_another_folder_works_and_names_both(person: Person) -> None:
    key = person.ask("hello", at=person.folder("one"))["session"]
    done = person.nacre("chat", "-r", key, "again", at=person.folder("two"))
    assert done.code == 0
    assert f"{person.home}/one" in done.err
    assert f"{person.home}/two" in done.err
    assert person.ask("-c", "back", at=person.folder("one"))["session"] == key


def test_resume_last_in_a_conversation_is_not_the_memory(person: Person) -> None:
    here = person.folder("work")
    key = person.ask("the blue boat", at=here)["session"]
    with Screen(person, "chat", "--trust", at=here) as screen:
        screen.say("/sessions")
        screen.until(key)
        assert MEMORY not in screen.text
        screen.say("/resume @last")
        screen.until("You said: the blue boat")
        screen.say("/resume nacre:memory")
        screen.until("belongs to nacre")
        assert screen.leave() == 0


def test_chats_follow_a_folder_that_was_moved(person: Person) -> None:
    old, other = person.folder("shop"), person.folder("shopping")
    keys_before = [person.ask("hello", at=place)["session"] for place in (old, person.folder("shop/web"), other)]
    new = old.rename(person.home / "store")
    assert person.nacre("chat", "-c", "here?", at=new).code == 3
    command = ("sessions", "move-folder", str(old), str(new))
    looked = person.nacre(*command, "--dry-run", "--json").json
    assert {item["key"]: item["to"] for item in looked["items"]} == dict(
        zip(keys_before, (str(new), f"{new}/web"), strict=False)
    )
    assert person.nacre(*command).code == 0
    assert person.ask("-c", "here again", at=new)["session"] == keys_before[0]
    assert person.ask("-c", "and below", at=new / "web")["session"] == keys_before[1]
    assert person.ask("-c", "not moved", at=other)["session"] == keys_before[2]
    assert person.nacre(*command).code == 3


def test_moving_a_folder_says_how_to_trust_its_new_place(person: Person) -> None:
    old = person.trust(person.folder("shop"))
    person.ask("hello", at=old)
    new = old.rename(person.home / "store")
    moved = person.nacre("sessions", "move-folder", str(old), str(new))
    assert f"{new} is not trusted yet: nacre trust {new}" in moved.err
    assert f"nacre trust --revoke {old}" in moved.err
    assert f"1 missing folder: {old}" in person.nacre("doctor").out
    assert person.nacre("trust", "--revoke", str(old)).code == 0
    person.trust(new)
    assert "missing folder" not in person.nacre("doctor").out


def test_the_page_and_the_api_show_no_internal_session(person: Person) -> None:
    key = person.ask("the blue boat")["session"]
    token = "a-token-that-is-long-enough-for-all"  # noqa: S105 - it opens nothing but this test
    daemon = person.start("serve", "--port", "0", "--json", NACRE_SERVE_TOKEN=token)
    try:
        assert daemon.stdout is not None
        url = json.loads(daemon.stdout.readline())["url"]
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=100) as client:
            assert [item["key"] for item in client.get("/api/sessions?state=all").json()["items"]] == [key]
            assert MEMORY not in client.get("/").text
            assert client.get("/api/search", params={"q": "blue session:nacre"}).json()["items"] == []
            assert client.get(f"/api/sessions/{MEMORY}").status_code == 200
            assert client.delete(f"/api/sessions/{MEMORY}").status_code == 403
            refused = client.post(f"/api/sessions/{MEMORY}/messages", json={"content": "who are you?"})
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            assert client.post(f"/api/sessions/{MEMORY}/fork", json={"key": "other"}).status_code == 403
            page = client.get(f"/s/{MEMORY}").text
            assert "it can be read here, but not changed" in page
            assert "/do/" not in page
            assert "/say/" not in page
            refused = client.post("/api/sessions/nacre:mine/messages", json={"content": "hello"})
            assert refused.status_code == 403
    finally:
        daemon.terminate()
        daemon.communicate()
