"""shell: a command in the workspace, run by the sandbox."""

from __future__ import annotations

import signal
from pathlib import Path

from nacre.agent.ports import Notice, Output, Scene
from nacre.agent.sandbox import Finished, Sandbox
from nacre.tools.functions import Function
from nacre.tools.tool_output import bounded, printed

_LONGEST = 600
_MOST_BYTES = 4_000_000
_SHELLS = ("/bin/bash", "/usr/bin/bash")


class Shell:
    """The tool that runs commands."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        # Models write bash; what is not there cannot be had inside the sandbox either.
        self._program = next((path for path in _SHELLS if Path(path).exists()), "/bin/sh")

    async def shell(self, command: str, scene: Scene, timeout: int = 120) -> Output:  # noqa: ASYNC109 - a limit on the command
        """Run a shell command in the workspace and give what it prints, errors too, and how it ended.

        There is no terminal and nobody to answer questions; the command ends with the call, so nothing is left
        running in the background.

        Args:
            command: what to run
            timeout: seconds after which it is stopped; maximum 600
        """
        seconds = min(max(timeout, 1), _LONGEST)
        finished = await self._sandbox.run([self._program, "-c", command], timeout=seconds, most=_MOST_BYTES)
        for note in finished.notes:
            scene.emit(Notice(note))
        return _told(finished, seconds)


def shell_tool(sandbox: Sandbox) -> Function:
    """The shell, in a sandbox."""
    return Function(Shell(sandbox).shell, effect="run")


def _told(finished: Finished, seconds: int) -> Output:
    text = printed(finished.output.decode("utf-8", "replace")).rstrip("\n")
    found = bounded(text or "(no output)", failed=finished.timed_out or finished.status != 0)
    notes = "".join(f"\n[{note}]" for note in _notes(finished, seconds))
    whole = None if found.whole is None else found.whole + notes
    return Output(text=found.text + notes, whole=whole, failed=found.failed)


def _notes(finished: Finished, seconds: int) -> list[str]:
    notes = []
    if finished.cut:
        notes.append(f"it printed more than {_MOST_BYTES:,} bytes; the rest was not kept")
    if finished.timed_out:
        notes.append(f"stopped after {seconds} s: timeout")
    elif finished.status < 0:
        notes.append(f"killed by {_signal(-finished.status)}")
    elif finished.status:
        notes.append(f"exit status {finished.status}")
    return [*notes, *finished.notes]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
