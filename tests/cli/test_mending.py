"""nacre sessions verify, repair, compact, du, gc and migrate."""

from __future__ import annotations

import json
import os

import pytest

from tests.cli.conftest import Nacre


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
    (nacre.root / "sessions" / "two.jsonl").write_bytes(b"nothing that we wrote\n")
    result = nacre("s", "verify", "--json")
    assert result.code == 6
    assert {finding["key"] for finding in result.json["findings"]} == {"two"}


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
    assert nacre("s", "verify", "one").code == 0


def test_what_is_whole_is_not_repaired(nacre: Nacre) -> None:
    nacre.fill("one")
    before = nacre.files()
    assert nacre("s", "repair", "one").out == "one: nothing is damaged, nothing was done\n"
    assert nacre.files() == before


def test_compaction_says_what_it_gained(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        sessions.add_messages("one", [{"role": "user", "content": f"{i} " * 500} for i in range(800)])
        sessions.truncate_history("one", 1)
    done = nacre("s", "compact", "one", "--json").json["results"][0]
    assert done["status"] == "compacted"
    assert done["bytes_after"] < done["bytes_before"]
    assert nacre("s", "compact", "--all").out == "one: nothing to gain\n"


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
    size = len(nacre.files()["sessions/one.jsonl"])
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
