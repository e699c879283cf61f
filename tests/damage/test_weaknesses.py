"""Ways in which earlier stores lost conversations, each told as a scenario and survived."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

import nacre
from tests.damage.lines import TIME, fields_of, resealed, seal
from tests.damage.stores import KEY, go_on, lines_of, said, set_aside, write
from tests.paths import log_of


def user(text: str) -> nacre.Message:
    return nacre.Message(role="user", content=text)


def history(sessions: nacre.Sessions, key: str = KEY) -> list[object]:
    return [message.content for message in sessions.get_history(key)]


def test_a_torn_tail_does_not_swallow_the_next_message(root: Path) -> None:
    log = write(root, ["one"])
    torn = b'{"role":"assistant","content":"tw'
    log.write_bytes(log.read_bytes() + torn)
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "three")
        sessions.add_message(KEY, "user", "four")
    assert said(root) == ["one", "three", "four"]
    assert set_aside(root) == [torn]


def test_one_bad_line_does_not_make_a_session_unreadable(root: Path) -> None:
    log = write(root, ["one", "two"])
    lines = lines_of(log)
    log.write_bytes(lines[0] + b"{oops\n" + lines[1] + lines[2])
    after = go_on(root)
    assert (after.kept, after.reported) == (["one", "two"], True)


def test_a_tool_result_of_eleven_megabytes_is_stored_or_refused_but_never_in_the_way(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "before")
        sessions.add_full_message(KEY, {"role": "tool", "tool_call_id": "c1", "content": "z" * 11_000_000})
        sessions.add_message(KEY, "user", "after")
        assert [str(text)[:6] for text in history(sessions)] == ["before", "zzzzzz", "after"]


def test_metadata_lives_in_the_log_and_follows_it(root: Path) -> None:
    log = write(root, ["one"])
    with nacre.open(root) as sessions:
        sessions.set_meta(KEY, title="Demo", labels=["a"])
    content = log.read_bytes()
    other = root.with_name("other")
    write(other, ["x"]).write_bytes(content)
    with nacre.open(other) as sessions:
        assert sessions.get_meta(KEY)["title"] == "Demo"


def test_keys_that_earlier_stores_mixed_up_are_apart(root: Path) -> None:
    keys = ["a:b", "a/b", "a\\b", "a_b", "User", "user", "@alice:server", "_alice_server", "x|sender=y", "x", "k" * 300]
    with nacre.open(root) as sessions:
        for key in keys:
            sessions.add_message(key, "user", key)
        assert [history(sessions, key) for key in keys] == [[key] for key in keys]


def test_list_gives_the_keys_as_they_were_given(root: Path) -> None:
    keys = {"telegram:42", "Matrix/@a:b.c", "ü", "a b"}
    with nacre.open(root) as sessions:
        for key in keys:
            sessions.add_message(key, "user", "x")
    with nacre.open(root) as sessions:
        assert {info.key for info in sessions.list()} == keys


def test_no_key_reaches_outside_the_store(root: Path) -> None:
    victim = root.with_name("x.jsonl")
    victim.write_bytes(b"untouched")
    with nacre.open(root) as sessions:
        for key in ("../x", "../../x", str(victim.with_suffix("")), "..", "."):
            sessions.add_message(key, "user", "x")
            sessions.archive(key)
            sessions.delete(key)
    assert victim.read_bytes() == b"untouched"
    assert {path.name for path in root.parent.iterdir()} == {root.name, "x.jsonl"}


def test_archiving_twice_overwrites_nothing(root: Path) -> None:
    with nacre.open(root) as sessions:
        for text in ("first life", "second life", "third life"):
            sessions.add_message(KEY, "user", text)
            sessions.archive(KEY)
    assert said(root) == ["first life", "second life", "third life"]


def test_a_write_after_archiving_does_not_hide_the_archive(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "old")
        sessions.archive(KEY)
        assert history(sessions) == ["old"]
        sessions.add_message(KEY, "user", "new")
        assert history(sessions) == ["new"]
        with pytest.raises(nacre.Conflict):
            sessions.unarchive(KEY)
    assert said(root) == ["old", "new"]


def test_what_was_cleared_stays_out_of_the_history_through_compaction_and_restart(root: Path) -> None:
    with nacre.open(root) as sessions:
        for number in range(20):
            sessions.add_message(KEY, "user", f"{number} " + "x" * 20_000)
        sessions.clear(KEY)
        sessions.add_message(KEY, "user", "fresh")
        sessions.save(KEY)
        assert history(sessions) == ["fresh"]
    with nacre.open(root) as sessions:
        assert history(sessions) == ["fresh"]
        assert len(sessions.transcript(KEY)) == 21


def test_messages_that_arrive_while_a_summary_is_made_are_not_dropped(root: Path) -> None:
    with nacre.open(root) as sessions:
        numbers = [sessions.add_message(KEY, "user", str(number)) for number in range(24)]
        covered = numbers[17]
        for number in range(8):
            sessions.add_message(KEY, "user", f"meanwhile {number}")
        sessions.set_summary(KEY, "0 to 17", upto=covered)
        expected = [*map(str, range(18, 24)), *(f"meanwhile {number}" for number in range(8))]
        assert history(sessions) == expected
        assert sessions.get_summary(KEY) == "0 to 17"


def test_an_abort_that_restores_an_older_state_deletes_nothing(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "one")
        restore_point = sessions.add_message(KEY, "assistant", "two")
        sessions.add_message(KEY, "user", "three")
        last = sessions.add_message(KEY, "assistant", "four")
        sessions.rewind(KEY, restore_point)
        assert history(sessions) == ["one", "two"]
        sessions.rewind(KEY, last)
        assert history(sessions) == ["one", "two", "three", "four"]


def test_a_rewrite_from_an_old_view_is_a_conflict_and_not_a_loss(root: Path) -> None:
    with nacre.open(root) as sessions:
        known = sessions.add_message(KEY, "user", "one")
        sessions.add_message(KEY, "user", "somebody else's")
        with pytest.raises(nacre.Conflict):
            sessions.add_messages(KEY, [user("built on the old view")], expect=known)
        assert history(sessions) == ["one", "somebody else's"]


def test_truncation_and_compaction_delete_nothing(root: Path) -> None:
    texts = [f"{number} " + "x" * 20_000 for number in range(20)]
    with nacre.open(root) as sessions:
        for text in texts:
            sessions.add_message(KEY, "user", text)
        sessions.truncate_history(KEY, 2)
        sessions.save(KEY)
        assert history(sessions) == texts[-2:]
    assert said(root) == texts


def test_compaction_outlives_the_process(root: Path) -> None:
    log = write(root, [f"{number} " + "x" * 20_000 for number in range(20)])
    with nacre.open(root) as sessions:
        sessions.set_summary(KEY, "numbers", upto=sessions.transcript(KEY)[17].n)
        sessions.save(KEY)
    assert log.stat().st_size < 60_000
    with nacre.open(root) as sessions:
        assert [str(text)[:2] for text in history(sessions)] == ["18", "19"]
        assert sessions.get_summary(KEY) == "numbers"


def test_a_session_that_fell_out_of_the_cache_remembers_everything(root: Path) -> None:
    with nacre.open(root) as sessions:
        for text in ("one", "two"):
            for number in range(600):
                sessions.add_message(f"sender {number}", "user", text)
        assert all(history(sessions, f"sender {number}") == ["one", "two"] for number in range(600))


def test_one_unreadable_file_does_not_disable_the_store(root: Path) -> None:
    write(root, ["one"])
    rubbish = log_of(root, "rubbish")
    rubbish.write_bytes(b"\xff\xfe not ours")
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "two")
        assert history(sessions) == ["one", "two"]
        assert KEY in [info.key for info in sessions.list()]
        assert not sessions.verify().ok


def test_whatever_was_acknowledged_is_listed_and_can_be_deleted(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "a private word")
        with nacre.open(root) as other:
            assert [info.key for info in other.list()] == [KEY]
            other.delete(KEY)
            assert list(other.list()) == []
    assert not any(b"a private word" in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_a_title_given_before_the_first_message_is_kept(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.set_meta(KEY, title="Later")
        sessions.add_message(KEY, "user", "one")
    with nacre.open(root) as sessions:
        assert [(info.key, info.title) for info in sessions.list()] == [(KEY, "Later")]


def test_looking_at_a_session_does_not_create_it(root: Path) -> None:
    with nacre.open(root) as sessions:
        assert sessions.get_history(KEY) == []
        assert sessions.get_summary(KEY) == ""
        assert sessions.get_meta(KEY) == {}
        sessions.truncate_history(KEY, 3)
        sessions.clear(KEY)
        sessions.save(KEY)
        sessions.delete(KEY)
        assert not sessions.exists(KEY)
        assert list(sessions.list()) == []


def test_repair_and_compaction_delete_no_evidence(root: Path) -> None:
    log = write(root, [f"{number} " + "x" * 20_000 for number in range(20)])
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:5]) + b"evidence\n" + b"".join(lines[5:]))
    with nacre.open(root) as sessions:
        sessions.truncate_history(KEY, 1)
        sessions.save(KEY)
    assert b"evidence" in b"".join(set_aside(root))
    assert len(said(root)) == 20


def test_a_slow_session_does_not_hold_up_the_others(root: Path) -> None:
    log = write(root, ["one"])
    with nacre.open(root) as sessions, log.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        waiting = threading.Thread(target=sessions.add_message, args=(KEY, "user", "late"))
        waiting.start()
        sessions.add_message("other", "user", "at once")
        assert history(sessions, "other") == ["at once"]
        assert history(sessions) == ["one"]
        fcntl.flock(holder, fcntl.LOCK_UN)
        waiting.join()
        assert history(sessions) == ["one", "late"]


def test_a_retry_after_an_unknown_outcome_stores_nothing_twice(root: Path) -> None:
    with nacre.open(root) as sessions:
        number = sessions.add_messages(KEY, [user("one"), user("two")], id="request-1")
    with nacre.open(root) as sessions:
        assert sessions.add_messages(KEY, [user("one"), user("two")], id="request-1") == number
    assert said(root) == ["one", "two"]


def test_a_retry_is_recognised_after_compaction(root: Path) -> None:
    with nacre.open(root) as sessions:
        number = sessions.add_messages(KEY, [user("one")], id="request-1")
        for _ in range(20):
            sessions.add_message(KEY, "user", "x" * 20_000)
        sessions.truncate_history(KEY, 1)
        sessions.save(KEY)
        assert sessions.add_messages(KEY, [user("one")], id="request-1") == number
    assert said(root).count("one") == 1


def test_a_late_writer_does_not_bring_a_deleted_session_back(root: Path) -> None:
    with nacre.open(root) as late, nacre.open(root) as other:
        late.add_message(KEY, "user", "old")
        other.delete(KEY)
        try:
            late.add_message(KEY, "user", "new")
        except nacre.Conflict:
            assert not late.exists(KEY)
        assert "old" not in said(root)
    assert not any(b'"old"' in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_a_deleted_session_leaves_no_word_anywhere(root: Path) -> None:
    log = write(root, [f"private word {number} " + "x" * 20_000 for number in range(20)])
    log.write_bytes(log.read_bytes() + b"a torn private word")
    with nacre.open(root) as sessions:
        sessions.truncate_history(KEY, 1)
        sessions.save(KEY)
        sessions.archive(KEY)
        sessions.add_message(KEY, "user", "private word again")
        sessions.delete(KEY)
        assert not sessions.exists(KEY)
    assert [path for path in root.rglob("*") if path.is_file() and KEY in path.name] == []
    assert not any(b"private word" in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_a_delete_that_was_cut_off_is_finished_by_the_next_open(root: Path) -> None:
    log = write(root, ["one"])
    last = fields_of(lines_of(log)[-1])
    log.write_bytes(log.read_bytes() + seal({"v": 1, "n": 3, "t": "del", "ts": TIME, "st": last["st"]}))
    with nacre.open(root) as sessions:
        assert not sessions.exists(KEY)
        assert sessions.get_history(KEY) == []
        sessions.add_message(KEY, "user", "a new beginning")
        assert history(sessions) == ["a new beginning"]
    assert said(root) == ["a new beginning"]


def test_closing_twice_is_harmless_and_a_closed_store_says_so(root: Path) -> None:
    sessions = nacre.open(root)
    sessions.add_message(KEY, "user", "one")
    sessions.close()
    sessions.close()
    with pytest.raises(nacre.StoreError):
        sessions.add_message(KEY, "user", "two")
    assert said(root) == ["one"]


def test_times_do_not_rule_the_order(root: Path) -> None:
    log = write(root, ["one", "two"])
    lines = lines_of(log)
    log.write_bytes(lines[0] + resealed(lines[1], ts="2099-01-01T00:00:00.000Z") + lines[2])
    assert go_on(root).kept == ["one", "two"]
