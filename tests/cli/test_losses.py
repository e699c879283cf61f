"""What cannot be read because a file beside the log is damaged: nobody who reads it takes it for everything."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Nacre
from tests.spoilt import FOLDERS, spoil


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
    from nacre.records import Losses  # noqa: PLC0415 - not a name for users

    assert Losses(*losses).text == text
    assert bool(Losses(*losses)) is bool(text)
