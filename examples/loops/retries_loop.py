"""An agent loop that may be retried at any point: a message that arrives twice is stored and answered once.

Whoever sends the messages gives each an id, as every messenger does. The loop stores under ids that it makes from it,
and so a retry after a crash, a timeout or a failed request goes on where the first try ended. A scripted server fails
once, then answers. With OPENAI_BASE_URL, OPENAI_API_KEY and MODEL in the environment a real model answers.
"""

from __future__ import annotations

import os
import tempfile

from model_server import model_server
from openai import APIStatusError, OpenAI

import nacre

KEY = "telegram:42"
MODEL = os.environ.get("MODEL", "some-model")
SCRIPT = (503, "Nacre is mother-of-pearl.", "In shells.")


def answer(client: OpenAI, sessions: nacre.Sessions, text: str, update: str) -> str:
    """One turn; with the same `update` it may be called again, also by another process."""
    # A retry stores nothing, and gives the number of the message that is there.
    number = sessions.add_message(KEY, "user", text, id=update)
    now = sessions.snapshot(KEY)
    # Not the next reply in the history: that one may answer another message, and this one may be under a summary.
    for record in sessions.records(KEY, "msg", after=number):
        if update in record.data.get("extra", {}).get("answers", ()):
            return str(record.data["content"])  # it was answered before: the model is not asked again
    completion = client.chat.completions.create(model=MODEL, messages=nacre.to_openai(now.messages))
    reply = completion.choices[0].message.content or ""
    # `expect`: if another process has answered meanwhile, this raises Conflict, and nothing is stored.
    message = nacre.Message(role="assistant", content=reply, extra={"answers": [update]})
    sessions.add_full_message(KEY, message, id=f"reply to {update}", expect=now.expect)
    return reply


def deliver(client: OpenAI, place: str, text: str, update: str) -> None:
    """What a messenger does: hand over a message until it is acknowledged, here three times."""
    for attempt in (1, 2, 3):
        with nacre.open(place) as sessions:
            try:
                print(f"delivery {attempt} of {update}: {answer(client, sessions, text, update)}")
            except APIStatusError as error:
                print(f"delivery {attempt} of {update}: the server said {error.status_code}")
            except nacre.Conflict:
                print(f"delivery {attempt} of {update}: another process answers it")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, model_server(*SCRIPT) as scripted:
        real = os.environ.get("OPENAI_BASE_URL")
        key = os.environ.get("OPENAI_API_KEY", "none")
        # The client would retry by itself; here the loop does, so that one sees it.
        with OpenAI(base_url=real or f"{scripted}/v1", api_key=key, max_retries=0) as client:
            deliver(client, place, "What is nacre?", "update-1001")
            deliver(client, place, "Where is it found?", "update-1002")
            # An acknowledgement was lost: this one comes again, after the next was answered and all was summarised.
            with nacre.open(place) as sessions:
                sessions.set_summary(KEY, "What nacre is, and where.", upto=sessions.snapshot(KEY).numbers[-1])
            deliver(client, place, "What is nacre?", "update-1001")
        with nacre.open(place) as sessions:
            for stored in sessions.transcript(KEY):
                print(f"record {stored.n}, {stored.message.role}: {stored.message.content}")
