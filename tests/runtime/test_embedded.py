"""The tiny model that is in the packages: whatever it says, the log is valid and its calls are paired."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from nacre.agent.actor import UserMessage
from nacre.config import Settings
from nacre.history.pairing import settle
from nacre.providers.weights import is_installed
from nacre.runtime import run_agent
from tests.history.bodies import check

EMBEDDED = Settings({"agent": {"provider": "embedded", "max_steps": 3}, "embedded": {"threads": 1}}, {})


@pytest.mark.skipif(not is_installed(), reason="the embedded model is not installed: nacre setup embedded")
def test_a_conversation_with_tools_leaves_a_valid_log(home: Path) -> None:
    async def talk() -> None:
        async with run_agent(EMBEDDED) as app:
            for words in ("Hello! Who are you?", "List the files in the workspace."):
                reply = await app.kernel.deliver(UserMessage(key="k", content=words))
                assert reply is not None
                assert reply.role == "assistant"
            history = app.sessions.get_history("k")
            paired = settle(history)
            assert (paired.interrupted, paired.orphans) == (0, 0)
            check(app.window("k").messages)
            assert app.sessions.verify("k").ok
            assert list(app.sessions.records("k", "use"))

    anyio.run(talk)
