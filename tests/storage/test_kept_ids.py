"""Ids that count without limit: whatever becomes of the session, of its index, or of the process that extends it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import count, islice, pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

import nacre
from nacre.codec import encode_text
from nacre.history.session_state import RULES
from nacre.records import AppendRecord, MemoryView, Record, SetMeta, State, Transaction
from nacre.storage.file_store import FileStore
from nacre.storage.kept_ids import KeptIds
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths, make_folder
from nacre.storage.system import System
from nacre.storage.transaction import WINDOW, PendingCommit, content_of, fingerprint
from nacre.storage.view import LogView, reading
from nacre.storage.writer import LogWriter
from nacre.testing import Disk, Fault, Killed, images
from tests.damage.lines import TIME
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


def fill(sessions: nacre.Sessions, count: int) -> None:
    for _ in range(0, count, 500):
        sessions.add_messages("k", [user("-")] * 500)


def index_of(root: Path) -> Path:
    (index,) = (root / "ids").iterdir()
    return index


def assert_known(sessions: nacre.Sessions, *numbers: int) -> None:
    """The first try of each is known, and other content is refused; nothing is stored."""
    before = sessions.status("k"), sessions.snapshot("k").version
    for n in numbers or (0, MANY // 2, MANY - 1):
        assert add(sessions, n) == n + 3
    with pytest.raises(nacre.Conflict):
        sessions.add_message("k", "user", "other", id="id0")
    assert (sessions.status("k"), sessions.snapshot("k").version) == before


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


ACTS = [do_nothing, compact, archive, come_back, begin_another_generation, put_into_the_trash_and_back]


@pytest.mark.parametrize(
    ("act", "spoil"),
    [
        *((act, spoil) for act in ACTS for spoil in (keep, Path.unlink)),
        *((do_nothing, spoil) for spoil in (truncate, take_another)),
    ],
)
def test_the_first_id_is_known_whatever_becomes_of_session_and_index(
    store: Path, act: Callable[[nacre.Sessions], None], spoil: Callable[[Path], None]
) -> None:
    with nacre.open(store) as sessions:
        act(sessions)
    spoil(index_of(store))
    with nacre.open(store) as sessions:
        assert_known(sessions)
        new = sessions.add_message("k", "user", "new", id="new")
        assert sessions.add_message("k", "user", "new", id="new") == new
        assert sessions.verify().ok


def test_an_id_that_leaves_the_window_within_a_batch_is_known(tmp_path: Path) -> None:
    with nacre.Sessions(FileStore(str(tmp_path), rules=RULES, durability="relaxed")) as sessions:
        sessions.set_meta("k", keep_ids=True)
        for n in range(5000):
            add(sessions, n)
        # The index was made with the first id after the window, and now ends right before the window begins.
        first = WINDOW + 1 - WINDOW // 2 + 1
        sessions.add_messages("k", [user("more")] * (first + WINDOW - 1 - 5002))
    operation = encode_text("user", f"text {first - 3}")
    retry = PendingCommit(Transaction((operation,), id=f"id{first - 3}", print=fingerprint([content_of(operation)])))
    new = PendingCommit(Transaction((encode_text("user", "new"),) * 10))
    LogWriter(System(), SessionPaths.of(str(tmp_path), "k"), rules=RULES).commit([new, retry])
    assert (retry.number, retry.error) == (first, None)


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


UID = "0" * 32


def records(count: int) -> MemoryView:
    """Records with ids, some of them in groups."""

    def make(n: int) -> Record:
        tx = (n // 5 * 5, 3) if n % 5 < 3 else None
        return Record(v=1, n=n, t="x.a", ts=TIME, tx=tx, id=f"id{n}" if not tx or tx[0] == n else None, st=State())

    return MemoryView(make(n) for n in range(5, count))


def numbers(count: int) -> dict[str, int]:
    """What is known of them."""
    found = {record.id: record for record in records(count).all() if record.id is not None}
    return {id: record.n + 2 * (record.tx is not None) for id, record in found.items()}


def known(kept: KeptIds, view: MemoryView, *, least: int, upto: int, step: int = 1) -> dict[str, int]:
    found = {id: kept.find(id, view, least=least, upto=upto) for id in list(numbers(least))[::step]}
    return {id: seen[0] for id, seen in found.items() if seen is not None}


def test_a_flipped_bit_in_any_page_costs_nothing(tmp_path: Path) -> None:
    view, index, rng = records(1500), tmp_path / "ids" / "k", random.Random(1)
    for upto in (500, 501, 900, 1499):
        assert KeptIds(System(), str(index), UID).find("none", view, least=upto - 5, upto=upto) is None
    whole = index.read_bytes()
    assert len(whole) // PAGE > 10
    for page in range(len(whole) // PAGE):
        spoilt = bytearray(whole)
        spoilt[page * PAGE + rng.randrange(PAGE)] ^= 1 << rng.randrange(8)
        index.write_bytes(spoilt)
        assert known(KeptIds(System(), str(index), UID), view, least=1400, upto=1499) == numbers(1400)


def test_many_runs_become_one(tmp_path: Path) -> None:
    view, kept = records(3000), KeptIds(System(), str(tmp_path / "ids" / "k"), UID)
    sizes = []
    for upto in range(200, 3000, 100):
        assert known(kept, view, least=upto - 5, upto=upto, step=7).items() <= numbers(upto).items()
        sizes.append((tmp_path / "ids" / "k").stat().st_size)
    assert known(kept, view, least=2890, upto=2900) == numbers(2890)
    # It was written again a few times, and is smaller then.
    assert sum(later < size for size, later in pairwise(sizes)) == 3


@pytest.mark.parametrize("first", [104, 105, 106, 107, 108])
def test_a_group_is_in_the_index_as_a_whole(tmp_path: Path, first: int) -> None:
    view = records(300)
    kept, whole = (KeptIds(System(), str(tmp_path / "ids" / name), UID) for name in "ab")
    for upto in (first, 200):
        kept.find("none", view, least=upto - 5, upto=upto)
    assert kept.find("id105", view, least=190, upto=200) == whole.find("id105", view, least=190, upto=200)


def test_records_that_were_moved_out_before_they_were_in_the_index_are_found(tmp_path: Path) -> None:
    kept = KeptIds(System(), str(tmp_path / "ids" / "k"), UID)
    whole = records(1000)

    class Compacted(MemoryView):
        """What is left in the log is not all."""

        def back(self, n: int) -> Iterator[Record]:
            return (record for record in super().back(n) if record.n % 2)

    assert known(kept, whole, least=300, upto=310, step=20).items() <= numbers(300).items()
    view = Compacted(whole.all())
    view.find = whole.find  # type: ignore[method-assign]
    assert known(kept, view, least=900, upto=950) == numbers(900)


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 7 * PAGE])
def test_an_index_that_was_cut_is_written_again(store: Path, view: LogView, size: int) -> None:
    index = index_of(store)
    index.write_bytes(index.read_bytes()[:size])
    found = KeptIds(System(), str(index), view.uid).find("id0", view, least=view.n, upto=view.n)
    assert found is not None
    assert found[0] == 3


def test_an_index_of_another_past_is_written_again(store: Path, many: Path) -> None:
    with nacre.open(store) as sessions:
        fill(sessions, 3 * WINDOW)
        add(sessions, MANY)
    # The log as it was before, and then goes on otherwise: the index has records that it never had.
    shutil.copytree(many / "sessions", store / "sessions", dirs_exist_ok=True)
    with nacre.open(store) as sessions:
        sessions.set_meta("k", keep_ids=None)
        number = sessions.add_message("k", "user", "new", id="new")
        fill(sessions, 4 * WINDOW)
        sessions.set_meta("k", keep_ids=True)
        assert sessions.add_message("k", "user", "new", id="new") == number
        assert_known(sessions)


def test_an_index_that_knows_more_than_the_log_is_written_again(store: Path, many: Path) -> None:
    with nacre.open(store) as sessions:
        fill(sessions, 3 * WINDOW)
        add(sessions, MANY)
    shutil.copytree(many / "sessions", store / "sessions", dirs_exist_ok=True)
    with nacre.open(store) as sessions:
        assert_known(sessions)


def test_a_page_that_is_full_goes_on_with_the_next(tmp_path: Path) -> None:
    def page_of(id: str) -> int:
        return int.from_bytes(blake2b(id.encode(), digest_size=8).digest()) % 5

    # So many that the table has five pages, all of them for the last one.
    ids = list(islice((f"id{n}" for n in count() if page_of(f"id{n}") == 4), 400))
    view = MemoryView(Record(v=1, n=n, t="x.a", ts=TIME, id=id, st=State()) for n, id in enumerate(ids, 1))
    kept = KeptIds(System(), str(tmp_path / "ids" / "k"), UID)
    found = [kept.find(id, view, least=400, upto=400) for id in ids]
    assert [seen[0] for seen in found if seen is not None] == list(range(1, 401))
    assert kept.find("none", view, least=400, upto=400) is None


def test_two_ids_with_one_hash_are_told_apart_by_their_records(tmp_path: Path) -> None:
    with nacre.open(tmp_path) as sessions:
        sessions.set_meta("k", keep_ids=True)
        number = add(sessions, 0)
        with reading(System(), SessionPaths.of(str(tmp_path), "k")) as found:
            assert found.view is not None
            kept = KeptIds(System(), str(tmp_path / "ids" / "k"), found.view.uid)
            assert kept.find("id0", found.view, least=3, upto=3) is not None
            # The record says that it is another's, as if the hashes were equal.
            others = [replace(record, id=record.id and "other") for record in found.view.all()]
            assert kept.find("id0", MemoryView(others), least=0, upto=3) is None
            assert number == 3


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
    at, stored = disk.snapshot(), opened(disk).snapshot("k").n
    for nth in range(1, 100):
        disk = Disk(at=at)
        sessions = opened(disk)
        disk.fail(Fault(call="*", nth=nth, mode="kill"))
        try:
            assert add(sessions, 0) == 3
        except Killed:
            disk.heal()
            again = opened(disk)
            assert {n: add(again, n) for n in NUMBERS} == NUMBERS
            assert again.snapshot("k").n == stored
        else:
            break
    assert 5 < nth < 99


@pytest.mark.parametrize("extensions", [0, 1, 8])
def test_power_cut_at_any_call_while_it_is_written_loses_no_id(extensions: int) -> None:
    view, disk = records(1000), Disk()
    make_folder(disk.process(), ROOT)
    for upto in range(100, 100 + 50 * extensions, 50):
        KeptIds(disk.process(), f"{ROOT}/ids/k", UID).find("none", view, least=upto - 5, upto=upto)
    at, tried = disk.snapshot(), 0
    for nth in range(1, 100):
        disk = Disk(at=at)
        kept = KeptIds(disk.process(), f"{ROOT}/ids/k", UID)
        disk.fail(Fault(call="*", nth=nth, mode="kill"))
        try:
            kept.find("none", view, least=590, upto=600)
        except Killed:
            pass
        else:
            break
        for image in images(disk.snapshot(), random.Random(nth), 20):
            tried += 1
            again = KeptIds(image.process(), f"{ROOT}/ids/k", UID)
            assert known(again, view, least=590, upto=600, step=9) == dict(list(numbers(590).items())[::9])
    assert tried > 10
    assert nth < 99


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


def note(text: str, id: str | None = None, times: int = 1) -> PendingCommit:
    operations = (AppendRecord("x.note", text),) * times
    return PendingCommit(Transaction(operations, id=id, print=fingerprint(map(content_of, operations))))


def keeping(tmp_path: Path) -> Log:
    """A log whose session keeps its ids."""
    log = Log(System(), SessionPaths.of(str(tmp_path), "k"), rules=RULES)
    (tmp_path / "sessions").mkdir()
    log.writer.commit([PendingCommit(Transaction((SetMeta({"keep_ids": True}),)))])
    return log


def test_a_retry_in_one_batch_with_more_than_the_window_is_not_stored_again(tmp_path: Path) -> None:
    log = keeping(tmp_path)
    log.writer.commit([note("before", "a")])
    batch = [note("in it", "b"), note("much", times=WINDOW + 1), note("before", "a"), note("in it", "b")]
    log.writer.commit(batch)
    assert [commit.number for commit in batch] == [4, WINDOW + 5, 3, 4]


def test_a_meta_that_was_not_stored_says_nothing_of_ids() -> None:
    disk = Disk()
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=RULES)
    opened(disk).add_messages("k", [user("-")] * WINDOW)
    disk.fail(Fault(call="write"))
    with pytest.raises(nacre.Refused):
        log.writer.commit([PendingCommit(Transaction((SetMeta({"a": 1}),))), note("x", "b")])
    log.writer.commit([PendingCommit(Transaction((SetMeta({"keep_ids": True}),)))])
    log.writer.commit([note("first", "a")])
    log.writer.commit([note("much", times=WINDOW + 1)])
    again = note("first", "a")
    log.writer.commit([again])
    assert again.number == WINDOW + 3
