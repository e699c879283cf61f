"""Serving in trouble: two daemons, commands in the middle of a turn, and senders with impossible names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.kernel import Kernel
from nacre.channels.channel import key_of
from nacre.config import Settings
from nacre.errors import LogDamaged, SessionBusy
from nacre.runtime.agents import check_limits, check_workspaces
from nacre.runtime.daemon import channels_of, serving
from nacre.runtime.gateway.access import Access, access_of
from nacre.runtime.gateway.earlier_agent import Earlier
from nacre.runtime.gateway.gateway import Gateway
from tests.runtime.test_daemon import ask, play, words
from tests.runtime.wires import house, wired


def test_only_one_daemon_serves_a_store(home: Path) -> None:
    async def act(app: Any, _: Gateway) -> None:
        with pytest.raises(
            SessionBusy, match=r"is in use by another daemon: .*; stop it, or choose another store with --store"
        ):
            async with serving(app):
                pass

    play(act)


def test_what_was_served_can_be_served_again(home: Path) -> None:
    async def act(_: Any, __: Gateway) -> None:
        """There is nothing to do."""

    play(act)
    play(act)


def test_a_new_conversation_waits_for_the_turn_that_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn is somebody else's, on the web: its answer belongs to its question."""
    wires = wired(monkeypatch)

    async def run() -> None:
        async with house(wires) as made, anyio.create_task_group() as tasks:
            app, key = made.agents.apps["main"], "home::c::ann"
            tasks.start_soon(app.kernel.deliver, UserMessage(key=key, content="held"))
            await made.main.asked.wait()
            wires["home"].say("/new")
            await anyio.wait_all_tasks_blocked()
            assert wires["home"].sent == []
            made.main.opened.set()
            assert await wires["home"].hears() == [
                "A new conversation has started. The old one is kept in the archive."
            ]
            wires["home"].say("hi")
            await wires["home"].hears(2)
            assert [message.content for message in app.sessions.get_history(key)] == ["hi", "main heard hi"]

    anyio.run(run)


def test_nobody_works_on_disk_for_a_conversation_that_is_in_ram(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(app: Any, gateway: Gateway) -> None:
        kernel = gateway._room("telegram").kernel
        assert isinstance(kernel, Kernel)
        assert set(app.tools) - set(kernel._agent_for(key_of(words())).tools) == {"delegate"}

    monkeypatch.setenv("NACRE_TELEGRAM_TOKEN", "1:a")
    play(act, channels={"session_persistence": False, "telegram": {"allow": ["7"]}})


# ---- who it is


def test_a_sender_with_a_name_that_no_session_can_have_is_told(home: Path) -> None:
    async def act(_: Any, gateway: Gateway) -> None:
        arrived = words(thread="t" * 2000)
        assert (await ask(gateway, arrived)).startswith(
            "I cannot answer now: a session key must have 1 to 1024 characters"
        )

    play(act)


def test_an_earlier_session_that_is_damaged_is_that_senders_trouble(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: Any, key: str) -> bool:
        if key == "telegram_7":
            raise LogDamaged(key)
        return False

    async def act(_: Any, gateway: Gateway) -> None:
        monkeypatch.setattr(nacre.Sessions, "exists", damaged)
        assert gateway._key(words()) == "telegram_7"
        monkeypatch.undo()
        assert gateway._key(words()) == key_of(words())

    play(act)


def test_what_is_known_of_senders_does_not_grow_for_ever(home: Path) -> None:
    with nacre.open() as sessions:
        earlier = Earlier(sessions, lambda _: Access(), limit=100)
        for number in range(200):
            earlier(words(sender=str(number)), f"telegram::7::{number}")
        assert len(earlier) <= 100


def test_no_channel_has_the_name_of_our_own_sessions(tmp_path: Path) -> None:
    settings = Settings({"channels": {"nacre": {"kind": "irc", "host": "h"}}}, {})
    with pytest.raises(nacre.ConfigError, match="has lower-case letters, digits and dashes, and not api, nacre"):
        channels_of(settings, tmp_path)


@pytest.mark.parametrize("text", ["notaurl", "ftp://x", "http://[::1", "http://", "https://x:99999"])
@pytest.mark.parametrize(("kind", "key"), [("matrix", "homeserver"), ("telegram", "address")])
def test_what_is_no_address_of_a_server_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, key: str, text: str
) -> None:
    monkeypatch.setenv(f"NACRE_{kind.upper()}_TOKEN", "1:a")
    with pytest.raises(nacre.ConfigError, match=rf"channels.{kind}.{key} is an address such as https://"):
        channels_of(Settings({"channels": {kind: {key: text}}}, {}), tmp_path)


@pytest.mark.parametrize("key", ["allow", "owners"])
def test_a_nick_may_be_written_as_people_write_it(key: str) -> None:
    """A server tells nicks apart without regard to case, and so does the channel."""
    tables = {"irc": {key: ["Bob"]}, "den": {"kind": "irc", key: ["Bob"], "identify": "account"}}
    access = access_of(Settings({"channels": {**tables, "wire": {key: ["Bob"]}}}, {}))
    judged = {name: (access(name).lets if key == "allow" else access(name).is_owner) for name in (*tables, "wire")}
    assert [name for name, judge in judged.items() if judge("bob")] == ["irc"]
    assert [name for name, judge in judged.items() if judge("Bob")] == ["den", "wire"]


@pytest.mark.parametrize("inside", ["", "/deep"])
def test_no_agent_works_in_the_usual_workspace_of_another(tmp_path: Path, inside: str) -> None:
    settings = Settings({"agents": {"clerk": {"workspace": f"{tmp_path}/workspace{inside}"}}}, {})
    with pytest.raises(nacre.ConfigError, match="'main' and 'clerk' would share the workspace"):
        check_workspaces(settings, str(tmp_path))
    check_workspaces(settings, str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("turns", [0, -1])
def test_a_daemon_that_could_answer_nobody_says_so(home: Path, turns: int) -> None:
    with pytest.raises(nacre.ConfigError, match=r"agent.max_turns must be at least 1"):
        check_limits(Settings({"agent": {"max_turns": turns}}, {}))
