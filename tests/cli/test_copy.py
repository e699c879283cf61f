"""nacre sessions copy and unseal: all sessions in another store, and the seal of the old one."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre as library
from tests.cli.conftest import Nacre
from tests.postgres.opened import create


def said(place: object, key: str) -> list[object]:
    with library.open(str(place)) as sessions:
        return [message.content for message in sessions.get_history(key)]


def test_sessions_are_copied_to_a_database_and_back(nacre: Nacre, database: str, tmp_path: Path) -> None:
    create(database)
    nacre.fill("one", "two")
    to = nacre("sessions", "copy", str(nacre.root), database)
    back = nacre("sessions", "copy", database, str(tmp_path / "back"))
    assert (to.code, to.out) == (0, "2 sessions: 2 copied; 6 records verified\n")
    assert (back.code, back.out, back.err) == (0, "2 sessions: 2 copied; 6 records verified\n", "")
    assert said(tmp_path / "back", "one") == ["hello from one", "hi"]


def test_json_has_count_and_digest_of_each_session(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one")
    document = nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--json").json
    (found,) = document["results"]
    assert (document["ok"], document["sealed"], document["records"]) == (True, False, 3)
    assert (found["key"], found["status"], found["result"], found["records"]) == ("one", "active", "copied", 3)
    assert len(found["digest"]) == 64
    again = nacre("sessions", "copy", str(tmp_path / "b"), str(tmp_path / "c"), "--json").json
    assert again["results"][0]["digest"] == found["digest"]


def test_jsonl_has_a_line_for_each_session_and_one_at_the_end(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one", "two")
    result = nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--jsonl")
    assert [line.partition('"type":"')[2].partition('"')[0] for line in result.out.splitlines()] == [
        "session",
        "session",
        "done",
    ]


def test_a_finished_store_refuses_writes_and_says_where_the_sessions_are(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one")
    goal = tmp_path / "b"
    result = nacre("sessions", "copy", str(nacre.root), str(goal), "--finish")
    assert (result.code, result.out) == (0, f"1 session: 1 copied; 3 records verified; {nacre.root} is sealed\n")
    refused = nacre("sessions", "rename", "one", "A title")
    assert refused.code == 1
    assert f"were moved to {goal}" in refused.err
    assert nacre("sessions", "show", "one").code == 0
    assert nacre("sessions", "unseal", str(nacre.root)).out == f"{nacre.root}: accepts writes again\n"
    assert nacre("sessions", "rename", "one", "A title").code == 0


def test_a_conflict_is_exit_9_and_nothing_is_sealed(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one", "two")
    goal = tmp_path / "b"
    with library.open(goal) as sessions:
        sessions.add_message("two", "user", "another")
    result = nacre("sessions", "copy", str(nacre.root), str(goal), "--finish")
    assert result.code == 9
    assert "nacre: two: conflict: " in result.err
    assert "was not sealed" in result.err
    assert "`nacre sessions rm KEY --permanent` in the other store" in result.err
    assert result.out == "2 sessions: 1 copied, 1 conflict; 3 records verified\n"
    assert nacre("sessions", "rename", "one", "A title").code == 0
    assert said(goal, "two") == ["another"]


def test_if_nothing_could_be_copied_it_is_exit_1(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one")
    with library.open(tmp_path / "b") as sessions:
        sessions.add_message("one", "user", "another")
    assert nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b")).code == 1


def test_a_session_that_is_not_whole_is_exit_6(nacre: Nacre, tmp_path: Path) -> None:
    with nacre.sessions() as sessions:
        sessions.add_message("one", "user", "x" * 70_000)
    for path in (nacre.root / "blobs").iterdir():
        path.unlink()
    result = nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"))
    assert result.code == 6
    assert "one: 1 large payload cannot be read; the rest was copied" in result.err
    assert nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--json").json["results"][0]["lost"]


def test_what_was_deleted_since_is_named_at_the_end(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one", *(f"gone-{at:02}" for at in range(21)))
    nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"))
    with nacre.sessions() as sessions:
        for at in range(21):
            sessions.delete(f"gone-{at:02}")
    result = nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--finish")
    assert result.code == 0
    assert "perhaps deleted in the other one since: gone-00, gone-01," in result.err
    assert "and 1 more" in result.err


@pytest.mark.parametrize("kept", ["a", "b"])
def test_a_conflict_is_settled_as_it_says(nacre: Nacre, tmp_path: Path, kept: str) -> None:
    nacre.fill("one")
    stores = {"a": str(nacre.root), "b": str(tmp_path / "b")}
    assert nacre("sessions", "copy", stores["a"], stores["b"]).code == 0
    for name, store in stores.items():
        with library.open(store) as sessions:
            sessions.add_message("one", "user", f"said in {name}")
    assert "conflict" in nacre("sessions", "copy", stores["a"], stores["b"]).err
    (other,) = stores.keys() - {kept}
    assert nacre("--store", stores[other], "sessions", "rm", "one", "--permanent", "--yes").code == 0
    assert nacre("sessions", "copy", stores["a"], stores["b"]).code == 0
    assert said(Path(stores["b"]), "one")[-1] == f"said in {kept}"


def test_a_store_under_a_daemon_is_not_sealed(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one")
    with library.open(nacre.root) as sessions:
        turn = sessions.with_internal_keys().hold("nacre:inbox")
        turn.take()
        other = nacre.run("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--finish")
        forced = nacre.run("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--finish", "--force")
        turn.close()
    assert (other.returncode, forced.returncode) == (5, 0)
    assert "a daemon (process" in other.stderr


@pytest.mark.parametrize("words", [("copy", "nowhere", "b"), ("unseal", "nowhere")])
def test_a_store_that_is_not_there_is_exit_3(nacre: Nacre, words: tuple[str, ...]) -> None:
    assert nacre("sessions", *words).code == 3


def test_a_store_is_not_copied_to_itself(nacre: Nacre) -> None:
    nacre.fill("one")
    assert nacre("sessions", "copy", str(nacre.root), f"{nacre.root}/").code == 2


def test_a_password_on_the_command_line_is_refused(nacre: Nacre) -> None:
    nacre.fill("one")
    result = nacre("sessions", "copy", str(nacre.root), "postgresql://ada:s3cret@db.example/nacre")
    assert result.code == 2
    assert "s3cret" not in result.out + result.err


def test_a_database_without_tables_says_what_to_do(nacre: Nacre, database: str) -> None:
    nacre.fill("one")
    result = nacre("sessions", "copy", str(nacre.root), database)
    assert result.code == 1
    assert "nacre store init" in result.err


def test_a_sealed_folder_is_named_with_the_command_that_takes_it_back(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one")
    assert nacre("sessions", "copy", str(nacre.root), str(tmp_path / "b"), "--finish").code == 0
    command = f"nacre sessions unseal {nacre.root}"
    for words, name in ((("doctor",), "writing"), (("serve", "--check", "--port", "0"), "store")):
        done = nacre(*words, "--json")
        (failed,) = [check for check in done.json["checks"] if "is sealed" in check["detail"]]
        assert (done.code, failed["name"], failed["status"]) == (1, name, "fail")
        assert f"its sessions were moved to {tmp_path}/b" in failed["detail"]
        assert command in failed["hint"]
    assert f"sealed  its sessions were moved to {tmp_path}/b; take that back with: {command}" in nacre("store").out
    # Whoever writes to it, serves it or copies into it, is told the same.
    served = nacre("serve", "--port", "0")
    assert (served.code, f"`{command}`" in served.err) == (1, True)
    assert f"`{command}`" in nacre("sessions", "tag", "one", "travel").err
    assert f"`{command}` first" in nacre("sessions", "copy", str(tmp_path / "b"), str(nacre.root)).err


def test_the_argument_that_names_no_store_is_named(nacre: Nacre) -> None:
    assert "check SRC" in nacre("sessions", "copy", "nowhere", "b").err
    assert "check STORE" in nacre("sessions", "unseal", "nowhere").err
