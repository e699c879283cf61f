"""What the history provider keeps when processes are killed, write at once, or stop waiting."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from agent_framework import Message

import nacre
from nacre.integrations.agent_framework import NacreHistoryProvider

CHILD = """
import asyncio, sys, nacre
from agent_framework import Message
from nacre.integrations.agent_framework import NacreHistoryProvider
place, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
provider = NacreHistoryProvider(nacre.open(place))
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    turn = [Message("user", [f"{who} {n}"]), Message("assistant", [f"to {who} {n}"])]
    asyncio.run(provider.save_messages("s1", turn))
    print(n, flush=True)
"""


def start(place: str, who: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, place, who, str(count)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def begin(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def load(place: str) -> list[str]:
    with nacre.open(place) as sessions:
        return [one.text for one in asyncio.run(NacreHistoryProvider(sessions).get_messages("s1"))]


def save(place: str, *messages: Message) -> None:
    with nacre.open(place) as sessions:
        asyncio.run(NacreHistoryProvider(sessions).save_messages("s1", messages))


def test_two_processes_lose_nothing_and_each_turn_stays_together(lasting_place: str) -> None:
    children = [start(lasting_place, who, 20) for who in ("one", "two")]
    for child in children:
        begin(child)
    assert [child.communicate()[0].count("\n") for child in children] == [20, 20]
    found = load(lasting_place)
    assert sorted(found[::2]) == sorted(f"{who} {n}" for who in ("one", "two") for n in range(20))
    assert found[1::2] == [f"to {text}" for text in found[::2]]


def test_what_was_acknowledged_survives_a_kill(lasting_place: str) -> None:
    child = start(lasting_place, "one", 100_000)
    begin(child)
    assert child.stdout is not None
    seen = [child.stdout.readline() for _ in range(20)]
    os.kill(child.pid, signal.SIGKILL)
    # Not by `communicate`, which does not have what `readline` has read ahead.
    seen += child.stdout.readlines()
    child.communicate()
    found = load(lasting_place)
    assert len(found) in (2 * len(seen), 2 * len(seen) + 2)
    assert found == [text for n in range(len(found) // 2) for text in (f"one {n}", f"to one {n}")]


def test_a_retry_after_reopening_stores_nothing_unless_it_is_one_question_without_an_id(lasting_place: str) -> None:
    for _ in range(2):
        save(lasting_place, Message("user", ["pay"], message_id="m1"))
    assert load(lasting_place) == ["pay"]
    for _ in range(2):
        save(lasting_place, Message("user", ["again"]), Message("assistant", ["paid"]))
    assert load(lasting_place) == ["pay", "again", "paid"]
    for _ in range(2):
        save(lasting_place, Message("user", ["yes"]))
    assert load(lasting_place) == ["pay", "again", "paid", "yes", "yes"]


def test_a_cancelled_save_is_stored_whole_or_not_and_can_be_retried(root: Path) -> None:
    turn = [Message("user", ["q"]), Message("assistant", ["a"])]

    async def play(provider: NacreHistoryProvider) -> list[str]:
        saving = asyncio.create_task(provider.save_messages("s1", turn))
        await asyncio.sleep(0)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        assert len(await provider.get_messages("s1")) in (0, 2)
        await provider.save_messages("s1", turn)
        return [one.text for one in await provider.get_messages("s1")]

    with nacre.open(root) as sessions:
        assert asyncio.run(play(NacreHistoryProvider(sessions))) == ["q", "a"]
