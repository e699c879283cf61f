"""nacre sessions show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import nacre as library
from nacre.cli.commands.show import Excerpt, live_view, whole_view
from nacre.history.session_state import RULES
from nacre.storage.file_store import FileStore
from nacre.storage.system import System
from tests.cli.conftest import Nacre
from tests.item_orders import ORDERS
from tests.paths import log_of


@pytest.fixture
def talk(nacre: Nacre) -> Nacre:
    """A store with one session: a summary over its beginning, a call with its result, tokens."""
    call = {"id": "c1", "type": "function", "function": {"name": "list_files", "arguments": '{"path": "."}'}}
    with nacre.sessions() as sessions:
        sessions.add_message("talk", "user", "first words")
        sessions.add_full_message("talk", {"role": "assistant", "content": "", "tool_calls": [call]})
        sessions.add_full_message("talk", {"role": "tool", "content": "a.py\nb.py", "tool_call_id": "c1"})
        sessions.append("talk", "use", {"input_tokens": 1200, "output_tokens": 34})
        sessions.set_summary("talk", "We **spoke**.", upto=2)
        sessions.add_message("talk", "user", "last *words*")
        sessions.set_meta("talk", title="Files")
    return nacre


def test_an_item_without_a_role_is_shown_listed_searched_and_exported_as_what_it_is(
    nacre: Nacre, tmp_path: Path
) -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Lisbon"}'}
    with nacre.sessions() as sessions:
        sessions.add_messages("k", [{"role": "user", "content": "a"}, item])
        assert sessions.get_history("k")[1].to_mapping() == item
        assert [(hit.role, hit.n) for hit in sessions.search("lisbon")] == [("function_call", 3)]
        assert next(sessions.list()).role == "function_call"
    _, shown, _ = nacre("sessions", "show", "k")
    assert "#3 function_call" in shown
    assert '"call_id":"c1"' in shown
    assert "msg function_call" in nacre("sessions", "tail", "k")[1]
    assert json.loads(nacre("sessions", "show", "k", "--json")[1])["items"][1]["message"] == item
    for form in ("json", "jsonl", "html", "md"):
        assert nacre("sessions", "export", "k", "--format", form)[0] == 0
    assert nacre("sessions", "export", "k", "--format", "picoclaw", "-o", str(tmp_path / "pico"))[0] == 0


def test_bytes_are_shown_by_their_size_and_exported_in_base64(nacre: Nacre, tmp_path: Path) -> None:
    call = library.ToolCall(id="c", name="f", arguments={"raw": b"123"})
    with nacre.sessions() as sessions:
        sessions.add_full_message("k", {"role": "user", "content": ["look", b"1"], "media": [{"data": b"12" * 5000}]})
        sessions.add_full_message("k", library.Message(role="assistant", tool_calls=(call,)))
        sessions.append("k", "x.raw", {"a": b"1"})
    _, shown, _ = nacre("sessions", "show", "k")
    assert [part in shown for part in ("[1 byte]", '"10,000 bytes"', 'f(raw="3 bytes")')] == [True] * 3
    for form in ("json", "jsonl", "html", "md"):
        assert nacre("sessions", "export", "k", "--format", form)[0] == 0
    assert nacre("sessions", "export", "k", "--format", "picoclaw", "-o", str(tmp_path / "pico"))[0] == 0
    _, records, _ = nacre("sessions", "tail", "k", "--full", "--json")
    assert json.loads(records)["items"][-1]["data"] == {"a": "MQ=="}


def test_the_history_is_shown_with_the_summary_where_it_was_cut(talk: Nacre) -> None:
    code, out, err = talk("sessions", "show", "talk")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Files",
        "talk · created just now · 3 messages · 1.2k tokens (1.2k in, 34 out)",
        "",
        "── summary, 1 message before ───────────────────────────────────────────────────",
        "  We spoke.",
        "",
        "#3 assistant · just now",
        '  ▸ list_files(path=".") → a.py (9 B)',
        "",
        "#7 user · just now",
        "  last words",
    ]


def test_full_unfolds_calls(talk: Nacre) -> None:
    assert "      b.py\n" in talk("sessions", "show", "talk", "--full").out


def test_all_marks_what_is_no_longer_in_the_history(talk: Nacre) -> None:
    out = talk("sessions", "show", "talk", "--all").out
    assert "#2 × user · just now · not in the history\n  first words\n\n── summary ──" in out


def test_all_takes_in_earlier_generations(talk: Nacre) -> None:
    with talk.sessions() as sessions:
        sessions.archive("talk")
        sessions.add_message("talk", "user", "anew")
    out = talk("sessions", "show", "talk", "--all").out
    assert "#1.2 × user" in out
    assert "#2 user · just now\n  anew\n" in out


def test_last_shows_only_the_end(talk: Nacre) -> None:
    out = talk("sessions", "show", "talk", "--last", "1").out
    assert "#7 user" in out
    assert "#3" not in out
    assert "summary" not in out


def test_entry_shows_one_message_unfolded(talk: Nacre) -> None:
    out = talk("sessions", "show", "talk", "--entry", "3").out
    assert "    → #4 (9 B)\n      a.py\n      b.py\n" in out
    assert "#7" not in out


@pytest.mark.parametrize("n", ["99", "5"])
def test_an_entry_that_is_no_message_is_not_found(talk: Nacre, n: str) -> None:
    assert talk("sessions", "show", "talk", "--entry", n).code == 3


def test_a_point_shows_what_stands_around_it(talk: Nacre) -> None:
    assert "first words" in talk("sessions", "show", "talk@2").out
    assert talk("sessions", "show", "talk@99").code == 3


def test_raw_gives_the_lines_of_the_log(talk: Nacre) -> None:
    out = talk("sessions", "show", "talk", "--raw").out
    assert out == log_of(talk.root, "talk").read_text()
    assert talk("sessions", "show", "talk", "--raw", "--last", "2").out.splitlines() == out.splitlines()[-2:]
    assert talk("sessions", "show", "talk", "--raw", "--entry", "6").out.splitlines() == [out.splitlines()[5]]
    assert talk("sessions", "show", "talk", "--raw", "--entry", "99").code == 3


def test_the_line_of_a_record_is_as_it_is_where_a_session_went_back(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        number = sessions.add_message("k", "user", "one")
        sessions.add_message("k", "user", "two")
        sessions.rewind("k", number)
    log = log_of(nacre.root, "k").read_text()
    assert nacre("sessions", "show", "k", "--raw", "--entry", "4").out == log.splitlines(keepends=True)[-1]


def test_json_is_one_document(talk: Nacre) -> None:
    found = talk("sessions", "show", "talk", "--all", "--json").json
    assert (found["schema_version"], found["key"], found["title"], found["summary"]) == (
        1,
        "talk",
        "Files",
        "We **spoke**.",
    )
    assert found["tokens"] == {"input": 1200, "output": 34, "total": 1234}
    assert [(item["n"], item["live"]) for item in found["items"]] == [(2, False), (3, True), (4, True), (7, True)]
    assert found["items"][3]["message"]["content"] == "last *words*"


def test_jsonl_is_a_line_for_each_message(talk: Nacre) -> None:
    out = talk("sessions", "show", "talk", "--jsonl").out
    assert [json.loads(line)["n"] for line in out.splitlines()] == [3, 4, 7]


def test_nothing_in_a_session_can_drive_the_terminal(nacre: Nacre) -> None:
    evil = "\x1b]0;owned\x07\u202e\x9b2J\x7f"
    with nacre.sessions() as sessions:
        sessions.add_full_message("k", {"role": evil, "content": evil, "name": evil, "reasoning": evil})
        sessions.set_meta("k", title=evil)
    for words in (["--full"], ["--all"], ["--raw"], ["--json"], ["--jsonl"], ["--entry", "2"]):
        out = nacre("sessions", "show", "k", *words).out
        assert all(char == "\n" or char.isprintable() for char in out)


def test_colour_comes_when_asked_for(talk: Nacre) -> None:
    assert "\x1b[1mFiles\x1b[0m" in talk("sessions", "show", "talk", "--color=always").out


def test_exact_times_come_when_asked_for(talk: Nacre) -> None:
    assert "just now" not in talk("sessions", "show", "talk", "--iso").out


def test_an_unknown_session_is_not_found(nacre: Nacre) -> None:
    assert nacre("sessions", "show", "nobody").code == 3


def test_last_is_at_least_one(talk: Nacre) -> None:
    assert talk("sessions", "show", "talk", "--last", "0").code == 2


def test_an_empty_history_is_shown_as_such(talk: Nacre) -> None:
    with talk.sessions() as sessions:
        sessions.truncate_history("talk", 0)
        sessions.set_summary("talk", "")
    assert "── history was cut, 4 messages before ──" in talk("sessions", "show", "talk").out


def test_a_fork_shows_the_past_that_it_shares(talk: Nacre) -> None:
    with talk.sessions() as sessions:
        sessions.fork("talk", "branch")
        sessions.add_message("branch", "user", "only here")
    out = talk("sessions", "show", "branch", "--all").out
    assert "first words" in out
    assert "only here" in out


class Counting(System):
    """Counts the bytes that are read."""

    def __init__(self) -> None:
        self.read = 0

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = super().pread(fd, size, offset)
        self.read += len(data)
        return data


@pytest.mark.parametrize("view", [live_view, whole_view])
def test_every_record_is_read_once(root: Path, view: Callable[[library.Sessions, str], Excerpt]) -> None:
    system = Counting()
    with library.Sessions(FileStore(str(root), rules=RULES, system=system)) as sessions:
        for _ in range(200):
            sessions.add_message("k", "user", "x" * 10_000)
        sessions.append("k", "use", {"model": "m", "input_tokens": 7})
        system.read = 0
        found = view(sessions, "k")
    assert (len(found.stored), found.cover.usage and found.cover.usage.input) == (200, 7)
    assert system.read < 1.5 * log_of(root, "k").stat().st_size


@pytest.mark.parametrize("order", ORDERS)
def test_every_call_is_shown_with_its_result_whichever_framework_stored_it(nacre: Nacre, order: str) -> None:
    count = sum(len(message.tool_calls) for message in ORDERS[order])
    with nacre.sessions() as sessions:
        first = sessions.add_messages("k", ORDERS[order]) - len(ORDERS[order]) + 1
    for how in ([], ["--full"], ["--all"], ["--last", "20"]):
        _, out, _ = nacre("sessions", "show", "k", *how)
        assert ("no result" in out, out.count("A!") + out.count("B!")) == (False, count)
        assert "tool" not in re.findall(r"#\d+ (\w+)", out)
    for n, message in enumerate(ORDERS[order], first):
        if message.tool_calls:
            _, out, _ = nacre("sessions", "show", "k", "--entry", str(n))
            assert ("no result" in out, out.count("!")) == (False, len(message.tool_calls))


def test_a_call_that_was_interrupted_says_so_until_its_result_is_there(nacre: Nacre) -> None:
    said = ORDERS["an approval"]
    with nacre.sessions() as sessions:
        sessions.add_messages("k", said[:3])
    assert "no result" in nacre("sessions", "show", "k")[1]
    with nacre.sessions() as sessions:
        sessions.add_messages("k", said[3:])
    assert "no result" not in nacre("sessions", "show", "k")[1]
