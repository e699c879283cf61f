"""Sessions that move between stores: equal record by record, resumed wherever they were cut, and the end of a store."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nacre
from nacre.errors import Conflict
from nacre.history.session_state import RULES, keep
from nacre.records import View
from nacre.sessions import Sessions
from nacre.storage.file_store import FileStore
from nacre.storage.postgres.address import parse
from nacre.storage.postgres.schema import init
from nacre.storage.protocol import Backend, Prefixed
from nacre.storage.system import System
from nacre.storage.transfer import Held, Outcome, copy, copy_documents, only_in
from nacre.testing import Disk, Snapshot, images
from tests.paths import log_of
from tests.postgres.servers import PostgresServer
from tests.simulated import store as simulated_store
from tests.spoilt import spoil
from tests.transferred import contents, copied, fill, live, opened, results

KINDS = ("files", "ram", "postgres")
PAIRS = list(product(KINDS, KINDS))
Open = Callable[[str], Backend]


@pytest.fixture
def open_store(root: Path, postgres: PostgresServer) -> Iterator[Open]:
    """Opens empty stores of a kind."""
    schemas: list[str] = []
    with ExitStack() as stack:

        def make(kind: str) -> Backend:
            place = ":memory:" if kind == "ram" else str(root / uuid.uuid4().hex)
            if kind == "postgres":
                schemas.append(f"test_{uuid.uuid4().hex}")
                place = f"{postgres.url()}?schema={schemas[-1]}"
                init(parse(place))
            return stack.enter_context(opened(place))

        yield make
    for schema in schemas:
        postgres.query(f"DROP SCHEMA {schema} CASCADE")


class Instead:
    """A store as it is moved, with something else in the place of some of it."""

    def __init__(self, store: Backend, **parts: object) -> None:
        self._transfer, self._parts = store.transfer(), parts

    def __getattr__(self, name: str) -> object:
        return self._parts[name] if name in self._parts else getattr(self._transfer, name)


def bring(source: object, target: object) -> list[Outcome]:
    return list(copy(source, target, keep=keep))  # type: ignore[arg-type]


def say(store: Backend, *texts: str, key: str = "k") -> None:
    for text in texts:
        Sessions(store).add_message(key, "user", text)


def said(store: Backend, key: str = "k") -> list[object]:
    return [stored.message.content for stored in Sessions(store).transcript(key)]


# ---- equal


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_sessions_are_the_same_in_any_other_store(open_store: Open, source: str, target: str) -> None:
    here, there = open_store(source), open_store(target)
    fill(here, Random(f"{source} {target}"), steps=200)
    assert all(outcome.result == "copied" for outcome in copied(here, there))
    assert contents(there) == contents(here)
    assert live(there) == live(here)
    assert there.verify(None).ok


def test_a_thousand_sessions_come_back_from_postgresql_as_they_were(open_store: Open) -> None:
    files, database, back = map(open_store, ("files", "postgres", "files"))
    random = Random(18)
    for name in range(400):
        fill(files, random, steps=random.randrange(5, 25), name=f"{name:03}:")
    before = contents(files)
    assert len({key for key, _ in before}) > 1000
    assert {held.status for held in before.values()} == {"active", "archived", "trash"}
    assert files.verify(None).ok
    for source, target in ((files, database), (database, back)):
        assert {outcome.result for outcome in copied(source, target)} == {"copied"}
        assert contents(target) == before
        assert target.verify(None).ok
    assert live(back) == live(files)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_work_goes_on_in_the_other_store(open_store: Open, kind: str, seed: int) -> None:
    here, there, back = open_store("files"), open_store(kind), open_store("files")
    fill(here, Random(seed), steps=120)
    copied(here, there)
    fill(there, Random(seed), steps=60)
    for key in "abc":
        with suppress(nacre.SessionNotFound):
            Sessions(there).fork(key, f"{key}2")
    assert there.verify(None).ok
    assert all(outcome.ok for outcome in copied(there, back))
    assert contents(back) == contents(there)
    assert back.verify(None).ok


def test_a_fork_keeps_what_it_came_from(open_store: Open) -> None:
    files, database, back = map(open_store, ("files", "postgres", "files"))
    sessions = Sessions(files)
    say(files, "a", "b", "c")
    sessions.truncate_history("k", 1)
    sessions.save("k")
    sessions.fork("k", "two")
    say(files, "d", key="two")
    sessions.fork("two", "three")
    sessions.delete("k")
    for source, target in ((files, database), (database, back)):
        copied(source, target)
        assert said(target, "three") == ["a", "b", "c", "d"]
        Sessions(target).rewind("three", 3)
        assert [message.content for message in Sessions(target).get_history("three")] == ["a", "b"]


def test_internal_sessions_are_copied(open_store: Open) -> None:
    here, there = open_store("files"), open_store("postgres")
    Sessions(here).with_internal_keys().append("nacre:memory", "x.fact", {"text": "a"})
    assert results(copied(here, there)) == [("nacre:memory", "copied")]


# ---- more


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_new_follows(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    say(here, "b", key="other")
    assert results(copied(here, there)) == [("k", "copied"), ("other", "copied")]
    say(here, "c", "y" * 70_000)
    assert results(copied(here, there)) == [("k", "updated"), ("other", "unchanged")]
    assert contents(there) == contents(here)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_follow(open_store: Open, source: str, target: str, seed: int) -> None:
    here, there = open_store(source), open_store(target)
    random = Random(seed)
    for _ in range(5):
        fill(here, random, steps=30)
        assert all(outcome.ok for outcome in copied(here, there))
        assert contents(there) == contents(here)
        assert there.verify(None).ok


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_erased_since_is_erased_in_the_copy(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    secret = "s3cret " + "x" * 70_000
    say(here, secret, "a", "c")
    Sessions(here).truncate_history("k", 0)
    Sessions(here).save("k")
    say(here, "s3cret again")
    Sessions(here).fork("k", "two")
    copied(here, there)
    for key in ("k", "two"):
        Sessions(here).redact(key, 2)
        Sessions(here).redact(key, max(stored.n for stored in Sessions(here).transcript(key)))
    assert {outcome.result for outcome in copied(here, there)} == {"updated"}
    assert contents(there) == contents(here)
    assert "s3cret" not in repr([Sessions(there).transcript(key) for key in ("k", "two")])
    if kind == "files":
        files = [path for path in Path(there.location).rglob("*") if path.is_file()]
        assert not any(b"s3cret" in path.read_bytes() for path in files)
    assert there.verify(None).ok


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_session_is_follows(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    copied(here, there)

    def follow() -> list[str]:
        assert "updated" in [outcome.result for outcome in copied(here, there)]
        assert contents(there) == contents(here)
        return sorted(held.status for held in contents(there).values())

    here.move("k", archive=True)
    assert follow() == ["archived"]
    say(here, "b")
    copied(here, there)
    here.move_to_trash("k", None)
    assert follow() == ["trash", "trash"]
    here.restore_from_trash(here.list_trash(lambda _: "")[0].id)
    assert follow() == ["active", "archived"]
    here.move("k", archive=True)
    say(here, "c")
    assert follow() == ["active", "archived", "archived"]
    here.move_to_trash("k", None)
    copied(here, there)
    there.restore_from_trash(there.list_trash(lambda _: "")[0].id)
    assert said(there) == ["a", "b", "c"]
    assert there.verify(None).ok


def test_a_cold_file_follows_its_log_into_the_trash_and_back(open_store: Open) -> None:
    here, there = open_store("files"), open_store("files")
    say(here, *map(str, range(20)))
    Sessions(here).truncate_history("k", 1)
    Sessions(here).save("k")
    copied(here, there)
    here.move_to_trash("k", None)
    copied(here, there)
    assert contents(there) == contents(here)
    here.restore_from_trash(here.list_trash(lambda _: "")[0].id)
    copied(here, there)
    assert said(there) == list(map(str, range(20)))
    assert there.verify(None).ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_was_deleted_meanwhile_is_left_out(open_store: Open, kind: str) -> None:
    here, there = open_store(kind), open_store("files")
    say(here, "a")
    listed = list(here.transfer().each("active"))
    here.delete("k")
    late = Instead(here, each=lambda status: listed if status == "active" else [])
    assert bring(late, there.transfer()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_moves_between_the_looks_is_found_again(open_store: Open, kind: str) -> None:
    here, there = open_store(kind), open_store("files")
    say(here, "a")
    listed = list(here.transfer().each("active"))
    here.move("k", archive=True)
    late = Instead(here, each=lambda status: listed if status == "active" else [])
    assert [(one.result, one.status) for one in bring(late, there.transfer())] == [("copied", "archived")]
    assert contents(there) == contents(here)


# ---- diverged


@pytest.mark.parametrize("kind", KINDS)
def test_other_records_are_never_overwritten(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    copied(here, there)
    say(here, "b")
    say(there, "c")
    (outcome,) = copied(here, there)
    assert (outcome.result, outcome.ok) == ("conflict", False)
    assert "record 3 of session 'k' is another one" in outcome.detail
    assert said(there) == ["a", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_has_gone_on_is_left_alone(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    copied(here, there)
    say(there, "b")
    there.move("k", archive=True)
    assert results(copied(here, there)) == [("k", "newer")]
    assert (said(there), there.status("k")) == (["a", "b"], "archived")


@pytest.mark.parametrize("kind", KINDS)
def test_another_active_session_of_the_key_is_a_conflict(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    say(there, "b")
    (outcome,) = copied(here, there)
    assert (outcome.result, said(there)) == ("conflict", ["b"])
    assert "another active session 'k'" in outcome.detail


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_was_brought_back_does_not_take_the_place_of_another(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    here.move("k", archive=True)
    copied(here, there)
    here.move("k", archive=False)
    say(there, "b")
    (outcome,) = copied(here, there)
    assert (outcome.result, said(there)) == ("conflict", ["a", "b"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_one_of_them_has_lost_is_a_conflict(open_store: Open, kind: str, root: Path) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "aa", "bb", "cc")
    copied(here, there)
    rot(here, b"bb")
    (outcome,) = copied(here, there)
    assert outcome.result == "conflict"
    assert "has no record 4" in outcome.detail
    assert said(there) == ["aa", "bb", "cc"]


def rot(store: Backend, text: bytes, key: str = "k") -> None:
    """Flip a bit of a message in a log."""
    log = log_of(store.location, key)
    data = log.read_bytes()
    log.write_bytes(data.replace(b'"%b"' % text, b'"%b"' % (bytes([text[0] ^ 1]) + text[1:])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_between_the_looks_is_looked_at_again(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    copied(here, there)
    say(here, "b")

    def write_late(held: Held, view: View, **how: Any) -> None:
        if said(there) == ["a"]:
            say(there, "x")
        there.transfer().write(held, view, **how)

    (outcome,) = bring(here.transfer(), Instead(there, write=write_late))
    assert (outcome.result, said(there)) == ("conflict", ["a", "x"])
    assert "record 3 of session 'k' is another one" in outcome.detail


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_never_rests_is_a_conflict(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")
    copied(here, there)
    say(here, "b")
    tries: list[int] = []

    def write_late(held: Held, view: View, *, after: int, **how: Any) -> None:
        tries.append(after)
        there.transfer().write(held, view, after=after + 1, **how)

    (outcome,) = bring(here.transfer(), Instead(there, write=write_late))
    assert (outcome.result, tries) == ("conflict", [2] * 5)
    assert "run it again" in outcome.detail


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_that_goes_on_at_once_is_compared_as_far_as_it_was_written(open_store: Open, kind: str) -> None:
    here, there = open_store("files"), open_store(kind)
    say(here, "a")

    def write_and_go_on(held: Held, view: View, **how: Any) -> None:
        there.transfer().write(held, view, **how)
        say(there, "b")

    (outcome,) = bring(here.transfer(), Instead(there, write=write_and_go_on))
    assert (outcome.result, said(there)) == ("copied", ["a", "b"])


def test_a_log_that_is_replaced_while_it_is_moved_is_looked_at_again(open_store: Open, root: Path) -> None:
    here = open_store("files")
    say(here, *map(str, range(20)))
    waiting: list[Callable[[], object]] = []

    class Meanwhile(System):
        """Has something happen while somebody waits for the lock of the log that is to be moved."""

        def flock(self, fd: int, wait: bool) -> bool:
            if waiting and Path(f"/proc/self/fd/{fd}").readlink().suffix == ".jsonl":
                waiting.pop()()
            return super().flock(fd, wait)

    with opened(root / "target") as other:
        target = FileStore(str(root / "target"), rules=RULES, system=Meanwhile(), compact_at=1)
        copied(here, target)
        here.move("k", archive=True)

        def write_late(held: Held, view: View, **how: Any) -> None:
            if not done:
                done.append(True)
                waiting.append(lambda: replace_log(root / "target"))
            target.transfer().write(held, view, **how)

        done: list[bool] = []
        (outcome,) = bring(here.transfer(), Instead(target, write=write_late))
        assert (outcome.result, done) == ("updated", [True])
        assert contents(other) == contents(here)
        target.close()


def replace_log(root: Path) -> None:
    """Give a log another file with the same content, as every rewrite does."""
    log = log_of(root, "k")
    new = log.with_suffix(".copy")
    new.write_bytes(log.read_bytes())
    new.chmod(0o600)
    new.replace(log)


def test_a_target_that_moves_the_session_meanwhile_is_a_conflict(open_store: Open) -> None:
    here, there = open_store("files"), open_store("files")
    say(here, "a")
    copied(here, there)
    (outcome,) = bring(here.transfer(), Instead(there, read=lambda *_: None))
    assert outcome.result == "conflict"
    assert "is being moved" in outcome.detail


def test_a_copy_that_is_not_the_same_is_a_failure(open_store: Open) -> None:
    here, there = open_store("files"), open_store("files")
    say(here, "a")
    (outcome,) = bring(here.transfer(), Instead(there, write=lambda *_, **__: None))
    assert outcome.result == "failed"
    assert "is not the same" in outcome.detail


def test_a_session_that_was_deleted_under_its_forks_is_not_brought_back(open_store: Open) -> None:
    here, there = open_store("files"), open_store("postgres")
    say(here, "a")
    copied(here, there)
    Sessions(there).fork("k", "two")
    there.delete("k")
    assert results(copied(here, there)) == [("k", "conflict")]
    assert said(there, "two") == ["a"]


def test_what_only_the_target_has_is_named(open_store: Open) -> None:
    here, there = open_store("files"), open_store("postgres")
    say(here, "a")
    say(here, "b", key="gone")
    copied(here, there)
    here.delete("gone")
    assert [held.key for held in only_in(there.transfer(), here.transfer())] == ["gone"]


# ---- what went wrong


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_the_rest_of_a_damaged_session_is_copied_and_its_damage_stays_reported(open_store: Open, kind: str) -> None:
    here, there, back = open_store("files"), open_store(kind), open_store("files")
    say(here, "aa", "bb", "cc")
    rot(here, b"bb")
    for source, target in ((here, there), (there, back)):
        (outcome,) = copied(source, target)
        assert (outcome.result, said(target)) == ("copied", ["aa", "cc"])
        assert contents(target) == contents(here)
        (entry,) = (entry for entry in target.quarantine("k") if not entry.settled)
        assert (entry.kind, b"cb" in entry.text.encode()) == ("torn or rotten", True)
        assert [finding.kind for finding in target.verify("k").findings] == ["quarantine"]
    assert {outcome.result for outcome in copied(here, there)} == {"unchanged"}
    assert len([entry for entry in there.quarantine("k") if not entry.settled]) == 1


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_how_damage_was_settled_is_copied(open_store: Open, kind: str) -> None:
    here, there, back = open_store("files"), open_store(kind), open_store("files")
    say(here, "aa", "bb", "cc")
    rot(here, b"bb")
    said(here)
    copied(here, there)
    copied(there, back)
    here.discard("k", None)
    copied(here, there)
    copied(there, back)
    assert {entry.settled for store in (there, back) for entry in store.quarantine("k")} == {"discarded"}
    assert there.verify("k").ok
    assert back.verify("k").ok


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_damage_at_several_places_and_of_several_generations_keeps_its_numbers_apart(
    open_store: Open, kind: str
) -> None:
    here, there, back = open_store("files"), open_store(kind), open_store("files")
    for texts in (("aa", "bb", "cc", "dd"), ("ee", "ff")):
        say(here, *texts)
        rot(here, texts[0].encode())
        rot(here, texts[2 % len(texts)].encode())
        said(here)
        here.move("k", archive=True)
    copied(here, there)
    copied(there, back)
    found = sorted(entry.generation for entry in here.quarantine("k"))
    assert len(found) == 2
    for store in (there, back):
        unsettled = [entry for entry in store.quarantine("k") if not entry.settled]
        assert sorted(entry.generation for entry in unsettled) == found
        assert len({entry.n for entry in store.quarantine("k")}) == len(store.quarantine("k"))
        assert said(store) == ["bb", "dd", "ff"]


@pytest.mark.parametrize("folder", ["cold", "base", "blobs"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_read_is_reported(open_store: Open, root: Path, kind: str, folder: str) -> None:
    key = spoil(root / "spoilt", folder)
    there = open_store(kind)
    with opened(root / "spoilt") as here:
        found = {outcome.key: outcome for outcome in copied(here, there)}
        again = {outcome.key: outcome.result for outcome in copied(here, there)}
    if kind == "ram" and folder != "blobs":
        assert "has lost records and cannot be kept in memory" in found[key].detail
        return
    assert (found[key].result, found[key].detail, again[key]) == ("copied", "", "unchanged")
    assert "cannot be read" in found[key].lost
    if kind != "ram":
        assert "quarantine" in {finding.kind for finding in there.verify(key).findings}
        assert len([entry for entry in there.quarantine(key) if not entry.settled]) == 1


def test_records_that_were_lost_in_postgresql_are_copied_as_lost(open_store: Open, postgres: PostgresServer) -> None:
    here, there = open_store("postgres"), open_store("files")
    say(here, "a", "b", "c")
    schema = here.location.rpartition("=")[2]
    postgres.query(f"DELETE FROM {schema}.records WHERE n = 3")  # noqa: S608 - our own schema
    (outcome,) = copied(here, there)
    assert (outcome.result, said(there)) == ("copied", ["a", "c"])
    assert contents(there) == contents(here)
    assert [finding.kind for finding in there.verify("k").findings] == ["quarantine"]
    say(there, "d")
    assert [message.content for message in Sessions(there).get_history("k")] == ["a", "c", "d"]


def test_a_session_without_its_header_is_no_file(open_store: Open, postgres: PostgresServer) -> None:
    here, files, database = map(open_store, ("postgres", "files", "postgres"))
    say(here, "a", "b")
    schema = here.location.rpartition("=")[2]
    postgres.query(f"DELETE FROM {schema}.records WHERE n = 1")  # noqa: S608 - our own schema
    (outcome,) = copied(here, files)
    assert (outcome.result, said(files)) == ("failed", [])
    assert "has lost its header" in outcome.detail
    assert results(copied(here, database)) == [("k", "copied")]
    assert contents(database) == contents(here)


def test_what_is_no_session_is_reported(open_store: Open) -> None:
    here, there = open_store("files"), open_store("files")
    say(here, "a", key="empty")
    say(here, "a", key="headless")
    say(here, "a", key="other")
    say(here, "a", key="strange")
    link = log_of(here.location, "linked")
    link.symlink_to(log_of(here.location, "other"))
    log_of(here.location, "empty").write_bytes(b"")
    headless = log_of(here.location, "headless")
    headless.write_bytes(headless.read_bytes().split(b"\n", 1)[1])
    strange = log_of(here.location, "strange")
    strange.write_bytes(strange.read_bytes().replace(b'"sid":"strange"', b'"sid":"stranger"'))
    outcomes = copied(here, there)
    assert [(one.key, one.result) for one in outcomes if one.ok] == [("other", "copied")]
    details = {one.key: one.detail for one in outcomes}
    assert "is empty (0 bytes)" in details["empty"]
    assert "does not name its session" in details["headless"]
    assert "does not name its session" in details["strange"]
    assert "is a symbolic link" in details["linked"]


def test_what_is_left_of_a_lost_session_in_quarantine_is_copied(open_store: Open) -> None:
    here, database, back = map(open_store, ("files", "postgres", "files"))
    say(here, "a")
    log = log_of(here.location, "k")
    log.write_bytes(b"")
    here.repair("k")
    assert copied(here, database) == copied(database, back) == []
    assert [entry.kind for entry in back.quarantine("k")] == ["emptied"]


def test_only_the_owner_moves_sessions(open_store: Open) -> None:
    with pytest.raises(nacre.StoreError, match="only the owner"):
        Prefixed(open_store("ram"), "own:").transfer()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_documents_are_copied_unless_the_target_has_them(open_store: Open, source: str, target: str) -> None:
    here, there = open_store(source), open_store(target)
    for name in ("cursor", "other"):
        here.document(name).write(name.encode())
    there.document("other").write(b"newer")
    copy_documents(here.transfer(), there.transfer())
    assert there.transfer().documents() == {"cursor": b"cursor", "other": b"newer"}
    assert there.document("cursor").read() == b"cursor"


# ---- ids


def test_a_retry_is_known_in_the_other_store(open_store: Open) -> None:
    here, database, back = map(open_store, ("files", "postgres", "files"))
    message = [{"role": "user", "content": "a"}]
    n = Sessions(here).add_messages("k", message, id="first")
    Sessions(here).fork("k", "two")
    here.move("k", archive=True)
    for source, target in ((here, database), (database, back)):
        copied(source, target)
        assert Sessions(target).add_messages("k", message, id="first") == n
        assert Sessions(target).add_messages("two", message, id="first") == n
        with pytest.raises(Conflict):
            Sessions(target).add_messages("two", [{"role": "user", "content": "b"}], id="first")


@pytest.mark.parametrize("is_live", [False, True])
def test_an_id_that_was_used_twice_is_that_of_the_newest_record(open_store: Open, is_live: bool) -> None:
    here, there = open_store("files"), open_store("postgres")
    sessions = Sessions(here)
    first = [{"role": "user", "content": "first"}]
    sessions.add_messages("k", first, id="id")
    sessions.add_messages("k", [{"role": "user", "content": str(n)} for n in range(4100)])
    if is_live:
        copied(here, there)
    second = [{"role": "user", "content": "second"}]
    n = sessions.add_messages("k", second, id="id")
    copied(here, there)
    assert Sessions(there).add_messages("k", second, id="id") == n
    assert contents(there) == contents(here)


def test_an_id_of_an_earlier_generation_is_that_of_the_later_one(open_store: Open) -> None:
    here, there = open_store("files"), open_store("postgres")
    sessions = Sessions(here)
    sessions.add_messages("k", [{"role": "user", "content": "first"}], id="id")
    here.move("k", archive=True)
    sessions.add_messages("k", [{"role": "user", "content": str(n)} for n in range(4100)])
    second = [{"role": "user", "content": "second"}]
    n = sessions.add_messages("k", second, id="id")
    active = [held for held in here.transfer().each("active") if isinstance(held, Held)]
    bring(Instead(here, each=lambda status: active if status == "trash" else []), there.transfer())
    copied(here, there)
    assert Sessions(there).add_messages("k", second, id="id") == n
    assert contents(there) == contents(here)


# ---- cut short


def change(store: Backend) -> None:
    """What may have happened in a store since it was copied."""
    sessions = Sessions(store)
    say(store, "more", "y" * 70_000)
    sessions.redact("k", 3)
    sessions.truncate_history("k", 1)
    sessions.save("k")
    sessions.redact("two", 3)
    store.move("two", archive=True)
    say(store, "new", key="two")
    store.move_to_trash("three", None)


def test_a_power_cut_at_any_moment_leaves_each_generation_whole_or_not_at_all(open_store: Open) -> None:
    here = open_store("files")
    sessions = Sessions(here)
    say(here, "a", "s3cret", "b", "x" * 70_000)
    sessions.truncate_history("k", 1)
    sessions.save("k")
    say(here, "c")
    sessions.fork("k", "two")
    say(here, "d", key="two")
    say(here, "e", key="three")
    disk = Disk()
    before: dict[Any, Any] = {}
    for happen in (lambda _: None, change):
        happen(here)
        moments: list[Snapshot] = []
        disk.before = lambda *_: moments.append(disk.snapshot())  # noqa: B023 - called in this round
        target = simulated_store(disk.process())
        assert all(outcome.ok for outcome in copied(here, target))
        disk.before = None
        after = contents(here)
        assert contents(target) == after
        for moment in moments:
            for image in images(moment, random.Random(0), 0):
                check_cut(image, here, before, after)
        before = after


def check_cut(disk: Disk, source: Backend, before: dict[Any, Any], after: dict[Any, Any]) -> None:
    """See that everything is as it was before or as it is afterwards, and that the copy goes on from there."""
    target = simulated_store(disk.process())
    for name, found in contents(target).items():
        # Erased content goes from one file after the other.
        assert found.records in [one.records for one in (before.get(name), after[name]) if one is not None] or (
            len(found.records) == len(after[name].records)
        )
    assert [outcome.detail for outcome in copied(source, target) if not outcome.ok] == []
    assert contents(target) == after
    assert target.verify(None).ok
