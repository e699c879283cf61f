"""What cannot be read because a file beside the log is damaged: nobody who reads it takes it for everything."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import nacre as library
from tests.cli.conftest import Nacre

FOLDERS = ["cold", "base", "blobs"]


def spoil(root: Path, folder: str) -> str:
    """Make a session of which a file beside the log is damaged; returns its key."""
    with library.open(root) as sessions:
        sessions.add_message("k", "user", "x" * 70_000)
        for at in range(3000):
            sessions.add_message("k", "user", f"message {at} " * 9)
        if folder == "cold":
            sessions.truncate_history("k", 1)
            sessions.save("k")
        elif folder == "base":
            sessions.fork("k", "child")
    for path in (root / folder).iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        if folder != "blobs" or path.stat().st_nlink > 1:
            break
    return "child" if folder == "base" else "k"


@pytest.mark.parametrize("folder", FOLDERS)
def test_who_reads_everything_is_told_once_until_it_is_settled(
    root: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = spoil(root, folder)
    with caplog.at_level(logging.WARNING), library.open(root) as sessions:
        for _ in range(3):
            sessions.transcript(key)
        (said,) = caplog.messages
        assert said.startswith(f"session {key!r}: ")
        assert said.endswith(f"cannot be read; `nacre sessions verify {key}` shows where")
        sessions.repair(key)
        sessions.discard(key)
    caplog.clear()
    with caplog.at_level(logging.WARNING), library.open(root) as sessions:
        sessions.transcript(key)
    assert caplog.messages == []


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(
    "words", [("show", "--all"), ("show", "--all", "--raw"), ("export", "--format", "json"), ("export", "--all")]
)
def test_a_reading_that_is_not_whole_says_so(nacre: Nacre, folder: str, words: tuple[str, ...]) -> None:
    key = spoil(nacre.root, folder)
    verb, *options = words
    done = nacre("s", verb, key, *options)
    if folder == "blobs" and "--raw" in words:
        # Its lines only name the payloads.
        assert (done.code, done.err) == (0, "")
        return
    assert done.code == (6 if verb == "export" else 0)
    assert done.err.count("cannot be read") == 1
    assert f"nacre sessions verify {key}" in done.err
    assert ("payload" if folder == "blobs" else "record") in done.err


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_repair_of_what_cannot_be_repaired_says_that_and_nothing_else(nacre: Nacre, folder: str) -> None:
    key = spoil(nacre.root, folder)
    looked = nacre("s", "repair", key, "--dry-run").out
    assert "noted in quarantine; what is lost cannot be restored" in looked
    assert "moved to quarantine" not in looked
    done = nacre("s", "repair", key)
    assert done.code == 7
    assert "noted in quarantine" in done.out
    assert f"nacre sessions quarantine show {key}" in done.out
    assert "moved to quarantine" not in done.out
    assert "every byte" not in done.out
    again = nacre("s", "repair", key)
    assert again.code == 0
    assert f"nacre sessions quarantine show {key}" in again.out
    assert nacre("s", "quarantine", "discard", key, "--yes").code == 0
    assert nacre("s", "verify", key).code == 0
    assert nacre("s", "repair", key).out == f"{key}: no damage, nothing was done\n"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_reading_for_programs_says_so_too(nacre: Nacre, folder: str) -> None:
    key = spoil(nacre.root, folder)
    found = nacre("s", "show", key, "--all", "--json").json["unreadable"]
    assert found["text"].endswith("cannot be read")
    assert found["command"] == f"nacre sessions verify {key}"
    assert bool(found["payloads"]) is (folder == "blobs")


def test_a_reading_that_is_whole_says_nothing(nacre: Nacre) -> None:
    nacre.fill("one")
    assert nacre("s", "show", "one", "--all", "--json").json["unreadable"] is None
    done = nacre("s", "export", "one", "--all")
    assert (done.code, done.err) == (0, "")


def test_a_lost_payload_is_shown_as_a_sentence(nacre: Nacre) -> None:
    key = spoil(nacre.root, "blobs")
    shown = nacre("s", "show", key, "--all").out
    assert "[a large payload is lost]" in shown
    assert "blob:" not in shown


@pytest.mark.parametrize(
    ("losses", "text"),
    [
        ((0, 0, False), ""),
        ((1, 0, False), "1 record cannot be read"),
        ((1200, 1, False), "1,200 records and 1 large payload cannot be read"),
        ((3, 0, True), "at least 3 records cannot be read"),
        ((0, 2, True), "some records and 2 large payloads cannot be read"),
    ],
)
def test_losses_are_a_sentence(losses: tuple[int, int, bool], text: str) -> None:
    from nacre.entries import Losses  # noqa: PLC0415 - not a name for users

    assert Losses(*losses).text == text
    assert bool(Losses(*losses)) is bool(text)
