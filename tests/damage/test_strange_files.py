"""What stands where the store or a log should be: links, pipes, directories, other people's files, closed doors."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import nacre
from tests.damage.stores import KEY, write

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away and root up")

# Everything is imported and used once while still root: later the interpreter's own files may be out of reach.
AS_NOBODY = """
import hashlib, json, os, sys, tempfile, nacre, nacre.legacy.migration
with tempfile.TemporaryDirectory() as place, nacre.open(place + "/warm") as sessions:
    sessions.add_message("a", "user", "b"); sessions.get_history("a"); sessions.verify(); sessions.delete("a")
    try: sessions.get_history("")
    except nacre.InvalidKey: pass
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
def attempt(act):
    try:
        with nacre.open(sys.argv[1]) as sessions:
            return repr(act(sessions))
    except nacre.StoreError as error:
        return type(error).__name__
print(json.dumps({
    "read": attempt(lambda sessions: [message.content for message in sessions.get_history("demo")]),
    "transcript": attempt(lambda sessions: [stored.message.content for stored in sessions.transcript("demo")]),
    "wrote": attempt(lambda sessions: sessions.add_message("demo", "user", "more")),
    "new": attempt(lambda sessions: sessions.add_message("another", "user", "more")),
    "deleted": attempt(lambda sessions: sessions.delete("demo")),
}))
"""


def as_nobody(root: Path) -> dict[str, str]:
    """What somebody without rights is answered, by the name of the error or the value."""
    run = subprocess.run([sys.executable, "-c", AS_NOBODY, root], check=True, capture_output=True, text=True)
    answers: dict[str, str] = json.loads(run.stdout)
    return answers


def give_to_nobody(root: Path) -> None:
    """Hand the store over, with a way to reach it."""
    for path in [root, *root.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    root.parent.chmod(0o755)


def put_symlink(log: Path) -> None:
    elsewhere = log.parent.parent / "elsewhere.jsonl"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)


def put_dangling_symlink(log: Path) -> None:
    log.unlink()
    log.symlink_to(log.parent.parent / "made-through-the-link")


def put_pipe(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def put_directory(log: Path) -> None:
    log.unlink()
    log.mkdir()


def put_hard_link(log: Path) -> None:
    os.link(log, log.parent.parent / "second-name")


STRANGE = [put_symlink, put_dangling_symlink, put_pipe, put_directory]


@pytest.mark.parametrize("put", STRANGE)
def test_what_is_no_plain_file_is_neither_written_nor_read_as_empty(root: Path, put: Callable[[Path], None]) -> None:
    put(write(root, ["one"]))
    with nacre.open(root) as sessions:
        with pytest.raises(nacre.StoreError):
            sessions.add_message(KEY, "user", "through")
        with pytest.raises(nacre.StoreError):
            sessions.get_history(KEY)
        with pytest.raises(nacre.StoreError):
            sessions.transcript(KEY)
    assert not (root / "made-through-the-link").exists()


@pytest.mark.parametrize("put", STRANGE)
def test_a_strange_file_is_found_by_verify_and_does_not_stop_the_rest(root: Path, put: Callable[[Path], None]) -> None:
    put(write(root, ["one"]))
    with nacre.open(root) as sessions:
        sessions.add_message("fine", "user", "here")
        assert "fine" in [info.key for info in sessions.list()]
        report = sessions.verify()
        assert not report.ok
        assert "fine" not in [finding.key for finding in report.findings]


def test_a_symlinked_log_is_never_followed_by_delete(root: Path) -> None:
    log = write(root, ["one"])
    put_symlink(log)
    elsewhere = root / "elsewhere.jsonl"
    content = elsewhere.read_bytes()
    with nacre.open(root) as sessions, contextlib.suppress(nacre.StoreError):
        sessions.delete(KEY)
    assert elsewhere.read_bytes() == content


def test_a_store_that_is_a_file_is_an_error(root: Path) -> None:
    root.write_bytes(b"not a directory")
    with pytest.raises(nacre.StoreError):
        nacre.open(root).add_message(KEY, "user", "x")
    assert root.read_bytes() == b"not a directory"


def test_a_store_that_is_a_symlink_is_an_error(root: Path) -> None:
    target = root.with_name("target")
    target.mkdir(mode=0o700)
    root.symlink_to(target)
    with pytest.raises(nacre.StoreError):
        nacre.open(root).add_message(KEY, "user", "x")
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["sessions", "archive", "quarantine"])
def test_a_symlink_inside_the_store_does_not_lead_out_of_it(root: Path, name: str) -> None:
    target = root.with_name("target")
    target.mkdir(mode=0o700)
    log = write(root, ["one"])
    shutil.rmtree(root / name, ignore_errors=True)
    (root / name).symlink_to(target)
    if log.exists():
        log.write_bytes(log.read_bytes() + b"torn")
    with contextlib.suppress(nacre.StoreError), nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "x")
        sessions.archive(KEY)
    assert list(target.iterdir()) == []


@needs_root
def test_a_store_of_another_user_is_an_error(root: Path) -> None:
    root.mkdir(mode=0o700)
    os.chown(root, NOBODY, NOBODY)
    with pytest.raises(nacre.StoreError):
        nacre.open(root).add_message(KEY, "user", "x")
    assert list(root.iterdir()) == []


@needs_root
def test_a_log_of_another_user_is_an_error(root: Path) -> None:
    log = write(root, ["one"])
    os.chown(log, NOBODY, NOBODY)
    content = log.read_bytes()
    with nacre.open(root) as sessions, pytest.raises(nacre.StoreError):
        sessions.add_message(KEY, "user", "x")
    assert log.read_bytes() == content


@needs_root
def test_a_read_only_directory_refuses_new_sessions_and_is_still_read(root: Path) -> None:
    write(root, ["one"])
    give_to_nobody(root)
    for directory in [root, *filter(Path.is_dir, root.rglob("*"))]:
        directory.chmod(0o500)
    answers = as_nobody(root)
    assert answers["read"] == answers["transcript"] == "['one']"
    assert answers["new"] == "Refused"


@needs_root
def test_a_read_only_log_is_read_and_refuses_to_be_written(root: Path) -> None:
    log = write(root, ["one"])
    give_to_nobody(root)
    log.chmod(0o400)
    content = log.read_bytes()
    answers = as_nobody(root)
    assert answers["read"] == "['one']"
    assert answers["wrote"] == "Refused"
    assert answers["new"].isdigit()
    assert not log.exists() or log.read_bytes() == content


@needs_root
@pytest.mark.parametrize("place", ["log", "sessions"])
def test_what_cannot_be_read_is_an_error_and_never_empty(root: Path, place: str) -> None:
    log = write(root, ["one"])
    give_to_nobody(root)
    (log if place == "log" else log.parent).chmod(0o000)
    answers = as_nobody(root)
    assert not answers["read"].startswith("[")
    assert not answers["transcript"].startswith("[")
    assert not answers["wrote"].isdigit()
    (log if place == "log" else log.parent).chmod(0o700)
    assert b"one" in log.read_bytes()


@needs_root
def test_a_store_that_may_not_be_entered_is_an_error_for_every_call(root: Path) -> None:
    write(root, ["one"])
    root.parent.chmod(0o755)
    assert all(answer[:1].isupper() for answer in as_nobody(root).values())


def test_what_is_made_is_private_whatever_the_umask(root: Path) -> None:
    before = os.umask(0)
    try:
        log = write(root, ["one"])
        log.write_bytes(log.read_bytes() + b"torn")
        with nacre.open(root) as sessions:
            sessions.add_message(KEY, "user", "two")
            sessions.archive(KEY)
    finally:
        os.umask(before)
    assert root.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in root.rglob("*")} == {0}


def test_a_directory_that_was_there_keeps_its_mode(root: Path) -> None:
    root.mkdir()
    root.chmod(0o755)
    log = write(root, ["one"])
    assert root.stat().st_mode & 0o777 == 0o755
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


def test_files_of_other_people_in_the_store_are_left_alone(root: Path) -> None:
    log = write(root, ["one"])
    strangers = [log.parent / "notes.txt", log.parent / ".hidden", root / "README", log.parent / "upper CASE.jsonl.bak"]
    for stranger in strangers:
        stranger.write_bytes(b"mine")
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "two")
        assert [info.key for info in sessions.list()] == [KEY]
        sessions.delete(KEY)
    assert [stranger.read_bytes() for stranger in strangers] == [b"mine"] * 4


def test_a_log_replaced_while_open_is_noticed(root: Path) -> None:
    log = write(root, ["one"])
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "two")
        shutil.copy(log, log.with_suffix(".copy"))
        log.with_suffix(".copy").rename(log)
        sessions.add_message(KEY, "user", "three")
        assert [stored.message.content for stored in sessions.transcript(KEY)] == ["one", "two", "three"]
