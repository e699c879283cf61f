"""Your own agent loop with Ollama's client: each message is on disk before the next step.

A scripted model answers. With OLLAMA_HOST and MODEL in the environment a real one does.
"""

from __future__ import annotations

import os
import tempfile

from model_server import model_server
from ollama import Client

import nacre

KEY = "cli:1"
MODEL = os.environ.get("MODEL", "some-model")
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Be brief."}


def answer(client: Client, sessions: nacre.Sessions, text: str) -> str:
    """One turn: store what the user says, ask the model, store what it says and what it thought."""
    sessions.add_message(KEY, "user", text)
    history = nacre.to_openai([SYSTEM, *sessions.get_history(KEY, last=50)])
    response = client.chat(model=MODEL, messages=history)
    reply = nacre.Message(
        role="assistant",
        content=response.message.content or "",
        reasoning=response.message.thinking,
        model=response.model,
    )
    sessions.add_full_message(KEY, reply)
    return str(reply.content)


def talk(client: Client, place: str, text: str) -> None:
    """Open the store, as a program that has just started does, and take one turn."""
    with nacre.open(place) as sessions:
        print(f"user: {text}\nassistant: {answer(client, sessions, text)}")


if __name__ == "__main__":
    script = "Nacre is mother-of-pearl.", "The inside of a shell is made of it."
    with tempfile.TemporaryDirectory() as place, model_server(*script) as scripted:
        client = Client(host=os.environ.get("OLLAMA_HOST") or scripted)
        talk(client, place, "What is nacre?")
        talk(client, place, "Where is it found?")  # the model is sent the first turn too
        with nacre.open(place) as sessions:
            print(f"{len(sessions[KEY])} messages are stored in {len(list(sessions.list()))} session")
