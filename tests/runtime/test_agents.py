"""Several agents in one process: each with its own model, channels, sessions, memory and files; and changes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.ports import STOPPED
from nacre.config import Settings
from nacre.errors import ConfigError
from nacre.runtime.agents import Agents
from nacre.runtime.gateway.inbox import KEYS
from tests.runtime.wires import House, Wire, house, wired

Act = Callable[[House], Coroutine[Any, Any, None]]


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> dict[str, Wire]:
    return wired(monkeypatch)


def play(wires: dict[str, Wire], act: Act, **sections: Any) -> None:
    async def run() -> None:
        async with house(wires, **sections) as made:
            await act(made)

    anyio.run(run)


def said(root: Path, key: str) -> list[Any]:
    with nacre.open(root) as sessions:
        return [message.content for message in sessions.get_history(key)]


OFFICE, HOME = "office::c::ann", "home::c::ann"


def test_each_answers_where_it_is_asked_and_knows_nothing_of_the_other(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        wires["home"].say("pearl")
        wires["office"].say("oyster")
        assert await wires["home"].hears() == ["main heard pearl"]
        assert await wires["office"].hears() == ["clerk heard oyster"]
        main, clerk = (house.agents.apps[name].sessions for name in ("main", "clerk"))
        assert (main.exists(OFFICE), clerk.exists(HOME)) == (False, False)
        assert ([hit.key for hit in main.search("oyster")], [hit.key for hit in clerk.search("oyster")]) == (
            [],
            [OFFICE, OFFICE],
        )
        assert (len(house.main.chats), len(house.clerk.chats)) == (1, 1)

    play(wires, act)
    store = home / "nacre_home"
    assert said(store, HOME) == ["pearl", "main heard pearl"]
    assert said(store / "agents" / "clerk", OFFICE) == ["oyster", "clerk heard oyster"]


def test_what_one_remembers_the_other_does_not(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        main, clerk = (house.agents.apps[name].memory for name in ("main", "clerk"))
        assert main is not None
        assert clerk is not None
        main.remember("The user's cat is called Perla.", subject="cat")
        assert "Perla" in main.recall("What is my cat called?", tokens=200)
        assert "Perla" not in clerk.recall("What is my cat called?", tokens=200)

    play(wires, act, memory={"enabled": True, "embeddings": "off"})
    assert not any("Perla" in file.read_text() for file in (home / "nacre_home" / "agents").rglob("*.md"))


def test_each_has_its_persona_its_tools_and_its_workspace(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        main, clerk = house.agents.apps["main"], house.agents.apps["clerk"]
        assert clerk.parts.system.startswith("You are Clara.")
        assert main.parts.system.startswith("You are nacre")
        assert (list(clerk.tools), "write_file" in main.tools) == (["read_file"], True)
        assert any("not a tool of this agent" in note and "'telepathy'" in note for note in clerk.notes)

    clerk = {"persona": "You are Clara.", "only": "read_file telepathy"}
    play(wires, act, agents={"clerk": clerk}, channels={})
    assert (home / "nacre_home" / "agents" / "clerk" / "home").is_dir()


def test_a_workspace_that_holds_the_stores_does_not_show_them(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        secret = home / "nacre_home" / "secret.txt"
        secret.write_text("pearl")
        clerk = house.agents.apps["clerk"]
        call: Any = {"path": "nacre_home/secret.txt"}
        with pytest.raises(nacre.ToolError):
            await clerk.tools["read_file"].run(call, None)  # type: ignore[arg-type] # it does not look at the scene

    play(wires, act, agents={"clerk": {"workspace": str(home)}}, channels={})


@pytest.mark.parametrize("inside", ["", "/deep"])
def test_two_agents_do_not_share_a_workspace(home: Path, inside: str) -> None:
    settings = Settings({"agent": {"workspace": "~/w"}, "agents": {"clerk": {"workspace": f"~/w{inside}"}}}, {})
    with pytest.raises(nacre.ConfigError, match="'main' and 'clerk' would share the workspace"):
        anyio.run(Agents().check, settings)


def test_an_agent_may_have_several_channels_of_a_kind(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        for name in ("day", "night"):
            wires[name].say("hi")
            assert await wires[name].hears() == ["clerk heard hi"]
        assert [(wire.table, wire.state.parts[-4:]) for wire in wires.values()] == [
            ({"x": 1}, ("agents", "clerk", "channels", "day.json")),
            ({}, ("agents", "clerk", "channels", "night.json")),
        ]

    mine = {"kind": "wire", "agent": "clerk"}
    play(wires, act, channels={"day": {**mine, "x": 1, "per_minute": 9}, "night": mine})


def test_a_schedule_is_its_agents_and_goes_out_over_its_channels(home: Path) -> None:
    table = {"every": "1m", "text": "x", "to": "home::c::ann", "agent": "clerk"}
    settings = Settings({"agents": {"clerk": {}}, "schedule": {"morning": table}}, {})
    with pytest.raises(
        nacre.ConfigError, match=r"schedule.morning sends to 'home', which is not a channel of its agent"
    ):
        anyio.run(Agents().check, settings)


def test_a_channel_that_is_refused_ends_alone(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        wires["home"].say("hi")
        assert await wires["home"].hears() == ["main heard hi"]
        assert house.agents.gateways[0].channels == {"door": False, "home": True}

    logging.disable()
    play(wires, act, channels={"door": {"kind": "wire", "refuses": True}, "home": {"kind": "wire"}})
    logging.disable(logging.NOTSET)


# ---- changes while they run


def test_an_agent_comes_and_goes_while_the_turn_of_another_runs_through(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        wires["home"].say("held")
        await house.main.asked.wait()
        agents, main = house.agents, house.agents.apps["main"]
        changed = house.settings(
            agents={"scribe": {"ollama": {"host": house.clerk.host}}},
            channels={"home": {"kind": "wire"}, "desk": {"kind": "wire", "agent": "scribe"}},
        )
        line = wires["home"]
        assert sorted(await agents.change(changed)) == ["clerk", "scribe"]
        assert (list(agents.apps), agents.apps["main"], len(agents.gateways)) == (["main", "scribe"], main, 2)
        wires["desk"].say("hi")
        assert await wires["desk"].hears() == ["clerk heard hi"]
        house.main.opened.set()
        assert await line.hears() == ["main heard held"]

    play(wires, act)


def test_what_is_about_the_daemon_counts_at_once_and_restarts_nobody(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        agents = house.agents
        assert not agents.settings.flag("serve.users_are_guests")
        assert await agents.change(house.settings(serve={"users_are_guests": True})) == []
        assert agents.settings.flag("serve.users_are_guests")
        with pytest.raises(ConfigError):
            await agents.change(house.settings(agent={"max_turns": 0}))
        assert agents.settings.flag("serve.users_are_guests")

    play(wires, act)


def test_only_what_changed_is_made_anew(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        agents, old = house.agents, dict(house.agents.apps)
        assert await agents.change(house.settings()) == []
        assert await agents.change(house.settings(approvals={"shell": "deny"})) == ["main", "clerk"]
        assert [agents.apps[name] is old[name] for name in ("main", "clerk")] == [False, False]
        settings = house.settings(approvals={"shell": "deny"})
        settings._tables["agents"]["clerk"]["max_steps"] = 3
        old = dict(agents.apps)
        assert await agents.change(settings) == ["clerk"]
        assert [agents.apps[name] is old[name] for name in ("main", "clerk")] == [True, False]
        wires["office"].say("still there?")
        assert await wires["office"].hears() == ["clerk heard still there?"]

    play(wires, act)


def test_what_cannot_be_used_changes_nothing(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        old = dict(house.agents.apps)
        with pytest.raises(nacre.ConfigError, match="there is no such channel"):
            await house.agents.change(house.settings(channels={"home": {"kind": "pigeon"}}))
        assert house.agents.apps == old
        assert not any(app.is_ending for app in old.values())

    play(wires, act)


def test_an_agent_that_does_not_start_goes_on_as_it_was(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        logging.disable()
        settings = house.settings(agents={"clerk": {"provider": "openai", "model": "m", "openai": {"key_file": "/no"}}})
        assert await house.agents.change(settings) == ["clerk"]
        logging.disable(logging.NOTSET)
        wires["office"].say("hi")
        assert await wires["office"].hears() == ["clerk heard hi"]

    play(wires, act)


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110 - nothing tells of it, as nothing tells an operator
            await anyio.sleep(0.001)


class Keys:
    """Files that the clerk needs to start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str) -> None:
        """Make a file as it must be."""
        file = self._folder / f"{name}.new"
        file.write_text("secret")
        file.chmod(0o600)
        file.rename(self._folder / name)

    def take_away(self, name: str) -> None:
        (self._folder / name).unlink()

    def clerk(self, name: str) -> dict[str, Any]:
        """The table of a clerk that needs a file."""
        file = str(self._folder / name)
        return {"clerk": {"provider": "openai", "model": name, "openai": {"key_file": file}}}


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    """The file `old` is there."""
    made = Keys(tmp_path)
    made.put("old")
    logging.disable()
    yield made
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", ["old", "new"])
def test_an_agent_that_does_not_start_at_all_is_missing_until_it_does(
    home: Path, wires: dict[str, Wire], keys: Keys, first: str
) -> None:
    async def act(house: House) -> None:
        agents, line = house.agents, wires["home"]
        keys.take_away("old")
        assert await agents.change(house.settings(agents=keys.clerk("new"))) == ["clerk"]
        assert (list(agents.missing), len(agents.gateways)) == (["clerk"], 1)
        line.say("hi")
        assert await line.hears() == ["main heard hi"]
        keys.put(first)
        await until(lambda: not agents.missing)
        clerk = agents.apps["clerk"]
        assert (clerk.is_ending, clerk.provider.model, len(agents.gateways)) == (False, first, 2)

    play(wires, act, agents=keys.clerk("old"))


def test_an_agent_that_is_missing_becomes_what_the_next_change_wants(
    home: Path, wires: dict[str, Wire], keys: Keys
) -> None:
    async def act(house: House) -> None:
        agents = house.agents
        keys.take_away("old")
        await agents.change(house.settings(agents=keys.clerk("new")))
        assert await agents.change(house.settings()) == ["clerk"]
        wires["office"].say("hi")
        assert await wires["office"].hears() == ["clerk heard hi"]
        assert (list(agents.missing), len(agents.gateways)) == ([], 2)

    play(wires, act, agents=keys.clerk("old"))


def test_an_agent_that_is_missing_can_be_taken_out(home: Path, wires: dict[str, Wire], keys: Keys) -> None:
    async def act(house: House) -> None:
        agents = house.agents
        keys.take_away("old")
        await agents.change(house.settings(agents=keys.clerk("new"), channels={}))
        assert await agents.change(house.settings(agents={}, channels={})) == ["clerk"]
        assert (list(agents.apps), list(agents.missing)) == (["main"], [])

    play(wires, act, agents=keys.clerk("old"), channels={})


def test_a_new_agent_that_does_not_start_is_missing(home: Path, wires: dict[str, Wire], keys: Keys) -> None:
    async def act(house: House) -> None:
        agents = house.agents
        assert await agents.change(house.settings(agents=keys.clerk("new"), channels={})) == ["clerk"]
        assert (list(agents.apps), list(agents.missing)) == (["main"], ["clerk"])
        keys.put("new")
        await until(lambda: not agents.missing)
        assert list(agents.apps) == ["main", "clerk"]

    play(wires, act, agents={}, channels={})


def test_an_agent_that_stumbles_over_a_bug_keeps_no_other_from_changing(
    home: Path, wires: dict[str, Wire], keys: Keys
) -> None:
    async def act(house: House) -> None:
        agents, main = house.agents, house.agents.apps["main"]
        agents.apps["clerk"].sessions.with_internal_keys().append(KEYS[0], "x.arrived", {"of": "another shape"})
        assert await agents.change(house.settings(approvals={"shell": "deny"})) == ["main", "clerk"]
        assert (agents.apps["main"] is main, list(agents.missing)) == (False, ["clerk"])
        wires["home"].say("hi")
        assert await wires["home"].hears() == ["main heard hi"]

    play(wires, act)


# ---- ends


def test_a_turn_that_ends_in_time_is_answered_before_the_end(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        wires["office"].say("held")
        await house.clerk.asked.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(house.agents.end)
            await anyio.wait_all_tasks_blocked()
            wires["office"].say("too late")
            house.clerk.opened.set()
        assert wires["office"].sent == ["clerk heard held"]

    play(wires, act)
    assert said(home / "nacre_home" / "agents" / "clerk", OFFICE) == ["held", "clerk heard held"]


def test_a_turn_that_is_cut_is_gone_on_with_at_the_next_start(home: Path, wires: dict[str, Wire]) -> None:
    async def cut(house: House) -> None:
        wires["office"].say("held")
        await house.clerk.asked.wait()
        wires["office"].say("and more")
        await anyio.wait_all_tasks_blocked()
        await house.agents.end()
        assert wires["office"].sent == []

    async def resumed(house: House) -> None:
        house.clerk.opened.set()
        await wires["office"].hears()

    play(wires, cut, grace=0.2)
    left = said(home / "nacre_home" / "agents" / "clerk", OFFICE)
    play(wires, resumed, grace=0.2)
    assert left == ["held"]
    found = said(home / "nacre_home" / "agents" / "clerk", OFFICE)
    assert found[0] == "held"
    assert STOPPED not in " ".join(found)
    assert "clerk heard" in found[-1]


def test_a_turn_without_a_channel_has_its_time_too(home: Path, wires: dict[str, Wire]) -> None:
    async def act(house: House) -> None:
        kernel = house.agents.apps["main"].kernel
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kernel.deliver, UserMessage(key="api", content="held"))
            await house.main.asked.wait()
            tasks.start_soon(house.agents.end)
            await anyio.wait_all_tasks_blocked()
            house.main.opened.set()

    play(wires, act)
    assert said(home / "nacre_home", "api") == ["held", "main heard held"]
