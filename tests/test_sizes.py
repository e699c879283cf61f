"""Rules about size that would not hold if nothing checked them."""

from __future__ import annotations

from pathlib import Path

import nacre

ROOT = Path(nacre.__file__).parent


def test_the_agent_can_be_read_in_an_evening() -> None:
    # What a request is made of (model_request) can be read by itself.
    core = ("ports", "loop", "actor", "kernel")
    lines = sum(len((ROOT / "agent" / f"{name}.py").read_text().splitlines()) for name in core)
    assert lines <= 850
    # So can what is known of a session; it does not grow in their place.
    assert len((ROOT / "agent" / "live_session.py").read_text().splitlines()) <= 250
