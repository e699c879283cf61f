"""A sealed store refuses every write with where its sessions went, and loses none that it acknowledged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

import nacre
from nacre.errors import Conflict, Refused
from nacre.history.session_state import RULES
from nacre.opening import Move, unseal
from nacre.records import View
from nacre.sessions import Sessions
from nacre.storage.change_marks import Marks
from nacre.storage.file_store import FileStore
from nacre.storage.protocol import Backend
from nacre.storage.system import System
from nacre.storage.transfer import seal
from tests.postgres.opened import create
from tests.postgres.servers import PostgresServer
from tests.transferred import contents, copied, opened

KINDS = ("files", "ram", "postgres")
PLACE = "/elsewhere"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A store with an active session, an archived one and one in the trash."""
    place = ":memory:"
    if request.param != "ram":
        place = str(request.getfixturevalue("root" if request.param == "files" else "empty_database"))
    with opened(place) as found:
        for key in ("k", "archived", "trashed"):
            Sessions(found).add_message(key, "user", "a")
        found.move("archived", archive=True)
        found.move_to_trash("trashed", None)
        yield found


def trash_of(store: Backend) -> str:
    return store.list_trash(lambda _: "")[0].id


WRITES: dict[str, Callable[[Backend], object]] = {
    "append": lambda store: Sessions(store).add_message("k", "user", "b"),
    "update": lambda store: Sessions(store).update("k", [nacre.Truncate(0), nacre.SetMeta({"title": "T"})]),
    "create": lambda store: Sessions(store).add_message("new", "user", "b"),
    "create after an archived one": lambda store: Sessions(store).add_message("archived", "user", "b"),
    "archive": lambda store: store.move("k", archive=True),
    "unarchive": lambda store: store.move("archived", archive=False),
    "fork": lambda store: Sessions(store).fork("k", "two"),
    "delete": lambda store: store.delete("k"),
    "redact": lambda store: Sessions(store).redact("k", 2),
    "remove": lambda store: store.move_to_trash("k", None),
    "restore": lambda store: store.restore_from_trash(trash_of(store)),
    "erase": lambda store: store.erase_from_trash(trash_of(store)),
    "take over": lambda store: store.hold("k").take_over(),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_refused_with_where_the_sessions_went(store: Backend, write: str) -> None:
    before = contents(store)
    store.transfer().seal(PLACE)
    for _ in range(2):
        with pytest.raises(Refused, match=f"were moved to {PLACE}"):
            WRITES[write](store)
    assert contents(store) == before


@pytest.mark.parametrize("write", WRITES)
def test_an_unsealed_store_accepts_writes_again(store: Backend, write: str) -> None:
    transfer = store.transfer()
    transfer.seal(PLACE)
    with pytest.raises(Refused):
        WRITES[write](store)
    assert (transfer.sealed_to(), transfer.unseal(), transfer.sealed_to(), transfer.unseal()) == (
        PLACE,
        True,
        "",
        False,
    )
    WRITES[write](store)


@pytest.mark.parametrize("write", WRITES)
def test_a_process_that_wrote_before_notices(root: Path, write: str) -> None:
    with opened(root) as writer, opened(root) as other:
        for key in ("k", "archived", "trashed"):
            Sessions(writer).add_message(key, "user", "a")
        writer.move("archived", archive=True)
        writer.move_to_trash("trashed", None)
        Sessions(writer).add_message("k", "user", "b")
        other.transfer().seal(PLACE)
        for _ in range(2):
            with pytest.raises(Refused, match=PLACE):
                WRITES[write](writer)


def test_damage_is_not_settled_in_a_sealed_store(root: Path) -> None:
    with opened(root) as store:
        Sessions(store).add_message("k", "user", "aa")
        Sessions(store).add_message("k", "user", "bb")
        log = next((root / "sessions").glob("k~*.jsonl"))
        log.write_bytes(log.read_bytes().replace(b'"aa"', b'"ab"'))
        store.repair("k")
        store.transfer().seal(PLACE)
        with pytest.raises(Refused, match=PLACE):
            store.discard("k", None)


def test_damage_in_a_sealed_database_is_read_past_and_not_settled(
    empty_database: str, postgres: PostgresServer
) -> None:
    with opened(empty_database) as store:
        for text in ("aa", "bb", "cc"):
            Sessions(store).add_message("k", "user", text)
        records = f"{empty_database.rpartition('=')[2]}.records"
        postgres.query(f"""UPDATE {records} SET line = replace(line, '"aa"', '"ab"')""")  # noqa: S608 - our own schema
        assert [stored.message.content for stored in Sessions(store).transcript("k")] == ["bb", "cc"]
        postgres.query(f"""UPDATE {records} SET line = replace(line, '"bb"', '"bc"')""")  # noqa: S608 - the same
        store.transfer().seal(PLACE)
        with pytest.raises(Refused, match=PLACE):
            store.discard("k", None)
        assert [stored.message.content for stored in Sessions(store).transcript("k")] == ["cc"]
        assert len(store.quarantine("k")) == 1


def test_damage_in_a_sealed_store_is_read_past(root: Path) -> None:
    with opened(root) as store:
        for text in ("aa", "bb", "cc"):
            Sessions(store).add_message("k", "user", text)
        log = next((root / "sessions").glob("k~*.jsonl"))
        log.write_bytes(damaged := log.read_bytes().replace(b'"bb"', b'"bc"'))
        store.transfer().seal(PLACE)
        assert [stored.message.content for stored in Sessions(store).transcript("k")] == ["aa", "cc"]
        assert log.read_bytes() == damaged


def test_what_a_relaxed_store_has_acknowledged_is_flushed_after_the_seal(root: Path) -> None:
    flushed: list[int] = []

    class Counting(System):
        def fdatasync(self, fd: int) -> None:
            flushed.append(fd)

    store = FileStore(str(root), rules=RULES, durability="relaxed", system=Counting())
    Sessions(store).add_message("k", "user", "a")
    store.transfer().seal(PLACE)
    assert not flushed
    store.close()
    assert flushed


def test_a_store_that_went_elsewhere_cannot_be_finished_again(store: Backend, tmp_path: Path) -> None:
    store.transfer().seal(PLACE)
    with opened(tmp_path / "other") as other, pytest.raises(Conflict, match=f"were moved to {PLACE} already"):
        seal(store.transfer(), other.transfer())


def test_nothing_is_copied_into_a_sealed_store(store: Backend, tmp_path: Path) -> None:
    store.transfer().seal(PLACE)
    with opened(tmp_path / "other") as other, pytest.raises(Conflict, match="is sealed"):
        copied(other, store)


def test_a_sealed_store_can_be_copied(store: Backend, tmp_path: Path) -> None:
    with opened(tmp_path / "other") as other:
        seal(store.transfer(), other.transfer())
        seal(store.transfer(), other.transfer())
        assert all(outcome.ok for outcome in copied(store, other))
        assert contents(other) == contents(store)


def test_a_write_of_a_target_that_is_sealed_meanwhile_is_refused(store: Backend, tmp_path: Path) -> None:
    with opened(tmp_path / "other") as other:
        Sessions(other).add_message("new", "user", "a")
        (held,) = other.transfer().each("active")

        def write(view: View) -> None:
            store.transfer().write(held, view, after=0, erased=(), keep=lambda _: set())  # type: ignore[arg-type]

        store.transfer().seal(PLACE)
        with pytest.raises(Refused, match=PLACE):
            other.transfer().read(held, write)  # type: ignore[arg-type]


def test_marks_that_cannot_be_ended_are_removed(root: Path) -> None:
    class Full(System):
        def __init__(self) -> None:
            self.is_full = False

        def write(self, fd: int, data: bytes | memoryview) -> int:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return System.write(fd, data)

    with opened(root) as writer:
        Sessions(writer).add_message("k", "user", "a")
        system = Full()
        marks = Marks(system, str(root))
        system.is_full = True
        marks.end()
        assert not (root / "marks").exists()
        (root / "sealed").write_text(PLACE)
        with pytest.raises(Refused, match=PLACE):
            Sessions(writer).add_message("k", "user", "b")


# ---- no acknowledged write is lost


@pytest.mark.parametrize("kind", ["files", "postgres"])
def test_what_was_acknowledged_before_the_seal_is_copied_and_all_else_refused(
    root: Path, database: str, kind: str
) -> None:
    create(database)
    source, target = (str(root), database) if kind == "files" else (database, str(root))
    with nacre.open(source) as sessions:
        sessions.add_message("shared:0", "user", "first")
    # 1. Programs that write all the time.
    command = [sys.executable, "-m", "tests.writes_until_refused", source]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "ab"]
    lines: list[list[list[str]]] = [[] for _ in writers]
    under_way = [line for writer in writers for line in first_lines(writer, 40)]
    readers = [Thread(target=read_all, args=pair) for pair in zip(writers, lines, strict=True)]
    for reader in readers:
        reader.start()
    # 2. Move meanwhile.
    with Move(source, target) as move:
        list(move.copy())
        move.seal()
        assert [outcome for outcome in move.copy() if not outcome.ok] == []
    # 3. They end by themselves, since they are refused.
    for writer, reader in zip(writers, readers, strict=True):
        reader.join()
        assert writer.wait() == 0
    told = [*under_way, *(line for of in lines for line in of)]
    refusals = [line[1] for line in told if line[0] == "refused"]
    with opened(target) as there:
        name = there.location
    assert len(refusals) == 2 * 3
    assert all(f"were moved to {name}" in text for text in refusals)
    with nacre.open(target) as sessions:
        for key in {line[1] for line in told if line[0] == "stored"}:
            expected = [line[2] for line in told if line[:2] == ["stored", key]]
            found = [stored.message.content for stored in sessions.transcript(key)]
            assert sorted(str(text) for text in found if text != "first") == sorted(expected)
    # 4. And back.
    assert unseal(source)
    with nacre.open(source) as sessions:
        sessions.add_message("new", "user", "b")


def first_lines(writer: subprocess.Popen[str], count: int) -> list[list[str]]:
    assert writer.stdout is not None
    return [writer.stdout.readline().rstrip("\n").split("\t") for _ in range(count)]


def read_all(writer: subprocess.Popen[str], lines: list[list[str]]) -> None:
    assert writer.stdout is not None
    with writer.stdout:
        lines += [line.rstrip("\n").split("\t") for line in writer.stdout]


def test_a_sealed_folder_takes_no_document(tmp_path: Path) -> None:
    with nacre.open(tmp_path / "a") as sessions:
        document = sessions.document("channel")
        document.write(b"1")
        with Move(str(tmp_path / "a"), str(tmp_path / "b")) as move:
            move.seal()
        with pytest.raises(nacre.Refused, match="moved to"):
            document.write(b"2")
        assert document.read() == b"1"
