"""shell: what the sandbox gives back, told to the model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nacre.agent.sandbox import Finished, Sandbox
from nacre.tools.builtin import shell_tool
from tests.tools.scenes import output, text


class Canned:
    """A sandbox that runs nothing and remembers what it was asked."""

    name = "canned"

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self.asked: list[tuple[Sequence[str], float]] = []

    async def run(self, command: Sequence[str], *, timeout: float, max_bytes: int) -> Finished:  # noqa: ASYNC109 - the port's
        self.asked.append((command, timeout))
        return self._finished


@pytest.mark.parametrize(
    ("finished", "said", "failed"),
    [
        (Finished(status=0, output=b"hi\n"), "hi", False),
        (Finished(status=0, output=b""), "(no output)", False),
        (Finished(status=2, output=b"bad\n"), "bad\n[exit status 2]", True),
        (Finished(status=-9, output=b""), "(no output)\n[killed by SIGKILL]", True),
        (Finished(status=-9, output=b"x", timed_out=True), "x\n[stopped after 120 s: timeout]", True),
        (Finished(status=0, output=b"\x1b[31mred\x1b[0m \xff"), "red \ufffd", False),
    ],
)
def test_output_and_ending_are_told(finished: Finished, said: str, failed: bool) -> None:
    found = output(shell_tool(Canned(finished)), command="x")
    assert (found.text, found.failed) == (said, failed)


def test_long_output_keeps_its_head_its_tail_and_its_ending() -> None:
    data = b"first\n" + b"x" * 100_000 + b"\nlast\n"
    found = output(shell_tool(Canned(Finished(status=1, output=data, cut=True))), command="x")
    assert found.text.startswith("first\n")
    assert found.text.endswith("last\n[it printed more than 4,000,000 bytes; the rest was not kept]\n[exit status 1]")
    assert found.whole is not None
    assert len(found.whole) > 100_000


def test_the_command_goes_to_a_shell_with_a_bounded_time() -> None:
    sandbox = Canned(Finished(status=0, output=b""))
    port: Sandbox = sandbox
    text(shell_tool(port), command="echo 'a b'", timeout="9999")
    assert sandbox.asked[0][0][1:] == ["-c", "echo 'a b'"]
    assert sandbox.asked[0][1] == 600
