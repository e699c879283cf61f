"""Large payloads are stored once, belong to every session that has them, and go with the last of them."""

from __future__ import annotations

import errno
import json
import logging
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec.structs import replace

import nacre
from nacre.codec import encode_text, message_of
from nacre.history.session_state import RULES
from nacre.records import Rewind, Transaction
from nacre.storage.blobs import LARGEST, unused
from nacre.storage.log import Log
from nacre.storage.paths import SessionPaths
from nacre.storage.system import System
from nacre.storage.transaction import PendingCommit
from nacre.testing import Disk, Fault
from tests.paths import log_of
from tests.simulated import ROOT, fail_after, names, opened, said, say, settled

LARGE = "z" * (LARGEST + 1)
OTHER = "y" * (LARGEST + 1)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def shared(root: Path) -> list[Path]:
    return [path for path in (root / "blobs").iterdir() if "." not in path.name]


def links(root: Path, key: str) -> list[Path]:
    return list((root / "blobs").glob(f"{key}.*"))


# What is taken out


@pytest.mark.parametrize(("length", "count"), [(LARGEST, 0), (LARGEST + 1, 1)])
def test_only_a_text_over_the_limit_is_taken_out(root: Path, length: int, count: int) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "z" * length)
        assert len(links(root, "k")) == count if count else not (root / "blobs").exists()


def test_the_line_says_what_stands_where(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_full_message("k", {"role": "user", "content": [{"text": LARGE}], "note": "blob:mine"})
    line = json.loads(log_of(root, "k").read_text().splitlines()[-1])
    (payload,) = shared(root)
    assert line["blobs"] == ["/m/content/0/text"]
    assert line["m"] == {
        "role": "user",
        "content": [{"text": f"blob:{payload.name}"}],
        "extra": {"note": "blob:mine"},
    }
    assert payload.read_text() == LARGE


SPREAD = nacre.Message(
    role="assistant",
    content=[{"type": "text", "text": f"a{LARGE}"}],
    tool_calls=(nacre.ToolCall(id="1", name="write", arguments={"deep": [{"er": f"b{LARGE}"}]}),),
    media=(f"c{LARGE}", {"data": f"d{LARGE}"}),
    reasoning=f"e{LARGE}",
    extra={"a/b~c": f"f{LARGE}"},
)


def test_wherever_it_stands_it_is_put_back(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_full_message("k", SPREAD)
        assert len(links(root, "k")) == 6
        assert [replace(message, created=None) for message in sessions.get_history("k")] == [SPREAD]


def test_wherever_it_stands_it_survives_being_moved_out(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_full_message("k", SPREAD)
        for number in range(300):
            sessions.add_message("k", "user", f"{number} {'z' * 1000}")
        sessions.truncate_history("k", 1)
        sessions.save("k")
        sessions.fork("k", "fork")
        sessions.delete("k")
        assert [replace(said.message, created=None) for said in sessions.transcript("fork")][:1] == [SPREAD]


def test_a_long_message_of_short_texts_stays_in_its_line(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_full_message("k", {"role": "user", "content": ["z" * 60_000] * 3})
        assert not (root / "blobs").exists()


def test_a_place_that_is_not_there_is_passed_over(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_full_message("k", {"role": "user", "content": [LARGE]})
    log = log_of(root, "k")
    from tests.damage.lines import seal  # noqa: PLC0415 - only this test writes a line of its own

    first, last = log.read_bytes().splitlines(keepends=True)
    fields = json.loads(last)
    fields["blobs"] = ["/m/content/7", "/m/content/x", "/m/role/0", "/m/role"]
    del fields["crc"]
    log.write_bytes(first + seal(fields))
    with nacre.open(root) as sessions:
        assert str(sessions.get_history("k")[0].content).startswith("['blob:")


# Once for all, and each for itself


def test_the_same_payload_is_stored_once(root: Path) -> None:
    with nacre.open(root) as sessions:
        for key in ("a", "a", "b"):
            sessions.add_message(key, "user", LARGE)
        (payload,) = shared(root)
        assert payload.stat().st_nlink == 3
        sessions.delete("a")
        assert [message.content for message in sessions.get_history("b")] == [LARGE]
        sessions.delete("b")
        assert not list((root / "blobs").iterdir())


def test_a_fork_keeps_the_payloads_of_what_it_shares(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        sessions.fork("k", "other")
        sessions.delete("k")
        assert [message.content for message in sessions.get_history("other")] == [LARGE]
        assert sessions.verify().ok


def test_what_a_killed_writer_left_of_a_payload_is_not_for_a_fork(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        link = links(root, "k")[0]
        link.with_name(f"{link.name}.tmp").write_text(LARGE[:9])
        sessions.fork("k", "other")
    assert len(links(root, "other")) == 1


def test_a_fork_that_does_not_come_to_be_keeps_nothing(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        sessions.add_message("other", "user", "taken")
        with pytest.raises(nacre.Conflict):
            sessions.fork("k", "other")
        assert links(root, "other") == []


def test_a_payload_that_no_session_links_is_unused(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        assert list(unused(System(), str(root))) == []
        links(root, "k")[0].unlink()
        assert list(unused(System(), str(root))) == [str(shared(root)[0])]


def test_what_no_session_links_goes_with_the_next_deletion(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("a", "user", LARGE)
        sessions.add_message("b", "user", OTHER)
        links(root, "a")[0].unlink()
        sessions.delete("b")
        assert shared(root) == []


def test_what_a_session_that_never_came_to_be_linked_goes_with_the_next_of_its_name(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        link = links(root, "k")[0]
        uid = link.name.split(".")[1]
        link.rename(link.with_name(link.name.replace(uid, "f" * 32)))
        sessions.add_message("k", "user", "small")
        sessions.delete("k")
        assert not list((root / "blobs").iterdir())


# What may be wrong on disk


def test_a_lost_link_is_read_from_what_is_shared(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        links(root, "k")[0].unlink()
        assert [message.content for message in sessions.get_history("k")] == [LARGE]


def test_a_lost_payload_costs_that_text_alone_and_is_said(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with nacre.open(root) as sessions:
        sessions.add_messages("k", [{"role": "user", "content": text} for text in (LARGE, "small", OTHER)])
        for path in (root / "blobs").iterdir():
            if path.read_text() == LARGE:
                path.unlink()
        with caplog.at_level(logging.WARNING):
            texts = [str(message.content) for message in sessions.get_history("k")]
        assert texts == ["[a large payload is lost]", "small", OTHER]
        assert "session 'k': 1 large payload cannot be read" in caplog.text
        assert [finding.kind for finding in sessions.verify("k").findings] == ["blob"]


def test_a_lost_payload_of_a_moved_out_record_is_found(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_messages("k", [{"role": "user", "content": text} for text in [LARGE, *["s" * 30_000] * 30]])
        sessions.truncate_history("k", 1)
        sessions.save("k")
        assert (root / "cold").exists()
        assert sessions.verify("k").ok
        for path in (root / "blobs").iterdir():
            path.unlink()
        assert [finding.kind for finding in sessions.verify("k").findings] == ["blob"]


def test_a_rotten_payload_is_not_passed_on(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("a", "user", LARGE)
        links(root, "a")[0].write_text("r" * len(LARGE))
        sessions.add_message("b", "user", LARGE)
        assert [message.content for message in sessions.get_history("b")] == [LARGE]
        assert [message.content for message in sessions.get_history("a")] == [LARGE]


def test_a_rotten_link_is_mended_by_the_next_write(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", LARGE)
        for path in (root / "blobs").iterdir():
            path.write_text("short")
        sessions.add_message("k", "user", LARGE)
        assert [message.content for message in sessions.get_history("k")] == [LARGE, LARGE]


# Where the disk says no


def test_without_hard_links_every_session_has_its_own(disk: Disk) -> None:
    disk.fail(Fault(call="link", errno=errno.EPERM, count=None))
    sessions = opened(disk)
    say(sessions, LARGE, key="a")
    say(sessions, LARGE, key="b")
    assert [name.partition(".")[0] for name in names(disk, "blobs")] == ["a", "b"]
    assert said(sessions, "b") == [LARGE]


def test_a_link_that_fails_otherwise_refuses_the_message(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, LARGE, key="a")
    disk.fail(Fault(call="link", errno=errno.EIO))
    with pytest.raises(nacre.Refused):
        say(sessions, LARGE)
    say(sessions, "small")
    assert settled(disk) == ["small"]


def test_no_room_for_a_payload_refuses_the_message(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "small")
    disk.fail(Fault(call="write", errno=errno.ENOSPC))
    with pytest.raises(nacre.Refused):
        say(sessions, LARGE)
    assert settled(disk) == ["small"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_payload_that_cannot_be_written_leaves_nothing_behind(disk: Disk, call: str) -> None:
    sessions = opened(disk)
    say(sessions, "small")
    fail_after(disk, "open", Fault(call=call, errno=errno.ENOSPC))
    with pytest.raises(nacre.Refused):
        say(sessions, LARGE)
    assert names(disk, "blobs") == []


def test_a_payload_that_cannot_be_written_may_have_to_be_left_behind(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, "small")
    disk.fail(Fault(call="write", errno=errno.ENOSPC))
    disk.fail(Fault(call="unlink", errno=errno.EIO))
    with pytest.raises(nacre.Refused, match="No space left"):
        say(sessions, LARGE)
    say(sessions, LARGE)
    assert settled(disk) == ["small", LARGE]


def test_the_payloads_of_what_is_refused_are_not_linked(disk: Disk) -> None:
    say(opened(disk), "small")
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=RULES)
    refused = PendingCommit(Transaction((encode_text("user", LARGE), Rewind(99))))
    stored = PendingCommit(Transaction((encode_text("user", OTHER),)))
    log.writer.commit([refused, stored])
    assert isinstance(refused.error, nacre.Conflict)
    assert [name.split(".")[-1] for name in names(disk, "blobs")] == [sha256(OTHER.encode()).hexdigest()] * 2
    assert settled(disk) == ["small", OTHER]


def test_a_payload_is_durable_before_its_record(disk: Disk) -> None:
    sessions = opened(disk)
    say(sessions, LARGE)
    assert settled(disk) == [LARGE]


def test_a_writer_reads_a_record_whole(disk: Disk) -> None:
    log = Log(disk.process(), SessionPaths.of(ROOT, "k"), rules=RULES)
    say(opened(disk), LARGE)
    assert log.exists()
    record = log.writer.find(2)
    assert record is not None
    assert message_of(record, log.writer).content == LARGE


def test_a_session_from_elsewhere_brings_its_payloads(tmp_path: Path) -> None:
    document = {"key": "k", "messages": [{"role": "user", "content": LARGE}], "summary": ""}
    (tmp_path / "k.json").write_text(json.dumps(document))
    with nacre.open(tmp_path) as sessions:
        assert [message.content for message in sessions.get_history("k")] == [LARGE]
        assert sessions.verify().ok
    assert len(links(tmp_path, "k")) == 1
