"""Your own agent loop with OpenAI's client: each message is on disk before the next step.

A scripted model answers. With OPENAI_BASE_URL, OPENAI_API_KEY and MODEL in the environment a real one does.
"""

from __future__ import annotations

import os
import tempfile

from model_server import model_server
from openai import OpenAI

import nacre

KEY = "cli:1"
MODEL = os.environ.get("MODEL", "some-model")
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Be brief."}


def answer(client: OpenAI, sessions: nacre.Sessions, text: str) -> str:
    """One turn: store what the user says, ask the model, store what it says."""
    sessions.add_message(KEY, "user", text)
    history = nacre.to_openai([SYSTEM, *sessions.get_history(KEY, last=50)])
    completion = client.chat.completions.create(model=MODEL, messages=history)
    reply = completion.choices[0].message.content or ""
    sessions.add_full_message(KEY, {"role": "assistant", "content": reply, "model": completion.model})
    return reply


def talk(client: OpenAI, place: str, text: str) -> None:
    """Open the store, as a program that has just started does, and take one turn."""
    with nacre.open(place) as sessions:
        print(f"user: {text}\nassistant: {answer(client, sessions, text)}")


if __name__ == "__main__":
    script = "Nacre is mother-of-pearl.", "The inside of a shell is made of it."
    with tempfile.TemporaryDirectory() as place, model_server(*script) as scripted:
        real = os.environ.get("OPENAI_BASE_URL")
        with OpenAI(base_url=real or f"{scripted}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
            talk(client, place, "What is nacre?")
            talk(client, place, "Where is it found?")  # the model is sent the first turn too
        with nacre.open(place) as sessions:
            print(f"{len(sessions[KEY])} messages are stored in {len(list(sessions.list()))} session")
