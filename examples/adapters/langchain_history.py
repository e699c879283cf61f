"""LangChain's chat history on nacre, for programs that still use it; without the network.

`BaseChatMessageHistory` and `RunnableWithMessageHistory` are deprecated: new programs use a graph and `NacreSaver`, as
`langgraph.py` does. The class below is all that an old one needs. Its sessions are those of `NacreSaver`: a message is
stored in the same form, and `read_messages` reads what any other program has written too.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

# A neighbour of this file has the name of a package, which must not be looked for in its folder.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != Path(__file__).resolve().parent]

from langchain_core.chat_history import BaseChatMessageHistory  # noqa: E402 - after the line above
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage  # noqa: E402 - the same
from langchain_core.runnables import RunnableLambda  # noqa: E402 - the same
from langchain_core.runnables.history import RunnableWithMessageHistory  # noqa: E402 - the same
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: E402 - the same

import nacre  # noqa: E402 - the same
from nacre.integrations.langgraph import dump_message, read_messages  # noqa: E402 - the same


class NacreChatMessageHistory(BaseChatMessageHistory):
    """The history of one session; what is added is durable when the call returns."""

    def __init__(self, sessions: nacre.Sessions, key: str) -> None:
        super().__init__()
        self._sessions, self._key = sessions, key

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override] # LangChain allows a property
        return [*read_messages(self._sessions, self._key)]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages together: all of them or none."""
        serde = JsonPlusSerializer()
        self._sessions.add_messages(self._key, [dump_message(message, serde) for message in messages])

    def clear(self) -> None:
        """Begin with an empty history; the transcript keeps what was said."""
        self._sessions.clear(self._key)


def model(messages: list[BaseMessage]) -> AIMessage:
    """The script: say what was read."""
    return AIMessage(f"I have read {len(messages)} messages, the last one was {messages[-1].text!r}.")


def chat(sessions: nacre.Sessions, key: str, text: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It is deprecated.
        chain = RunnableWithMessageHistory(RunnableLambda(model), lambda key: NacreChatMessageHistory(sessions, key))
    found = chain.invoke([HumanMessage(text)], {"configurable": {"session_id": key}})
    return str(found.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with nacre.open(folder) as sessions:
            print(chat(sessions, "shells", "What is nacre?"))
            sessions.add_message("shells", "user", "A note from a program without LangChain.")
        with nacre.open(folder) as sessions:
            print(chat(sessions, "shells", "And a pearl?"))
            for message in sessions.get_history("shells"):
                print(f"{message.role}: {message.content}")
            NacreChatMessageHistory(sessions, "shells").clear()
            print(f"after clear: {len(sessions.get_history('shells'))} messages")
