"""Rules about size that would not hold if nothing checked them."""

from __future__ import annotations

from pathlib import Path

import nacre

ROOT = Path(nacre.__file__).parent


def test_the_agent_can_be_read_in_an_evening() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / "agent").glob("*.py"))
    assert lines <= 700
