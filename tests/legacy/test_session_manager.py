from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import nacre
from nacre.legacy import Session, SessionManager
from nacre.testing import Disk, Fault, images
from nacre.testing.contract import EARLIER_CONTRACT, EarlierCheck, name
from tests.legacy.earlier import ROOT, document


def said(store: nacre.SessionStore, key: str = "k") -> list[object]:
    return [message.content for message in store.get_history(key)]


@pytest.mark.parametrize("check", EARLIER_CONTRACT, ids=name)
def test_it_keeps_the_contract_of_the_earlier_systems(check: EarlierCheck, root: Path) -> None:
    check(lambda: SessionManager(root))


def test_it_is_a_session_store(root: Path) -> None:
    store: nacre.SessionStore = SessionManager(root)
    assert isinstance(store, nacre.SessionStore)


def test_only_what_is_saved_is_loaded(root: Path) -> None:
    store = SessionManager(root)
    store.add_message("a:b", "user", "saved")
    store.set_summary("a:b", "S")
    store.save("a:b")
    store.add_message("a:b", "user", "not saved")
    store.save("unknown")
    again = SessionManager(root)
    assert (said(again, "a:b"), again.get_summary("a:b")) == (["saved"], "S")
    assert again.get_history("a:b") == store.get_history("a:b")[:1]


def test_a_document_is_private_and_has_the_earlier_shape(root: Path) -> None:
    store = SessionManager(root)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    store.add_full_message("k", {"role": "assistant", "content": "", "reasoning": "r", "tool_calls": [call]})
    store.save("k")
    (path,) = root.iterdir()
    found = json.loads(path.read_text())
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("k.json", 0o600)
    assert list(found) == ["key", "messages", "summary", "created", "updated"]
    assert found["messages"][0] | {"created_at": ""} == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "r",
        "tool_calls": [call],
        "created_at": "",
    }


def test_keys_that_look_alike_have_documents_of_their_own(root: Path) -> None:
    store = SessionManager(root)
    keys = ["a:b", "a/b", "a\\b", "a_b", "A_b", ".", "..", "../x"]
    for key in keys:
        store.add_message(key, "user", key)
        store.save(key)
    again = SessionManager(root)
    assert [said(again, key) for key in keys] == [[key] for key in keys]
    assert len(list(root.iterdir())) == len(keys)
    with pytest.raises(nacre.InvalidKey):
        store.add_message("", "user", "x")


def test_an_earlier_document_is_saved_where_it_was(root: Path) -> None:
    (root / "sessions").mkdir(parents=True)
    path = root / "sessions" / "telegram_1.json"
    path.write_bytes(document("telegram:1", "a", agent="main"))
    store = SessionManager(root)
    store.add_message("telegram:1", "user", "b")
    store.save("telegram:1")
    assert said(SessionManager(root), "telegram:1") == ["a", "b"]
    assert json.loads(path.read_text())["agent"] == "main"
    assert [found.name for found in root.rglob("*.json")] == ["telegram_1.json"]


@pytest.mark.parametrize("data", [b'{"key":', document("other", "a"), b"{}"])
def test_a_file_that_is_not_the_sessions_is_not_written_over(data: bytes, root: Path) -> None:
    root.mkdir()
    (root / "k.json").write_bytes(data)
    store = SessionManager(root)
    store.add_message("k", "user", "x")
    with pytest.raises(nacre.StoreError):
        store.save("k")
    assert (root / "k.json").read_bytes() == data


def test_what_is_no_message_in_a_document_is_kept_when_it_is_saved(root: Path) -> None:
    root.mkdir()
    data = b'{"key":"k","messages":[{"role":"user","content":"a"},7]}'
    (root / "k.json").write_bytes(data)
    SessionManager(root).save("k")
    assert (root / "k.json.damaged").read_bytes() == data


def test_of_two_documents_the_newer_counts(root: Path) -> None:
    root.mkdir()
    (root / "a.json").write_bytes(document("k", "new"))
    (root / "b.json").write_bytes(document("k", "old", updated="2025-01-01T00:00:00Z"))
    assert said(SessionManager(root)) == ["new"]


def test_numbers_are_positions_and_survive_truncation(root: Path) -> None:
    store = SessionManager(root)
    assert [store.add_message("k", "user", text) for text in "abc"] == [1, 2, 3]
    store.truncate_history("k", 2)
    store.set_summary("k", "S", upto=2)
    assert (said(store), store.add_message("k", "user", "d")) == (["c"], 4)
    for upto in (2, 5, 0):
        with pytest.raises(nacre.Conflict):
            store.set_summary("k", "S", upto=upto)


def test_get_or_create_gives_the_session(root: Path) -> None:
    store = SessionManager(root)
    new = store.get_or_create("k")
    assert new == Session(key="k", created=new.created, updated=new.updated)
    store.add_message("k", "user", "a")
    assert [message.content for message in store.get_or_create("k").messages] == ["a"]


CHANGES: list[Callable[[SessionManager], object]] = [
    lambda store: store.truncate_history("k", 1),
    lambda store: store.save("k"),
    lambda store: store.close(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changing_an_unknown_key_makes_nothing(change: Callable[[SessionManager], object], root: Path) -> None:
    change(SessionManager(root))
    assert not root.exists()


@pytest.mark.parametrize(("last", "found"), [(None, "abc"), (2, "bc"), (9, "abc"), (0, ""), (-1, "")])
def test_last_gives_the_newest(last: int | None, found: str, root: Path) -> None:
    store = SessionManager(root)
    store.set_history("k", [{"role": "user", "content": text} for text in "abc"])
    assert [message.content for message in store.get_history("k", last=last)] == list(found)


def test_power_cut_while_saving_leaves_the_old_document_or_the_new_one() -> None:
    disk = Disk(1)
    disk.write_durable(f"{ROOT}/k.json", document("k", "a"))
    store = SessionManager(ROOT, system=disk.process())
    store.add_message("k", "user", "b")
    seen = []
    disk.before = lambda call, _: seen.append(disk.snapshot())
    store.save("k")
    found = [said(SessionManager(ROOT, system=image.process())) for at in seen for image in images(at, _rng(), 3)]
    assert all(texts in (["a"], ["a", "b"]) for texts in found)
    (after, *_) = images(disk.snapshot(), _rng(), 0)
    assert said(SessionManager(ROOT, system=after.process())) == ["a", "b"]


def _rng() -> Random:
    return Random(0)


def test_a_failed_save_says_so_and_leaves_nothing_behind() -> None:
    disk = Disk(1)
    disk.write_durable(f"{ROOT}/k.json", document("k", "a"))
    store = SessionManager(ROOT, system=disk.process())
    disk.fail(Fault(call="fsync", nth=1))
    with pytest.raises(nacre.Refused):
        store.save("k")
    assert disk.process().listdir(ROOT) == ["k.json"]


def test_a_directory_that_cannot_be_read_is_not_an_empty_one() -> None:
    disk = Disk(1)
    disk.write_durable(f"{ROOT}/k.json", document("k", "a"))
    disk.fail(Fault(call="listdir", nth=1, errno=13))
    with pytest.raises(nacre.StoreError):
        SessionManager(ROOT, system=disk.process())
