"""The examples run as they are, and say that nothing was lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parent.parent / "examples" / "demo.py"


def test_the_demo_kills_a_writer_and_finds_everything() -> None:
    run = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "200 of 200 acknowledged messages are there" in run.stdout
    assert "✗" not in run.stdout
