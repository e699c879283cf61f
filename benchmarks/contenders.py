"""Stores and agents to compare with, each in a process of its own.

    python -m benchmarks.contenders append|turn NAME ROOM COUNT

A contender runs with the Python of its own environment, so this module imports only the standard library before it
knows which one it is. It fills a session with COUNT messages and says "ready", or why it cannot. Then each line of its
input is a number: it acts that often, and answers with the seconds of each time and the CPU seconds of all together.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import sqlite3
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import measure

Act = Callable[[], Awaitable[object]]
Build = Callable[[Path, int, contextlib.AsyncExitStack], Awaitable[Act]]

KEY = "bench:peer"
_WINDOW = 50
_QUESTION = "How is the weather?"
_ANSWER = "The weather is fine."
_FILLER = 'The quick brown fox said "hello" to the lazy dog; nobody answered. '


# ---- a store: append one message of 1 kB


async def append_sqlite(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """A table of messages in SQLite, every commit on disk."""
    base = stack.enter_context(contextlib.closing(sqlite3.connect(room / "base.sqlite", isolation_level=None)))
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, body TEXT)")
    base.execute("CREATE INDEX by_session ON messages (session, id)")
    insert = "INSERT INTO messages (session, body) VALUES (?, ?)"
    base.execute("BEGIN")
    base.executemany(insert, ((KEY, text) for text in texts(size)))
    base.execute("COMMIT")
    fresh = fresh_texts()

    async def append() -> None:
        base.execute(insert, (KEY, next(fresh)))

    return append


async def append_nacre(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """nacre, as it is by default."""
    import nacre  # noqa: PLC0415 - only in its own environment

    sessions = stack.enter_context(nacre.open(room))
    said = [nacre.Message(role="user", content=text) for text in texts(size)]
    for at in range(0, size, 1_000):
        sessions.add_messages(KEY, said[at : at + 1_000])
    fresh = fresh_texts()

    async def append() -> None:
        sessions.add_message(KEY, "user", next(fresh))

    return append


async def append_openai_agents(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """OpenAI Agents SDK: SQLiteSession on a file."""
    agents: Any = importlib.import_module("agents")
    session = agents.SQLiteSession(KEY, room / "agents.sqlite")
    stack.callback(session.close)
    await session.add_items([{"role": "user", "content": text} for text in texts(size)])
    fresh = fresh_texts()
    return lambda: session.add_items([{"role": "user", "content": next(fresh)}])


async def append_langgraph(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """LangGraph: a checkpoint of a state that holds the messages, by SqliteSaver."""
    savers: Any = importlib.import_module("langgraph.checkpoint.sqlite")
    base: Any = importlib.import_module("langgraph.checkpoint.base")
    saver = stack.enter_context(savers.SqliteSaver.from_conn_string(str(room / "langgraph.sqlite")))
    saver.setup()
    said = [{"role": "user", "content": text} for text in texts(size)]
    config = {"configurable": {"thread_id": KEY, "checkpoint_ns": ""}}
    fresh = fresh_texts()

    async def append() -> None:
        nonlocal config
        said.append({"role": "user", "content": next(fresh)})
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": said}
        config = saver.put(config, checkpoint, {"source": "loop", "step": len(said)}, {"messages": len(said)})

    return append


async def append_nanobot(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:  # noqa: ARG001 - one shape
    """nanobot: SessionManager.save, as its loop calls it."""
    manager = importlib.import_module("nanobot.session.manager").SessionManager(_nanobot_workspace(room))
    session = manager.get_or_create(KEY)
    for text in texts(size):
        session.add_message("user", text)
    manager.save(session)
    fresh = fresh_texts()

    async def append() -> None:
        session.add_message("user", next(fresh))
        manager.save(session)

    return append


async def append_agent_framework(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:  # noqa: ARG001
    """Microsoft Agent Framework: FileHistoryProvider, JSON lines."""
    framework: Any = importlib.import_module("agent_framework")
    provider = framework.FileHistoryProvider(room)

    def message(text: str) -> object:
        return framework.Message(role="user", contents=[text])

    await provider.save_messages(KEY, list(map(message, texts(size))))
    fresh = fresh_texts()
    return lambda: provider.save_messages(KEY, [message(next(fresh))])


# ---- an agent: answer a message in a session with `size` messages, with a model that answers at once


async def turn_nacre(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """The kernel: the message is flushed before the model is asked, the reply before it is returned."""
    import nacre  # noqa: PLC0415 - only in its own environment
    from benchmarks.turns import answering  # noqa: PLC0415
    from nacre.agent.actor import UserMessage  # noqa: PLC0415
    from nacre.agent.kernel import Kernel  # noqa: PLC0415

    sessions = stack.enter_context(nacre.open(room))
    for role, text in _dialogue(size):
        sessions.add_message(KEY, role, text)
    kernel = await stack.enter_async_context(Kernel(sessions, lambda _: answering(100_000)))
    return lambda: kernel.deliver(UserMessage(key=KEY, content=_QUESTION))


async def turn_pydantic_ai(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:  # noqa: ARG001
    """pydantic-ai with its FunctionModel; the history is a list in memory, cut to the window."""
    run = _pydantic_ai(size)

    async def turn() -> None:
        await run()

    return turn


async def turn_pydantic_ai_file(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """The same, and after each turn its history as JSON, written over the file and flushed."""
    messages: Any = importlib.import_module("pydantic_ai.messages")
    run = _pydantic_ai(size)
    file = stack.enter_context((room / "history.json").open("wb", buffering=0))

    async def turn() -> None:
        text = messages.ModelMessagesTypeAdapter.dump_json(await run())
        file.seek(0)
        file.write(text)
        file.truncate()
        os.fdatasync(file.fileno())

    return turn


def _pydantic_ai(size: int) -> Callable[[], Awaitable[object]]:
    """An agent of pydantic-ai; each call is a turn, and gives its history."""
    library: Any = importlib.import_module("pydantic_ai")
    messages: Any = importlib.import_module("pydantic_ai.messages")
    functions: Any = importlib.import_module("pydantic_ai.models.function")
    history = [
        messages.ModelRequest(parts=[messages.UserPromptPart(content=text)])
        if role == "user"
        else messages.ModelResponse(parts=[messages.TextPart(content=text)])
        for role, text in _dialogue(size)
    ]

    async def answer(*_: object) -> object:
        return messages.ModelResponse(parts=[messages.TextPart(content=_ANSWER)])

    agent = library.Agent(functions.FunctionModel(answer), instructions="Be brief.")

    async def run() -> object:
        nonlocal history
        result = await agent.run(_QUESTION, message_history=history)
        _require(result.output)
        history = result.all_messages()[-_WINDOW:]
        return history

    return run


async def turn_openai_agents(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """OpenAI Agents SDK: Runner.run with a SQLiteSession on a file, of which the model is shown the window."""
    agents: Any = importlib.import_module("agents")
    responses: Any = importlib.import_module("openai.types.responses")
    agents.set_tracing_disabled(disabled=True)
    said = responses.ResponseOutputText(text=_ANSWER, type="output_text", annotations=[])
    reply = responses.ResponseOutputMessage(
        id="reply", content=[said], role="assistant", status="completed", type="message"
    )

    async def answer(*_: object, **__: object) -> object:
        return agents.ModelResponse(output=[reply], usage=agents.Usage(), response_id=None)

    model = type("Model", (agents.Model,), {"get_response": answer, "stream_response": answer})()
    agent = agents.Agent(name="bench", instructions="Be brief.", model=model)
    session = agents.SQLiteSession(KEY, room / "agents.sqlite", session_settings={"limit": _WINDOW})
    stack.callback(session.close)
    await session.add_items([{"role": role, "content": text} for role, text in _dialogue(size)])

    async def turn() -> None:
        _require((await agents.Runner.run(agent, _QUESTION, session=session)).final_output)

    return turn


async def turn_langgraph(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """LangGraph: a graph of one node with AsyncSqliteSaver; what is older than the window is removed from its state."""
    savers: Any = importlib.import_module("langgraph.checkpoint.sqlite.aio")
    graphs: Any = importlib.import_module("langgraph.graph")
    messages: Any = importlib.import_module("langchain_core.messages")

    async def answer(state: Any) -> object:
        old = state["messages"][: 1 - _WINDOW]
        return {"messages": [*(messages.RemoveMessage(id=one.id) for one in old), messages.AIMessage(_ANSWER)]}

    # The library reads annotations, and cannot look up what was imported in a function.
    answer.__annotations__ = {}
    path = str(room / "langgraph.sqlite")
    saver = await stack.enter_async_context(savers.AsyncSqliteSaver.from_conn_string(path))
    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(graphs.START, "answer")
    agent = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": KEY}}
    await agent.aupdate_state(config, {"messages": [{"role": role, "content": text} for role, text in _dialogue(size)]})

    async def turn() -> None:
        result = await agent.ainvoke({"messages": [{"role": "user", "content": _QUESTION}]}, config)
        _require(result["messages"][-1].content)

    return turn


async def turn_nanobot(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:  # noqa: ARG001 - one shape
    """nanobot: AgentLoop.process_direct, as it is by default."""
    loops: Any = importlib.import_module("nanobot.agent.loop")
    providers: Any = importlib.import_module("nanobot.providers.base")
    buses: Any = importlib.import_module("nanobot.bus.queue")
    # As its command does: otherwise every turn is told in full on stderr.
    importlib.import_module("loguru").logger.remove()

    async def answer(*_: object, **__: object) -> object:
        return providers.LLMResponse(content=_ANSWER)

    methods = {"chat": answer, "get_default_model": lambda _: "bench"}
    provider = type("Provider", (providers.LLMProvider,), methods)(provider_name="bench")
    loop = loops.AgentLoop(bus=buses.MessageBus(), provider=provider, workspace=_nanobot_workspace(room))
    session = loop.sessions.get_or_create(KEY)
    for role, text in _dialogue(size):
        session.add_message(role, text)
    loop.sessions.save(session)

    async def turn() -> None:
        _require((await loop.process_direct(_QUESTION, session_key=KEY)).content)

    return turn


def _nanobot_workspace(room: Path) -> Path:
    """A folder to work in; its sessions go below the home directory, which is the room itself."""
    workspace = room / "workspace"
    workspace.mkdir()
    return workspace


# ---- what they have in common


def _require(answer: object) -> None:
    if answer != _ANSWER:
        raise RuntimeError(f"the answer is {answer!r}")


def _dialogue(size: int) -> Iterator[tuple[str, str]]:
    """Messages of about 200 bytes, by user and assistant in turns."""
    return ((("user", "assistant")[number % 2], f"{number:08} {_FILLER * 3}"[:200]) for number in range(size))


def texts(size: int) -> Iterator[str]:
    """Messages of 1 kB, no two alike: some stores drop repetitions."""
    return map(_text, range(size))


def fresh_texts() -> Iterator[str]:
    """More of them, without end."""
    return map(_text, count(10_000_000))


def _text(number: int) -> str:
    return f"{number:08} {_FILLER * 15}"[:1_000]


BUILDS: dict[str, dict[str, Build]] = {
    "append": {
        "sqlite": append_sqlite,
        "nacre": append_nacre,
        "openai-agents": append_openai_agents,
        "langgraph": append_langgraph,
        "nanobot": append_nanobot,
        "agent-framework": append_agent_framework,
    },
    "turn": {
        "nacre": turn_nacre,
        "pydantic-ai": turn_pydantic_ai,
        "pydantic-ai-file": turn_pydantic_ai_file,
        "openai-agents": turn_openai_agents,
        "langgraph": turn_langgraph,
        "nanobot": turn_nanobot,
    },
}


async def serve(build: Build, room: Path, size: int, tell: Callable[[object], None]) -> None:
    """Build a contender, and let it act as often as each line of the input says."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            act = await build(room, size, stack)
            await act()
        except ImportError as error:
            tell(f"not installed: {error.name} is missing")
            return
        except Exception as error:  # noqa: BLE001 - whatever a peer does, the others are measured
            tell(f"not measured: {type(error).__name__}: {error}")
            return
        tell("ready")
        while line := sys.stdin.readline():
            measure.mark()
            seconds: list[float] = []
            before = time.process_time()
            for _ in range(int(line)):
                started = time.perf_counter()
                await act()
                seconds.append(time.perf_counter() - started)
            cpu = time.process_time() - before
            measure.mark()
            tell({"seconds": seconds, "cpu": cpu})


def main(builds: Mapping[str, Mapping[str, Build]]) -> None:
    """Serve the contender that the arguments name."""
    kind, name, room, size = sys.argv[1:]
    # The answers have the output to themselves, whatever else a library prints.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # what others warn their users of
    logging.disable(logging.WARNING)

    def tell(what: object) -> None:
        output.write(json.dumps(what) + "\n")
        output.flush()

    asyncio.run(serve(builds[kind][name], Path(room), int(size), tell))


if __name__ == "__main__":
    main(BUILDS)
