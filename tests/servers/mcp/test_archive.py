"""What other agents get of a store, without the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

import nacre
from nacre import Message, Sessions
from nacre.config import load
from nacre.errors import Conflict, InvalidArgument, SessionNotFound
from nacre.history.session_state import RULES
from nacre.memory.agent_memory import Memory
from nacre.memory.home import home_of
from nacre.memory.store import Line, Source
from nacre.messages import Hit
from nacre.servers.mcp import key_of, open_archive, uri_of
from nacre.servers.mcp_archive import (
    CLIENT,
    GUEST,
    MAX_TEXT,
    TOOL,
    AppendMessage,
    Archive,
    Conversation,
    ListSessions,
    NotOffered,
    ReadSession,
    RecallMemory,
    SearchSessions,
    schema_of,
)
from nacre.storage.memory_store import MemoryStore
from tests.servers.mcp.conftest import ATTACK, Place
from tests.servers.mcp.conftest import GUEST as GUEST_KEY


@pytest.fixture
def sessions(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("NACRE_CONFIG", place.environ["NACRE_CONFIG"])
    with nacre.open(place.root) as opened:
        yield opened


@pytest.fixture
def archive(sessions: Sessions, place: Place) -> Archive:
    return open_archive(sessions, load(), root=str(place.root), main_root=str(place.root), write="agent:")


def append(archive: Archive, key: str, text: str = "hello", *, id: str = "") -> int:
    return archive.append(AppendMessage(key=key, text=text, id=id), client="tests").n


# ---- what is listed, read and found


def test_a_list_has_no_internal_sessions(archive: Archive) -> None:
    assert {item.key for item in archive.list(ListSessions(state="all")).sessions} == {"cli:1", GUEST_KEY}
    assert archive.list(ListSessions(prefix="nacre:")).sessions == []


@pytest.mark.parametrize("name", ["nacre:notes", "agent:notes", "nacre:aliases", "nacre:memory", "cli:2", "", "\0"])
def test_what_is_internal_or_not_there_is_not_found(name: str, archive: Archive) -> None:
    with pytest.raises(SessionNotFound, match="there is no"):
        archive.read(ReadSession(key=name))


def test_a_search_finds_nothing_internal_though_it_is_named(archive: Archive) -> None:
    for query in ('pearl session:"nacre:notes"', "pearl session:agent:notes", "internal pearl"):
        assert "internal" not in str(archive.search(SearchSessions(query=query)))
    with pytest.raises(SessionNotFound):
        archive.search(SearchSessions(query="pearl", key="agent:notes"))


def test_a_search_says_which_times_it_took_for_words(archive: Archive) -> None:
    found = archive.search(SearchSessions(query="nacre since:nonsense"))
    assert [hit.key for hit in found.results] == ["cli:1"]
    assert found.note == (
        "since:nonsense was taken for words, since it is not a date (2026-11-01), a time or an age (7d)"
    )
    assert "since:a, until:b were taken for words" in archive.search(SearchSessions(query="since:a until:b")).note
    assert archive.search(SearchSessions(query="nacre since:2026-01-31 until:7d")).note == ""


def test_an_other_name_leads_to_a_session_of_the_owner(archive: Archive) -> None:
    assert archive.read(ReadSession(key="agent:shells")).key == "cli:1"


def test_everything_of_a_guest_is_untrusted(archive: Archive) -> None:
    listed = {item.key: item.untrusted for item in archive.list(ListSessions()).sessions}
    assert listed == {"cli:1": "", GUEST_KEY: GUEST}
    found = archive.read(ReadSession(key=GUEST_KEY))
    assert (found.untrusted, [one.untrusted for one in found.messages]) == (GUEST, [GUEST])
    assert archive.read(ReadSession(key=GUEST_KEY, around=found.messages[0].n)).untrusted == GUEST
    hits = archive.search(SearchSessions(query="pearl")).results
    assert {(hit.key, hit.untrusted) for hit in hits} == {("cli:1", ""), (GUEST_KEY, GUEST)}


def test_an_owner_in_a_channel_is_trusted_and_the_child_of_a_guests_session_is_not(
    archive: Archive, sessions: Sessions
) -> None:
    sessions.add_message("irc:net:%23room::ann", "user", "hello")
    child = f"{GUEST_KEY}/call-1"
    sessions.set_meta(child, parent=GUEST_KEY)
    sessions.add_message(child, "user", ATTACK)
    sessions.set_meta("irc:net:%23room::ann/call-1", parent="irc:net:%23room::ann")
    assert archive.read(ReadSession(key="irc:net:%23room::ann")).untrusted == ""
    assert archive.read(ReadSession(key="irc:net:%23room::ann/call-1")).untrusted == ""
    assert archive.read(ReadSession(key=child)).untrusted == GUEST


def test_a_fork_of_a_guests_session_is_untrusted_and_one_of_the_owners_is_not(
    archive: Archive, sessions: Sessions
) -> None:
    sessions.fork(GUEST_KEY, "cli:fork")
    sessions.fork("cli:fork", "cli:fork of it")
    sessions.fork("cli:1", "cli:own")
    sessions.delete("cli:fork")
    sessions.delete(GUEST_KEY)
    listed = {item.key: item.untrusted for item in archive.list(ListSessions()).sessions}
    assert listed == {"cli:1": "", "cli:own": "", "cli:fork of it": GUEST}
    assert archive.read(ReadSession(key="cli:fork of it")).messages[0].untrusted == GUEST
    (hit,) = archive.search(SearchSessions(query="pearl", key="cli:fork of it")).results
    assert hit.untrusted == GUEST


def test_a_session_is_judged_once_for_each_result(place: Place, sessions: Sessions) -> None:
    pearls = [Message(role="user", content=f"pearl {number}") for number in range(12)]
    for _ in range(2):
        sessions.add_messages("cli:1", pearls)
        sessions.archive("cli:1")
    sessions.add_messages("cli:1", pearls)
    memory = Memory(sessions, home_of(str(place.root)))
    for number in range(5):
        memory.remember(f"Pearl {number} is in Lisbon.", subject=f"pearl {number}", key="cli:1")
    memory.remember("Mallory owns a pearl.", subject="mallory", key=GUEST_KEY)
    judged: list[str] = []

    def judge(key: str) -> bool:
        judged.append(key)
        return False

    archive = Archive(sessions, uri=uri_of, memory=memory, is_guest=judge)

    def asked(result: object) -> list[str]:
        assert result
        keys = sorted(judged)
        judged.clear()
        return keys

    both = ["cli:1", GUEST_KEY]
    assert asked(archive.list(ListSessions())) == both
    assert asked(archive.read(ReadSession(key="cli:1", limit=50))) == ["cli:1"]
    assert asked(archive.read(ReadSession(key="cli:1", around=5, limit=20))) == ["cli:1"]
    found = archive.search(SearchSessions(query="pearl", limit=50))
    assert len(found.results) > 12
    assert asked(found) == both
    remembered = archive.recall(RecallMemory(query="pearl"))
    assert len(remembered.memories) == 6
    assert asked(remembered) == both


def test_the_output_of_tools_is_untrusted(archive: Archive, sessions: Sessions) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "web_fetch", "arguments": '{"url": "x"}'}}
    sessions.add_full_message("cli:3", {"role": "assistant", "content": None, "tool_calls": [call]})
    sessions.add_full_message("cli:3", Message(role="tool", content=ATTACK, tool_call_id="c"))
    found = archive.read(ReadSession(key="cli:3")).messages
    assert [(one.role, one.untrusted) for one in found] == [("assistant", ""), ("tool", TOOL)]
    assert found[0].text == '[calls web_fetch: url="x"]'


@pytest.mark.parametrize(
    "message",
    [
        Message(role="function", name="web_fetch", content=ATTACK),
        Message(role="", extra={"type": "mcp_call", "output": ATTACK}),
        Message(role="", extra={"type": "file_search_call", "results": [{"text": ATTACK}]}),
    ],
)
def test_what_only_a_tool_can_have_written_is_untrusted_in_every_shape(
    message: Message, archive: Archive, sessions: Sessions
) -> None:
    sessions.add_full_message("cli:4", message)
    (read,) = archive.read(ReadSession(key="cli:4")).messages
    (found,) = archive.search(SearchSessions(query="pearl file", key="cli:4")).results
    assert (read.untrusted, found.untrusted) == (TOOL, TOOL)
    assert ATTACK in read.text


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_result", "tool_use_id": "c", "content": ATTACK},
        {"type": "mcp_tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": ATTACK}]},
        {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": ATTACK}]},
        {"type": "document", "source": {"type": "text", "data": ATTACK}},
        {"type": "function_response", "text": ATTACK},
        {"type": "text", "text": {"nobody knows": ATTACK}},
        {"type": ["text"], "text": ATTACK},
        {"toolResult": {"toolUseId": "c", "content": [{"text": ATTACK}]}},
        {"functionResponse": {"name": "look", "response": {"output": ATTACK}}},
        {"text": "and more", "toolResult": ATTACK},
        {"text": "and more", "type": None, "result": ATTACK},
        [ATTACK],
    ],
)
def test_a_part_that_is_not_known_to_be_the_speakers_own_is_untrusted(
    role: str, part: Any, archive: Archive, sessions: Sessions
) -> None:
    own = {"type": "text", "text": "I looked."}
    sessions.add_full_message("cli:5", Message(role=role, content=[own, part]))
    (read,) = archive.read(ReadSession(key="cli:5")).messages
    assert (read.role, read.untrusted) == (role, TOOL)
    assert ATTACK in read.text


def test_a_result_with_the_role_of_the_user_is_untrusted(archive: Archive, sessions: Sessions) -> None:
    sessions.add_full_message("cli:5", Message(role="user", content=ATTACK, tool_call_id="c"))
    (read,) = archive.read(ReadSession(key="cli:5")).messages
    assert read.untrusted == TOOL


@pytest.mark.parametrize(
    "part",
    [
        "a text",
        {"type": "text", "text": "a text", "cache_control": {"type": "ephemeral"}},
        {"type": "input_text", "text": "a text"},
        {"type": "output_text", "text": "a text", "annotations": []},
        {"type": "refusal", "refusal": "no"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "tool_use", "id": "c", "name": "look", "input": {}},
        {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {"query": "q"}},
        {"text": "a text"},
        {"toolUse": {"toolUseId": "c", "name": "look", "input": {}}},
        {"functionCall": {"name": "look", "args": {}}},
    ],
)
def test_words_media_and_calls_are_the_speakers_own(part: Any, archive: Archive, sessions: Sessions) -> None:
    sessions.add_full_message("cli:5", Message(role="assistant", content=[part]))
    (read,) = archive.read(ReadSession(key="cli:5")).messages
    assert read.untrusted == ""


def test_pages_are_bounded_and_join_without_gaps(archive: Archive, sessions: Sessions) -> None:
    sessions.add_messages("cli:long", [Message(role="user", content=f"{n} " + "x" * 9000) for n in range(60)])
    texts, cursor, pages = list[str](), "", 0
    while pages == 0 or cursor:
        page = archive.read(ReadSession(key="cli:long", limit=30, cursor=cursor, max_chars=MAX_TEXT))
        assert sum(len(one.text) for one in page.messages) <= MAX_TEXT
        texts = [one.text for one in page.messages] + texts
        cursor, pages = page.next_cursor, pages + 1
    assert [int(text.split()[0]) for text in texts] == list(range(60))
    assert pages == 6


def test_a_long_message_is_cut_and_says_so(archive: Archive, sessions: Sessions) -> None:
    sessions.add_message("cli:long", "user", "x" * 1_000_000)
    (one,) = archive.read(ReadSession(key="cli:long", max_chars=100)).messages
    assert (len(one.text), one.left_out) == (100, 999_900)
    (one,) = archive.read(ReadSession(key="cli:long", around=one.n, max_chars=MAX_TEXT)).messages
    assert len(one.text) == MAX_TEXT


def test_a_message_is_read_with_those_around_it(archive: Archive, sessions: Sessions) -> None:
    sessions.add_messages("cli:many", [Message(role="user", content=str(n)) for n in range(50)])
    (hit,) = archive.search(SearchSessions(query="30", key="cli:many")).results
    found = archive.read(ReadSession(key=hit.key, around=hit.n, generation=hit.generation, limit=5))
    assert [one.text for one in found.messages] == ["28", "29", "30", "31", "32"]
    before = archive.read(ReadSession(key=hit.key, cursor=found.next_cursor, limit=2))
    assert [one.text for one in before.messages] == ["26", "27"]


@pytest.mark.parametrize("limit", [1, 2, 3, 20])
def test_the_pages_before_one_around_a_message_lead_to_the_first_and_no_further(
    limit: int, archive: Archive, sessions: Sessions
) -> None:
    for generation in range(2):
        if generation:
            sessions.archive("cli:long")
        sessions.add_messages("cli:long", [Message(role="user", content=f"{generation}.{n}") for n in range(5)])
    texts = [one.text for one in archive.read(ReadSession(key="cli:long")).messages]
    for one in archive.read(ReadSession(key="cli:long")).messages:
        page = archive.read(ReadSession(key="cli:long", around=one.n, generation=one.generation, limit=limit))
        found = [one.text for one in page.messages]
        end = texts.index(found[-1]) + 1
        while page.next_cursor:
            page = archive.read(ReadSession(key="cli:long", cursor=page.next_cursor, limit=3))
            assert page.messages
            found = [one.text for one in page.messages] + found
        assert found == texts[:end]


def test_the_messages_around_one_are_bounded_together(archive: Archive, sessions: Sessions) -> None:
    sessions.add_messages("cli:long", [Message(role="user", content="x" * 9000) for _ in range(40)])
    found = archive.read(ReadSession(key="cli:long", around=20, limit=30, max_chars=MAX_TEXT))
    assert len(found.messages) == 30
    assert sum(len(one.text) for one in found.messages) <= MAX_TEXT


def test_the_summary_is_given_as_far_as_it_was_asked_for(archive: Archive, sessions: Sessions) -> None:
    sessions.set_summary("cli:1", "They spoke of shells. " * 50)
    assert archive.read(ReadSession(key="cli:1")).summary.startswith("They spoke of shells. They")
    assert len(archive.read(ReadSession(key="cli:1", max_chars=100)).summary) == 100


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_search_is_by_meaning_if_the_settings_say_so(place: Place, is_wanted: bool) -> None:
    asked: list[object] = []

    class Searched(Sessions):
        is_durable = True

        def search(self, query: str, **given: Any) -> list[Hit]:
            asked.append((query, given["meaning"]))
            return []

    root = str(place.root)
    with Searched(MemoryStore(rules=RULES)) as searched:
        archive = open_archive(searched, load(), root=root, main_root=root, memory=False, meaning=lambda _: is_wanted)
        archive.search(SearchSessions(query="pearl"))
    assert asked == [("pearl", is_wanted)]


def test_a_message_of_an_archived_generation_is_read(archive: Archive, sessions: Sessions) -> None:
    sessions.archive("cli:1")
    sessions.add_message("cli:1", "user", "A new one.")
    (hit,) = archive.search(SearchSessions(query="mother", key="cli:1")).results
    found = archive.read(ReadSession(key="cli:1", around=hit.n, generation=hit.generation))
    assert [(one.text, one.live) for one in found.messages][-1] == ("Mother-of-pearl.", False)


@pytest.mark.parametrize(
    "wanted",
    [
        ReadSession(key="cli:1", cursor="nonsense"),
        ReadSession(key="cli:1", cursor="0/999999999999999999999999"),
        ReadSession(key="cli:1", around=77),
        ReadSession(key="cli:1", around=2, generation="none"),
        ReadSession(key="cli:1", around=2, cursor="x/2"),
    ],
)
def test_a_wrong_place_is_told(wanted: ReadSession, archive: Archive) -> None:
    with pytest.raises(InvalidArgument):
        archive.read(wanted)


def test_a_wrong_cursor_of_a_list_is_told(archive: Archive) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        archive.list(ListSessions(cursor="nonsense"))


def test_a_message_that_was_erased_is_gone(archive: Archive, sessions: Sessions) -> None:
    sessions.redact("cli:1", 2)
    assert "What is nacre" not in str(archive.read(ReadSession(key="cli:1")))


# ---- memory


def test_memory_is_recalled_with_its_source(archive: Archive) -> None:
    assert archive.memory is not None
    archive.memory.remember("The boat is in Lisbon.", subject="boat", key="cli:1")
    archive.memory.remember("Mallory owns the boat.", subject="boat", key=GUEST_KEY)
    found = archive.recall(RecallMemory(query="boat")).memories
    assert {(one.text, one.key, one.untrusted) for one in found} == {
        ("The boat is in Lisbon.", "cli:1", ""),
        ("Mallory owns the boat.", GUEST_KEY, GUEST),
    }


def test_memory_of_a_conversation_with_words_of_others_is_untrusted(sessions: Sessions, place: Place) -> None:
    class Remembering(Memory):
        def search(self, query: str, *, limit: int = 20) -> list[Line]:
            source = Source(key="cli:1", n=2)
            lines = (Line(id=str(n), page="day", text=query, source=source, outside=bool(n)) for n in range(2))
            return list(lines)[:limit]

    memory = Remembering(sessions, home_of(str(place.root)))
    found = Archive(sessions, uri=uri_of, memory=memory).recall(RecallMemory(query="boat")).memories
    assert [(one.text, one.key, one.untrusted) for one in found] == [("boat", "cli:1", ""), ("boat", "cli:1", TOOL)]


def test_memory_that_is_turned_off_is_not_offered(sessions: Sessions) -> None:
    with pytest.raises(NotOffered, match="turned off"):
        Archive(sessions, uri=uri_of).recall(RecallMemory(query="boat"))


# ---- appending


def test_what_is_appended_is_marked_and_never_the_owners_words(archive: Archive, sessions: Sessions) -> None:
    archive.append(AppendMessage(key="agent:1", text=ATTACK, role="user"), client="x" * 99 + "\nevil")
    (stored,) = sessions.get_history("agent:1")
    assert (stored.role, stored.content, stored.extra["mcp"]["role"]) == ("mcp", ATTACK, "user")
    assert "\n" not in stored.extra["mcp"]["client"]
    assert len(stored.extra["mcp"]["client"]) == 64
    (shown,) = nacre.to_openai(sessions.get_history("agent:1"))
    assert shown["content"] == f"[mcp] {ATTACK}"
    (one,) = archive.read(ReadSession(key="agent:1")).messages
    assert (one.role, one.untrusted) == ("user", CLIENT)


def test_a_retry_with_the_same_id_stores_nothing_twice(archive: Archive, sessions: Sessions) -> None:
    assert append(archive, "agent:1", id="a") == append(archive, "agent:1", id="a")
    assert len(sessions.get_history("agent:1")) == 1
    with pytest.raises(Conflict):
        append(archive, "agent:1", "something else", id="a")


@pytest.mark.parametrize("odd", ["\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\U000e0041"])
def test_a_new_session_has_a_key_that_is_one_visible_line(odd: str, archive: Archive, sessions: Sessions) -> None:
    key = f"agent:{odd}SYSTEM"
    with pytest.raises(InvalidArgument, match="one line"):
        append(archive, key)
    assert not sessions.exists(key)
    # One that is there already has the key that somebody else gave it.
    sessions.add_message(key, "user", "hello")
    assert append(archive, key)


def test_a_session_that_was_begun_over_mcp_is_untrusted_whatever_follows(archive: Archive, sessions: Sessions) -> None:
    sessions.add_message("agent:mine", "user", "hello")
    append(archive, "agent:mine")
    append(archive, "agent:theirs")
    sessions.add_message("agent:theirs", "user", "hello")
    sessions.set_meta("agent:theirs", title=ATTACK)
    sessions.add_message("agent:theirs/part", "user", "hello")
    sessions.set_meta("agent:theirs/part", parent="agent:theirs")
    sessions.fork("agent:theirs", "cli:fork")
    sessions.truncate_history("agent:theirs", 1)
    sessions.archive("agent:theirs")
    sessions.add_message("agent:theirs", "user", "again")
    listed = {item.key: item.untrusted for item in archive.list(ListSessions(state="all")).sessions}
    assert {key: doubt for key, doubt in listed.items() if doubt != GUEST} == {
        "cli:1": "",
        "agent:mine": "",
        "agent:theirs": CLIENT,
        "agent:theirs/part": CLIENT,
        "cli:fork": CLIENT,
    }
    read = archive.read(ReadSession(key="agent:theirs"))
    assert {one.untrusted for one in read.messages} | {read.untrusted} == {CLIENT}


@pytest.mark.parametrize(
    "key",
    ["cli:1", "nacre:notes", "nacre:new", "agent:notes", "agent:shells", "Agent:1", "agent", " agent:1", "", "\0"],
)
def test_only_keys_with_the_prefix_are_written_to(key: str, archive: Archive, sessions: Sessions) -> None:
    before = {info.key: info.messages for info in sessions.list(internal=True)}
    with pytest.raises((NotOffered, InvalidArgument)):
        append(archive, key)
    assert {info.key: info.messages for info in sessions.list(internal=True)} == before


def test_the_name_that_is_given_must_have_the_prefix_too(archive: Archive, sessions: Sessions) -> None:
    sessions.add_message("agent:1", "user", "hello")
    sessions.add_alias("agent:1", "cli:x")
    with pytest.raises(NotOffered, match="may be appended to"):
        append(archive, "cli:x")
    assert len(sessions.get_history("agent:1")) == 1


def test_a_name_that_is_given_in_the_meantime_leads_nowhere_else(place: Place) -> None:
    class Renaming(Sessions):
        """Gives a name to another session as soon as it was looked up."""

        def resolve(self, name: str) -> str:
            found = super().resolve(name)
            if name == found == "agent:new":
                self.add_alias("cli:1", name)
            return found

    with Renaming(MemoryStore(rules=RULES)) as sessions:
        sessions.add_message("cli:1", "user", "hello")
        assert append(Archive(sessions, uri=uri_of, write="agent:"), "agent:new")
        assert [one.content for one in sessions.get_history("cli:1")] == ["hello"]


def test_a_key_that_looks_like_a_path_is_just_a_key(archive: Archive, sessions: Sessions, place: Place) -> None:
    before = {path for path in place.root.parent.rglob("*") if not path.is_relative_to(place.root)}
    append(archive, "agent:../nacre:x")
    append(archive, "agent:/../../../../tmp/x")
    assert {path for path in place.root.parent.rglob("*") if not path.is_relative_to(place.root)} == before
    assert [one.key for one in sessions.list(prefix="agent:", order="key")] == [
        "agent:../nacre:x",
        "agent:/../../../../tmp/x",
    ]
    assert not sessions.exists("nacre:x")


def test_a_prefix_that_internal_keys_share_opens_none_of_them(sessions: Sessions) -> None:
    archive = Archive(sessions, uri=uri_of, write="n")
    with pytest.raises(NotOffered):
        append(archive, "nacre:notes")
    with pytest.raises(InvalidArgument, match="not for others"):
        Archive(sessions, uri=uri_of, write="nacre:notes")


def test_without_a_prefix_nothing_is_written(sessions: Sessions) -> None:
    with pytest.raises(NotOffered, match="only reads"):
        append(Archive(sessions, uri=uri_of), "agent:1")


def test_appends_at_once_are_all_stored(archive: Archive, sessions: Sessions) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda n: append(archive, "agent:1", str(n), id=str(n % 40)), range(40)))
    assert sorted(int(str(one.content)) for one in sessions.get_history("agent:1")) == list(range(40))
    assert len(set(numbers)) == 40


# ---- addresses and schemas


@pytest.mark.parametrize("key", ["cli:1", "a/b?c#d%41", "ü 🐚", "agent:../nacre:x", GUEST_KEY])
def test_the_address_of_a_session_leads_back_to_it(key: str) -> None:
    assert key_of(uri_of(key)) == key


@pytest.mark.parametrize(
    "uri",
    ["", "nacre://sessions/", "nacre://sessions", "file:///etc/passwd", "nacre://sessions/a/b", "nacre://sessions/%ff"],
)
def test_any_other_address_is_nobodys(uri: str) -> None:
    with pytest.raises(SessionNotFound):
        key_of(uri)


def test_schemas_are_objects_that_refuse_what_they_do_not_know() -> None:
    schema = schema_of(ReadSession)
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["key"], False)
    assert set(schema_of(Conversation)["$defs"]) == {"MessageItem"}
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"key": "cli:1", "path": "/"}, ReadSession)


def test_a_store_in_memory_says_that_it_has_no_search() -> None:
    with nacre.open(":memory:") as sessions:
        sessions.add_message("cli:1", "user", "a pearl")
        with pytest.raises(NotOffered, match="in memory and have no search index"):
            Archive(sessions, uri=uri_of).search(SearchSessions(query="pearl"))


def test_of_a_thought_and_a_file_a_client_gets_the_words_and_no_base64(archive: Archive, sessions: Sessions) -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I added."}], "openai_agents": {}}
    part = {"type": "file", "base64": "A" * 4000, "mime_type": "application/pdf"}
    sessions.add_full_message("cli:5", Message(role="", extra={**thought, "encrypted_content": "A" * 4000}))
    sessions.add_full_message("cli:5", Message(role="user", content=[part]))
    read = archive.read(ReadSession(key="cli:5")).messages
    assert [one.text for one in read] == ["I added.", "[application/pdf, 3.0 kB]"]
