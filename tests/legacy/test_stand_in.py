"""What stands in for a store that cannot be used: saved with every write, and brought home without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nacre
from nacre import DurabilityUnknown, Message, Sessions, StoreError
from nacre.history.session_state import RULES
from nacre.legacy.standby import StandIn, bring_home
from nacre.records import AppendRecord, SetMeta
from nacre.storage.file_store import FileStore
from nacre.user_files import has_standby, standby_places

REASON = StoreError("it is broken")
USER = {"role": "user", "content": "x"}
Act = Callable[[Sessions], object]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def stand_in(root: Path) -> Iterator[Sessions]:
    with Sessions(StandIn(str(root), REASON, rules=RULES)) as sessions:
        yield sessions


def anew(root: Path) -> Sessions:
    """What another process finds."""
    return Sessions(StandIn(str(root), REASON, rules=RULES))


def home(root: Path) -> Sessions:
    store = FileStore(str(root), rules=RULES)
    assert all(found.ok for found in bring_home(str(root)))
    return Sessions(store)


def said(sessions: Sessions, key: str = "k") -> list[object]:
    return [message.content for message in sessions.get_history(key)]


@pytest.mark.parametrize(
    ("act", "texts", "summary"),
    [
        (lambda sessions: None, ["a", "b", "c"], ""),
        (lambda sessions: sessions.add_messages("k", [{"role": "user", "content": "d"}], id="1"), list("abcd"), ""),
        (lambda sessions: sessions.truncate_history("k", 1), ["c"], ""),
        (lambda sessions: sessions.set_summary("k", "S", upto=3), ["c"], "S"),
        (lambda sessions: sessions.set_history("k", [Message(role="user", content="x")]), ["x"], ""),
        (lambda sessions: sessions.pop("k"), ["a", "b"], ""),
        (lambda sessions: sessions.clear("k"), [], ""),
    ],
)
@pytest.mark.parametrize("was_there", [False, True])
def test_what_is_written_is_there_again_here_and_at_home(
    root: Path, act: Act, texts: list[str], summary: str, was_there: bool
) -> None:
    """Whether the session began in the store, which can still be read, or without it."""
    if was_there:
        with nacre.open(root) as sessions:
            sessions.add_message("k", "user", "a")
    with anew(root) as sessions:
        for text in "bc" if was_there else "abc":
            sessions.add_message("k", "user", text)
        act(sessions)
        assert (said(sessions), sessions.get_summary("k")) == (texts, summary)
    with anew(root) as sessions:
        assert (said(sessions), sessions.get_summary("k")) == (texts, summary)
        assert [stored.message.content for stored in sessions.transcript("k")] == texts
    with home(root) as sessions:
        assert (said(sessions), sessions.get_summary("k")) == (texts, summary)
        assert len(list(sessions.list())) == (1 if texts or was_there else 0)
    assert not has_standby(str(root))


@pytest.mark.parametrize(
    "ask",
    [
        lambda sessions: sessions.log_size("k"),
        lambda sessions: sessions.log_size("k", kept=True),
        lambda sessions: sessions.generation("k"),
        lambda sessions: sessions.disk_usage(["k"]).sessions["k"],
        lambda sessions: sessions.has_other_logs([]),
    ],
)
def test_how_large_a_document_is_can_be_asked_before_it_is_read(stand_in: Sessions, root: Path, ask: Act) -> None:
    stand_in.add_message("k", "user", "a")
    stand_in.close()
    with anew(root) as again:
        assert ask(again)


def test_documents_outlive_the_process(stand_in: Sessions) -> None:
    assert stand_in.is_durable
    assert stand_in.list_trash() == []


def test_a_retry_is_saved_once(stand_in: Sessions, root: Path) -> None:
    for _ in range(2):
        stand_in.add_messages("k", [{"role": "user", "content": "a"}], id="1")
    stand_in.close()
    with anew(root) as again:
        assert said(again) == ["a"]


def test_what_is_no_message_makes_no_document(stand_in: Sessions, root: Path) -> None:
    stand_in.append("k", "x.note", {"a": 1})
    stand_in.submit("k", [AppendRecord("x.note", 2)]).result()
    stand_in.with_internal_keys().add_message("nacre:inbox", "user", "x")
    assert not has_standby(str(root))


@pytest.mark.parametrize(
    "act",
    [
        lambda sessions: sessions.archive("k"),
        lambda sessions: sessions.unarchive("k"),
        lambda sessions: sessions.delete("k"),
        lambda sessions: sessions.fork("k", "l"),
        lambda sessions: sessions.move_to_trash("k"),
        lambda sessions: sessions.journal("task"),
    ],
)
def test_what_needs_the_store_is_refused_with_the_reason(stand_in: Sessions, act: Act) -> None:
    stand_in.add_message("k", "user", "a")
    with pytest.raises(StoreError, match="while the store cannot be used: it is broken"):
        act(stand_in)
    with pytest.raises(StoreError, match="no index to search"):
        stand_in.search("a")
    assert said(stand_in) == ["a"]


def test_two_processes_have_places_of_their_own(stand_in: Sessions, root: Path) -> None:
    with anew(root) as other:
        assert other.location != stand_in.location
        stand_in.add_message("k", "user", "a")
        other.add_message("l", "user", "b")
        assert list(bring_home(str(root))) == []
    stand_in.close()
    stand_in.close()
    with home(root) as sessions:
        assert (said(sessions, "k"), said(sessions, "l")) == (["a"], ["b"])


def test_a_document_that_cannot_be_saved_is_said(stand_in: Sessions, root: Path) -> None:
    (place,) = standby_places(str(root))
    (Path(place) / "k.json").write_text("{")
    with pytest.raises(DurabilityUnknown, match="is in memory only"):
        stand_in.add_message("k", "user", "a")


def test_where_there_is_no_place_the_store_is_the_error(state: Path, root: Path) -> None:
    state.write_text("x")
    with pytest.raises(StoreError, match="it is broken"):
        anew(root)
    assert standby_places(str(root)) == []


def test_there_are_not_places_without_end(root: Path) -> None:
    opened = [anew(root) for _ in range(16)]
    with pytest.raises(StoreError, match="it is broken"):
        anew(root)
    for sessions in opened:
        sessions.close()


def test_a_store_whose_folders_are_files_has_no_logs(root: Path) -> None:
    root.write_text("x")
    with anew(root) as sessions:
        assert said(sessions) == []
        sessions.add_message("k", "user", "a")
    root.unlink()
    with home(root) as sessions:
        assert said(sessions) == ["a"]


@pytest.mark.parametrize("was", ["active", "archived", "forked"])
def test_what_was_written_under_another_name_goes_to_the_session(root: Path, was: str) -> None:
    """The store could not even be read, so that nobody knew whose name it is."""
    with nacre.open(root) as sessions:
        sessions.add_message("first" if was == "forked" else "old", "user", "a")
        if was == "forked":
            sessions.fork("first", "old")
        sessions.add_alias("old", "tg:1")
        if was == "archived":
            sessions.archive("old")
    away = root.rename(root.with_name("away"))
    with anew(root) as sessions:
        sessions.add_message("tg:1", "user", "b")
        sessions.set_summary("tg:1", "S")
    away.rename(root)
    for _ in range(2):
        with home(root) as sessions:
            assert [stored.message.content for stored in sessions.transcript("old")] == ["a", "b"]
            assert said(sessions, "tg:1") == (["b"] if was == "archived" else ["a", "b"])
            assert sessions.resolve("tg:1") == "old"
            assert [info.key for info in sessions.list(prefix="tg")] == []


def test_a_name_that_two_have_gets_a_session_of_its_own(root: Path) -> None:
    with nacre.open(root) as sessions:
        for key in ("one", "two"):
            sessions.add_message(key, "user", "a")
            sessions.add_alias(key, "tg:1")
    away = root.rename(root.with_name("away"))
    with anew(root) as sessions:
        sessions.add_message("tg:1", "user", "b")
    away.rename(root)
    with home(root) as sessions:
        assert (said(sessions, "tg:1"), said(sessions, "one"), said(sessions, "two")) == (["b"], ["a"], ["a"])


def test_titles_and_folders_are_kept_and_listed_and_brought_home(root: Path) -> None:
    with anew(root) as sessions:
        sessions.set_meta("early", title="nothing was said")
        for key in ("one", "two"):
            sessions.submit(key, [SetMeta({"title": f"T {key}", "cwd": "/c"}), USER]).result()
        sessions.set_meta("one", title="T 1")
        sessions.append("one", "x.note", 1)
    with anew(root) as sessions:
        assert [(info.key, info.title, info.cwd) for info in sessions.list(order="key")] == [
            ("one", "T 1", "/c"),
            ("two", "T two", "/c"),
        ]
        assert sessions.get_meta("one") == {"title": "T 1", "cwd": "/c"}
        sessions.add_message("new", "user", "x")
        assert {info.key for info in sessions.list()} == {"one", "two", "new"}
        assert list(sessions.list(archived=True)) == []
    with home(root) as sessions:
        assert sessions.get_meta("one") == {"title": "T 1", "cwd": "/c"}
        assert not sessions.exists("early")


def test_a_session_of_the_store_has_its_meta_and_keeps_it(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("k", "user", "a")
        sessions.set_meta("k", title="T", legacy={"a": 1})
    with anew(root) as sessions:
        assert sessions.get_meta("k") == {"title": "T", "legacy": {"a": 1}}
        sessions.add_message("k", "user", "b")
    with anew(root) as sessions:
        assert sessions.get_meta("k") == {"title": "T"}
    with home(root) as sessions:
        assert (said(sessions), sessions.get_meta("k")) == (["a", "b"], {"title": "T", "legacy": {"a": 1}})


def test_other_names_are_known_where_the_store_can_be_read(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("old", "user", "a")
        sessions.add_alias("old", "tg:1")
    with anew(root) as sessions:
        assert (said(sessions, "tg:1"), sessions.resolve("tg:1")) == (["a"], "old")
        sessions.add_message("tg:1", "user", "b")
    with home(root) as sessions:
        assert (said(sessions, "old"), sessions.resolve("tg:1")) == (["a", "b"], "old")


def test_a_deletion_erases_what_waits_outside_the_store(stand_in: Sessions, root: Path) -> None:
    for key in ("k", "other"):
        stand_in.add_message(key, "user", "while it was broken")
    stand_in.close()
    with Sessions(FileStore(str(root), rules=RULES)) as sessions:
        sessions.delete("k")
    assert not any('"k"' in path.read_text() for place in standby_places(str(root)) for path in Path(place).iterdir())
    with nacre.open(root) as sessions:
        list(bring_home(str(root)))
        assert (sessions.exists("k"), sessions.exists("other")) == (False, True)
