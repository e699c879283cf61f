"""nacre sessions verify, repair, compact, du, gc and migrate."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Nacre
from tests.paths import log_of


def test_damage_is_exit_6_and_nothing_is_changed(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre.damage("one")
    before = nacre.files()
    result = nacre("s", "verify", "--json")
    assert (result.code, result.json["ok"], result.json["sessions"]) == (6, False, 2)
    assert {finding["key"] for finding in result.json["findings"]} == {"one"}
    assert nacre.files() == before


def test_one_session_is_verified_alone(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre.damage("one")
    assert nacre("s", "verify", "two").code == 0
    assert nacre("s", "verify", "two", "one").code == 6


def test_a_log_that_cannot_be_listed_is_found_too(nacre: Nacre) -> None:
    nacre.fill("one")
    log_of(nacre.root, "two").write_bytes(b"nothing that we wrote\n")
    result = nacre("s", "verify", "--json")
    assert result.code == 6
    assert [(finding["key"], finding["kind"]) for finding in result.json["findings"]] == [("two", "stranger")]


def test_quiet_says_nothing_where_nothing_is_wrong(nacre: Nacre) -> None:
    nacre.fill("one")
    assert nacre("s", "verify", "--quiet") == (0, "", "")


def test_repair_prints_a_receipt_and_is_exit_7_where_something_was_lost(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre.damage("one")
    looked = nacre("s", "repair", "one", "--dry-run", "--json")
    assert (looked.code, looked.json["results"][0]["status"]) == (0, "repaired")
    result = nacre("s", "repair", "one", "--json")
    receipt = result.json["results"][0]
    assert (result.code, receipt["status"], receipt["set_aside"]) == (7, "repaired", 1)
    assert os.path.exists(receipt["quarantine"])  # noqa: PTH110 - as it is printed
    assert nacre("s", "verify", "one").code == 6
    assert nacre("s", "quarantine", "discard", "one", "--yes").code == 0
    assert nacre("s", "verify", "one").code == 0


def test_a_torn_log_is_not_called_a_stranger(nacre: Nacre) -> None:
    nacre.fill("one")
    for left in (b"", b'{"v', b'{"v":1,"n":1,"t":"op', b"\0" * 99):
        log_of(nacre.root, "two").write_bytes(left)
        found = nacre("s", "verify", "--json").json["findings"]
        assert [finding["kind"] for finding in found] == (["torn"] if left else ["emptied"])


def test_a_strangers_file_is_never_repaired(nacre: Nacre) -> None:
    nacre.fill("one")
    log_of(nacre.root, "two").write_bytes(b"nothing that we wrote\n")
    before = nacre.files()
    result = nacre("s", "repair", "two")
    assert (result.code, result.out) == (6, "")
    assert "not a log of nacre;" in result.err
    assert nacre.files() == before


def test_a_deep_look_tells_of_an_interrupted_turn_and_is_exit_0(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        call = {"id": "c1", "name": "read", "arguments": {}}
        sessions.add_message("one", "user", "hello")
        sessions.add_full_message("one", {"role": "assistant", "content": "", "tool_calls": [call]})
    assert nacre("s", "verify", "--json").json["findings"] == []
    result = nacre("s", "verify", "--deep", "--json")
    assert (result.code, result.json["ok"]) == (0, True)
    assert result.json["findings"] == [
        {
            "key": "one",
            "kind": "call-without-result",
            "where": "record 3",
            "detail": "call 'c1' of 'read' has no result",
            "damage": False,
        }
    ]


def test_a_deep_look_finds_nothing_in_what_was_forked_compacted_and_taken_back(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        sessions.add_messages("one", [{"role": "user", "content": f"{i} " * 500} for i in range(800)])
        sessions.fork("one", "two", at=801)
        sessions.add_message("one", "user", "more")
        sessions.pop("one")
        sessions.truncate_history("one", 1)
        sessions.save("one")
        sessions.add_message("two", "user", "another way")
        sessions.archive("one")
    assert nacre("s", "verify", "--deep", "--json").json["findings"] == []


def test_a_deep_look_leaves_damaged_sessions_as_they_are(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre.damage("one")
    before = nacre.files()
    assert nacre("s", "verify", "--deep").code == 6
    assert nacre.files() == before


def _spoil(log: Path) -> bytes:
    """Rot a record, repeat one, change the order of two, and tear the last."""
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"hello", b"\xffello")
    lines.insert(4, lines[3])
    lines[6], lines[7] = lines[7], lines[6]
    log.write_bytes(b"".join(lines)[:-20])
    return log.read_bytes()


def test_a_dry_run_of_repair_says_exactly_what_is_then_set_aside(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        for i in range(8):
            sessions.add_message("one", "user", f"hello {i}")
    spoilt = _spoil(log_of(nacre.root, "one"))
    before = nacre.files()
    looked = nacre("s", "repair", "one", "--dry-run", "--json").json["results"][0]["findings"]
    assert nacre.files() == before
    told = [found["where"].split()[1::2] for found in looked if found["action"] == "moved to quarantine"]
    receipt = nacre("s", "repair", "one", "--json").json["results"][0]
    kept = [json.loads(line) for line in Path(receipt["quarantine"]).read_text().splitlines()]
    # A piece is set aside with or without the end of its line.
    assert sorted(note["off"] for note in kept) == sorted(int(start) for start, _ in told)
    assert receipt["set_aside"] == len(told) == len(kept)
    for note in kept:
        raw = note["raw"].encode() if "raw" in note else base64.b64decode(note["b64"])
        assert spoilt[note["off"] : note["off"] + note["len"]] == raw


def test_every_line_that_was_damaged_or_not_is_somewhere_after_a_repair(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        for i in range(8):
            sessions.add_message("one", "user", f"hello {i}")
    spoilt = _spoil(log_of(nacre.root, "one"))
    receipt = nacre("s", "repair", "one", "--json").json["results"][0]
    notes = [json.loads(line) for line in Path(receipt["quarantine"]).read_text().splitlines()]
    aside = [note["raw"].encode() if "raw" in note else base64.b64decode(note["b64"]) for note in notes]
    header, *lines = log_of(nacre.root, "one").read_bytes().splitlines()
    first, *others = spoilt.splitlines()
    assert set(others) <= {*lines, *(piece.rstrip(b"\n") for piece in aside)}
    # The header says from now on that records are missing.
    before, after = json.loads(first), json.loads(header)
    assert {**before, "crc": "", "holes": 1} == {**after, "crc": ""}


def test_a_receipt_says_where_the_damaged_bytes_are_and_only_that(nacre: Nacre) -> None:
    nacre.fill("one")
    nacre.damage("one")
    result = nacre("s", "repair", "one")
    quarantine = next((nacre.root / "quarantine").iterdir())
    first, second, third = result.out.splitlines()
    assert first.endswith(" records kept, 1 damaged piece moved to quarantine")
    assert second == f"  every byte of what was damaged is in {quarantine}"
    assert third.startswith("  `nacre sessions quarantine show one` shows it; it is reported until")
    assert result.err == ""


def test_what_is_whole_is_not_repaired(nacre: Nacre) -> None:
    nacre.fill("one")
    before = nacre.files()
    assert nacre("s", "repair", "one").out == "one: no damage, nothing was done\n"
    assert nacre.files() == before


def test_compaction_says_what_it_gained(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        sessions.add_messages("one", [{"role": "user", "content": f"{i} " * 500} for i in range(800)])
        sessions.truncate_history("one", 1)
    looked = nacre("s", "compact", "one", "--dry-run", "--json").json["results"][0]
    assert looked["bytes_before"] * 0.9 < looked["bytes_not_live"] < looked["bytes_before"]
    done = nacre("s", "compact", "one", "--json").json["results"][0]
    assert done["status"] == "compacted"
    assert done["bytes_after"] < done["bytes_before"]
    assert nacre("s", "compact", "--all").out == "one: nothing to save\n"


def test_a_dry_run_of_compaction_knows_what_is_not_worth_it(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        for key, count in (("small", 200), ("large", 400)):
            sessions.add_messages(key, [{"role": "user", "content": "x" * 1000} for _ in range(count)])
            sessions.truncate_history(key, 1)
    looked, done = (nacre("s", "compact", "--all", "--json", *dry).json["results"] for dry in (["--dry-run"], []))
    told = {result["key"]: result["status"] for result in looked}
    assert told == {result["key"]: result["status"] for result in done} == {"small": "unchanged", "large": "compacted"}


@pytest.mark.parametrize("words", [(), ("one", "--all")])
def test_compaction_wants_to_know_what(nacre: Nacre, words: tuple[str, ...]) -> None:
    nacre.fill("one")
    assert nacre("s", "compact", *words).code == 2


def test_du_counts_every_byte_once(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre("s", "archive", "two")
    nacre("s", "fork", "one", "three")
    document = nacre("s", "du", "--json").json
    inodes = {path.stat().st_ino: path.stat().st_size for path in nacre.root.rglob("*.jsonl")}
    assert document["total"] == sum(inodes.values())
    assert {item["key"] for item in document["items"]} == {"one", "two", "three"}


def test_du_of_one_session(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    size = log_of(nacre.root, "one").stat().st_size
    assert nacre("s", "du", "one", "--json").json["items"] == [{"key": "one", "bytes": size}]


def test_gc_removes_old_unfinished_rewrites_and_nothing_else(nacre: Nacre) -> None:
    nacre.fill("one")
    before = nacre.files()
    old, new = (nacre.root / "sessions" / name for name in ("one.tmp", "two.tmp"))
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    new.write_bytes(b"half")
    assert [item["path"] for item in nacre("s", "gc", "--dry-run", "--json").json["removed"]] == [str(old)]
    assert old.exists()
    assert nacre("s", "gc", "--json").json["bytes"] == 4
    new.unlink()
    assert nacre.files() == before


def test_migration_says_what_becomes_of_each_file(nacre: Nacre, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("earlier")
    (folder / "telegram_1.jsonl").write_text(json.dumps({"role": "user", "content": "from before"}) + "\n")
    looked = nacre("s", "migrate", str(folder), "--dry-run", "--json")
    assert (looked.code, looked.json["results"][0]["status"]) == (0, "migrated")
    assert not nacre.root.exists()
    assert [path.name for path in folder.iterdir()] == ["telegram_1.jsonl"]
    done = nacre("s", "migrate", str(folder), "--json").json["results"][0]
    with nacre.sessions() as sessions:
        assert [message.content for message in sessions.get_history(done["key"])] == ["from before"]


def test_a_directory_that_is_not_there_cannot_be_migrated(nacre: Nacre) -> None:
    assert nacre("s", "migrate", "no-such-directory").code == 3


def test_a_folder_without_sessions_is_said_with_its_files(
    nacre: Nacre, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("other")
    names = [f"{number:02}.txt" for number in range(25)]
    for name in names:
        (folder / name).write_text("x")
    told = nacre("s", "migrate", str(folder))
    assert told.code == 3
    assert f"not a session that nacre knows: {folder}/00.txt" in told.err
    assert "5 more files are unknown" in told.err
    assert "no session of an earlier agent was found" in told.err
    found = nacre("s", "migrate", str(folder), "--json")
    assert (found.code, found.json["ok"], found.json["results"]) == (3, False, [])
    assert found.json["unknown"] == [f"{folder}/{name}" for name in names]
