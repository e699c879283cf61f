"""Which model answers: the one that was named or a clear error, else the best that is there, always said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import DEFAULT_MODEL, Model, Refusal, Request
from tests.everyday.terminal import Screen

DOWN = "http://127.0.0.1:1"


@pytest.fixture
def other() -> Iterator[Model]:
    """A second server, as a provider that is asked with a key."""
    with Model(models={"gpt-5-mini": 128_000}) as server:
        yield server


def openai(person: Person, server: Model, **agent: str) -> None:
    """Configure an OpenAI server; keyword arguments are settings of the agent."""
    lines = "".join(f"{name} = {value}\n" for name, value in agent.items())
    person.config(f'[agent]\n{lines}[openai]\nbase_url = "{server.host}/v1"\n')


def test_without_the_default_model_another_installed_one_answers_and_is_named(person: Person, model: Model) -> None:
    model.models = {"nomic-embed-text:latest": 2048, "llama3.2:3b": 8192}
    done = person.nacre("chat", "hello")
    assert (done.code, done.out) == (0, "You said: hello\n"), done
    assert f"Ollama does not have {DEFAULT_MODEL}; llama3.2:3b answers instead." in done.err
    assert model.chats[0].model == "llama3.2:3b"


def test_a_named_model_that_is_not_installed_fails_and_says_how_to_install_it(person: Person, model: Model) -> None:
    for words in (("-m", "llama3.2"), ("--model", "ollama/llama3.2")):
        done = person.nacre("chat", *words, "hello")
        assert done.code == 13, done
        assert "does not have the model 'llama3.2'" in done.err
        assert DEFAULT_MODEL in done.err
        assert "nacre models pull llama3.2" in done.err
    assert model.chats == []


def test_a_configured_model_whose_server_is_down_is_not_replaced(person: Person) -> None:
    person.config(f'[agent]\nmodel = "ollama/gemma4:e4b"\n[ollama]\nhost = "{DOWN}"\n')
    done = person.nacre("chat", "--json", "hello")
    assert done.code == 13, done
    assert done.json["error"]["type"] == "model_unavailable"
    assert "cannot be reached" in done.json["error"]["message"]
    with person.sessions() as sessions:
        assert list(sessions.list()) == []


def test_a_key_in_the_environment_is_used_if_ollama_does_not_run(person: Person, other: Model) -> None:
    openai(person, other)
    done = person.nacre("chat", "hello", OLLAMA_HOST=DOWN, OPENAI_API_KEY="sk-test")
    assert (done.code, done.out) == (0, "You said: hello\n"), done
    assert "openai/gpt-5-mini answers, since OPENAI_API_KEY is set" in done.err
    assert {request.headers["authorization"] for request in other.chats} == {"Bearer sk-test"}


def test_a_missing_key_is_said_before_the_network_is_used(person: Person, model: Model) -> None:
    for name, variable in (("openai/gpt-5", "OPENAI_API_KEY"), ("claude-sonnet-4-5", "ANTHROPIC_API_KEY")):
        # A proxy that refuses every connection: a request would end with another error.
        done = person.nacre("chat", "-m", name, "hello", HTTPS_PROXY=DOWN, HTTP_PROXY=DOWN)
        assert done.code == 13, done
        assert "needs an API key" in done.err
        assert variable in done.err
        assert "reached" not in done.err
    assert model.requests == []


def test_the_model_command_refuses_a_name_that_nobody_has(person: Person, model: Model) -> None:
    model.models["llama3.2:3b"] = 8192
    with Screen(person, "chat", "--trust") as screen:
        screen.until("help")
        screen.say("/model llama3.3:3b")
        screen.until("does not have the model 'llama3.3:3b'")
        screen.until("Did you mean ollama/llama3.2:3b")
        screen.say("/model")
        screen.until("answers now")
        assert f"ollama/{DEFAULT_MODEL} answers now" in " ".join(screen.words.split())


def test_a_fallback_answers_when_the_server_is_down_and_that_is_said(person: Person, other: Model) -> None:
    openai(person, other, model='"ollama/gemma4:e4b"', fallback='["openai/gpt-5-mini"]')
    done = person.nacre("chat", "hello", OLLAMA_HOST=DOWN)
    assert (done.code, done.out) == (0, "You said: hello\n"), done
    assert "ollama/gemma4:e4b cannot answer" in done.err
    assert "openai/gpt-5-mini answers instead" in done.err


def test_a_fallback_answers_when_the_model_fails_in_a_turn(person: Person, model: Model, other: Model) -> None:
    model.answer = lambda _: Refusal(401, "no such subscription")
    openai(person, other, fallback='["openai/gpt-5-mini"]')
    done = person.ask("hello")
    assert done["answer"] == "You said: hello"
    assert done["model"] == "openai/gpt-5-mini"


def test_a_request_that_is_wrong_goes_to_no_fallback(person: Person, model: Model, other: Model) -> None:
    model.answer = lambda _: Refusal(400, "unknown field")
    openai(person, other, fallback='["openai/gpt-5-mini"]')
    done = person.nacre("chat", "hello")
    assert done.code != 0, done
    assert "unknown field" in done.err
    assert other.chats == []


def test_a_resumed_chat_says_that_another_model_answers_now(person: Person, model: Model) -> None:
    model.models["qwen3:8b"] = 8192
    assert person.nacre("chat", "-m", "qwen3:8b", "hello").code == 0
    line = (
        f"this chat was answered by ollama/qwen3:8b; ollama/{DEFAULT_MODEL} answers now (-m ollama/qwen3:8b keeps it)"
    )
    with Screen(person, "chat", "-c") as screen:
        screen.until("changes it back")
    assert line in person.nacre("chat", "-c", "again").err
    assert "was answered by" not in person.nacre("chat", "-c", "and again").err
    assert "was answered by" not in person.nacre("chat", "-m", "qwen3:8b", "-c", "once more").err


def remote(person: Person, server: Model) -> None:
    """Configure a server whose address counts as remote, although it is on this machine."""
    person.config(f'[openai]\nbase_url = "{server.host.replace("127.0.0.1", "127.1")}/v1"\n')
    person.env["OPENAI_API_KEY"] = "sk-test"


def test_a_message_that_no_local_model_answered_is_not_sent_to_a_remote_one(
    person: Person, model: Model, other: Model
) -> None:
    remote(person, other)
    model.answer = lambda _: Refusal(400, "not today")
    assert person.nacre("chat", "my secret").code == 1
    for words in (("-m", "openai/gpt-5-mini"), ()):
        done = person.nacre("chat", *words, "-c", "again", OLLAMA_HOST=DOWN)
        assert done.code == 13, done
        assert "local model" in done.err
    assert other.chats == []
    assert person.nacre("chat", "--allow-remote", "-c", "again", OLLAMA_HOST=DOWN).code == 0


def test_a_turn_of_a_local_session_is_not_read_by_a_remote_memory_later(
    person: Person, model: Model, other: Model
) -> None:
    remote(person, other)
    model.answer = lambda request: "hello" if request.tools else Refusal(400, "memory waits")
    assert person.nacre("chat", "my secret", at=person.trust(person.folder("here"))).code == 0
    there = person.trust(person.folder("there"))
    for _ in range(2):
        assert person.nacre("chat", "-m", "openai/gpt-5-mini", "hi", at=there).code == 0
    assert other.chats
    assert not [request for request in other.chats if "secret" in str(request.body)]


def test_a_session_of_a_local_model_is_not_sent_to_a_remote_one_unasked(person: Person) -> None:
    key = person.ask("my secret")["session"]
    # A proxy that refuses every connection: nothing leaves this machine.
    person.env |= {"OPENAI_API_KEY": "sk-test", "HTTPS_PROXY": DOWN}
    done = person.nacre("chat", "-m", "openai/gpt-5-mini", "-r", key, "again")
    assert done.code == 13, done
    assert "was answered by a local model" in done.err
    assert "--allow-remote" in done.err
    assert person.said(key) == ["my secret", "You said: my secret"]
    allowed = person.nacre("chat", "-m", "openai/gpt-5-mini", "-r", key, "--allow-remote", "again")
    assert "was answered by a local model" not in allowed.err, allowed
    assert "cannot be reached" in allowed.err


def test_a_remote_model_that_is_listed_as_fallback_needs_no_other_yes(person: Person) -> None:
    key = person.ask("hello")["session"]
    person.config('[agent]\nmodel = "ollama/gemma4:e4b"\nfallback = ["openai/gpt-5-mini"]\n')
    # A proxy that refuses every connection: nothing leaves this machine.
    done = person.nacre("chat", "-r", key, "again", OLLAMA_HOST=DOWN, OPENAI_API_KEY="sk-test", HTTPS_PROXY=DOWN)
    assert "openai/gpt-5-mini answers instead" in done.err, done
    assert "was answered by a local model" not in done.err
    assert "cannot be reached" in done.err


def test_a_server_in_the_own_network_is_as_local_as_ollama(person: Person, other: Model) -> None:
    key = person.ask("hello")["session"]
    openai(person, other, provider='"openai"', model='"gpt-5-mini"')
    assert person.ask("-r", key, "again")["answer"] == "You said: again"


def test_the_list_of_models_says_which_one_answers_now(person: Person, model: Model, other: Model) -> None:
    model.models["llama3.2:3b"] = 8192
    openai(person, other)
    done = person.nacre("models", "--json")
    assert done.code == 0, done
    assert done.json["schema_version"] == 1
    assert done.json["answers_now"] == f"ollama/{DEFAULT_MODEL}"
    found = {item["model"]: item for item in done.json["items"]}
    assert found["ollama/llama3.2:3b"]["window"] == 8192
    assert found["ollama/llama3.2:3b"]["capabilities"] == ["completion", "tools"]
    assert "openai/gpt-5-mini" in found
    table = person.nacre("models").out
    assert "answers now" in next(line for line in table.splitlines() if DEFAULT_MODEL in line)


def test_a_model_is_pulled_and_answers_afterwards(person: Person, model: Model) -> None:
    model.models = {}
    done = person.nacre("models", "pull", "llama3.2:3b")
    assert done.code == 0, done
    assert model.pulled == ["llama3.2:3b"]
    assert "llama3.2:3b is installed" in done.out
    assert person.ask("-m", "llama3.2:3b", "hello")["model"] == "ollama/llama3.2:3b"


def test_a_pull_without_ollama_says_that_it_does_not_run(person: Person) -> None:
    done = person.nacre("models", "pull", "llama3.2:3b", OLLAMA_HOST=DOWN)
    assert done.code == 13, done
    assert "cannot be reached" in done.err
    assert "ollama serve" in done.err


def test_the_request_asks_for_no_more_than_the_window_of_the_model(person: Person, model: Model) -> None:
    model.models = {DEFAULT_MODEL: 8192}
    seen: list[int] = []

    def answer(request: Request) -> str:
        seen.append(request.body["options"]["num_ctx"])
        return "yes"

    model.answer = answer
    person.ask("hello")
    assert set(seen) == {8192}


@pytest.mark.skipif("not __import__('nacre.providers.weights', fromlist=['x']).is_installed()", reason="not installed")
def test_the_embedded_model_says_that_it_is_a_toy(person: Person) -> None:
    done = person.nacre("chat", "hello", OLLAMA_HOST=DOWN, NACRE_MEMORY_ENABLED="false", NACRE_EMBEDDED_THREADS="1")
    # It says what it likes: an answer, one that does not end, or nothing.
    assert done.code in {0, 11, 12}, done
    assert "Ollama at http://127.0.0.1:1 cannot be reached" in done.err
    assert "do not rely on what it says" in done.err
