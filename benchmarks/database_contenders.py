"""Stores in PostgreSQL to compare with, each in a process of its own: see `benchmarks.contenders`.

    python -m benchmarks.database_contenders append|resume NAME ROOM COUNT

The address of the database is in the file `url` of the room. Whoever appends first fills a session with COUNT messages,
one by one, as a conversation does. Whoever resumes loads all of them, for the next turn.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

from benchmarks.contenders import KEY, Act, Build, fresh_texts, main, texts


async def append_nacre(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """nacre, as it is by default."""
    sessions = _open_nacre(room, stack)
    for text in texts(size):
        sessions.add_message(KEY, "user", text)
    fresh = fresh_texts()

    async def append() -> None:
        sessions.add_message(KEY, "user", next(fresh))

    return append


async def resume_nacre(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    sessions = _open_nacre(room, stack)

    async def resume() -> None:
        _require(len(sessions.get_history(KEY)), size)

    return resume


async def append_openai_agents(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """OpenAI Agents SDK: SQLAlchemySession over asyncpg, as its documentation shows."""
    session = _open_openai(room, stack)
    for text in texts(size):
        await session.add_items([{"role": "user", "content": text}])
    fresh = fresh_texts()
    return lambda: session.add_items([{"role": "user", "content": next(fresh)}])


async def resume_openai_agents(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    session = _open_openai(room, stack)

    async def resume() -> None:
        _require(len(await session.get_items()), size)

    return resume


async def append_langgraph(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    """LangGraph: a checkpoint of a state that holds the messages, by PostgresSaver."""
    saver = _open_langgraph(room, stack)
    base: Any = importlib.import_module("langgraph.checkpoint.base")
    messages: Any = importlib.import_module("langchain_core.messages")
    said: list[object] = []
    config: Any = _THREAD

    def put(text: str) -> None:
        nonlocal config
        said.append(messages.HumanMessage(text, id=f"{len(said):08}"))
        checkpoint, versions = base.empty_checkpoint(), {"messages": f"{len(said):032}"}
        checkpoint |= {"channel_values": {"messages": said}, "channel_versions": versions}
        config = saver.put(config, checkpoint, {"source": "loop", "step": len(said)}, versions)

    for text in texts(size):
        put(text)
    fresh = fresh_texts()

    async def append() -> None:
        put(next(fresh))

    return append


async def resume_langgraph(room: Path, size: int, stack: contextlib.AsyncExitStack) -> Act:
    saver = _open_langgraph(room, stack)

    async def resume() -> None:
        _require(len(saver.get_tuple(_THREAD).checkpoint["channel_values"]["messages"]), size)

    return resume


_THREAD = {"configurable": {"thread_id": KEY, "checkpoint_ns": ""}}


def _open_nacre(room: Path, stack: contextlib.AsyncExitStack) -> Any:
    import nacre  # noqa: PLC0415 - only in its own environment
    from nacre.storage.postgres.address import parse  # noqa: PLC0415
    from nacre.storage.postgres.schema import init  # noqa: PLC0415

    init(parse(_url(room)))
    return stack.enter_context(nacre.open(_url(room)))


def _open_openai(room: Path, stack: contextlib.AsyncExitStack) -> Any:
    memory: Any = importlib.import_module("agents.extensions.memory")
    url = _url(room).replace("postgresql:", "postgresql+asyncpg:", 1)
    session = memory.SQLAlchemySession.from_url(KEY, url=url, create_tables=True)
    stack.push_async_callback(session.engine.dispose)
    return session


def _open_langgraph(room: Path, stack: contextlib.AsyncExitStack) -> Any:
    savers: Any = importlib.import_module("langgraph.checkpoint.postgres")
    saver = stack.enter_context(savers.PostgresSaver.from_conn_string(_url(room)))
    saver.setup()
    return saver


def _url(room: Path) -> str:
    return (room / "url").read_text()


def _require(count: int, size: int) -> None:
    if count < size:
        raise RuntimeError(f"{count} messages of {size} were loaded")


BUILDS: dict[str, dict[str, Build]] = {
    "append": {"nacre": append_nacre, "openai-agents": append_openai_agents, "langgraph": append_langgraph},
    "resume": {"nacre": resume_nacre, "openai-agents": resume_openai_agents, "langgraph": resume_langgraph},
}


if __name__ == "__main__":
    main(BUILDS)
