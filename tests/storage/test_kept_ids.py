"""Ids that count without limit: whatever becomes of the session, of its index, or of the process that extends it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.records import MemoryView
from nacre.storage.file_store import FileStore
from nacre.storage.kept_ids import KeptIds
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System
from nacre.storage.transaction import WINDOW
from nacre.storage.view import LogView, reading
from nacre.testing import Disk, Fault, Killed, images
from tests.simulated import ROOT, opened

PAGE = 4096
MANY = 20_000


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def add(sessions: nacre.Sessions, n: int, key: str = "k") -> int:
    return sessions.add_message(key, "user", f"text {n}", id=f"id{n}")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session with many ids, which are kept; its index was made while it was written."""
    root = tmp_path_factory.mktemp("many") / "store"
    with nacre.Sessions(FileStore(str(root), rules=RULES, durability="relaxed")) as sessions:
        sessions.set_meta("k", keep_ids=True)
        for n in range(MANY):
            add(sessions, n)
        # In the middle of it, and at its ends.
        assert [add(sessions, n) for n in (0, MANY // 2, MANY - 1)] == [3, MANY // 2 + 3, MANY + 2]
    return root


@pytest.fixture
def store(many: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(many, tmp_path / "store"))


def index_of(root: Path) -> Path:
    (index,) = (root / "ids").iterdir()
    return index


def assert_known(sessions: nacre.Sessions, *numbers: int) -> None:
    """The first try of each is known, and other content is refused; nothing is stored."""
    before = len(sessions.transcript("k"))
    for n in numbers or (0, 1, MANY // 2, MANY - 1):
        assert add(sessions, n) == n + 3
        with pytest.raises(nacre.Conflict):
            sessions.add_message("k", "user", "other", id=f"id{n}")
    assert len(sessions.transcript("k")) == before


def do_nothing(sessions: nacre.Sessions) -> None:
    """Only open it again."""


def compact(sessions: nacre.Sessions) -> None:
    sessions.truncate_history("k", 2)
    sessions.save("k")


def archive(sessions: nacre.Sessions) -> None:
    sessions.archive("k")


def come_back(sessions: nacre.Sessions) -> None:
    sessions.archive("k")
    sessions.unarchive("k")


def begin_another_generation(sessions: nacre.Sessions) -> None:
    compact(sessions)
    sessions.archive("k")
    sessions.add_message("k", "user", "another")
    sessions.archive("k")
    sessions.add_message("k", "user", "and another")


def put_into_the_trash_and_back(sessions: nacre.Sessions) -> None:
    sessions.move_to_trash("k")
    sessions.restore_from_trash(sessions.list_trash()[0].id)


def keep(_: Path) -> None:
    """Leave the index as it is."""


def truncate(index: Path) -> None:
    with index.open("r+b") as file:
        file.truncate(index.stat().st_size - PAGE // 2)


def take_another(index: Path) -> None:
    index.write_bytes(index.read_bytes().replace(b"nacreid1", b"nacreid2"))


@pytest.mark.parametrize("spoil", [keep, Path.unlink, truncate, take_another])
@pytest.mark.parametrize(
    "act", [do_nothing, compact, archive, come_back, begin_another_generation, put_into_the_trash_and_back]
)
def test_the_first_id_is_known_whatever_becomes_of_session_and_index(
    store: Path, act: Callable[[nacre.Sessions], None], spoil: Callable[[Path], None]
) -> None:
    with nacre.open(store) as sessions:
        act(sessions)
    spoil(index_of(store))
    with nacre.open(store) as sessions:
        assert_known(sessions)
        assert sessions.verify().ok


def test_the_ids_of_a_fork_s_past_are_known(store: Path) -> None:
    with nacre.open(store) as sessions:
        sessions.fork("k", "fork")
        assert [add(sessions, n, "fork") for n in (0, MANY - 1)] == [3, MANY + 2]
        assert len(list((store / "ids").iterdir())) == 2
        sessions.delete("k")
        assert add(sessions, 0, "fork") == 3
        assert len(list((store / "ids").iterdir())) == 1


def test_a_session_that_is_deleted_leaves_no_index(store: Path) -> None:
    with nacre.open(store) as sessions:
        assert sessions.disk_usage(["k"]).folders["ids"] == index_of(store).stat().st_size
        sessions.move_to_trash("k")
        sessions.erase_from_trash(sessions.list_trash()[0].id)
        assert list((store / "ids").iterdir()) == []
        sessions.set_meta("k", keep_ids=True)
        assert add(sessions, 0) == 3


def test_who_does_not_ask_pays_nothing_and_ids_are_forgotten(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        assert add(sessions, 0) == 2
        sessions.add_messages("k", [user("-")] * WINDOW)
        assert add(sessions, 0) == WINDOW + 3
        assert not (tmp_path / "ids").exists()
        # Who asks late knows the last that was stored under an id.
        sessions.add_messages("k", [user("-")] * WINDOW)
        sessions.set_meta("k", keep_ids=True)
        assert add(sessions, 0) == WINDOW + 3
        sessions.set_meta("k", keep_ids=None)
        assert add(sessions, 0) == 2 * WINDOW + 6


@pytest.fixture
def view(store: Path) -> Iterator[LogView]:
    with reading(System(), SessionPaths.of(str(store), "k")) as found:
        assert found.view is not None
        yield found.view


def test_a_flipped_bit_in_any_page_costs_nothing(store: Path, view: LogView) -> None:
    index, rng = index_of(store), random.Random(1)
    whole = index.read_bytes()
    for page in range(len(whole) // PAGE):
        spoilt = bytearray(whole)
        spoilt[page * PAGE + rng.randrange(PAGE)] ^= 1 << rng.randrange(8)
        index.write_bytes(spoilt)
        kept = KeptIds(System(), str(index), view.uid)
        for n in (0, rng.randrange(MANY - WINDOW)):
            found = kept.find(f"id{n}", view, least=view.n - WINDOW, upto=view.n)
            assert found is not None
            assert found[0] == n + 3
        assert kept.find("none", view, least=view.n - WINDOW, upto=view.n) is None


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 7 * PAGE])
def test_an_index_that_was_cut_is_written_again(store: Path, view: LogView, size: int) -> None:
    index = index_of(store)
    index.write_bytes(index.read_bytes()[:size])
    found = KeptIds(System(), str(index), view.uid).find("id0", view, least=view.n, upto=view.n)
    assert found is not None
    assert found[0] == 3


def test_an_index_of_another_past_is_written_again(store: Path, many: Path) -> None:
    with nacre.open(store) as sessions:
        sessions.add_messages("k", [user("-")] * 3 * WINDOW)
        add(sessions, MANY)
    # The log as it was before, and then goes on otherwise: the index has records that it never had.
    shutil.copytree(many / "sessions", store / "sessions", dirs_exist_ok=True)
    with nacre.open(store) as sessions:
        assert_known(sessions)
        number = sessions.add_message("k", "user", "new", id="new")
        sessions.add_messages("k", [user("-")] * 4 * WINDOW)
        assert sessions.add_message("k", "user", "new", id="new") == number


def test_two_ids_with_one_hash_are_told_apart_by_their_records(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.set_meta("k", keep_ids=True)
        number = add(sessions, 0)
        with reading(System(), SessionPaths.of(str(tmp_path), "k")) as found:
            assert found.view is not None
            kept = KeptIds(System(), str(tmp_path / "ids" / "k"), found.view.uid)
            assert kept.find("id0", found.view, least=3, upto=3) is not None
            # The record says that it is another's, as if the hashes were equal.
            others = MemoryView(record for record in found.view.all())
            others._records[-1] = nacre.records.Record(v=1, n=number, t="x.a", ts="", id="other", st=found.view.state)
            assert kept.find("id0", others, least=0, upto=3) is None


def test_an_id_whose_record_is_lost_is_not_stored_again(store: Path, view: LogView) -> None:
    kept = KeptIds(System(), str(index_of(store)), view.uid)
    lost = MemoryView(record for record in view.all() if record.n != 3)
    found = kept.find("id0", lost, least=0, upto=view.n)
    assert found is not None
    assert found[0] == 3


# ---- crashes


def grown(disk: Disk) -> None:
    """A session on a simulated disk whose ids have left the window."""
    sessions = opened(disk)
    sessions.set_meta("k", keep_ids=True)
    for n in range(5):
        add(sessions, n)
    sessions.add_messages("k", [user("-")] * (WINDOW + 10))


def extended(disk: Disk) -> None:
    """The same, with an index that does not have all of them."""
    grown(disk)
    sessions = opened(disk)
    assert add(sessions, 0) == 3
    for n in range(5, 10):
        add(sessions, n)
    sessions.add_messages("k", [user("-")] * (WINDOW + 10))


NUMBERS = {0: 3, 4: 7}


@pytest.mark.parametrize("prepare", [grown, extended])
def test_killed_at_any_call_while_the_index_is_written_stores_nothing_twice(prepare: Callable[[Disk], None]) -> None:
    disk = Disk()
    prepare(disk)
    at, stored = disk.snapshot(), len(opened(disk).transcript("k"))
    for nth in range(1, 100):
        disk = Disk(at=at)
        sessions = opened(disk)
        disk.fail(Fault(call="*", nth=nth, mode="kill"))
        try:
            assert add(sessions, 0) == 3
        except Killed:
            pass
        else:
            break
        for image in [disk, *images(disk.snapshot(), random.Random(nth), 3)]:
            image.heal()
            again = opened(image)
            assert {n: add(again, n) for n in NUMBERS} == NUMBERS
            assert len(again.transcript("k")) == stored
    assert 5 < nth < 99


@pytest.mark.parametrize("call", ["open", "write", "fdatasync", "fsync", "rename", "mkdir"])
@pytest.mark.parametrize("prepare", [grown, extended])
def test_an_index_that_cannot_be_written_refuses_only_what_needs_it(prepare: Callable[[Disk], None], call: str) -> None:
    disk = Disk()
    prepare(disk)
    sessions = opened(disk)
    disk.before = lambda made, arguments: planned(disk, made, arguments, call)
    try:
        assert add(sessions, 0) == 3
    except nacre.Refused:
        sessions.add_message("k", "user", "without an id")
    disk.before = None
    disk.heal()
    assert {n: add(sessions, n) for n in NUMBERS} == NUMBERS
    assert {n: add(opened(disk), n) for n in NUMBERS} == NUMBERS


def planned(disk: Disk, made: str, arguments: tuple[object, ...], call: str) -> None:
    """Let the first such call for the index fail."""
    if made == call and any(f"{ROOT}/ids" in str(argument) for argument in arguments):
        disk.before = None
        disk.fail(Fault(call=call, nth=1))


def test_a_relaxed_log_is_flushed_before_its_index_depends_on_it() -> None:
    disk = Disk()
    sessions = opened(disk, durability="relaxed")
    sessions.set_meta("k", keep_ids=True)
    for n in range(5):
        add(sessions, n)
    sessions.add_messages("k", [user("-")] * (WINDOW + 10))
    assert add(sessions, 0) == 3
    for image in images(disk.snapshot(), random.Random(1), 20):
        again = opened(image)
        assert {n: add(again, n) for n in NUMBERS} == NUMBERS


def test_a_relaxed_log_that_cannot_be_flushed_has_no_index_yet() -> None:
    disk = Disk()
    sessions = opened(disk, durability="relaxed")
    sessions.set_meta("k", keep_ids=True)
    add(sessions, 0)
    sessions.add_messages("k", [user("-")] * (WINDOW + 10))
    disk.fail(Fault(call="fdatasync"))
    with pytest.raises(nacre.Refused):
        add(sessions, 0)
    assert add(sessions, 0) == 3
