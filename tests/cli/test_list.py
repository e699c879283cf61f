"""nacre sessions list."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from nacre import opening
from nacre.cli import verbs
from nacre.cli.one_line import width
from nacre.index import warm
from tests.cli.conftest import Nacre

HOSTILE = "evil\x1b]0;title\x07\n\u202edrawkcab\x9b2J"


def test_the_envelope(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    document = nacre("s", "list", "--json", "--sort", "key").json
    assert {name: document[name] for name in ("schema_version", "count", "total", "has_more", "next_cursor")} == {
        "schema_version": 1,
        "count": 2,
        "total": 2,
        "has_more": False,
        "next_cursor": None,
    }
    assert [item["key"] for item in document["items"]] == ["one", "two"]


def test_an_item_has_exact_times_and_counts(nacre: Nacre) -> None:
    nacre.fill("one", title="A title")
    item = nacre("s", "list", "--json").json["items"][0]
    assert (item["title"], item["messages"], item["archived"]) == ("A title", 2, False)
    assert item["updated"].endswith("Z")
    assert len(item["updated"]) == len("2026-11-15T18:00:00.000Z")


def test_jsonl_is_a_record_per_line(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    lines = nacre("s", "list", "--jsonl").out.splitlines()
    assert {json.loads(line)["key"] for line in lines} == {"one", "two"}


def test_a_person_is_given_the_cursor_and_told_no_wrong_number(nacre: Nacre) -> None:
    nacre.fill("a", "b", "c", "d", "e")
    first = nacre("s", "list", "-n", "2", "--sort", "key").err
    assert first.startswith("3 more sessions; go on with --cursor ")
    second = nacre("s", "list", "-n", "2", "--sort", "key", "--cursor", first.split()[-1])
    assert "more sessions; go on with --cursor " in second.err
    assert "3 more" not in second.err
    third = nacre("s", "list", "-n", "2", "--sort", "key", "--cursor", second.err.split()[-1], "--json").json
    assert [item["key"] for item in third["items"]] == ["e"]


def test_a_huge_limit_lists_all(nacre: Nacre) -> None:
    nacre.fill("a", "b")
    document = nacre("s", "list", "-n", "9" * 23, "--json").json
    assert (document["count"], document["has_more"]) == (2, False)


def test_no_archived_sessions_are_not_no_sessions(nacre: Nacre) -> None:
    nacre.fill("a")
    assert "no archived sessions" in nacre("s", "list", "--archived").err


def test_archived_sessions_of_another_prefix_are_not_hidden_ones(nacre: Nacre) -> None:
    nacre.fill("cli:a", "irc:a", "irc:b")
    assert nacre("s", "archive", "irc:a", "irc:b").code == 0
    for _ in range(2):
        assert "hidden" not in nacre("s", "list", "--prefix", "cli:").err
        assert "2 archived sessions hidden" in nacre("s", "list", "--prefix", "irc:").err
        assert "2 archived sessions hidden" in nacre("s", "list").err


def test_a_cursor_goes_on_where_the_last_list_ended(nacre: Nacre) -> None:
    nacre.fill(*"abcde")
    keys: list[str] = []
    cursor: tuple[str, ...] = ()
    while True:
        document = nacre("s", "list", "-n", "2", "--json", *cursor).json
        keys += [item["key"] for item in document["items"]]
        if not document["has_more"]:
            break
        cursor = ("--cursor", document["next_cursor"])
    assert sorted(keys) == [*"abcde"]


def test_archived_sessions_are_hinted_at_on_stderr(nacre: Nacre) -> None:
    nacre.fill("one", "two")
    nacre("s", "archive", "two")
    result = nacre("s", "list")
    assert "two" not in result.out
    assert result.err == "1 archived session hidden, use --all\n"
    assert nacre("s", "list", "--quiet").err == ""
    assert len(nacre("s", "list", "--all", "--json").json["items"]) == 2
    assert [item["key"] for item in nacre("s", "list", "--archived", "--json").json["items"]] == ["two"]


def test_a_hostile_title_and_key_are_shown_not_obeyed(nacre: Nacre) -> None:
    nacre.fill(f"key{HOSTILE}", title=HOSTILE)
    for form in ((), ("--json",), ("--jsonl",), ("--format", "{key} {title}")):
        out = nacre("s", "list", *form).out
        assert out.count("\n") == (2 if not form else 1)
        assert all(char.isprintable() or char == "\n" for char in out)


def test_a_format_is_a_line_per_session(nacre: Nacre) -> None:
    nacre.fill("one", title="A title")
    assert nacre("s", "list", "--format", r"{key}\t{title}").out == "one\tA title\n"
    assert nacre("s", "list", "--format", "{nope}").code == 2


@pytest.mark.parametrize("columns", ["80", "200"])
def test_columns_are_aligned_and_fit(nacre: Nacre, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    nacre.fill("plain", title="A plain title")
    nacre.fill("wide", title="数据库连接错误排查" * 9)
    nacre.fill("a/key/that/is/longer/than/any/column/may/be/" * 4, title="x" * 300)
    monkeypatch.setenv("COLUMNS", columns)
    lines = nacre("s", "list").out.splitlines()
    assert max(map(width, lines)) <= int(columns)
    assert len({width(line) for line in lines if line.endswith(("UPDATED", "now", "ago"))}) == 1


def test_a_key_is_never_cut(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "a/key/that/is/longer/than/any/column/may/be/" * 4
    nacre.fill(key)
    monkeypatch.setenv("COLUMNS", "80")
    lines = nacre("s", "list").out.splitlines()[1:]
    assert "".join(line.removeprefix("1").split()[0] for line in lines) == key


def test_more_columns_show_more_of_a_title(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    nacre.fill("one", title="word " * 60)
    shown = []
    for columns in ("80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        shown.append(nacre("s", "list").out.count("word"))
    assert shown[0] < shown[1]


def test_a_pipe_gets_the_whole_title(nacre: Nacre) -> None:
    nacre.fill("one", title="word " * 60)
    assert nacre("s", "list").out.count("word") == 60


@pytest.mark.parametrize("order", ["updated", "created", "size", "messages", "key"])
def test_every_order_can_be_reversed(nacre: Nacre, order: str) -> None:
    nacre.fill("a")
    nacre.fill("b", title="longer")
    with nacre.sessions() as sessions:
        sessions.add_message("b", "user", "more")
    there, back = (
        [item["key"] for item in nacre("s", "list", "--json", "--sort", order, *more).json["items"]]
        for more in ((), ("--reverse",))
    )
    assert there == back[::-1]


def test_a_warm_list_is_the_same_as_a_cold_one(nacre: Nacre, tmp_path: Path) -> None:
    nacre.fill("one", "two", title="A title")
    nacre.fill("three")
    cold, warm = (nacre("s", "list", "--json", "--sort", "key").json for _ in range(2))
    assert warm == cold
    shutil.rmtree(tmp_path / "cache")
    assert nacre("s", "list", "--json", "--sort", "key").json == cold
    assert [item["key"] for item in nacre("s", "list", "--json", "--prefix", "t").json["items"]].count("one") == 0


def test_a_list_without_sqlite_reads_the_logs(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    nacre.fill("one")
    monkeypatch.setitem(sys.modules, warm.__name__, None)
    assert [item["key"] for item in nacre("s", "list", "--json").json["items"]] == ["one"]


def test_the_default_store_is_the_librarys(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    for home, data in (("here", "there"), ("", "there"), ("", "")):
        monkeypatch.setenv("NACRE_HOME", home)
        monkeypatch.setenv("XDG_DATA_HOME", data)
        assert verbs.default_place() == opening.default_place()


def test_one_long_key_does_not_take_the_room_of_all_titles(nacre: Nacre, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    nacre.fill("long:" + "x" * 100)
    nacre.fill("one", "two", "three", title="A title of forty characters or about so")
    lines = nacre("s", "list").out.splitlines()
    assert max(map(width, lines)) <= 80
    assert sum("A title of forty characters or" in line for line in lines) == 3


def fill_folders(nacre: Nacre, *folders: Path) -> None:
    for number, folder in enumerate(folders, 1):
        folder.mkdir(parents=True)
        nacre.fill(f"chat-{number}", title=f"about {folder.name}")
        with nacre.sessions() as sessions:
            sessions.set_meta(f"chat-{number}", cwd=str(folder))
    nacre.fill("telegram:42")


def test_the_folder_of_a_chat_is_shown_with_a_tilde(
    nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    fill_folders(nacre, tmp_path / "src/shop", tmp_path / ("long/" * 10) / "end")
    lines = nacre("s", "list").out.splitlines()
    assert "FOLDER" in lines[0]
    assert any("~/src/shop" in line for line in lines)
    assert any("…" in line and "/long/end" in line for line in lines)
    items = nacre("s", "list", "--json").json["items"]
    assert {item["key"]: item["cwd"] for item in items}["chat-1"] == str(tmp_path / "src/shop")
    assert {item["key"]: item["cwd"] for item in items}["telegram:42"] == ""
    assert nacre("s", "list", "--format", "{cwd}", "--prefix", "chat-1").out == f"{tmp_path}/src/shop\n"


def test_the_chats_of_a_folder_and_below_it(nacre: Nacre, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_folders(nacre, tmp_path / "shop", tmp_path / "shop/web", tmp_path / "shopping")
    assert nacre("s", "list", "--folder", str(tmp_path / "shop"), "--format", "{key}", "--sort", "key").out.split() == [
        "chat-1",
        "chat-2",
    ]
    monkeypatch.chdir(tmp_path / "shopping")
    assert nacre("s", "list", "--folder", "--format", "{key}").out == "chat-3\n"
    assert "no session was started in" in nacre("s", "list", "--folder", str(tmp_path / "none")).err
