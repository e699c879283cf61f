"""Messages in the shapes of other clients, checked against the types that those clients publish."""

from __future__ import annotations

import json
import subprocess

import pytest

from nacre.history.client_messages import to_anthropic, to_openai
from tests.clients.conftest import PYTHON, SCRIPTS
from tests.history.test_client_messages import EVERYTHING


def test_the_clients_own_types_take_every_message() -> None:
    if not PYTHON.exists():
        pytest.skip("the clients are not installed: make .venv/clients/.installed")
    chat = [message for message in EVERYTHING if message.role]
    given = {
        "openai": [message.to_openai() for message in chat] + to_openai(EVERYTHING),
        "anthropic": [message.to_anthropic() for message in chat] + to_anthropic(EVERYTHING)[1],
    }
    done = subprocess.run(
        [PYTHON, SCRIPTS / "check_types.py"], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found == {name: len(given[name]) for name in found}
    assert "openai" in found
