"""Habits of the command line: help, version, configuration file, verbosity, manual pages, completion, JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nacre as library
from tests.everyday.conftest import Done, Person
from tests.everyday.model import Model


def test_bare_nacre_explains_itself(person: Person) -> None:
    bare = person.nacre()
    assert (bare.code, bare.err) == (0, "")
    assert "usage: nacre VERB" in bare.out
    assert "nacre chat 'what is in this folder?'" in bare.out
    assert person.nacre("help").out == bare.out


def test_python_m_nacre_is_the_command(person: Person) -> None:
    command = [sys.executable, "-m", "nacre", "-V"]
    done = Done(subprocess.run(command, check=False, capture_output=True, text=True, env=person.env))
    assert (done.code, done.out) == (0, f"nacre {library.__version__}\n")


def test_help_of_a_verb_shows_options_and_examples(person: Person) -> None:
    done = person.nacre("help", "sessions", "list")
    assert done.out.startswith("usage: nacre sessions list")
    assert "examples:" in done.out
    assert "-h, --help            show this help" in done.out
    assert person.nacre("sessions", "list", "-h").out == done.out


def test_a_mistyped_verb_or_option_names_the_right_one(person: Person) -> None:
    for line, meant in [
        (("chatt", "hello"), "did you mean `nacre chat`?"),
        (("sessions", "serach", "x"), "did you mean `nacre sessions search`?"),
        (("chat", "--modle", "x", "hello"), "did you mean --model?"),
        (("sessions", "list", "--jsno"), "did you mean --json?"),
        (("--versoin",), "did you mean `nacre --version`?"),
    ]:
        done = person.nacre(*line)
        assert (done.code, done.out) == (2, "")
        assert meant in done.err


def test_another_configuration_file_can_be_named(person: Person, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[agent]\npersona = "You are a parrot."\n')
    assert person.nacre("config", "path", "--config", str(file)).out == f"{file}\n"
    person.ask("--config", str(file), "hello")
    assert any("parrot" in request.system for request in person.model.chats)
    person.model.requests.clear()
    person.ask("hello", NACRE_CONFIG=str(file))
    assert any("parrot" in request.system for request in person.model.chats)
    missing = person.nacre("chat", "hello", "--config", str(tmp_path / "nowhere.toml"))
    assert missing.code == 2
    assert "there is no configuration file" in missing.err


def test_verbose_shows_the_cause_of_an_error(person: Person) -> None:
    person.config("not = [toml")
    short = person.nacre("chat", "hello").err
    assert "caused by" not in short
    cause = person.nacre("chat", "hello", "-v").err
    assert "caused by TOMLDecodeError" in cause
    assert "Traceback" not in cause
    assert "Traceback" in person.nacre("chat", "hello", "-vv").err


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
def test_manual_pages_are_made_from_the_help(person: Person, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nacre.cli.man", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, env=person.env)
    assert {"nacre.1", "nacre-chat.1", "nacre-sessions.1", "nacre-sessions-list.1"} <= {
        file.name for file in tmp_path.iterdir()
    }
    show = ["man", "--warnings", "-P", "cat", "-l", str(tmp_path / "nacre-chat.1")]
    page = subprocess.run(show, check=True, capture_output=True, text=True, env={**person.env, "MANWIDTH": "80"})
    assert page.stderr == ""
    assert "-m, --model NAME" in page.stdout
    assert "git diff | nacre chat 'what does this change?'" in page.stdout
    assert "chat: a tool call was refused" in page.stdout


def test_a_fact_that_was_added_is_recalled(person: Person, model: Model) -> None:
    added = person.nacre("memory", "add", "--json", "The", "user keeps a parrot named Coco.", "--subject", "user")
    assert added.code == 0, added
    assert (added.json["schema_version"], added.json["added"], added.json["subject"]) == (1, True, "user")
    assert person.nacre("memory", "list", "--json").json["items"][0]["text"] == "The user keeps a parrot named Coco."
    person.ask("what is my parrot called?")
    assert any("named Coco" in json.dumps(request.messages) for request in model.chats)
    again = person.nacre("memory", "add", "--json", "The user keeps a parrot named Coco.")
    assert (again.code, again.json["added"]) == (0, False)


def test_every_json_document_has_a_schema_version(person: Person) -> None:
    person.ask("hello")
    lines = [
        ("chat", "hello"),
        ("memory", "list"),
        ("memory", "search", "hello"),
        ("skills", "list"),
        ("skills", "check"),
        ("trust", "--list"),
        ("setup", "embeddings", "--dry-run"),
        ("serve", "--check"),
        ("doctor",),
        ("config", "show"),
        ("config", "path"),
        ("config", "check"),
        ("completion", "bash"),
        ("sessions", "nonsense"),
        ("memory", "why"),
        ("--nonsense",),
    ]
    versions = {line: person.nacre(*line, "--json").json.get("schema_version") for line in lines}
    assert versions == dict.fromkeys(lines, 1)


def test_jsonl_of_a_list_is_one_record_per_line(person: Person) -> None:
    person.ask("hello")
    person.ask("and again")
    records = person.nacre("sessions", "list", "--jsonl").lines
    assert [record["schema_version"] for record in records] == [1, 1]
    error = person.nacre("sessions", "show", "nowhere", "--jsonl").lines
    assert [(line["type"], line["ok"]) for line in error] == [("error", False)]


def test_completion_knows_the_verbs_and_the_options(person: Person) -> None:
    def complete(*words: str) -> list[str]:
        done = person.nacre("__complete", "--", *words)
        return [line.partition("\t")[0] for line in done.out.splitlines()]

    assert complete("he") == ["help"]
    assert complete("help", "sess") == ["sessions"]
    assert complete("chat", "--at") == ["--attach"]
    assert complete("chat", "--conf") == ["--config"]
    assert complete("memory", "a") == ["add"]
