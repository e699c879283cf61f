"""`nacre init`: what it finds, asks and writes, in a pipe and in a terminal."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import DEFAULT_MODEL, Model
from tests.everyday.terminal import ENTER, Screen


def config_of(person: Person) -> Path:
    return person.home / ".config/nacre/config.toml"


def settings_of(person: Person) -> dict[str, Any]:
    return tomllib.loads(config_of(person).read_text())


def test_in_a_pipe_init_says_that_it_asks_questions(person: Person) -> None:
    done = person.nacre("init", stdin="1\n")
    assert done.code == 2, done
    assert "asks questions" in done.err
    assert "nacre init --yes" in done.err
    assert not config_of(person).exists()


def test_init_with_yes_writes_a_commented_configuration_that_works(person: Person, model: Model) -> None:
    model.models["llama3.2:3b"] = 8192
    done = person.nacre("init", "--yes")
    assert done.code == 0, done
    assert settings_of(person)["agent"]["model"] == f"ollama/{DEFAULT_MODEL}"
    assert config_of(person).read_text().count("#") > 10
    assert person.nacre("config", "check").code == 0
    assert person.ask("hello")["model"] == f"ollama/{DEFAULT_MODEL}"


def test_init_never_replaces_a_configuration_unasked(person: Person) -> None:
    person.config('[agent]\nmodel = "ollama/mine"\n')
    done = person.nacre("init", "--yes")
    assert done.code != 0, done
    assert "--force" in done.err
    assert settings_of(person) == {"agent": {"model": "ollama/mine"}}
    forced = person.nacre("init", "--yes", "--force")
    assert forced.code == 0, forced
    assert 'model = "ollama/mine"' in (config_of(person).parent / "config.toml.bak").read_text()


def test_in_a_terminal_init_asks_three_questions(person: Person, model: Model) -> None:
    model.models["llama3.2:3b"] = 8192
    with Screen(person, "init") as screen:
        screen.until("1. Which model answers?")
        screen.until("number? [1]")
        screen.type(f"2{ENTER}")
        screen.until("2. Before the agent changes files")
        screen.type(f"d{ENTER}")
        screen.until("3. Remember facts")
        screen.type(f"n{ENTER}")
        screen.until("Start with: nacre chat")
        assert screen.code() == 0
    found = settings_of(person)
    assert found["agent"]["model"] == "ollama/llama3.2:3b"
    assert found["memory"] == {"enabled": False}
    assert found["approvals"]["shell"] == "deny"


@pytest.mark.skipif("not __import__('nacre.providers.weights', fromlist=['x']).is_installed()", reason="not installed")
def test_enter_does_not_pin_the_toy(person: Person) -> None:
    with Screen(person, "init", OLLAMA_HOST="http://127.0.0.1:1") as screen:
        screen.until("1  embedded/")
        screen.until("2  decide at each start")
        screen.until("number? [2]")
        screen.type(ENTER)
        screen.until("2. Before the agent changes files")
        screen.type(ENTER)
        screen.until("3. Remember facts")
        screen.type(ENTER)
        screen.until("Start with: nacre chat")
    assert settings_of(person)["agent"]["model"] == ""


def test_ctrl_c_in_init_writes_nothing(person: Person) -> None:
    with Screen(person, "init") as screen:
        screen.until("number? [1]")
        screen.type("\x03")
        assert screen.code() == 130
    assert not config_of(person).exists()


def test_the_first_chat_in_a_terminal_mentions_init_once(person: Person) -> None:
    for is_first in (True, False):
        with Screen(person, "chat", "--trust", "hello") as screen:
            screen.until("You said: hello")
            screen.until_shell()
            assert ("`nacre init`" in screen.words) == is_first
    assert "nacre init" not in person.nacre("chat", "hello").err
