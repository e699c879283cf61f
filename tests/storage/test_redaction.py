"""Erasing one message: nothing of it is left in any file, everything else is as it was, and a hole stays."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from zlib import crc32

import pytest

import nacre
from nacre import Message, Sessions, ToolCall
from nacre.errors import Conflict, InvalidArgument, InvalidKey, SessionNotFound
from nacre.history.replies import find_reply
from nacre.history.session_state import RULES
from nacre.history.window import window
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System
from nacre.testing import Disk, images
from tests.erased import traces, traces_on
from tests.paths import log_of
from tests.simulated import LOG, ROOT, first, names, opened, say, store

SECRET = 'the launch code is "00000000"\tand the door is blue'  # noqa: S105 - said by somebody
LARGE = "a payload that is long " * 4_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def others(sessions: Sessions, key: str, n: int) -> list[object]:
    return [entry for entry in sessions.records(key) if entry.n != n and entry.kind != "mark"]


def test_nothing_of_a_message_is_left_and_a_hole_stays(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", "before")
        n = sessions.add_message("k", "user", SECRET)
        sessions.add_message("k", "assistant", "after")
        assert [hit.n for hit in sessions.search("launch code")] == [n]
        before = others(sessions, "k", n)
        found = sessions.redact("k", n)
        assert traces(SECRET, tmp_path) == []
        assert others(sessions, "k", n) == before
        assert [message.content for message in sessions.get_history("k")] == ["before", "", "after"]
        assert sessions.get_history("k")[1].extra == {"redacted": True}
        assert (found.n, found.erased, found.forks, found.summaries) == (n, (n,), (), ())
        assert sessions.search("launch code") == []
        assert [hit.n for hit in sessions.search("before")] == [2]
        assert sessions.verify().ok
    assert traces(SECRET, tmp_path) == []


def test_a_log_keeps_its_length_and_every_other_line(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three"):
            sessions.add_message("k", "user", text)
        (log,) = (tmp_path / "store/sessions").glob("*.jsonl")
        before = log.read_bytes().splitlines()
        sessions.redact("k", 3)
        after = log.read_bytes().splitlines()
        assert list(map(len, after[:-1])) == list(map(len, before))
        assert [line for line in after if line not in before] == [after[2], after[-1]]
        assert b'"t":"mark"' in after[-1]
        sessions.add_message("k", "user", "four")
        assert len(sessions.get_history("k")) == 4


def small(root: Path) -> Sessions:
    """Sessions that move out whatever they can."""
    return Sessions(FileStore(str(root), rules=RULES, compact_at=1))


def move_out(sessions: Sessions, key: str = "k") -> None:
    sessions.truncate_history(key, 1)
    sessions.save(key)


def test_a_message_that_was_moved_out_is_erased_there(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three", "four"):
            sessions.add_message("k", "user", text)
        move_out(sessions)
        (cold,) = (tmp_path / "store/cold").iterdir()
        length, before = cold.stat().st_size, others(sessions, "k", 3)
        sessions.redact("k", 3)
        assert traces(SECRET, tmp_path) == []
        assert (cold.stat().st_size, others(sessions, "k", 3)) == (length, before)
        assert [stored.message.content for stored in sessions.transcript("k")] == ["one", "", "three", "four"]
        assert sessions.verify().ok
        sessions.rewind("k", 5)
        assert [message.content for message in sessions.get_history("k")] == ["one", "", "three", "four"]
        move_out(sessions)
        assert sessions.verify().ok


def test_one_message_after_another_is_erased_from_the_same_frame(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        for n in range(40):
            sessions.add_message("k", "user", f"what was said as number {n}")
        move_out(sessions)
        (cold,) = (tmp_path / "store/cold").iterdir()
        size = cold.stat().st_size
        assert [sessions.redact("k", n).erased for n in range(2, 41)] == [(n,) for n in range(2, 41)]
        assert traces("what was said as number 7", tmp_path) == []
        assert cold.stat().st_size == size
        assert sessions.verify().ok


def test_a_message_that_was_brought_back_is_erased_in_both_files(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three", "four"):
            sessions.add_message("k", "user", text)
        move_out(sessions)
        sessions.rewind("k", 4)
        assert len(traces(SECRET, tmp_path)) == 2
        sessions.redact("k", 3)
        assert traces(SECRET, tmp_path) == []
        assert sessions.verify().ok


@pytest.mark.parametrize("text", [SECRET, LARGE])
def test_a_fork_gets_its_own_hole_and_its_parent_is_named(tmp_path: Path, text: str) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for content in ("one", text, "three"):
            sessions.add_message("k", "user", content)
        sessions.fork("k", "f")
        sessions.fork("f", "g")
        found = sessions.redact("f", 3)
        assert found.forks == ("g", "k")
        assert [message.content for message in sessions.get_history("f")] == ["one", "", "three"]
        for key in ("k", "g"):
            assert [message.content for message in sessions.get_history(key)] == ["one", text, "three"]
        assert sessions.redact("k", 3).forks == ("g",)
        assert sessions.redact("g", 3).forks == ()
        assert traces(text, tmp_path) == []
        assert sessions.verify().ok


def test_what_a_fork_shares_that_was_moved_out_is_erased(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        for content in ("one", SECRET, "three"):
            sessions.add_message("k", "user", content)
        move_out(sessions)
        sessions.fork("k", "f")
        assert sessions.redact("k", 3).forks == ("f",)
        assert sessions.redact("f", 3).erased == (3,)
        assert traces(SECRET, tmp_path) == []
        assert [stored.message.content for stored in sessions.transcript("f")] == ["one", "", "three"]
        assert sessions.verify().ok


def test_a_fork_keeps_nothing_of_what_was_said_after_it(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", "one")
        sessions.add_message("k", "user", "two")
        move_out(sessions)
        sessions.fork("k", "f")
        sessions.add_message("k", "user", SECRET)
        sessions.add_message("k", "user", "four")
        move_out(sessions)
        sessions.rewind("k", 3)
        n = next(stored.n for stored in sessions.transcript("k") if stored.message.content == SECRET)
        assert sessions.redact("k", n).forks == ()
        assert traces(SECRET, tmp_path) == []
        assert [stored.message.content for stored in sessions.transcript("f")] == ["one", "two"]
        assert sessions.verify().ok


@pytest.mark.parametrize(("moved", "goes_on"), [(False, False), (True, False), (True, True)])
def test_a_fork_at_an_earlier_record_keeps_nothing_of_a_later_one(tmp_path: Path, moved: bool, goes_on: bool) -> None:
    with small(tmp_path / "store") as sessions:
        for text in ("one", "two", SECRET, "four"):
            sessions.add_message("k", "user", text)
        sessions.add_message("else", "user", "a session of somebody else, with as many records")
        if moved:
            move_out(sessions)
        sessions.fork("k", "f", at=3)
        sessions.fork("else", "g")
        sessions.archive("f")
        if goes_on:
            sessions.add_message("k", "user", "five")
            move_out(sessions)
        assert sessions.redact("k", 4).forks == ()
        assert traces(SECRET, tmp_path) == []
        assert [stored.message.content for stored in sessions.transcript("f")] == ["one", "two"]
        assert sessions.verify().ok


def test_a_message_of_an_archived_generation_is_erased(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", SECRET)
        sessions.archive("k")
        sessions.add_message("k", "user", "a new beginning")
        old = sessions.transcript("k")[0].generation
        with pytest.raises(Conflict):
            sessions.redact("k", 3)
        assert sessions.redact("k", 2, generation=old).generation == old
        assert traces(SECRET, tmp_path) == []
        assert [stored.message.content for stored in sessions.transcript("k")] == ["", "a new beginning"]
        sessions.delete("k")
        sessions.add_message("k", "user", SECRET)
        sessions.archive("k")
        assert sessions.redact("k", 2).erased == (2,)
        sessions.unarchive("k")
        assert sessions.get_history("k")[0].content == ""
        assert sessions.verify().ok


def test_a_message_in_the_trash_is_erased_there(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three"):
            sessions.add_message("k", "user", text)
        move_out(sessions)
        sessions.move_to_trash("k")
        sessions.redact("k", 3)
        assert traces(SECRET, tmp_path) == []
        (trashed,) = sessions.list_trash()
        sessions.restore_from_trash(trashed.id)
        assert [stored.message.content for stored in sessions.transcript("k")] == ["one", "", "three"]
        assert sessions.verify().ok


def test_a_large_payload_goes_with_its_message(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", LARGE)
        sessions.add_message("other", "user", "x" * 100_000)
        assert sessions.redact("k", 2).payloads == 1
        assert traces(LARGE, tmp_path) == []
        assert len(list((tmp_path / "store/blobs").iterdir())) == 2
        assert sessions.verify().ok


def test_a_payload_that_another_message_has_stays(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", LARGE)
        sessions.add_message("k", "user", LARGE)
        found = sessions.redact("k", 2)
        assert (found.payloads, found.kept) == (0, 1)
        assert [message.content for message in sessions.get_history("k")] == ["", LARGE]
        assert sessions.redact("k", 3).payloads == 1
        assert traces(LARGE, tmp_path) == []


def test_a_call_keeps_its_id_and_name_and_a_result_its_id(tmp_path: Path) -> None:
    call = ToolCall(id="c1", name="write_file", arguments=f'{{"content": "{"x" * 40}"}}')
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", "write it")
        sessions.add_messages(
            "k",
            [
                Message(
                    role="assistant", content=SECRET, reasoning=SECRET, tool_calls=(call,), extra={"answers": ["i"]}
                ),
                Message(role="tool", content=SECRET, tool_call_id="c1", name="write_file"),
            ],
            id="group",
        )
        sessions.redact("k", 3)
        sessions.redact("k", 4)
        asked, result = sessions.get_history("k")[1:]
        assert (asked.tool_calls, asked.reasoning) == ((ToolCall(id="c1", name="write_file"),), None)
        assert asked.extra == {"answers": ["i"], "redacted": True}
        assert (result.role, result.tool_call_id, result.content) == ("tool", "c1", "")
        assert traces(SECRET, tmp_path) == traces("x" * 40, tmp_path) == []
        assert sessions.verify().ok


@pytest.mark.parametrize("moved", [False, True])
def test_a_retry_of_an_erased_message_is_answered_with_its_number(tmp_path: Path, moved: bool) -> None:
    with small(tmp_path / "store") as sessions:
        n = sessions.add_messages("k", [Message(role="user", content=SECRET)], id="i")
        other = sessions.add_messages("k", [Message(role="user", content="other")], id="j")
        if moved:
            sessions.add_message("k", "user", "last")
            move_out(sessions)
        sessions.redact("k", n)
        for content in (SECRET, "anything"):
            assert sessions.add_messages("k", [Message(role="user", content=content)], id="i") == n
        assert sessions.add_messages("k", [Message(role="user", content="other")], id="j") == other
        with pytest.raises(Conflict):
            sessions.add_messages("k", [Message(role="user", content="anything")], id="j")


def test_the_generation_after_it_keeps_no_fingerprint_of_it(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        n = sessions.add_message("k", "user", SECRET, id="once")
        sessions.archive("k")
        sessions.add_messages("k", [Message(role="user", content="-" * 2000)] * 200, id="many")
        sessions.truncate_history("k", 1)
        sessions.save("k")
        sessions.redact("k", n, generation=sessions.transcript("k")[0].generation)
        (carried,) = [line for line in log_of(tmp_path, "k").read_text().splitlines() if '"t":"ids"' in line]
        assert list(json.loads(carried)["ids"]) == ["many"]
    with nacre.open(tmp_path) as sessions:
        assert sessions.add_message("k", "user", "a guess", id="once") == n


def test_summaries_that_cover_a_message_are_named_and_can_be_erased(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in (SECRET, "two", "three"):
            sessions.add_message("k", "user", text)
        sessions.set_summary("k", f"summary: {SECRET}", upto=2)
        sessions.set_summary("k", "later", upto=3)
        assert sessions.redact("k", 2).summaries == (5, 6)
        assert sessions.redact("k", 3).summaries == (6,)
        assert sessions.redact("k", 4).summaries == ()
        sessions.redact("k", 5)
        sessions.redact("k", 6)
        assert sessions.get_summary("k") == ""
        assert traces(SECRET, tmp_path) == []


def test_a_title_and_an_undo_copy_that_repeat_a_message_go_with_it(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        call = ToolCall(id="c", name="f", arguments="{no JSON, but something that a file has")
        n = sessions.add_full_message("k", Message(role="assistant", content=SECRET, tool_calls=(call,)))
        sessions.set_meta("k", title=SECRET[:20] + "…", cwd="/here")
        sessions.append("k", "x.file", {"path": "a", "before": f"line\n{SECRET}\n"})
        sessions.append("k", "x.file", {"path": "b", "before": "something else that is long"})
        sessions.append("k", "x.file", {"path": "c", "before": call.arguments})
        sessions.set_meta("k", title="something else")
        assert sessions.redact("k", n).erased == (2, 3, 4, 6)
        assert sessions.get_meta("k") == {"cwd": "/here", "title": "something else"}
        assert [entry.data for entry in sessions.records("k", "x.file")] == [
            {"path": "a", "is_too_large": True},
            {"path": "b", "before": "something else that is long"},
            {"path": "c", "is_too_large": True},
        ]
        assert traces(SECRET, tmp_path) == traces(SECRET[:20], tmp_path) == []


@pytest.mark.parametrize("text", [SECRET, "1234"])
def test_values_of_a_graph_that_repeat_a_message_go_with_it(text: str, tmp_path: Path) -> None:
    said = {"m": [{"role": "user", "content": text}]}
    with nacre.open(tmp_path / "store") as sessions:
        sessions.append("k", "x.langgraph", {"k": "w", "cp": "1", "w": [[0, "messages", said]]})
        n = sessions.add_message("k", "user", text)
        sessions.append("k", "x.langgraph", {"k": "c", "id": "1", "set": {"__start__": {"o": {"messages": said}}}})
        sessions.append("k", "x.langgraph", {"k": "c", "id": "2", "set": {"notes": {"j": ["other"]}}})
        sessions.append("k", "x.langgraph", {"k": "c", "id": "3"})
        sessions.append("k", "x.langgraph", ["not", "ours", text])
        assert sessions.redact("k", n).erased == (2, 3, 4)
        assert [entry.data for entry in sessions.records("k", "x.langgraph")][:4] == [
            {"k": "w", "cp": "1"},
            {"k": "c", "id": "1"},
            {"k": "c", "id": "2", "set": {"notes": {"j": ["other"]}}},
            {"k": "c", "id": "3"},
        ]


def test_a_summary_and_entries_of_a_framework_that_repeat_a_message_go_with_it(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        n = sessions.add_message("k", "user", f"{SECRET}\n{SECRET}")
        summary = {"n": 3, "data": {"first_prompt": f"{SECRET} {SECRET[:5]}…"}}
        sessions.set_meta("k", cwd="/here", claude_agent=summary)
        sessions.append("k", "x.claude_agent", {"whole": {"type": "last-prompt", "lastPrompt": f"{SECRET}\n{SECRET}"}})
        sessions.append("k", "x.claude_agent", {"whole": {"type": "mode", "mode": "plan"}})
        sessions.append("k", "x.llama_index", {"message": {"role": "user", "content": f"So: {SECRET}\n{SECRET}"}})
        assert sessions.redact("k", n).erased == (2, 3, 4, 6)
        assert sessions.get_meta("k") == {"cwd": "/here"}
        assert traces(SECRET, tmp_path) == []
        assert [entry.data for entry in sessions.records("k", "x.claude_agent")][1:] == [
            {"whole": {"type": "mode", "mode": "plan"}}
        ]


def test_bytes_of_a_graph_that_have_a_message_in_them_go_with_it(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        n = sessions.add_message("k", "user", SECRET)
        packed = b"\x81\xff" + SECRET.encode() + b"\x00"
        sessions.append("k", "x.langgraph", {"k": "c", "set": {"value": {"t": "msgpack", "b": packed}}})
        assert sessions.redact("k", n).erased == (2, 3)
        assert traces(SECRET, tmp_path) == []
        assert [entry.data for entry in sessions.records("k", "x.langgraph")] == [{"k": "c"}]


def test_notes_can_be_erased_however_short(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.append("k", "x.pin", 7)
        sessions.append("k", "use", {"prompt": 1})
        assert [sessions.redact("k", n).erased for n in (2, 3)] == [(2,), (3,)]
        assert [entry.data for entry in sessions.records("k", before=4, after=1)] == [{"redacted": True}] * 2
        assert sessions.verify().ok


def test_erasing_twice_is_harmless(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", SECRET)
        assert sessions.redact("k", 2).erased == (2,)
        log = next((tmp_path / "store/sessions").glob("*.jsonl")).read_bytes()
        assert sessions.redact("k", 2).erased == ()
        assert next((tmp_path / "store/sessions").glob("*.jsonl")).read_bytes() == log


@pytest.mark.parametrize("place", ["files", "memory"])
def test_what_cannot_be_erased_is_refused(tmp_path: Path, place: str) -> None:
    store = FileStore(str(tmp_path / "store"), rules=RULES) if place == "files" else MemoryStore(rules=RULES)
    with Sessions(store) as sessions:
        with pytest.raises(SessionNotFound):
            sessions.redact("k", 2)
        sessions.add_message("k", "user", "hi")
        sessions.set_meta("k", title="t")
        for n in (1, 3, 9):
            with pytest.raises(Conflict):
                sessions.redact("k", n)
        with pytest.raises(SessionNotFound):
            sessions.redact("k", 2, generation="0" * 32)
        for wrong in (0, "2", 2.0, True):
            with pytest.raises(InvalidArgument):
                sessions.redact("k", wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            sessions.redact("k", 2, generation="first")
        with pytest.raises(InvalidKey):
            sessions.redact("nacre:memory", 2)


def test_damaged_bytes_of_it_in_quarantine_are_erased_and_others_stay(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three", "four"):
            sessions.add_message("k", "user", text)
    log = log_of(tmp_path / "store", "k")
    lines = log.read_bytes().split(b"\n")
    # Its line with a flipped bit is there once more, then a part of it, and damage that is another's.
    lines[3:3] = [lines[2].replace(b"user", b"uses"), lines[2][90:] + b"\xff", b"another piece of damage", lines[3]]
    log.write_bytes(b"\n".join(lines))
    with nacre.open(tmp_path / "store") as sessions:
        sessions.repair("k")
        before = sessions.quarantine("k")
        assert sessions.redact("k", 3).quarantined == 2
        assert traces(SECRET, tmp_path) == traces(SECRET[:40], tmp_path) == traces(SECRET[-20:], tmp_path) == []
        (entry,) = sessions.quarantine("k")
        assert (entry.n, entry.bytes, entry.reason) == (before[0].n, before[0].bytes, before[0].reason)
        assert "another piece of damage" in next((tmp_path / "store/quarantine").iterdir()).read_text()
        assert sessions.restore("k").numbers == ()


def test_a_message_that_only_the_quarantine_has_is_erased_there(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three"):
            sessions.add_message("k", "user", text)
    log = log_of(tmp_path / "store", "k")
    log.write_bytes(log.read_bytes().replace(b"launch", b"launcg"))
    with nacre.open(tmp_path / "store") as sessions:
        assert sessions.repair("k").set_aside == 1
        found = sessions.redact("k", 3)
        assert (found.erased, found.quarantined) == ((), 1)
        assert traces(SECRET[20:], tmp_path) == []
        with pytest.raises(Conflict):
            sessions.redact("k", 3)


def test_a_restored_message_is_erased_in_the_quarantine_that_it_came_from(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", "one")
        sessions.add_messages("k", [Message(role="user", content=text) for text in (SECRET, "rotten")])
    log = log_of(tmp_path / "store", "k")
    log.write_bytes(log.read_bytes().replace(b"rotten", b"rotteo"))
    with nacre.open(tmp_path / "store") as sessions:
        sessions.repair("k")
        (n,) = sessions.restore("k").numbers
        assert len(traces(SECRET, tmp_path)) == 2
        sessions.redact("k", n)
        assert traces(SECRET, tmp_path) == []
        assert sessions.verify().ok


def test_a_damaged_log_is_repaired_first(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three", "four", "five"):
            sessions.add_message("k", "user", text)
    log = log_of(tmp_path / "store", "k")
    log.write_bytes(log.read_bytes().replace(b'"three"', b'"thref"'))
    with nacre.open(tmp_path / "store") as sessions:
        sessions.redact("k", 3)
        assert traces(SECRET, tmp_path) == []
        assert [message.content for message in sessions.get_history("k")] == ["one", "", "four", "five"]
        assert len(sessions.quarantine("k")) == 1


def test_a_fork_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", SECRET)
        sessions.fork("k", "f")
        log = log_of(tmp_path / "store", "f")
        log.write_bytes(b"x" * 30 + log.read_bytes()[30:])
        assert sessions.redact("k", 2).forks == ("f",)


def test_ancestors_are_named_wherever_they_are(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("first", "user", SECRET)
        sessions.fork("first", "second")
        sessions.fork("second", "third")
        sessions.archive("second")
        sessions.move_to_trash("first")
        sessions.fork("third", "fourth")
        assert sessions.redact("third", 2).forks == ("first", "fourth", "second")
        sessions.delete("second")
        assert sessions.redact("fourth", 2).forks == ("first",)


def test_links_of_a_message_stay(tmp_path: Path) -> None:
    extra = {"origin": {"id": "i", "sender": SECRET}, "answers": ["j"], "recalled": SECRET}
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_full_message("k", Message(role="user", content=SECRET, extra=extra))
        sessions.add_full_message("k", Message(role="user", content=SECRET, extra={"origin": "x", "answers": 1}))
        assert [sessions.redact("k", n).erased for n in (2, 3)] == [(2,), (3,)]
        first, second = sessions.get_history("k")
        assert first.extra == {"origin": {"id": "i"}, "answers": ["j"], "redacted": True}
        assert second.extra == {"redacted": True}
        assert traces(SECRET, tmp_path) == []


def test_lines_of_the_quarantine_that_are_damaged_themselves_lose_it_too(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three"):
            sessions.add_message("k", "user", text)
    log = log_of(tmp_path / "store", "k")
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*lines[:3], lines[2][60:], lines[2][60:] + b"\xff", *lines[3:]]))
    with nacre.open(tmp_path / "store") as sessions:
        sessions.repair("k")
        (file,) = (tmp_path / "store/quarantine").iterdir()
        file.write_bytes(file.read_bytes().replace(b'"seal":"', b'"seal":"x') + b"no line of ours\n")
        assert sessions.redact("k", 3).quarantined == 2
        assert traces(SECRET[-20:], tmp_path) == []
        assert b"no line of ours" in file.read_bytes()


def test_second_names_that_a_crash_left_do_not_keep_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", SECRET)
        uid = sessions.transcript("k")[0].generation
        for name in (f"archive/k.{uid}.jsonl", f"trash/k.{uid}.1.jsonl"):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).hardlink_to(log_of(root, "k"))
        (root / f"archive/k.{uid}.tmp").write_text(SECRET)
        log_of(root, "k").with_suffix(".tmp").write_text(SECRET)
        sessions.redact("k", 2)
        assert traces(SECRET, tmp_path) == []
        assert sessions.get_history("k")[0].content == ""


def test_what_follows_a_log_into_the_trash_is_erased_where_a_crash_left_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with small(root) as sessions:
        for text in ("one", SECRET, "three"):
            sessions.add_message("k", "user", text)
        move_out(sessions)
        (cold,) = (root / "cold").iterdir()
        sessions.move_to_trash("k")
        (moved,) = (root / "trash").glob("*.cold.zst")
        moved.rename(cold)
        sessions.redact("k", 3)
        assert traces(SECRET, tmp_path) == []
        sessions.restore_from_trash(sessions.list_trash()[0].id)
        assert sessions.verify().ok


def test_what_was_erased_in_memory_is_gone_and_retries_find_it() -> None:
    with nacre.open(":memory:") as sessions:
        n = sessions.add_messages("k", [Message(role="user", content=LARGE)], id="i")
        sessions.add_message("k", "assistant", "after")
        sessions.fork("k", "f")
        sessions.archive("k")
        found = sessions.redact("k", n)
        assert (found.erased, found.payloads, found.forks) == ((2,), 1, ("f",))
        assert [message.content for message in sessions.get_history("k")] == ["", "after"]
        assert [message.content for message in sessions.get_history("f")] == [LARGE, "after"]
        sessions.unarchive("k")
        assert sessions.add_messages("k", [Message(role="user", content="x")], id="i") == n
        assert sessions.add_message("k", "user", "on") == 5


def test_a_part_of_a_store_erases_only_its_own(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("a:1", "user", SECRET)
        sessions.add_message("b:1", "user", "hi")
        part = sessions.within("a:")
        with pytest.raises(InvalidKey):
            part.redact("b:1", 2)
        part.redact("a:1", 2)
        assert traces(SECRET, tmp_path) == []
        assert sessions.get_history("b:1")[0].content == "hi"


def test_a_part_of_a_store_does_not_learn_of_forks_elsewhere(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("a:1", "user", SECRET)
        sessions.fork("a:1", "a:2")
        sessions.fork("a:1", "b:1")
        assert sessions.within("a:").redact("a:1", 2).forks == ("a:2",)


def test_copies_that_others_have_are_erased_before_it_is_over(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def fail(found: nacre.Redaction) -> None:
        raise nacre.StoreError(f"no way for {found.n}")

    with nacre.open(tmp_path / "store") as sessions:
        for _ in range(2):
            n = sessions.add_message("k", "user", SECRET)
            with pytest.raises(nacre.StoreError, match="no way"):
                sessions.redact("k", n, erase_copies=fail)
    folder = tmp_path / "store/redacting"
    for _ in range(2):
        with nacre.open(tmp_path / "store") as sessions:
            assert len(list(folder.iterdir())) == 2
    with nacre.open(tmp_path / "store") as sessions:
        sessions.finish_redactions(lambda found: seen.append((found.key, found.n)))
        assert (seen, list(folder.iterdir())) == ([("k", 2), ("k", 4)], [])


def write_note(root: Path, uid: str, n: int, key: str = "k") -> Path:
    """Write what a redaction that was cut short has left."""
    (root / "redacting").mkdir(exist_ok=True)
    body = f'{{"key":"{key}","uid":"{uid}","n":{n}'
    note = root / f"redacting/{key}.{uid}.{n}.json"
    note.write_text(f'{body},"crc":"{crc32(body.encode()):08x}"}}')
    return note


def test_a_flipped_bit_in_a_note_erases_nothing_and_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        for text in ("one", "two", "three", "four", "five", "six"):
            sessions.add_message("k", "user", text)
        uid = sessions.snapshot("k").generation
    note = write_note(root, uid, 4)
    whole = note.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        note.write_bytes(damaged)
        with nacre.open(root) as sessions:
            assert [finding.kind for finding in sessions.verify("k").findings] == ["redaction"]
    with nacre.open(root) as sessions:
        assert len([message for message in sessions.get_history("k") if message.content]) == 6
        assert [finding.key for finding in sessions.verify().findings] == ["k"]
        assert sessions.redact("k", 4).erased == (4,)
        assert sessions.verify().ok


def test_a_note_that_cannot_be_read_keeps_nobody_from_opening(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "store/redacting/k.0.2.json").mkdir(parents=True)
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("other", "user", "hello")
        assert [finding.kind for finding in sessions.verify().findings] == ["redaction"]
        assert sessions.verify("other").ok
    assert "cannot be read" in caplog.text


def test_a_redaction_that_cannot_be_finished_keeps_no_other_one_from_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        for key in ("a", "b"):
            sessions.add_message(key, "user", SECRET)
        uids = {key: sessions.snapshot(key).generation for key in ("a", "b")}
    notes = [write_note(root, uids[key], 2, key) for key in ("a", "b")]
    log_of(root, "a").unlink()
    log_of(root, "a").mkdir()
    with nacre.open(root) as sessions:
        assert sessions.get_history("b")[0].content == ""
    assert [note.exists() for note in notes] == [True, False]


def test_copies_cannot_be_erased_by_what_is_no_function(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        n = sessions.add_message("k", "user", SECRET)
        with pytest.raises(InvalidArgument, match="erase_copies must be a function"):
            sessions.redact("k", n, erase_copies=5)  # type: ignore[arg-type]
        assert sessions.get_history("k")[0].content == SECRET


def test_a_redaction_of_a_session_that_was_deleted_meanwhile_is_over(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", SECRET)
        uid = sessions.transcript("k")[0].generation
        sessions.delete("k")
    write_note(root, uid, 2)
    (root / "redacting/torn.json.tmp").write_text('{"key":"k","u')
    with nacre.open(root):
        assert [path.name for path in (root / "redacting").iterdir()] == ["torn.json.tmp"]


def test_an_emptied_generation_has_nothing_to_erase(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", SECRET)
        sessions.archive("k")
        next((tmp_path / "store/archive").glob("*.jsonl")).write_bytes(b"")
        with pytest.raises(SessionNotFound):
            sessions.redact("k", 2)


@pytest.mark.parametrize("lost", ["header", "file", ""])
def test_damage_in_what_a_fork_shares_loses_it_too(tmp_path: Path, lost: str) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three"):
            sessions.add_message("k", "user", text)
        sessions.fork("k", "f")
        sessions.fork("k", "g", at=2)
        sessions.add_message("k", "user", "later")
        for base in (tmp_path / "store/base").iterdir():
            lines = base.read_bytes().split(b"\n")
            lines.insert(3, lines[2][60:])
            base.unlink()
            if lost != "file":
                base.write_bytes(b"\n".join([b"no header" if lost == "header" else lines[0], *lines[1:]]))
        if lost != "file":
            assert sessions.redact("f", 3).erased == (3,)
        sessions.redact("k", 3)
        assert not any("jsonl" in name and ".g." in name for name in traces(SECRET, tmp_path))
        assert traces(SECRET[-20:], *(tmp_path / "store/base").glob("f.*")) == []


def test_a_frame_that_is_damaged_keeps_what_can_be_read(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        for text in ("one", SECRET, "three", "four"):
            sessions.add_message("k", "user", text)
        move_out(sessions)
        (cold,) = (tmp_path / "store/cold").iterdir()
        # Its checksum is wrong.
        cold.write_bytes(cold.read_bytes()[:-1] + b"\0")
        sessions.redact("k", 3)
        assert traces(SECRET, tmp_path) == []
        assert [stored.message.content for stored in sessions.transcript("k")] == ["one", "", "three", "four"]


def test_a_fork_without_the_record_in_its_files_is_left_as_it_is(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_message("k", "user", "one")
        sessions.fork("k", "f")
        sessions.redact("k", 2)
        n = sessions.add_message("k", "user", SECRET)
        (base,) = (tmp_path / "store/base").iterdir()
        inode = base.stat().st_ino
        sessions.redact("k", n)
        assert (base.stat().st_ino, traces(SECRET, tmp_path)) == (inode, [])


def test_bytes_around_it_stay_in_a_quarantine_of_an_older_version(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", SECRET)
        uid = sessions.transcript("k")[0].generation
    data = b"\xff other damage\n" + log_of(root, "k").read_bytes().split(b"\n")[1]
    note = {"kind": "rotten", "len": len(data), "crc": f"{crc32(data):08x}", "ts": "2026-01-01T00:00:00.000Z"}
    (root / "quarantine").mkdir()
    file = root / f"quarantine/k.{uid}.jsonl"
    file.write_text(json.dumps({**note, "b64": base64.b64encode(data).decode()}) + "\n")
    with nacre.open(root) as sessions:
        assert sessions.redact("k", 2).quarantined == 1
        left = base64.b64decode(json.loads(file.read_text())["b64"])
        kept = data.index(b"\n") + 1
        assert left == data[:kept] + b" " * (len(data) - kept)
        assert sessions.quarantine("k")[0].bytes == len(data)


def test_an_entry_that_is_settled_meanwhile_stays_settled() -> None:
    disk = Disk()
    with opened(disk) as sessions:
        say(sessions, "one", SECRET, "three", "four", "five")
        disk.write_durable(LOG, disk.read(LOG).replace(b'"three"', b'"thref"').replace(b"launch", b"launcg"))
        sessions.repair("k")
    process = disk.process()
    with nacre.Sessions(store(process)) as settling, opened(disk) as erasing:
        first(process, "flock", lambda: erasing.redact("k", 3))
        settling.discard("k")
        assert [entry.settled for entry in erasing.quarantine("k", settled=True)] == ["discarded"]
        assert traces_on(disk, SECRET[20:], ROOT) == []


def test_what_is_listed_searched_and_shown_to_a_model_is_a_marked_hole(tmp_path: Path) -> None:
    call = ToolCall(id="c", name="f", arguments='{"path": "a"}')
    said = [
        Message(role="user", content=SECRET),
        Message(role="assistant", content=SECRET, tool_calls=(call,)),
        Message(role="tool", content=SECRET, tool_call_id="c"),
        Message(role="assistant", content=SECRET),
    ]
    with small(tmp_path / "store") as sessions:
        last = sessions.add_messages("k", said)
        for n in range(last - 3, last + 1):
            sessions.redact("k", n)
        assert next(sessions.list()).last == "[erased]"
        shown = window(sessions.get_history("k"), tokens=10_000, limit=50).messages
        assert [message.content for message in shown] == ["[erased]", "", "[erased]", "[erased]"]
        assert [call.arguments for call in shown[1].tool_calls] == [{}]
        assert traces(SECRET, tmp_path) == []


def test_a_reply_is_found_though_its_message_was_erased(tmp_path: Path) -> None:
    with small(tmp_path / "store") as sessions:
        sessions.add_messages("k", [Message(role="user", content=SECRET, extra={"origin": {"id": "i"}})], id="i")
        sessions.add_full_message("k", Message(role="assistant", content="done", extra={"answers": ["i"]}))
        sessions.redact("k", 2)
        found = sessions.read("k", lambda view: find_reply(view, "whatever", id="i"))
        assert found is not None
        assert found.content == "done"


def test_what_cannot_be_finished_does_not_keep_others_from_opening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "hi")
        sessions.add_message("other", "user", "hello")
        uid = sessions.transcript("k")[0].generation
    write_note(root, uid, 2)
    log_of(root, "k").unlink()
    log_of(root, "k").mkdir()
    with nacre.open(root) as sessions:
        assert sessions.get_history("other")[0].content == "hello"
    assert "could not be erased completely" in caplog.text
    assert len(list((root / "redacting").iterdir())) == 1


def test_a_redaction_that_failed_is_finished_by_another_one(tmp_path: Path) -> None:
    def fail(found: nacre.Redaction) -> None:
        raise nacre.StoreError(f"no way for {found.n}")

    with nacre.open(tmp_path / "store") as sessions:
        n = sessions.add_message("k", "user", SECRET)
        with pytest.raises(nacre.StoreError, match="no way"):
            sessions.redact("k", n, erase_copies=fail)
        assert sessions.redact("k", n, erase_copies=lambda _: None).erased == ()
        assert list((tmp_path / "store/redacting").iterdir()) == []


def test_without_power_neither_index_nor_leftovers_come_back() -> None:
    disk = Disk()
    with opened(disk) as sessions:
        n = sessions.add_message("k", "user", SECRET)
        uid = sessions.transcript("k")[0].generation
        home = SessionPaths.of(ROOT, "k")
        files = [home.ids(uid), f"{home.ids(uid)}.0a1b2c3d.tmp", home._replace(archived=uid).scratch, home.scratch]
        for path in files:
            disk.write_durable(path, SECRET.encode())
        disk.write_durable(SessionPaths.of(ROOT, "other").ids(uid), b"of another")
        sessions.redact("k", n)
    after = next(images(disk.snapshot(), random.Random(0), 0))
    assert traces_on(after, SECRET, ROOT) == []
    assert (names(after, "redacting"), names(after, "ids")) == ([], [f"other.{uid}"])


def test_what_cannot_be_finished_in_one_session_is_finished_in_others(tmp_path: Path) -> None:
    root = tmp_path / "store"

    def fail(found: nacre.Redaction) -> None:
        raise nacre.StoreError(f"no way for {found.n}")

    with nacre.open(root) as sessions:
        for key in ("a", "b"):
            sessions.add_message(key, "user", SECRET)
            with pytest.raises(nacre.StoreError):
                sessions.redact(key, 2, erase_copies=fail)
    log_of(root, "a").unlink()
    log_of(root, "a").mkdir()
    seen: list[str] = []
    with nacre.Sessions(FileStore(str(root), rules=RULES)) as sessions, pytest.raises(nacre.StoreError):
        sessions.finish_redactions(lambda found: seen.append(found.key))
    assert seen == ["b"]


def test_an_index_of_ids_that_is_made_meanwhile_does_not_know_it() -> None:
    disk = Disk()
    with opened(disk) as sessions:
        sessions.set_meta("k", keep_ids=True)
        n = sessions.add_message("k", "user", SECRET, id="i")
        sessions.archive("k")
    process = disk.process()
    late = Sessions(store(process))
    first(process, "mkdir", lambda: opened(disk).redact("k", n))
    assert late.update("k", [nacre.SetMeta({"title": "new"})], id="other") == 0
    assert names(disk, "ids") == []
    assert late.update("k", [nacre.Pop()], id="i") == n


def test_every_message_of_a_small_frame_can_be_erased(tmp_path: Path) -> None:
    given = random.Random(8)
    with small(tmp_path / "store") as sessions:
        for key in map(str, range(24)):
            said = [given.randbytes(given.randint(1, 12)).hex() for _ in range(given.randint(1, 6))]
            numbers = [sessions.add_message(key, "user", text) for text in said]
            sessions.clear(key)
            sessions.save(key)
            for n in given.sample(numbers, len(numbers)):
                sessions.redact(key, n)
            assert {stored.message.content for stored in sessions.transcript(key)} == {""}
        assert sessions.verify().ok


class Late(System):
    """A process that lists a note which another one removes before it is read."""

    def listdir(self, path: str) -> list[str]:
        return ["k.0.2.json"] if path.endswith("redacting") else super().listdir(path)


def test_a_note_that_is_gone_by_now_is_no_damage(tmp_path: Path) -> None:
    with Sessions(FileStore(str(tmp_path), rules=RULES, system=Late())) as sessions:
        sessions.add_message("k", "user", "hello")
        sessions.finish_redactions()
        assert sessions.verify().ok
