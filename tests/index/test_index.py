"""The index follows the logs: what is written is found, what is erased is gone, whoever did it."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import zlib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

import nacre
from nacre import Message, Sessions, ToolCall
from nacre.errors import StoreError
from nacre.history.list_page import Wanted
from nacre.history.session_state import RULES
from nacre.index import Index
from nacre.index.database import connect
from nacre.index.intake import Found
from nacre.index.tables import Chunk
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from tests.index.conftest import infos
from tests.paths import log_of


def found(index: Index, query: str) -> list[tuple[str, int]]:
    return sorted((hit.key, hit.n) for hit in index.search(query))


# ---- what is written is found


def test_a_message_is_found_with_its_place(sessions: Sessions, index: Index) -> None:
    n = sessions.add_message("telegram:42", "user", "The disk is full.")
    (hit,) = index.search("full")
    assert (hit.key, hit.n, hit.role, hit.snippet) == ("telegram:42", n, "user", "The disk is **full**.")
    assert hit.ts == sessions.transcript("telegram:42")[0].ts


def test_what_is_appended_after_a_search_is_found(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "one")
    assert found(index, "two") == []
    sessions.add_message("k", "user", "two")
    assert found(index, "two") == [("k", 3)]


def test_a_group_is_found_whole(sessions: Sessions, index: Index) -> None:
    sessions.add_messages("k", [Message(role="user", content=f"word part{i}") for i in range(3)])
    assert found(index, "word") == [("k", 2), ("k", 3), ("k", 4)]


def test_what_another_process_wrote_is_found(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "mine")
    assert found(index, "mine") == [("k", 2)]
    code = "import sys, nacre; nacre.open(sys.argv[1]).add_message('k', 'user', 'theirs')"
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    assert found(index, "theirs") == [("k", 3)]


def test_rewound_truncated_and_replaced_messages_are_found(sessions: Sessions, index: Index) -> None:
    for text in ("alpha", "beta", "gamma"):
        sessions.add_message("k", "user", text)
    sessions.rewind("k", 2)
    sessions.truncate_history("k", 0)
    sessions.set_history("k", [Message(role="user", content="delta")])
    assert [len(found(index, word)) for word in ("alpha", "beta", "gamma", "delta")] == [1, 1, 1, 1]


def test_calls_and_results_are_found_by_their_tool(sessions: Sessions, index: Index) -> None:
    call = ToolCall(id="c1", name="shell", arguments='{"cmd": "make"}')
    sessions.add_full_message("k", Message(role="assistant", tool_calls=(call,)))
    assert found(index, "tool:shell") == [("k", 2)]
    sessions.add_full_message("k", Message(role="tool", content="error 2", tool_call_id="c1"))
    assert found(index, "tool:shell error") == [("k", 3)]
    assert found(index, "tool:she error") == []


def test_filters_narrow_what_is_found(sessions: Sessions, index: Index) -> None:
    for key in ("a:1", "a:2", "b:1"):
        sessions.add_message(key, "user", "word")
        sessions.add_message(key, "assistant", "word")
    assert found(index, "word session:a role:user") == [("a:1", 2), ("a:2", 2)]
    assert found(index, "role:assistant session:b") == [("b:1", 3)]
    assert found(index, "word since:1h role:tool") == []
    assert found(index, "word until:2020-01-01") == []
    assert found(index, "word session:nowhere") == []


def test_excluded_words_exclude(sessions: Sessions, index: Index) -> None:
    for text in ("red apple", "green apple", "红苹果 apple"):
        sessions.add_message("k", "user", text)
    assert found(index, "apple -red") == [("k", 3), ("k", 4)]
    assert found(index, "apple -红苹果") == [("k", 2), ("k", 3)]
    assert found(index, "-apple") == []


def test_the_limit_keeps_the_newest(sessions: Sessions, index: Index) -> None:
    for _ in range(5):
        sessions.add_message("k", "user", "same words here")
    hits = index.search("same", limit=2)
    assert len(hits) == 2
    assert all(hit.ts >= sessions.transcript("k")[3].ts for hit in hits)
    assert index.search("same", limit=0) == []


def test_the_better_match_comes_first(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "needle")
    sessions.add_message("k", "user", "needle " + "hay " * 200)
    assert [hit.n for hit in index.search("needle")] == [2, 3]


def test_a_question_finds_what_has_its_rarest_words(sessions: Sessions, index: Index) -> None:
    n = sessions.add_message("k", "user", "We talked about the garden. My sister Ilse moved to Porto, by the way.")
    for _ in range(20):
        sessions.add_message("k", "user", "Where does the garden end, and what is it like now?")
    (first, *_) = index.search("Where does my sister Ilse live now?", limit=5)
    assert first.n == n
    assert first.snippet.endswith("My **sister** **Ilse** moved to Porto, by the way.")


def test_three_words_must_all_match(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "the disk is full")
    assert found(index, "disk is empty") == []
    assert found(index, "disk is empty now -full") == []
    assert found(index, "is the printer full") == [("k", 2)]
    assert found(index, "is the printer on") == []
    assert found(index, "which cats have wings") == []


def test_inside_words_is_searched_when_no_word_matches(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "concatenate")
    assert found(index, "cat") == [("k", 2)]
    sessions.add_message("k", "user", "a cat")
    assert found(index, "cat") == [("k", 3)]


@pytest.mark.parametrize("query", ["数据库", "数据", "据", "库", "使用P", "🎉", "=="])
def test_chinese_and_signs_of_any_length_are_found(sessions: Sessions, index: Index, query: str) -> None:
    sessions.add_message("k", "user", "a == b 🎉 使用Python数据库")
    sessions.add_message("k", "user", "something else")
    assert found(index, query) == [("k", 2)]


# ---- compaction, archive, fork, deletion


def compacted(root: Path) -> Sessions:
    """A store that moves out whatever is not live."""
    return Sessions(FileStore(str(root), rules=RULES, compact_at=0))


def test_what_compaction_moved_out_is_found_once(root: Path, index: Index) -> None:
    with compacted(root) as sessions:
        for i in range(20):
            sessions.add_message("k", "user", f"word number{i}")
        assert len(found(index, "word")) == 20
        sessions.truncate_history("k", 1)
        sessions.add_message("k", "user", "word unseen")
        sessions.truncate_history("k", 1)
        sessions.save("k")
        assert list((root / "cold").iterdir())
        assert len(found(index, "word")) == 21
        assert len(found(Index(str(root), cache=str(root.parent / "other")), "word")) == 21
        sessions.rewind("k", 10)
        assert len(found(index, "word")) == 21


def test_a_compaction_does_not_make_it_read_everything_again(root: Path, cache: Path, index: Index) -> None:
    with compacted(root) as sessions:
        for i in range(20):
            sessions.add_message("k", "user", f"word number{i}")
        before = [hit.n for hit in index.search("number3")]
        sessions.truncate_history("k", 1)
        sessions.save("k")
        connection = index._database._on_disk()
        connection.execute("UPDATE message SET body = 'word marked' WHERE n = 5")
        assert [hit.n for hit in index.search("number3")] == before
        assert connection.execute("SELECT body FROM message WHERE n = 5").fetchone() == ("word marked",)


def test_archived_sessions_are_found_and_listed_apart(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "first life")
    assert len(found(index, "life")) == 1
    sessions.archive("k")
    assert found(index, "life") == [("k", 2)]
    sessions.add_message("k", "user", "second life")
    assert len(found(index, "life")) == 2
    assert [info.archived for archived in (True, False) for info in infos(index, archived=archived)] == [True, False]


def test_an_unarchived_session_is_found_once(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.archive("k")
    assert found(index, "word") == [("k", 2)]
    sessions.unarchive("k")
    assert found(index, "word") == [("k", 2)]
    assert list(infos(index, archived=True)) == []


def test_a_log_under_two_names_is_found_once(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.archive("k")
    assert found(index, "word") == [("k", 2)]
    (archived,) = (root / "archive").iterdir()
    os.link(archived, log_of(root, "k"))
    assert found(index, "word") == [("k", 2)]
    log_of(root, "k").unlink()
    assert found(index, "word") == [("k", 2)]


@pytest.mark.parametrize("is_known", [True, False])
def test_messages_that_are_stored_again_are_found_once_where_they_are_now(
    sessions: Sessions, index: Index, *, is_known: bool
) -> None:
    sessions.add_messages("k", [Message(role="user", content=f"word {i} " + "and more " * 9) for i in range(2)])
    for _ in range(2):
        if is_known:
            index.search("word")
        sessions.set_history("k", sessions.get_history("k"))
    now = sessions.snapshot("k").numbers
    assert found(index, "word") == [("k", n) for n in now]
    assert [hit.ts for hit in index.search("word 0")] == [sessions.get_history("k")[0].created]


def test_words_that_are_said_again_are_found_each_time(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_full_message("k", Message(role="user", content="word", created=datetime(2026, 11, 15, tzinfo=UTC)))
    sessions.add_full_message(
        "k", Message(role="assistant", content="word", created=datetime(2026, 11, 15, tzinfo=UTC))
    )
    assert found(index, "word") == [("k", 2), ("k", 3), ("k", 4)]


@pytest.mark.parametrize("logs", [1, 100])
def test_messages_of_one_moment_are_compared_in_a_few_steps_each(logs: int) -> None:
    def steps(count: int) -> int:
        with closing(connect(":memory:")) as connection:
            chunk, taken = Chunk(connection), [0]
            for n in range(count):
                chunk.add(n % logs, Found(n, 0, "user", "", f"word {n}", may_repeat=True))
            connection.set_progress_handler(lambda: taken.__setitem__(0, taken[0] + 1), 10)
            chunk.write()
            return taken[0]

    assert steps(1600) < 6 * steps(400)


def test_a_fork_is_found_with_the_past_it_shares(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.fork("k", "branch")
    sessions.add_message("branch", "user", "another word")
    sessions.delete("k")
    assert [key for key, _ in found(index, "word")] == ["branch", "branch"]


def test_what_a_fork_shares_is_found_once_where_it_was_written(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.fork("k", "branch")
    sessions.fork("branch", "twig")
    sessions.add_message("k", "user", "word of the parent")
    sessions.add_message("branch", "user", "word of the fork")
    assert found(index, "word") == [("branch", 4), ("k", 2), ("k", 3)]
    assert len({hit.n for hit in index.search("word", limit=2)}) == 2
    sessions.archive("k")
    assert found(index, "word") == [("branch", 4), ("k", 2), ("k", 3)]


def test_a_fork_that_is_searched_alone_is_searched_with_its_past(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.fork("k", "branch")
    sessions.add_message("branch", "user", "word of the fork")
    assert found(index, "word session:branch") == [("branch", 2), ("branch", 4)]
    assert found(index, "word session:nobody") == []
    sessions.fork("branch", "branches")
    assert found(index, 'word session:"branches"') == [("branches", 2), ("branches", 4)]


def test_a_past_whose_writer_is_gone_is_found_in_one_of_its_forks(sessions: Sessions, index: Index) -> None:
    for i in range(3):
        sessions.add_message("k", "user", f"word {i}")
    sessions.fork("k", "short", at=3)
    sessions.fork("k", "long")
    assert len(found(index, "word")) == 3
    sessions.delete("k")
    assert sorted(n for _, n in found(index, "word")) == [2, 3, 4]
    sessions.delete("short")
    assert found(index, "word") == [("long", 2), ("long", 3), ("long", 4)]


def test_what_was_said_alike_in_two_sessions_is_found_twice(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_message("other", "user", "word")
    sessions.fork("k", "branch")
    assert found(index, "word") == [("k", 2), ("other", 2)]


def test_a_payload_that_is_kept_apart_is_searched_too(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "plain " * 20_000 + "needle")
    sessions.fork("k", "branch")
    sessions.delete("k")
    assert found(index, "needle") == [("branch", 2)]


def test_a_deleted_session_is_gone(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_message("other", "user", "word")
    assert len(found(index, "word")) == 2
    sessions.delete("k")
    assert found(index, "word") == [("other", 2)]


def test_forgetting_leaves_nothing_in_the_files(cache: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "password xyzzyplugh 秘密口令")
    sessions.add_message("other", "user", "word")
    assert len(found(index, "xyzzyplugh")) == 1
    sessions.delete("k")
    index.forget("k")
    kept = b"".join(file.read_bytes() for file in cache.rglob("*") if file.is_file())
    assert [trace for trace in (b"xyzzyplugh", b"xyz", "秘密口".encode()) if trace in kept] == []
    assert found(index, "word") == [("other", 2)]


def test_forgetting_what_is_not_known_does_nothing(cache: Path, index: Index) -> None:
    index.forget("k")
    assert not cache.exists()


def test_a_deletion_that_was_only_begun_counts(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "old word")
    sessions.archive("k")
    sessions.add_message("k", "user", "word")
    assert len(found(index, "word")) == 2
    kept = {path: path.read_bytes() for path in (*(root / "archive").iterdir(), log_of(root, "k"))}
    ended = root.parent / "ended"

    class Stops(System):
        def unlink(self, path: str) -> None:
            ended.write_bytes(log_of(root, "k").read_bytes())
            super().unlink(path)

    Sessions(FileStore(str(root), rules=RULES, system=Stops())).delete("k")
    for path, data in kept.items():
        path.write_bytes(data)
    log_of(root, "k").write_bytes(ended.read_bytes())
    assert found(index, "word") == []
    assert list(infos(index)) == []


# ---- what does not count yet


def test_a_torn_tail_is_not_found_until_it_is_mended(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_message("k", "user", "word again")
    sessions.close()
    whole = log_of(root, "k").read_bytes()
    log_of(root, "k").write_bytes(whole[:-5])
    assert found(index, "word") == [("k", 2)]
    with nacre.open(root) as mended:
        mended.add_message("k", "user", "new word")
    assert found(index, "word") == [("k", 2), ("k", 3)]
    assert found(index, "again") == []


def test_cut_at_every_byte_only_whole_groups_are_found(root: Path, cache: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "word")
        sessions.add_messages("k", [Message(role="user", content="word")] * 2)
    whole = log_of(root, "k").read_bytes()
    first = whole.index(b"\n", whole.index(b'"n":2')) + 1
    index = Index(str(root), cache=str(cache))
    for end in range(first, len(whole), 7):
        log_of(root, "k").write_bytes(whole[:end])
        assert found(index, "word") == [("k", 2)]
    log_of(root, "k").write_bytes(whole)
    assert len(found(index, "word")) == 3
    index.close()


def test_while_a_writer_is_at_it_the_last_batch_waits(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_message("k", "user", "word")
    system = System()
    fd = system.open(str(log_of(root, "k")), os.O_RDONLY)
    assert system.flock(fd, wait=True)
    assert found(index, "word") == [("k", 2)]
    system.unlock(fd)
    assert found(index, "word") == [("k", 2), ("k", 3)]
    system.close(fd)


def test_other_readers_are_not_taken_for_a_writer(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    system = System()
    fd = system.open(str(log_of(root, "k")), os.O_RDONLY)
    assert system.share(fd)
    assert found(index, "word") == [("k", 2)]
    system.close(fd)


def test_a_log_that_was_replaced_is_read_anew(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word one")
    assert found(index, "one") == [("k", 2)]
    sessions.delete("k")
    sessions.add_message("k", "user", "word two, and more of it")
    assert found(index, "one") == []
    assert found(index, "word") == [("k", 2)]


def test_a_log_that_cannot_be_read_does_not_hide_the_others(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    log_of(root, "link").symlink_to(log_of(root, "k"))
    log_of(root, "folder").mkdir()
    log_of(root, "noise").write_bytes(os.urandom(500))
    assert found(index, "word") == [("k", 2)]
    assert [info.key for info in infos(index)] == ["k"]


def test_a_store_whose_folder_cannot_be_listed_raises(root: Path, sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "word")
    sessions.close()
    (root / "sessions").rename(root / "elsewhere")
    (root / "sessions").touch()
    with pytest.raises(StoreError, match="sessions cannot be read"):
        infos(index)
    with pytest.raises(StoreError, match="sessions cannot be read"):
        index.search("word")


def test_a_file_with_a_name_that_is_not_text_does_not_hide_the_sessions(
    root: Path, sessions: Sessions, index: Index
) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_message("old", "user", "word")
    sessions.archive("old")
    for name in (b"sessions/\xff.jsonl", b"archive/\xff.x.jsonl"):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).touch()
    assert found(index, "word") == [("k", 2), ("old", 2)]
    assert [info.key for archived in (False, True) for info in infos(index, archived=archived)] == ["k", "old"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb'"uid"', b'"cold":99999999999999999999,"uid"'),
        (rb'"st":\[2,1,1', b'"st":[2,1,99999999999999999999'),
        (rb'"n":2', b'"n":99999999999999999999'),
        (rb'"n":3', b'"n":99999999999999999999'),
    ],
    ids=["cold", "live", "number", "last number"],
)
def test_what_another_program_wrote_into_a_log_does_not_hide_the_others(
    root: Path, sessions: Sessions, index: Index, old: bytes, new: bytes
) -> None:
    sessions.add_message("k", "user", "word")
    sessions.add_message("strange", "user", "word")
    sessions.set_meta("strange", title="Strange")
    sessions.close()
    lines = log_of(root, "strange").read_bytes().splitlines()
    log_of(root, "strange").write_bytes(b"".join(sealed(re.sub(old, new, line)) for line in lines))
    assert found(index, "word") == [("k", 2)]
    assert "k" in [info.key for info in infos(index)]


@pytest.mark.parametrize("time", ["yesterday, at noon     Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_session_whose_times_are_none_is_found_and_listed(
    root: Path, sessions: Sessions, index: Index, time: str
) -> None:
    sessions.add_message("k", "user", "word")
    sessions.close()
    lines = log_of(root, "k").read_bytes().splitlines()
    changed = (re.sub(rb'"ts":"[^"]*"', b'"ts":"%b"' % time.encode(), line) for line in lines)
    log_of(root, "k").write_bytes(b"".join(map(sealed, changed)))
    assert found(index, "word") == [("k", 2)]
    assert [(info.key, info.created.year) for info in infos(index)] == [("k", 1970)]
    assert [info.created.year for info in Sessions(FileStore(str(root), rules=RULES)).page().items] == [1970]


@pytest.mark.parametrize("limit", [2**62, 2**63 - 2, 2**63 - 1])
def test_a_huge_limit_means_all(root: Path, index: Index, limit: int) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "word")
    assert [info.key for info in index.page(Wanted(limit=limit)).items] == ["k"]


def sealed(line: bytes) -> bytes:
    """A changed line with the checksum that it has now."""
    said = line[: line.rindex(b',"crc"')]
    return b'%b,"crc":"%08x"}\n' % (said, zlib.crc32(said))


def test_a_session_that_could_not_be_read_once_is_found_by_the_next_search(
    root: Path, cache: Path, sessions: Sessions
) -> None:
    class FailsOnce(System):
        opened = 0

        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            self.opened += path == str(log_of(root, "k"))
            # The first time it is listed, the second time it is read.
            if path == str(log_of(root, "k")) and self.opened == 2:
                raise OSError(errno.EMFILE, "too many open files")
            return super().open(path, flags, mode)

    sessions.add_message("k", "user", "word")
    sessions.add_message("other", "user", "word")
    index = Index(str(root), cache=str(cache), system=FailsOnce())
    assert found(index, "word") == [("other", 2)]
    assert found(index, "word") == [("k", 2), ("other", 2)]
    index.close()


def test_a_fork_that_has_lost_its_past_is_left_out_and_said_so(
    root: Path, sessions: Sessions, index: Index, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.add_message("k", "user", "word")
    sessions.fork("k", "branch")
    sessions.add_message("branch", "user", "word of the fork")
    (base,) = (root / "base").iterdir()
    base.rename(root / "elsewhere")
    assert found(index, "word") == [("k", 2)]
    assert [record.message for record in caplog.records] == ["a session cannot be searched"]
    (root / "elsewhere").rename(base)
    assert found(index, "word") == [("branch", 4), ("k", 2)]


def test_a_fork_that_is_deleted_while_it_is_read_leaves_nothing(
    root: Path, cache: Path, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    class Deletes(System):
        has_read_the_oldest = False

        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            self.has_read_the_oldest = self.has_read_the_oldest or path.endswith(".1.jsonl")
            if self.has_read_the_oldest and path.endswith(".0.jsonl"):
                sessions.delete("twig")
            return super().open(path, flags, mode)

    sessions.add_message("k", "user", "word")
    sessions.fork("k", "branch")
    sessions.add_message("branch", "user", "word of the fork")
    sessions.fork("branch", "twig")
    sessions.delete("k")
    sessions.delete("branch")
    index = Index(str(root), cache=str(cache), system=Deletes())
    assert found(index, "word") == []
    assert [record.message for record in caplog.records] == ["a session cannot be searched"]
    index.close()


# ---- listing


def test_a_listing_is_what_the_logs_say(root: Path, sessions: Sessions, index: Index) -> None:
    for key in ("a", "telegram:42", "b"):
        sessions.add_message(key, "user", "hello")
    sessions.set_meta("b", title="A talk")
    sessions.archive("a")
    for archived in (False, True):
        assert list(infos(index, archived=archived)) == list(sessions.list(archived=archived))
    sessions.add_message("b", "user", "more")
    assert list(infos(index)) == list(sessions.list())


def test_a_listing_reads_no_log_twice(root: Path, sessions: Sessions, cache: Path) -> None:
    opened: list[str] = []

    class Watching(System):
        def open(self, path: str, flags: int, mode: int = 0o600) -> int:
            opened.append(path)
            return super().open(path, flags, mode)

    for key in ("a", "b"):
        sessions.add_message(key, "user", "hello")
    infos(Index(str(root), cache=str(cache)))
    index = Index(str(root), cache=str(cache), system=Watching())
    assert len(list(infos(index))) == 2
    sessions.add_message("a", "user", "more")
    assert [info.messages for info in infos(index)] == [2, 1]
    assert [path for path in opened if path.endswith(".jsonl")] == [str(log_of(root, "a"))]
    index.close()


def test_an_empty_store_has_nothing(index: Index) -> None:
    assert index.search("word") == []
    assert list(infos(index)) == []


def test_what_a_half_done_move_left_in_the_archive_is_not_listed_twice(root: Path, sessions: Sessions) -> None:
    sessions.add_message("k", "user", "moved")
    sessions.archive("k")
    (copy,) = (root / "archive").iterdir()
    stale = copy.read_bytes()
    sessions.unarchive("k")
    copy.write_bytes(stale[:-1])
    for listing in (sessions.list, Sessions(FileStore(str(root), rules=RULES)).list):
        assert [info.key for info in listing()] == ["k"]
        assert list(listing(archived=True)) == []
    assert sessions.verify().ok


def test_the_text_of_a_large_payload_is_found(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "tool", "hay " * 20_000 + "needle")
    assert found(index, "needle") == [("k", 2)]


def test_internal_sessions_are_searched_only_if_asked_for(sessions: Sessions, index: Index) -> None:
    sessions.add_message("k", "user", "a needle")
    own = sessions.with_internal_keys()
    own.add_message("nacre:x", "user", "another needle")
    assert found(index, "needle") == [("k", 2)]
    assert found(index, "needle session:nacre") == []
    assert found(index, 'needle session:"nacre:x"') == [("nacre:x", 2)]
    everywhere = index.search("needle", internal=True)
    assert {hit.key for hit in everywhere} == {"k", "nacre:x"}
    assert index.search("", internal=True) == []


def test_what_a_fork_has_of_an_internal_session_is_found_in_the_fork(sessions: Sessions, index: Index) -> None:
    sessions.with_internal_keys().add_message("nacre:x", "user", "a needle")
    sessions.fork("nacre:x", "mine")
    assert found(index, "needle") == [("mine", 2)]


def test_signs_and_parts_of_words_are_found_over_any_white_space(index: Index, sessions: Sessions) -> None:
    sessions.add_message("code", "user", "def run():\n\n        return  {  }\n")
    sessions.add_message("other", "user", "return { }")
    for query, keys in (('"):"', ["code"]), ('"{  }"', ["code"]), ('"{ }"', ["other"]), ("eturn", ["other", "code"])):
        assert [hit.key for hit in index.search(query)] == keys
