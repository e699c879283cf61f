"""nacre sessions tail."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Nacre


@pytest.fixture
def store(nacre: Nacre) -> Nacre:
    with nacre.sessions() as sessions:
        sessions.add_message("one", "user", "secret\x1b[2J words")
        call = {"id": "c", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
        sessions.add_full_message("one", {"role": "assistant", "content": None, "tool_calls": [call]})
    return nacre


def test_the_words_are_left_out_unless_asked_for(store: Nacre) -> None:
    assert "secret" not in store("s", "tail", "one").out
    assert "secret\\x1b[2J words" in store("s", "tail", "one", "--full").out


def test_a_line_says_kind_role_and_tools(store: Nacre) -> None:
    lines = store("s", "tail", "one", "-n", "2").out.splitlines()
    assert [line.split() for line in lines] == [
        ["2", "just", "now", "msg", "user", "16", "B"],
        ["3", "just", "now", "msg", "assistant", "calls", "shell"],
    ]


def test_json_is_an_envelope_and_jsonl_a_record_per_line(store: Nacre) -> None:
    document = store("s", "tail", "one", "-n", "1", "--json").json
    assert (document["count"], document["total"]) == (1, 3)
    line = store("s", "tail", "one", "-n", "1", "--jsonl", "--full").out
    assert json.loads(line)["data"]["role"] == "assistant"


def test_a_point_begins_there(store: Nacre) -> None:
    assert [item["n"] for item in store("s", "tail", "one@2", "--json").json["items"]] == [2, 3]


def test_one_document_cannot_be_followed(store: Nacre) -> None:
    assert store("s", "tail", "-f", "one", "--json").code == 2


def test_nothing_is_shown_for_no_lines(store: Nacre) -> None:
    assert store("s", "tail", "one", "-n", "0").out == ""
    assert store("s", "tail", "one", "-n", "-1").code == 2
