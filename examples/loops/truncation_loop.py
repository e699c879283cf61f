"""An agent loop that stays within a model's limit: old messages become a summary, and stay in the transcript.

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
MOST = 6
KEPT = 2


def answer(client: OpenAI, sessions: nacre.Sessions, text: str) -> str:
    """One turn, with the summary of what was said earlier in the system prompt."""
    sessions.add_message(KEY, "user", text)
    now = sessions.snapshot(KEY)
    system = {"role": "system", "content": f"Be brief. What was said earlier: {now.summary or 'nothing'}"}
    reply = ask(client, [system, *now.messages])
    sessions.add_message(KEY, "assistant", reply)
    if now.live + 1 >= MOST:
        summarise(client, sessions)
    return reply


def summarise(client: OpenAI, sessions: nacre.Sessions) -> None:
    """Replace all but the last messages by a summary, in one step.

    Without a model, `sessions.truncate_history(KEY, KEPT)` drops them from the history alone.
    """
    now = sessions.snapshot(KEY)
    earlier = {"role": "user", "content": f"Summary so far: {now.summary}"}
    wanted = {"role": "user", "content": "Summarise this conversation in one sentence."}
    summary = ask(client, [earlier, *now.messages[:-KEPT], wanted])
    # `upto` is the last message that it covers; `expect` refuses it if somebody has written meanwhile.
    sessions.set_summary(KEY, summary, upto=now.numbers[-KEPT - 1], expect=now.expect)
    print(f"(summary: {summary})")


def ask(client: OpenAI, messages: list[nacre.AnyMessage]) -> str:
    completion = client.chat.completions.create(model=MODEL, messages=nacre.to_openai(messages))
    return completion.choices[0].message.content or ""


if __name__ == "__main__":
    script = "Mother-of-pearl.", "In shells.", "Layers of aragonite.", "They asked what nacre is.", "Yes."
    with tempfile.TemporaryDirectory() as place, model_server(*script) as scripted, nacre.open(place) as sessions:
        real = os.environ.get("OPENAI_BASE_URL")
        with OpenAI(base_url=real or f"{scripted}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
            for text in ("What is nacre?", "Where is it found?", "Why does it shine?", "Is a pearl nacre?"):
                print(f"user: {text}\nassistant: {answer(client, sessions, text)}")
        print(f"the model sees {len(sessions[KEY])} messages and the summary {sessions[KEY].summary!r}")
        print(f"the transcript has all {len(sessions.transcript(KEY))}")
