"""search_sessions: what it finds while the question that it is asked for is in the log itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

import nacre
from nacre import Message, Sessions, ToolCall
from nacre.agent.ports import Scene
from nacre.tools.builtin import search_tool

QUESTION = "When did Caroline go to the LGBTQ support group?"
Ask = Callable[..., list[str]]


@pytest.fixture
def sessions(root: Path) -> Iterator[Sessions]:
    with nacre.open(root) as opened:
        opened.add_message("cli:1", "user", "Caroline: I went to a LGBTQ support group yesterday")
        opened.add_message("cli:1", "assistant", "Melanie: how was it?")
        opened.add_message("cli:2", "user", "the locker code is 4711")
        yield opened


@pytest.fixture
def ask(sessions: Sessions, monkeypatch: pytest.MonkeyPatch, root: Path) -> Ask:
    """Call the tool in a turn of `cli:new` as the agent does: question, call, and what has been called before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))

    def ask(query: str, question: str = QUESTION, **given: object) -> list[str]:
        arguments = {"query": query, **given} if query else given
        call = ToolCall(id="c1", name="search_sessions", arguments=arguments)
        sessions.add_message("cli:new", "user", question)
        sessions.add_full_message("cli:new", Message(role="assistant", tool_calls=(call,)))
        scene = Scene(key="cli:new", call=call, emit=lambda _: None)

        async def run() -> str:
            return (await search_tool(sessions).run(arguments, scene)).text

        return anyio.run(run).splitlines()

    return ask


def test_hits_are_one_line_each_with_their_place(ask: Ask) -> None:
    (line,) = ask('"locker code"', limit=1)
    assert line.startswith("cli:2@2  ")
    assert line.endswith("  user: the **locker code** is 4711")
    assert ask("xylophone", "what?") == ["nothing was found for 'xylophone'"]


def test_the_question_that_is_asked_is_not_the_answer(ask: Ask) -> None:
    found = ask(QUESTION)
    assert found[0].startswith("cli:1@2  ")
    assert not any(line.startswith("cli:new@") for line in found)


@pytest.mark.parametrize("query", ["Caroline LGBTQ", "Caroline yesterday Oslo", "support", "LGBT"])
def test_what_has_some_of_the_words_is_found_though_the_question_has_all(ask: Ask, query: str) -> None:
    assert ask(query)[0].startswith("cli:1@2  ")


def test_what_was_called_earlier_in_the_turn_is_left_out_too(ask: Ask, sessions: Sessions) -> None:
    ask("Caroline group")
    sessions.add_full_message("cli:new", Message(role="tool", content="cli:1@2 **Caroline**", tool_call_id="c1"))
    sessions.add_message("cli:new", "user", "hurry up, Caroline is waiting")
    assert [line.split("@")[0] for line in ask("Caroline", "and?")] == ["cli:1"]


def test_earlier_turns_of_the_same_session_are_found(ask: Ask, sessions: Sessions) -> None:
    sessions.add_message("cli:new", "user", "Caroline has a brother")
    sessions.add_message("cli:new", "assistant", "Noted.")
    assert {line.split("@")[0] for line in ask("Caroline")} == {"cli:1", "cli:new"}


def test_a_call_that_is_not_in_the_log_leaves_nothing_out(sessions: Sessions, ask: Ask) -> None:
    scene = Scene(key="cli:1", call=ToolCall(id="x"), emit=lambda _: None)

    async def run() -> str:
        return (await search_tool(sessions).run({"query": "support group"}, scene)).text

    assert anyio.run(run).startswith("cli:1@2  ")


@pytest.mark.parametrize(("limit", "lines"), [(0, 1), (2, 2), (1000, 50)])
def test_the_limit_is_bounded(sessions: Sessions, ask: Ask, limit: int, lines: int) -> None:
    sessions.add_messages("cli:3", [{"role": "user", "content": f"pearl {n}"} for n in range(60)])
    assert len(ask("pearl", limit=limit)) == lines


def test_whether_others_use_a_word_is_not_told_to_whoever_sees_only_their_own(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
    sessions.add_message("guest", "user", "the harbour is full of kajaks")
    tool = search_tool(sessions, sees=lambda one, other: one == other)

    async def ask() -> str:
        arguments = {"query": "harbout"}
        call = ToolCall(id="c1", name="search_sessions", arguments=arguments)
        return (await tool.run(arguments, Scene(key="guest", call=call, emit=lambda _: None))).text

    before = anyio.run(ask)
    sessions.add_message("owner", "user", "a harbout")
    assert anyio.run(ask) == before


def test_a_result_is_read_in_full_with_its_neighbours(sessions: Sessions, ask: Ask) -> None:
    long = "It begins. " + "filler " * 1000 + "and the plumber comes on Thursday"
    sessions.add_messages("cli:4", [{"role": "user", "content": f"before {n}"} for n in range(4)])
    n = sessions.add_message("cli:4", "assistant", long)
    sessions.set_meta("cli:4", title="between two messages")
    sessions.add_messages("cli:4", [{"role": "user", "content": f"after {n} " + "x" * 2000} for n in range(4)])
    assert f"cli:4@{n}  " in ask("plumber")[0]
    shown = ask("", place=f"cli:4@{n}")
    assert long in shown
    assert [line for line in shown if line.startswith("before")] == ["before 2", "before 3"]
    after = [line for line in shown if line.startswith("after")]
    assert [line[:7] for line in after] == ["after 0", "after 1"]
    assert all(line.endswith("for the rest)") and len(line) < 1100 for line in after)


def test_an_archived_message_can_be_read(sessions: Sessions, ask: Ask) -> None:
    sessions.archive("cli:2")
    place = ask("locker")[0].split()[0]
    assert ask("", place=place)[1] == "the locker code is 4711"


def test_what_was_said_before_a_new_conversation_is_found_and_read_where_it_was_found(
    sessions: Sessions, ask: Ask
) -> None:
    for drawer in ("green", "blue"):
        sessions.add_message("cli:new", "user", f"My passport is kept in the {drawer} drawer")
        sessions.add_message("cli:new", "assistant", f"Noted: {drawer}.")
        sessions.archive("cli:new")
    places = [line.split()[0] for line in ask("passport drawer", "Where is my passport?")]
    assert len(set(places)) == 2
    shown = [ask("", "and?", place=place) for place in places]
    assert [lines[1] for lines in shown] == [f"My passport is kept in the {one} drawer" for one in ("blue", "green")]
    # Neighbours are of the same conversation, and can be read in their turn.
    assert [lines[-1] for lines in shown] == ["Noted: blue.", "Noted: green."]
    neighbour = shown[1][3].split()[0]
    assert "Noted: green." in ask("", "and?", place=neighbour)


def test_a_guest_finds_what_they_said_before_a_new_conversation(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent / "cache"))
    sessions.add_message("guest", "user", "My passport is kept in the blue drawer")
    sessions.archive("guest")
    sessions.add_message("guest", "user", "Where is my passport?")
    call = ToolCall(id="c1", name="search_sessions", arguments={"query": "passport"})
    sessions.add_full_message("guest", Message(role="assistant", tool_calls=(call,)))
    tool = search_tool(sessions, sees=lambda one, other: one == other)

    async def run(arguments: dict[str, str]) -> str:
        return (await tool.run(arguments, Scene(key="guest", call=call, emit=lambda _: None))).text

    (line,) = anyio.run(run, {"query": "passport"}).splitlines()
    assert anyio.run(run, {"place": line.split()[0]}).endswith("in the blue drawer")


def test_a_place_without_a_generation_is_in_the_active_one_or_the_newest_that_has_it(
    sessions: Sessions, ask: Ask
) -> None:
    for code in ("1", "2"):
        sessions.add_messages("k", [{"role": "user", "content": f"{code}-{n}"} for n in range(2)])
        sessions.archive("k")
    sessions.add_message("k", "user", "3-0")
    assert ask("", place="k@2")[1] == "3-0"
    assert ask("", place="k@3")[1::3] == ["2-0", "2-1"]
    with pytest.raises(nacre.errors.ToolError, match="there is no message"):
        ask("", place=f"k@{'0' * 32}/2")


def test_a_message_with_calls_shows_them(sessions: Sessions, ask: Ask) -> None:
    call = ToolCall(id="c9", name="shell", arguments={"command": "ls"})
    n = sessions.add_full_message("cli:5", Message(role="assistant", tool_calls=(call,)))
    assert "shell" in ask("", place=f"cli:5@{n}")[1]


@pytest.mark.parametrize(
    "place", ["cli:1", "cli:1@x", "@3", "cli:1@999", "cli:1@1", "nobody@2", "nacre:memory@2", "a\nb@2"]
)
def test_a_place_that_is_none_is_said_so(ask: Ask, place: str) -> None:
    with pytest.raises(nacre.errors.ToolError, match=r"no place|no message"):
        ask("", place=place)


@pytest.mark.parametrize("given", [{}, {"query": "x", "place": "cli:1@2"}])
def test_one_of_query_and_place_is_needed(sessions: Sessions, given: dict[str, str]) -> None:
    async def run() -> None:
        await search_tool(sessions).run(given, Scene(key="cli:1", call=ToolCall(id="x"), emit=lambda _: None))

    with pytest.raises(nacre.errors.ToolError, match="a query to search for, or a place to read"):
        anyio.run(run)


def test_who_may_not_see_a_session_cannot_read_it(sessions: Sessions) -> None:
    async def run(key: str) -> str:
        tool = search_tool(sessions, sees=lambda one, other: one == other)
        scene = Scene(key=key, call=ToolCall(id="x"), emit=lambda _: None)
        return (await tool.run({"place": "cli:2@2"}, scene)).text

    assert anyio.run(run, "cli:2").endswith("the locker code is 4711")
    with pytest.raises(nacre.errors.ToolError, match="there is no message cli:2@2"):
        anyio.run(run, "cli:1")
