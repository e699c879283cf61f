"""Sessions that an editor opens again, closes, or begins with MCP servers of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, schema

import nacre
from nacre.messages import Message
from tests.item_orders import DONE, HI, ORDERS, TWICE, calls, gives
from tests.servers.acp.conftest import Editor, Place, run
from tests.servers.acp.test_turns import WRITE, begin, stored
from tests.servers.mcp.conftest import TOKEN
from tests.servers.mcp.conftest import Place as Archive


def test_a_session_is_resumed_without_a_replay(place: Place) -> None:
    place.model.script = [["It is a shell."], ["As I said."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "What is it?")
        async with place.editor() as editor:
            found = await editor.agent.resume_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            assert (found.modes.current_mode_id, editor.updates) == ("ask", [])
            assert await editor.ask(key, "Again?") == "end_turn"

    run(talk())
    said = json.dumps(place.model.requests[-1]["messages"])
    assert [text in said for text in ("What is it?", "It is a shell.", "Again?")] == [True] * 3


def test_a_long_title_ends_with_a_whole_word(place: Place) -> None:
    place.model.script = [["Hello."]]

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.ask(await begin(editor, place), "Where did the blue boat that we saw yesterday anchor?")
            (info,) = (await editor.agent.list_sessions()).sessions
            assert info.title == "Where did the blue boat that we saw yesterday…"

    run(talk())


def test_only_an_active_session_is_resumed(place: Place) -> None:
    with nacre.open(place.root) as sessions:
        sessions.add_message("old", "user", "hello")
        sessions.archive("old")
        sessions.with_internal_keys().add_message("nacre:notes", "user", "hello")
        sessions.add_alias("nacre:notes", "notes")

    async def talk() -> None:
        async with place.editor() as editor:
            for key in ("no", "old", "nacre:notes", "notes"):
                with pytest.raises(RequestError, match="there is no active session"):
                    await editor.agent.resume_session(cwd=str(place.folder), session_id=key, mcp_servers=[])

    run(talk())


def test_a_session_that_is_opened_in_another_folder_works_there(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    place.model.script = [["Hello."], [WRITE], ["Done."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "hello")
            editor.questions.clear()
            await editor.agent.load_session(cwd=str(other), session_id=key, mcp_servers=[])
            await editor.ask(key, "write it")
            trust, write = (call for call, _ in editor.questions)
            assert trust.title == f"Trust the folder {other}?"
            assert write.content[0].path == str(other / "a.txt")
            listed = [(await editor.agent.list_sessions(cwd=str(cwd))).sessions for cwd in (place.folder, other)]
            assert [[one.session_id for one in found] for found in listed] == [[key], []]

    run(talk())
    assert (other / "a.txt").read_text() == "pearl\n"
    assert not (place.folder / "a.txt").exists()


@pytest.mark.parametrize("kept", ["its folder", "no folder"])
def test_earlier_calls_are_shown_where_they_ran_though_the_session_is_opened_elsewhere(
    place: Place, tmp_path: Path, kept: str
) -> None:
    other, outside = tmp_path / "other", str(tmp_path / "b.txt")
    other.mkdir()
    place.model.script = [[WRITE], ["Done."], [{"call": "read_file", "path": outside}], ["Done."]]

    async def locations(editor: Editor, key: str) -> list[list[str]]:
        editor.updates.clear()
        await editor.agent.load_session(cwd=str(other), session_id=key, mcp_servers=[])
        return [[place.path for place in card.locations or ()] for card in editor.cards.values()]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "write it")
            await editor.ask(key, "read it")
            if kept == "no folder":
                with nacre.open(place.root) as sessions:
                    sessions.set_meta(key, cwd=None)
            here = [str(place.folder / "a.txt")] if kept == "its folder" else []
            assert await locations(editor, key) == [here, [outside]]

    run(talk())


def test_closing_a_session_stops_its_turn_and_what_was_said_is_stored(place: Place) -> None:
    never = threading.Event()
    place.model.script = [["Once upon ", {"wait": never}], ["Hello again."]]

    async def talk() -> str:
        async with place.editor() as editor:
            key = await begin(editor, place)
            turn = asyncio.create_task(editor.ask(key, "tell"))
            await editor.until(lambda: editor.text() == "Once upon ")
            await editor.agent.close_session(session_id=key)
            assert await turn == "cancelled"
            for request in (editor.ask(key, "more"), editor.agent.close_session(session_id=key)):
                with pytest.raises(RequestError, match="is not open here"):
                    await request
            await editor.agent.load_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            assert await editor.ask(key, "more") == "end_turn"
            return key

    key = run(talk())
    never.set()
    assert stored(place, key)[1:] == [
        ("assistant", "Once upon\n\n[stopped by the user]"),
        ("user", "more"),
        ("assistant", "Hello again."),
    ]


def test_a_prompt_that_comes_while_its_session_is_closed_is_refused(place: Place) -> None:
    never = threading.Event()
    place.model.script = [["One ", {"wait": never}], ["Two."]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            turn = asyncio.create_task(editor.ask(key, "one"))
            await editor.until(lambda: editor.text() == "One ")
            closing = asyncio.create_task(editor.agent.close_session(session_id=key))
            assert await turn == "cancelled"
            # The turn has ended, and its agent has not yet.
            with pytest.raises(RequestError, match="is not open here"):
                await editor.ask(key, "two")
            await closing

    run(talk())
    never.set()
    assert len(place.model.requests) == 1


def test_a_session_that_is_opened_again_has_one_agent(place: Place) -> None:
    never = threading.Event()
    place.model.script = [["One."], ["Two ", {"wait": never}]]

    async def talk() -> None:
        async with place.editor() as editor:
            key = await begin(editor, place)
            await editor.ask(key, "one")
            opening = asyncio.create_task(
                editor.agent.resume_session(cwd=str(place.folder), session_id=key, mcp_servers=[])
            )
            await asyncio.sleep(0)
            turn = asyncio.create_task(editor.ask(key, "two"))
            await opening
            await editor.until(lambda: editor.text().endswith("Two "))
            await editor.agent.cancel(session_id=key)
            assert await turn == "cancelled"

    run(talk())
    never.set()


def test_load_shows_the_summary_and_what_came_over_mcp(place: Place) -> None:
    with nacre.open(place.root) as sessions:
        for role, text in (("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")):
            sessions.add_message("chat-1", role, text)
        sessions.set_summary("chat-1", "They counted to two.", upto=3)
        sessions.add_full_message("chat-1", {"role": "mcp", "name": "notes", "content": "Buy bread."})
        sessions.add_message("chat-1", "user", "five")

    async def talk() -> list[tuple[str, str]]:
        async with place.editor() as editor:
            await editor.agent.load_session(cwd=str(place.folder), session_id="chat-1", mcp_servers=[])
            return [(update.session_update, update.content.text) for update in editor.updates]

    assert run(talk()) == [
        ("agent_message_chunk", "[summary of what was said before]\nThey counted to two.\n\n"),
        ("user_message_chunk", "three"),
        ("agent_message_chunk", "four"),
        ("user_message_chunk", "\n\n[mcp] Buy bread.\n\n"),
        ("user_message_chunk", "five"),
    ]


def test_what_comes_over_mcp_during_a_call_does_not_end_it(place: Place) -> None:
    with nacre.open(place.root) as sessions:
        call = {"id": "c", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
        sessions.add_message("chat-1", "user", "run it")
        sessions.add_full_message("chat-1", {"role": "assistant", "content": "", "tool_calls": [call]})
        sessions.add_full_message("chat-1", {"role": "mcp", "name": "notes", "content": "Buy bread."})
        sessions.add_full_message("chat-1", {"role": "tool", "tool_call_id": "c", "content": "pearl"})

    async def talk() -> None:
        async with place.editor() as editor:
            await editor.agent.load_session(cwd=str(place.folder), session_id="chat-1", mcp_servers=[])
            (ended,) = editor.of("tool_call_update")
            assert ended.status == "completed"
            assert "[mcp] Buy bread." in editor.text("user_message_chunk")

    run(talk())


def test_load_shows_each_call_once_with_its_last_result(place: Place) -> None:
    unanswered = [HI, calls("a", "b"), gives("b", "B!"), DONE]
    twice_in_one = [HI, calls("a", "a"), gives("a", "A!"), gives("a", "A!"), DONE]
    failed = Message(role="tool", tool_call_id="a", content="no such file", extra={"failed": True})
    orders = {**ORDERS, **TWICE, "twice in one": twice_in_one, "unanswered": unanswered, "failed": [calls("a"), failed]}
    with nacre.open(place.root) as sessions:
        for order, messages in orders.items():
            for message in messages:
                sessions.add_full_message(order, message)

    async def load(order: str, editor: Editor) -> list[tuple[str, str, str]]:
        editor.updates.clear()
        await editor.agent.load_session(cwd=str(place.folder), session_id=order, mcp_servers=[])
        assert sorted(one.tool_call_id for one in editor.of("tool_call_update")) == sorted(editor.cards)
        said = [message.content for message in orders[order] if message.role == "assistant" and message.content]
        assert editor.text() == "".join(map(str, said))
        return [(card.title, card.status, card.content[0].content.text) for card in editor.cards.values()]

    async def talk() -> dict[str, list[tuple[str, str, str]]]:
        async with place.editor() as editor:
            return {order: await load(order, editor) for order in orders}

    shown = run(talk())
    assert shown.pop("unanswered") == [
        ("tool_a", "failed", "interrupted, outcome unknown"),
        ("tool_b", "completed", "B!"),
    ]
    assert shown.pop("failed") == [("tool_a", "failed", "no such file")]
    for order, cards in shown.items():
        made = [call.id for message in orders[order] for call in message.tool_calls]
        assert cards == [(f"tool_{id}", "completed", f"{id.upper()}!") for id in made], order


def over_http(url: str, token: str) -> Any:
    header = schema.HttpHeader(name="Authorization", value=f"Bearer {token}")
    return schema.HttpMcpServer(type="http", name="past", url=url, headers=[header])


def test_an_mcp_server_over_http_is_used_with_its_headers_once_the_user_accepts(place: Place, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    archive = Archive(tmp_path / "other")
    with nacre.open(archive.root) as sessions:
        sessions.add_message("cli:1", "user", "Where is the pearl?")
    place.model.script = [[{"call": "past_search_sessions", "query": "pearl"}], ["Found."]]

    async def talk(url: str) -> None:
        async with place.editor() as editor:
            made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=[over_http(url, TOKEN)])
            assert await editor.ask(made.session_id, "search") == "end_turn"
            question = editor.questions[1][0]
            assert question.title == "Connect to the MCP server past?"
            assert url in str(question.content)
            assert TOKEN not in str(editor.questions)

    with archive.over_http() as (url, _):
        run(talk(url))
    assert "Where is the **pearl**?" in json.dumps(place.model.requests[-1])


def test_an_mcp_server_over_http_that_is_refused_is_never_connected_to(place: Place) -> None:
    place.model.script = [["Hello."]]

    async def talk() -> None:
        came: list[Any] = []
        server = await asyncio.start_server(lambda *wire: came.append(wire), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, place.editor() as editor:
            editor.answer = lambda call, options: "yes" if call.title.startswith("Trust") else "no"
            offered = [over_http(f"http://127.0.0.1:{port}/mcp", "x")]
            made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=offered)
            assert await editor.ask(made.session_id, "hello") == "end_turn"
            assert len(editor.questions) == 2
        assert came == []

    run(talk())


def test_an_mcp_server_over_http_that_does_not_answer_costs_only_its_tools(place: Place) -> None:
    place.model.script = [["Hello."]]

    async def talk() -> None:
        async with place.editor() as editor:
            offered = [over_http("http://127.0.0.1:1/mcp", "x")]
            made = await editor.agent.new_session(cwd=str(place.folder), mcp_servers=offered)
            assert await editor.ask(made.session_id, "hello") == "end_turn"
            assert "the MCP server 'past' cannot be reached" in editor.text("agent_thought_chunk")

    run(talk())
