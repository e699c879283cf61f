"""What `Sessions` does beyond the contract: opening, closing, threads, tasks, checking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

import nacre
from nacre import Forgiving, Message, Sessions, SessionStore
from nacre.codec import encode_text
from nacre.history.list_page import Wanted, page_of
from nacre.history.session_state import RULES
from nacre.messages import Hit, Page, SessionInfo
from nacre.records import SetMeta, Transaction
from nacre.storage.file_store import FileStore
from nacre.storage.memory_store import MemoryStore
from nacre.storage.protocol import Generation
from nacre.storage.system import System
from tests.paths import log_of

T = TypeVar("T")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Clock(System):
    """A system whose clock stands still, or goes back at every look."""

    def __init__(self, step: float) -> None:
        self.time, self.step = 1_800_000_000.0, step

    def now(self) -> float:
        self.time += self.step
        return self.time


def user(text: str) -> Message:
    return Message(role="user", content=text)


def test_leaving_the_context_closes_the_store(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        sessions.add_message("k", "user", "a")
    sessions.close()
    with nacre.open(lasting_place) as sessions:
        assert [message.content for message in sessions.get_history("k")] == ["a"]


def test_an_error_inside_the_context_is_not_swallowed(lasting_place: str) -> None:
    def write_and_fail() -> None:
        with nacre.open(lasting_place) as sessions:
            sessions.add_message("k", "user", "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    with nacre.open(lasting_place) as sessions:
        assert len(sessions.get_history("k")) == 1


def test_a_closed_store_refuses_to_write(place: str) -> None:
    sessions = nacre.open(place)
    sessions.add_message("k", "user", "a")
    sessions.close()
    with pytest.raises(nacre.StoreError):
        sessions.add_message("k", "user", "b")


def test_location_is_where_the_store_is(root: Path) -> None:
    with nacre.open(root) as sessions:
        assert Path(sessions.location) == root


def test_a_path_may_be_text_and_its_parents_are_made(root: Path) -> None:
    with nacre.open(str(root / "deep" / "er")) as sessions:
        sessions.add_message("k", "user", "a")
    assert log_of(root / "deep" / "er", "k").is_file()


def test_two_stores_in_ram_know_nothing_of_each_other() -> None:
    with nacre.open(":memory:") as one, nacre.open(":memory:") as two:
        one.add_message("k", "user", "a")
        assert two.get_history("k") == []


def test_files_are_private(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (root, root / "sessions", log_of(root, "k"))}
    assert modes == {"store": 0o700, "sessions": 0o700, log_of(root, "k").name: 0o600}


def test_the_name_of_a_log_hides_no_key(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("../../Escape", "user", "a")
    assert [path.suffix for path in (root / "sessions").iterdir()] == [".jsonl"]
    assert [path.name for path in root.parent.iterdir()] == ["store"]


def test_relaxed_writes_are_seen_at_once_and_there_after_closing(lasting_place: str) -> None:
    with nacre.open(lasting_place, durability="relaxed") as sessions, nacre.open(lasting_place) as other:
        for text in "abc":
            sessions.add_message("k", "user", text)
        assert [message.content for message in sessions.get_history("k")] == ["a", "b", "c"]
        assert [message.content for message in other.get_history("k")] == ["a", "b", "c"]
        sessions.save("k")
    with nacre.open(lasting_place) as sessions:
        assert [message.content for message in sessions.get_history("k")] == ["a", "b", "c"]
        assert sessions.verify().ok


def test_an_unknown_durability_is_refused(root: Path) -> None:
    with pytest.raises((ValueError, nacre.NacreError)):
        nacre.open(root, durability="perhaps")  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [0.0, -60.0])
def test_generations_keep_their_order_when_the_clock_does_not_go_on(root: Path, step: float) -> None:
    with Sessions(FileStore(str(root), rules=RULES, system=Clock(step))) as sessions:
        for text in "abcdef":
            sessions.add_message("k", "user", text)
            sessions.archive("k")
        assert [message.content for message in sessions.get_history("k")] == ["f"]
        assert [stored.message.content for stored in sessions.transcript("k")] == list("abcdef")


def test_threads_on_one_session_lose_and_swap_nothing(place: str) -> None:
    with nacre.open(place) as sessions, ThreadPoolExecutor(8) as pool:
        write = lambda who: [sessions.add_message("k", f"t{who}", f"{n}") for n in range(25)]  # noqa: E731
        numbers = list(pool.map(write, range(8)))
        history = sessions.get_history("k")
    assert len({number for own in numbers for number in own}) == 200
    assert [own == sorted(own) for own in numbers] == [True] * 8
    for who in range(8):
        assert [message.content for message in history if message.role == f"t{who}"] == [f"{n}" for n in range(25)]


def test_threads_on_many_sessions_write_each_its_own(place: str) -> None:
    with nacre.open(place) as sessions, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: sessions.add_message(f"k{n % 40}", "user", f"{n}"), range(200)))
        counts = {info.key: info.messages for info in sessions.list()}
    assert counts == {f"k{n}": 5 for n in range(40)}


def test_only_one_of_many_threads_follows_the_same_record(place: str) -> None:
    def follow(n: int) -> bool:
        try:
            sessions.add_messages("k", [user(f"{n}")], expect=last)
        except nacre.Conflict:
            return False
        return True

    with nacre.open(place) as sessions, ThreadPoolExecutor(8) as pool:
        last = sessions.add_message("k", "user", "a")
        assert sum(pool.map(follow, range(16))) == 1
        assert len(sessions.get_history("k")) == 2


def test_a_retry_by_many_threads_is_stored_once(place: str) -> None:
    with nacre.open(place) as sessions, ThreadPoolExecutor(8) as pool:
        numbers = set(pool.map(lambda _: sessions.add_messages("k", [user("a")], id="once"), range(16)))
        assert len(numbers) == 1
        assert len(sessions.get_history("k")) == 1


def test_tasks_wait_on_submitted_groups(place: str) -> None:
    async def write_all() -> list[int]:
        futures = (sessions.submit("k", [user(f"{n}a"), user(f"{n}b")]) for n in range(32))
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    with nacre.open(place) as sessions:
        numbers = asyncio.run(write_all())
        texts = [str(message.content) for message in sessions.get_history("k")]
    assert len(set(numbers)) == 32
    assert [(one[:-1], two) for one, two in zip(texts[::2], texts[1::2], strict=True)] == [
        (two[:-1], two) for two in texts[1::2]
    ]


def test_a_submitted_conflict_reaches_the_task(place: str) -> None:
    async def write() -> int:
        return await asyncio.wrap_future(sessions.submit("k", [user("b")], expect=0))

    with nacre.open(place) as sessions:
        sessions.add_message("k", "user", "a")
        with pytest.raises(nacre.Conflict):
            asyncio.run(write())


def test_closing_waits_for_what_was_submitted(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        futures = [sessions.submit("k", [user(f"{n}")]) for n in range(20)]
    assert [future.done() for future in futures] == [True] * 20
    with nacre.open(lasting_place) as sessions:
        assert len(sessions.get_history("k")) == 20


@pytest.mark.parametrize("id", ["", "x" * 257, 5])
def test_an_id_is_a_short_text(place: str, id: Any) -> None:
    with nacre.open(place) as sessions:
        with pytest.raises(nacre.InvalidMessage, match="an id must be text of 1 to 256 characters"):
            sessions.add_messages("k", [user("a")], id=id)
        assert sessions.add_messages("k", [user("a")], id="x" * 256) == 2


def test_pop_takes_what_is_last_when_it_is_taken() -> None:
    class Busy(MemoryStore):
        """A store to which somebody writes between two steps of a call."""

        def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
            self.run(key, Transaction((encode_text("user", "b"),)))
            return super().generations(key, get)

    sessions = Sessions(Busy(rules=RULES))
    sessions.add_message("k", "user", "a")
    popped = sessions.pop("k")
    assert popped is not None
    assert popped.content == "a"
    assert [message.content for message in sessions.get_history("k")] == ["b"]


def test_pop_of_a_session_that_is_deleted_meanwhile_gives_nothing() -> None:
    class Busy(MemoryStore):
        """A store in which somebody deletes between two steps of a call."""

        def generations(self, key: str, get: Callable[[Generation], T]) -> list[T]:
            self.delete(key)
            return super().generations(key, get)

    sessions = Sessions(Busy(rules=RULES))
    sessions.add_message("k", "user", "a")
    assert sessions.pop("k") is None


def test_a_good_session_needs_no_repair(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_messages("k", [user("a"), user("b")])
        before = log_of(root, "k").read_bytes()
        receipt = sessions.repair("k")
        assert (receipt.key, receipt.set_aside, receipt.quarantine) == ("k", 0, None)
        assert log_of(root, "k").read_bytes() == before
        assert sessions.verify().ok


def test_repairing_or_verifying_an_unknown_session_says_so(place: str) -> None:
    with nacre.open(place) as sessions:
        with pytest.raises(nacre.SessionNotFound):
            sessions.repair("k")
        with pytest.raises(nacre.SessionNotFound):
            sessions.verify("k")


def test_a_flipped_bit_is_found_named_and_costs_one_message(root: Path) -> None:
    with nacre.open(root) as sessions:
        for text in ("one", "two", "three", "four"):
            sessions.add_message("k", "user", text)
    log = log_of(root, "k")
    log.write_bytes(log.read_bytes().replace(b'"two"', b'"tvo"'))
    with nacre.open(root) as sessions:
        report = sessions.verify("k")
        assert (report.ok, {finding.key for finding in report.findings}) == (False, {"k"})
        assert sessions.repair("k").set_aside == 1
        assert [message.content for message in sessions.get_history("k")] == ["one", "three", "four"]
        assert [finding.kind for finding in sessions.verify("k").findings] == ["quarantine"]
        sessions.discard("k")
        assert sessions.verify("k").ok


def test_both_faces_are_session_stores(place: str) -> None:
    with nacre.open(place) as sessions:
        strict: SessionStore = sessions
        forgiving: SessionStore = Forgiving(sessions)
        assert isinstance(strict, SessionStore)
        assert isinstance(forgiving, SessionStore)
        assert isinstance(sessions, Sessions)
    assert not isinstance(object(), SessionStore)


def test_a_session_log_is_lines_of_json_that_begin_with_their_number(root: Path) -> None:
    with nacre.open(root) as sessions:
        numbers = [sessions.add_message("k", "user", text) for text in "ab"]
    lines = log_of(root, "k").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines] == [['{"v":1', '"n":1'], ['{"v":1', '"n":2'], ['{"v":1', '"n":3']]
    assert numbers == [2, 3]


class Index:
    """Stands in for an index: answers from what it was given, and notes what it is told."""

    def __init__(self, infos: list[SessionInfo]) -> None:
        self._infos = infos
        self.told: list[str] = []

    def make_vectors(self, most: int) -> int:
        return 0

    def search(self, query: str, *, limit: int, internal: bool, prefix: str, **_: object) -> list[Hit]:
        return [Hit(key="k", n=2, ts=NOON, role="user", snippet=f"{query} {limit} {internal} {prefix!r}")]

    def page(self, wanted: Wanted) -> Page:
        return page_of(self._infos, wanted)

    def forget(self, key: str) -> None:
        self.told.append(f"forget {key}")

    def erase(self, key: str) -> None:
        self.told.append(f"erase {key}")

    def close(self) -> None:
        self.told.append("close")


def info(key: str, *, archived: bool = False) -> SessionInfo:
    return SessionInfo(key=key, title="", messages=1, created=NOON, updated=NOON, bytes=9, archived=archived)


def test_an_index_answers_searches_and_listings() -> None:
    index = Index([info("a:1"), info("b:1"), info("a:2", archived=True)])
    sessions = Sessions(MemoryStore(rules=RULES), index=lambda: index)
    assert [hit.snippet for hit in sessions.search("word", limit=3)] == ["word 3 False ''"]
    assert [hit.snippet for hit in sessions.search("word", limit=3, prefix="k")] == ["word 3 False 'k'"]
    assert sessions.search("word", prefix="\ud800") == []
    assert [found.key for found in sessions.list(prefix="a:")] == ["a:1"]
    assert [found.key for found in sessions.list(archived=True)] == ["a:2"]


def test_an_index_is_told_of_deletions_and_closed() -> None:
    index = Index([])
    with Sessions(MemoryStore(rules=RULES), index=lambda: index) as sessions:
        sessions.delete("k")
    assert index.told == ["forget k", "close"]


def test_what_a_search_skips_is_a_key_and_a_number() -> None:
    with Sessions(MemoryStore(rules=RULES), index=lambda: Index([])) as sessions:
        for wrong in ("k", ("k",), ["k", 1]):
            with pytest.raises(nacre.InvalidArgument, match="skip must be a session's key and a record's number"):
                sessions.search("x", skip=wrong)  # type: ignore[arg-type]


def test_without_an_index_there_is_no_search() -> None:
    with pytest.raises(nacre.StoreError, match=":memory: has no index to search"):
        nacre.open(":memory:").search("word")


@pytest.mark.parametrize("fields", [7, None, "title", ["title"]])
def test_meta_that_is_no_dict_is_refused(fields: Any) -> None:
    sessions = nacre.open(":memory:")
    with pytest.raises(nacre.InvalidMessage, match="meta must be a dict"):
        sessions.submit("k", [user("a"), SetMeta(fields)])
    assert not sessions.exists("k")


def test_a_search_leaves_out_what_was_said_from_a_record_on(lasting_place: str) -> None:
    with nacre.open(lasting_place) as sessions:
        numbers = [sessions.add_message("k", "user", f"pearl {number}") for number in range(2)]
        assert [hit.n for hit in sessions.search("pearl", skip=("k", numbers[1]))] == numbers[:1]


def test_the_meta_of_one_session_may_have_fields_of_any_name() -> None:
    session = nacre.open(":memory:")["k"]
    session.set_meta({"id": 7, "expect": 8}, title="T", expect=0, id="once")
    session.set_meta({"id": 7, "expect": 8}, title="T", expect=0, id="once")
    assert session.meta == {"id": 7, "expect": 8, "title": "T"}
    with pytest.raises(nacre.Conflict):
        session.set_meta(title="U", expect=nacre.Version())


def test_a_role_without_a_text_says_what_is_missing() -> None:
    with pytest.raises(nacre.InvalidMessage, match=r"a role needs a text after it, as in append\('user', 'hello'\)"):
        nacre.open(":memory:")["k"].append("user")  # type: ignore[call-overload]


@pytest.mark.parametrize(("goal", "wrong"), [({}, "neither"), ({"to": 2, "before": 2}, "both")])
def test_a_rewind_has_one_goal(goal: dict[str, Any], wrong: str) -> None:
    sessions = nacre.open(":memory:")
    sessions.add_message("k", "user", "a")
    with pytest.raises(nacre.InvalidArgument, match=f"by `before`; not {wrong}"):
        sessions.rewind("k", **goal)


def test_a_lease_that_is_not_taken_is_named_with_its_session(place: str) -> None:
    with nacre.open(place) as sessions:
        lease = sessions.hold("k")
        with pytest.raises(nacre.InvalidArgument, match=r"taken, not Lease\('k', number=None\)"):
            sessions.append("k", "x.note", 1, lease=lease)
        lease.take()
        assert repr(lease) == "Lease('k', number=0)"
        lease.close()


def test_an_update_of_an_unknown_key_stores_nothing_and_says_so(place: str) -> None:
    with nacre.open(place) as sessions:
        assert sessions.update("k", [Message(role="user", content="a")]) == 0
        assert not sessions.exists("k")


def test_a_retry_under_the_id_of_an_erased_message_stores_nothing(place: str) -> None:
    with nacre.open(place) as sessions:
        assert sessions.add_message("k", "user", "a", id="once") == 2
        sessions.redact("k", 2)
        assert [sessions.add_message("k", "user", text, id="once") for text in ("a", "b")] == [2, 2]
        assert [message.content for message in sessions.get_history("k")] == [""]


@pytest.mark.parametrize("value", ["yes", 1])
def test_ids_are_kept_by_true_alone_and_other_values_are_refused(value: Any) -> None:
    sessions = nacre.open(":memory:")
    with pytest.raises(nacre.InvalidArgument, match="keep_ids must be True or False, not"):
        sessions.set_meta("k", keep_ids=value)
    assert not sessions.exists("k")
    for legal in (True, False, None):
        sessions.set_meta("k", keep_ids=legal)
    assert sessions.get_meta("k") == {}


# Whether a session is as it was, without reading it


class Counted(System):
    """A system that counts the bytes that are read."""

    def __init__(self) -> None:
        self.bytes = 0

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        found = super().pread(fd, size, offset)
        self.bytes += len(found)
        return found


def version(sessions: Sessions) -> nacre.Version:
    return sessions.snapshot("k", last=0).version


def test_a_session_is_at_its_version_until_anything_is_stored(place: str) -> None:
    with nacre.open(place) as sessions:
        assert not sessions.is_at("k", nacre.Version())
        for change in (
            lambda: sessions.add_message("k", "user", "a"),
            lambda: sessions.set_meta("k", title="T"),
            lambda: sessions.append("k", "use", {}),
            lambda: sessions.set_summary("k", "so far"),
            lambda: sessions.truncate_history("k", 0),
            lambda: sessions.redact("k", 2),
        ):
            before = version(sessions)
            change()
            assert (sessions.is_at("k", before), sessions.is_at("k", version(sessions))) == (False, True)
        last = version(sessions)
        assert not sessions.is_at("k", nacre.Version(last.n, "another generation"))
        sessions.archive("k")
        assert not sessions.is_at("k", last)
        sessions.delete("k")
        assert not sessions.is_at("k", last)


def test_a_version_is_no_number(place: str) -> None:
    with nacre.open(place) as sessions, pytest.raises(nacre.InvalidArgument, match="version"):
        sessions.is_at("k", 3)  # type: ignore[arg-type] # what a caller may give by mistake


def test_what_another_store_writes_is_seen_without_reading(root: Path) -> None:
    system = Counted()
    sessions = Sessions(FileStore(str(root), rules=RULES, system=system))
    with sessions, nacre.open(root) as other:
        sessions.add_message("k", "user", "a")
        before = version(sessions)
        assert not other.is_at("k", before), "it has not opened the log, and cannot know"
        system.bytes = 0
        assert sessions.is_at("k", before)
        assert system.bytes == 0
        other.add_message("k", "assistant", "b")
        assert not sessions.is_at("k", before)
        sessions.add_message("k", "user", "c")
        assert sessions.is_at("k", version(sessions))


def test_a_log_that_cannot_be_looked_at_is_not_known(root: Path) -> None:
    class Broken(System):
        is_broken = False

        def stat(self, path: str) -> Any:
            if self.is_broken:
                raise PermissionError(path)
            return super().stat(path)

    system = Broken()
    with Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        sessions.add_message("k", "user", "a")
        before = version(sessions)
        system.is_broken = True
        assert not sessions.is_at("k", before)
        system.is_broken = False
        assert sessions.is_at("k", before)
