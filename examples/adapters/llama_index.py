"""LlamaIndex: a chat whose messages are in nacre, without the network.

A memory buffer stores what was said, the store is opened again, and the chat goes on where it was.
"""

from __future__ import annotations

import sys
import tempfile

# This file has the name of the package, and its folder is searched first.
sys.path[:] = [folder for folder in sys.path if not __file__.startswith(f"{folder or '.'}/llama_index.py")]

from llama_index.core.base.llms.types import ChatMessage  # noqa: E402 - the path comes first
from llama_index.core.memory import ChatMemoryBuffer  # noqa: E402 - the same

import nacre  # noqa: E402 - the same
from nacre.integrations.llama_index import NacreChatStore  # noqa: E402 - the same


def make_memory(sessions: nacre.Sessions) -> ChatMemoryBuffer:
    store = NacreChatStore(sessions)
    return ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="shells", tokenizer_fn=str.split)


def main(place: str) -> None:
    with nacre.open(place) as sessions:
        memory = make_memory(sessions)
        memory.put(ChatMessage("What is nacre?"))
        memory.put(ChatMessage("Mother-of-pearl.", role="assistant"))
        print(f"stored {len(memory.get_all())} messages")

    # Another process would do the same: open the store and make the memory again.
    with nacre.open(place) as sessions:
        memory = make_memory(sessions)
        print(f"the memory has {len(memory.get_all())} messages")
        memory.put(ChatMessage("And a pearl?"))
        for message in sessions.get_history("shells"):
            print(f"{message.role}: {message.content}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"{folder}/store")
