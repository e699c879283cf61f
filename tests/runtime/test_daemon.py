"""Channels from the configuration: made, served as it says, and joined to earlier agents' sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.channels.channel import InboundMessage, key_of
from nacre.channels.irc import Irc
from nacre.config import Settings
from nacre.runtime import run_agent
from nacre.runtime.daemon import channels_of, serving
from nacre.runtime.gateway.access import access_of
from nacre.runtime.gateway.gateway import Gateway, Room
from tests.ollama_server import OllamaServer, refusal
from tests.ollama_server import said as spoken
from tests.ollama_server import serving as ollama
from tests.runtime.test_assembly import MODELS, answer


def words(text: str = "hi", **fields: Any) -> InboundMessage:
    return InboundMessage(**{"channel": "telegram", "chat": "7", "sender": "7", "id": "1", "text": text, **fields})


def play(act: Any, *answers: Any, **sections: Any) -> None:
    async def run() -> None:
        async with ollama(OllamaServer(list(answers), MODELS)) as server:
            settings = Settings({"ollama": {"host": server.host}, **sections}, {})
            async with run_agent(settings) as app, serving(app) as service:
                await act(app, service.gateway)

    anyio.run(run)


async def ask(gateway: Gateway, arrived: InboundMessage) -> str:
    return await gateway._answer(gateway._key(arrived), arrived)


def test_a_channel_that_there_is_not_is_said(home: Path) -> None:
    with pytest.raises(nacre.ConfigError, match=r"\[channels.pigeon\]: there is no such channel"):
        play(None, channels={"pigeon": {}})


def test_a_table_that_cannot_be_used_is_said(home: Path) -> None:
    with pytest.raises(nacre.ConfigError, match=r"\[channels.irc\] cannot be used"):
        play(None, channels={"irc": {"hots": "x"}})
    with pytest.raises(nacre.ConfigError, match=r"\[channels.irc\] cannot be used"):
        play(None, channels={"irc": {"host": "x", "per_minute": "many"}})


def test_a_sender_of_an_earlier_agent_finds_the_old_session(home: Path) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        app.sessions.add_message("telegram_7", "user", "long ago")
        assert await ask(gateway, words()) == "hello"
        assert [message.content for message in app.sessions.get_history("telegram_7")] == ["long ago", "hi", "hello"]

    play(act, answer(spoken("hello")))


def test_what_is_not_to_be_kept_is_in_ram_only(home: Path) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        assert await ask(gateway, words()) == "hello"
        assert not app.sessions.exists(key_of(words()))

    play(act, answer(spoken("hello")), channels={"session_persistence": False})


def test_a_channel_says_for_itself_whether_it_is_kept(home: Path) -> None:
    tables = {"day": {"kind": "irc", "session_persistence": True}, "night": {"kind": "irc"}}
    access = access_of(Settings({"channels": {"session_persistence": False, **tables}}, {}))
    assert (access("day").keeps, access("night").keeps, access("schedule").keeps) == (True, False, False)


def test_bots_of_one_kind_have_their_own_names_states_and_secrets(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NACRE_TELEGRAM_TOKEN", "1:a")
    settings = Settings({"channels": {"telegram": {}, "work-bot": {"kind": "telegram"}}}, {})
    with pytest.raises(nacre.ConfigError, match=r"\[channels.work-bot\] has no secret: .* or set NACRE_WORK_BOT_TOKEN"):
        channels_of(settings, tmp_path)
    monkeypatch.setenv("NACRE_WORK_BOT_TOKEN", "2:b")
    assert [channel.name for channel in channels_of(settings, tmp_path)] == ["telegram", "work-bot"]


def test_a_channel_on_irc_knows_the_nicks_that_are_named(home: Path, tmp_path: Path) -> None:
    table = {"host": "h", "allow": ["Bob[m]", "eve"], "owners": ["Bob[m]"]}
    settings = Settings({"channels": {"irc": table}}, {})
    [channel] = channels_of(settings, tmp_path)
    assert isinstance(channel, Irc)
    assert set(channel._named) == {"bob[m]", "eve"}
    assert access_of(settings)("irc").is_owner("bob[m]")


@pytest.mark.parametrize("name", ["../x", "Work", "api", "schedule", ""])
def test_a_channel_with_a_strange_name_is_not_made(home: Path, tmp_path: Path, name: str) -> None:
    settings = Settings({"channels": {name: {"kind": "irc", "host": "h"}}}, {})
    with pytest.raises(nacre.ConfigError, match="the name of a channel has lower-case letters, digits and dashes"):
        channels_of(settings, tmp_path)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("/status", "ollama/gemma4:e4b; 2 messages in this conversation; idle"),
        ("/stop", "There is nothing to stop."),
        ("/new", "A new conversation has started. The old one is kept in the archive."),
        ("/compact", "The conversation was not summarised"),
        ("/help", "Write a message, and I will answer."),
        ("/start", "Write a message, and I will answer."),
    ],
)
def test_commands_work_in_every_channel(home: Path, command: str, told: str) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        await ask(gateway, words())
        assert (await ask(gateway, words(command))).startswith(told)

    play(act, answer(spoken("hello")))


@pytest.mark.parametrize("owners", [["7"], []])
def test_why_a_summary_fails_is_said_to_the_owner_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, owners: list[str]
) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        for number in range(20):
            app.sessions.add_message(key_of(words()), "user", f"question {number}")
            app.sessions.add_message(key_of(words()), "assistant", "answer")
        assert ("acme" in await ask(gateway, words("/compact"))) is bool(owners)

    monkeypatch.setenv("NACRE_TELEGRAM_TOKEN", "1:a")
    play(act, refusal("no credit left for acme", status=400), channels={"telegram": {"owners": owners}})


def test_a_new_conversation_keeps_the_old_one_listed(home: Path) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        await ask(gateway, words())
        await ask(gateway, words("/new"))
        assert await ask(gateway, words("/new")) == "This conversation is already new."
        assert [info.key for info in app.sessions.list(archived=True)] == [key_of(words())]

    play(act, answer(spoken("hello")))


def test_in_ram_there_is_nothing_to_summarise_and_nothing_kept(home: Path) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        with nacre.open(":memory:") as passing:
            passing.add_message("k", "user", "hi")
            room = Room(passing, app.kernel)
            told = await gateway._commands["/compact"]("k", room)
            assert await gateway._commands["/new"]("k", room) == "A new conversation has started."
        assert told.startswith("This conversation is not stored")

    play(act)
