"""Kill a writer in the middle of its work, tear its file, and count what is left: nothing acknowledged is lost."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nacre

KEY = "demo"
ENOUGH = 200
SHOWN = 3
LONGEST = 45


def main() -> int:
    """Run the demo and return its exit code: 1 if anything acknowledged is missing."""
    with tempfile.TemporaryDirectory(prefix="nacre-demo-") as directory:
        root = Path(directory)
        print("nacre keeps each session in one append-only file. What it acknowledged must survive anything.")
        acknowledged = write_until_killed(root)
        tear(log_of(root))
        return inspect(root, acknowledged)


def write_until_killed(root: Path) -> dict[int, str]:
    """Kill a child with SIGKILL while it writes, and return what it had acknowledged: number and text."""
    step(1, "a child process writes messages and prints each one that was acknowledged")
    acknowledged: dict[int, str] = {}
    with subprocess.Popen([sys.executable, __file__, str(root)], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            if not line.endswith("\n"):
                break  # killed inside its print: this one was not announced
            number, text = line.rstrip("\n").split(" ", 1)
            acknowledged[int(number)] = text
            if len(acknowledged) <= SHOWN:
                print(f"    acknowledged: record {number}, {text!r}")
            if len(acknowledged) == ENOUGH:
                child.send_signal(signal.SIGKILL)
    if child.returncode != -signal.SIGKILL:
        sys.exit("the child ended by itself, before it was killed")
    step(2, f"kill -9 while it writes: {len(acknowledged)} messages were acknowledged, {KEY!r} is left as it is")
    return acknowledged


def write_for_ever(root: str) -> None:
    """Be the child: say what was acknowledged, only after it was."""
    with nacre.open(root) as sessions:
        for count in itertools.count(1):
            text = f"message {count}"
            number = sessions.add_message(KEY, "user", text)
            print(number, text, flush=True)


def tear(log: Path) -> None:
    """Leave half a line at the end, as a power cut in the middle of a write does."""
    last = log.read_bytes().splitlines(keepends=True)[-1]
    with log.open("ab") as file:
        file.write(last[: len(last) // 2])
    step(3, f"a power cut, by hand: {len(last) // 2} bytes of half a line at the end of {log.name}")


def inspect(root: Path, acknowledged: dict[int, str]) -> int:
    """Open the store again, go on writing, and compare."""
    step(4, "open it again, and write one more message as if nothing had happened")
    with nacre.open(root) as sessions:
        goes_on = sessions.add_message(KEY, "user", "and on we go")
        found = {stored.n: stored.message.content for stored in sessions.transcript(KEY)}
    missing = [number for number, text in acknowledged.items() if found.get(number) != text]
    unannounced = len(found) - len(acknowledged) - 1
    verdict(not missing, f"{len(acknowledged) - len(missing)} of {len(acknowledged)} acknowledged messages are there")
    verdict(goes_on in found, f"the new message is there, as record {goes_on}")
    if unannounced > 0:
        print(f"    and {unannounced} that was stored when the child died before it could say so")
    torn = [line for file in (root / "quarantine").glob("*.jsonl") for line in file.read_text().splitlines()]
    verdict(bool(torn), "the torn bytes were not deleted but set aside, in quarantine:")
    show(torn[:1])
    step(5, "the log is text; its last two lines, as `jq -c` shows them:")
    show(log_of(root).read_text().splitlines()[-2:])
    if missing or goes_on not in found or not torn:
        print(f"nacre broke its promise; missing records: {missing}", file=sys.stderr)
        return 1
    return 0


def log_of(root: Path) -> Path:
    (log,) = (root / "sessions").glob(f"{KEY}~*.jsonl")
    return log


def show(lines: list[str]) -> None:
    for line in lines:
        fields = {name: shortened(value) for name, value in json.loads(line).items()}
        print("    " + json.dumps(fields, ensure_ascii=False, separators=(",", ":")))


def shortened(value: Any) -> Any:
    return f"{value[:LONGEST]}…" if isinstance(value, str) and len(value) > LONGEST else value


def step(number: int, text: str) -> None:
    print(f"\n{paint('1', str(number))}  {text}")


def verdict(good: bool, text: str) -> None:  # noqa: FBT001 - a verdict is good or not
    print(f"    {paint('32', '✓') if good else paint('31', '✗')} {text}")


def paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_for_ever(sys.argv[1])
    else:
        logging.basicConfig(format="    nacre says: %(message)s", stream=sys.stdout)
        sys.exit(main())
