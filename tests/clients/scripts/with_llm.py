# mypy: ignore-errors
"""llm, with a model of its configuration that is ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

from common import TOKEN, URL, City, tell

folder = Path(os.environ["LLM_USER_PATH"])
(folder / "keys.json").write_text(json.dumps({"ours": TOKEN}))
(folder / "extra-openai-models.yaml").write_text(
    f"- model_id: ours\n  model_name: nacre\n  api_base: {URL}\n  api_key_name: ours\n"
    "  supports_schema: true\n  supports_tools: true\n  vision: true\n"
)

import llm  # noqa: E402 - it reads its configuration when it is loaded


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


model = llm.get_model("ours")
conversation = model.conversation()
tell(
    whole=model.prompt("hello", stream=False).text(),
    streamed="".join(model.prompt("hello")),
    schema=json.loads(model.prompt("Where?", schema=City).text()),
    told=model.chain("The weather?", tools=[weather]).text(),
    first=conversation.prompt("hello").text(),
    second=conversation.prompt("again").text(),
)
