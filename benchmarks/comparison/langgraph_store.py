"""LangGraph: SqliteSaver, and NacreSaver: one checkpoint per message, each after the newest one that is stored."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

import nacre
from nacre.integrations.langgraph import NacreSaver


class LangGraph:
    """A thread per session; the newest state is read, and written again with one more message, by this class."""

    not_applicable: ClassVar[dict[str, str]] = {"idempotent-retry": "its append takes no id for a retry"}

    def __init__(self, path: Path) -> None:
        self._stack = ExitStack()
        self._saver: Any = self._opened(path)

    def _opened(self, path: Path) -> Any:
        saver = self._stack.enter_context(SqliteSaver.from_conn_string(str(path / "langgraph.sqlite")))
        saver.setup()
        return saver

    def append(self, session: str, text: str, id: str) -> None:  # noqa: ARG002 - it takes none
        config: Any = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        newest = self._saver.get_tuple(config)
        said = list(newest.checkpoint["channel_values"]["messages"]) if newest else []
        said.append(HumanMessage(text))
        checkpoint: Any = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": said}
        checkpoint["channel_versions"] = {"messages": len(said)}
        metadata = {"source": "loop", "step": len(said), "parents": {}}
        self._saver.put(newest.config if newest else config, checkpoint, metadata, {"messages": len(said)})

    def read(self, session: str) -> list[str]:
        newest = self._saver.get_tuple({"configurable": {"thread_id": session, "checkpoint_ns": ""}})
        return [message.content for message in newest.checkpoint["channel_values"]["messages"]] if newest else []

    def close(self) -> None:
        self._stack.close()


class Nacre(LangGraph):
    """The same calls, with the adapter's saver."""

    def _opened(self, path: Path) -> Any:
        return NacreSaver(self._stack.enter_context(nacre.open(path)))
