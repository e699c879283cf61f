"""An agent loop with tools: a call is on disk before it runs, and its result before the model sees it.

If the process dies while a tool runs, the model is shown that the call was interrupted, and it is not run again
unasked. A scripted model answers. With OPENAI_BASE_URL, OPENAI_API_KEY and MODEL in the environment a real one does;
Ollama's is `http://localhost:11434/v1`.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from model_server import model_server
from openai import OpenAI

import nacre

KEY = "cli:1"
MODEL = os.environ.get("MODEL", "some-model")
STEPS = 10


def count_lines(path: str) -> str:
    return f"{len(Path(path).read_text(encoding='utf-8').splitlines())} lines"


FUNCTIONS = {"count_lines": count_lines}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS: Any = [{"type": "function", "function": {"name": "count_lines", "parameters": PARAMETERS}}]


def answer(client: OpenAI, sessions: nacre.Sessions, text: str) -> str:
    """One turn: ask the model and run what it calls, until it calls nothing."""
    sessions.add_message(KEY, "user", text)
    for _ in range(STEPS):
        history = nacre.to_openai(sessions.get_history(KEY, last=50))
        said = client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS).choices[0].message
        sessions.add_full_message(KEY, said.model_dump(exclude_none=True))
        for call in said.tool_calls or ():
            result = run(call)
            sessions.add_full_message(KEY, {"role": "tool", "content": result, "tool_call_id": call.id})
        if not said.tool_calls:
            return said.content or ""
    return f"(no answer after {STEPS} steps)"


def run(call: Any) -> str:
    """Run one call; what goes wrong is a result too, which the model can act on."""
    try:
        return FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
    except (KeyError, OSError, TypeError, ValueError) as error:
        return f"failed: {error!r}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        poem = Path(place, "poem.txt")
        poem.write_text("A shell\nkeeps the sea.\n", encoding="utf-8")
        script = {"count_lines": {"path": str(poem)}}, "The poem has 2 lines."
        with model_server(*script) as scripted, nacre.open(f"{place}/store") as sessions:
            real = os.environ.get("OPENAI_BASE_URL")
            with OpenAI(base_url=real or f"{scripted}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none")) as client:
                answer(client, sessions, f"How many lines does {poem} have?")
        with nacre.open(f"{place}/store") as sessions:
            for message in sessions.get_history(KEY):
                calls = "".join(f"[calls {one.name}]" for one in message.tool_calls)
                print(f"{message.role}: {message.content or ''}{calls}")
