"""Write the store of the golden tests: `python make_store.py FOLDER`.

The clock stands still except where the script moves it, and random bytes are counted, so every run writes the same
bytes. Both are replaced in the standard library before nacre is imported, whatever its modules are called. That is
why this is a program and not a fixture.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random  # noqa: F401 - takes its own urandom, before that is replaced
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_now = 0.0
_given: Counter[int] = Counter()


def at(moment: str) -> None:
    """Set the clock, in UTC."""
    global _now  # noqa: PLW0603 - there is one clock
    _now = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


def count_bytes(size: int) -> bytes:
    """Bytes that depend only on how many of this size were asked for."""
    _given[size] += 1
    return hashlib.shake_128(f"{size} {_given[size]}".encode()).digest(size)


time.time = lambda: _now
os.urandom = count_bytes

import nacre  # noqa: E402 - the clock comes first
from nacre.cli import main  # noqa: E402 - the same


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def make_tax(sessions: nacre.Sessions) -> None:
    """A chat with tools, reasoning, tokens, tags and a pin."""
    key, model = "chat-20240501-0900-a1b2", "ollama/gemma4:e4b"
    at("2024-05-01 09:00")
    sessions.set_meta(key, title="Tax return 2023", cwd="/home/ada/tax", tags=["work", "tax"], pinned=True)
    sessions.add_message(key, "system", "You are a careful accountant.")
    sessions.add_message(key, "user", "Which receipts are missing?")
    at("2024-05-01 09:00:04")
    calls = [call("call_1", "shell", '{"command":"ls receipts"}'), call("call_2", "read_file", '{"path":"list.md"}')]
    asked = {"role": "assistant", "content": None, "reasoning": "I look at the folder first.", "model": model}
    use = {"model": model, "prompt": 410, "completion": 32, "cached": 256, "request": "req-1"}
    sessions.add_full_message(key, {**asked, "tool_calls": calls})
    sessions.append(key, "use", use)
    sessions.append(key, "tool", {"call": "call_1", "name": "shell"})
    at("2024-05-01 09:00:05.250")
    result = {"role": "tool", "tool_call_id": "call_1", "name": "shell"}
    sessions.add_full_message(key, {**result, "content": "\x1b[1mrent.pdf\x1b[0m\ntrain.pdf\n"})
    refused = {"role": "tool", "tool_call_id": "call_2", "name": "read_file", "failed": True}
    sessions.add_full_message(key, {**refused, "content": "list.md: no such file"})
    at("2024-05-01 09:00:06")
    edit = '{"path":"list.md","old_text":"- rent\\n","new_text":"- rent\\n- train\\n"}'
    sessions.add_full_message(key, {**asked, "content": "", "tool_calls": [call("call_3", "edit_file", edit)]})
    sessions.add_full_message(key, {**result, "tool_call_id": "call_3", "name": "edit_file", "content": "1 change"})
    at("2024-05-01 09:00:08")
    answer = """\
## Missing receipts

1. **insurance**, see [the page](https://example.org/insurance?a=1&b=2)
2. *phone*

| month | rent | train |
|---|---:|---:|
| May | 900 | 49.5 |

```python
total = 900 + 49.5  # euros
print(f"{total:.2f} <b>")
```

> Ask the landlord, `not` the bank.
"""
    sessions.add_full_message(key, {"role": "assistant", "content": answer, "model": model})
    sessions.append(key, "use", {"model": model, "prompt": 620, "completion": 118, "request": "req-2"})


def make_summary(sessions: nacre.Sessions) -> None:
    """Chinese, emoji and Arabic; a summary, then a truncation, and two names."""
    key = "telegram:42"
    at("2024-05-02 18:30")
    sessions.set_meta(key, title="旅行计划 🧳")
    sessions.add_message(key, "user", "我想去里斯本旅行，五月的天气怎么样？")  # noqa: RUF001 - that is Chinese
    sessions.add_message(key, "assistant", "五月很舒服，大约二十二度。☀️ 👩‍👩‍👧")  # noqa: RUF001 - the same
    sessions.add_message(key, "user", "مرحبا، كم تكلفة القطار؟")
    sessions.add_message(key, "assistant", "نحو ثلاثين يورو.")
    at("2024-05-02 18:40")
    sessions.set_summary(key, "Ada plans a trip to Lisbon in May; the train is about 30 €.", upto=4)
    sessions.add_message(key, "user", "And where is the boat?")
    sessions.add_message(key, "assistant", "The blue boat is in Faro.")
    sessions.add_message(key, "user", "Thanks 👍🏽")
    at("2024-05-02 18:45")
    sessions.truncate_history(key, 2)
    sessions.add_message(key, "assistant", "Have a good trip, Ada!")
    sessions.append(key, "use", {"model": "openai/gpt-test", "usage": {"prompt_tokens": 90, "completion_tokens": 9}})
    sessions.add_alias(key, "telegram:ada")


def make_branches(sessions: nacre.Sessions) -> None:
    """A rewind with a new branch, a popped message, a replaced history, and a fork of it."""
    key = "telegram:43"
    at("2024-05-03 07:00")
    sessions.set_meta(key, title="Boat names", tags=["boats"])
    sessions.add_message(key, "user", "Name my boat.")
    before = sessions.add_message(key, "assistant", "How about Sturgeon?")
    sessions.add_message(key, "user", "Too fishy.")
    sessions.add_message(key, "assistant", "Then Albatross.")
    at("2024-05-03 07:05")
    sessions.rewind(key, before)
    sessions.add_message(key, "user", "A shorter one, please.")
    sessions.add_message(key, "assistant", "Eel.")
    sessions.add_message(key, "user", "This is taken back.")
    sessions.pop(key)
    at("2024-05-03 07:10")
    sessions.append(key, "x.note", {"text": "an entry of an integration", "stars": 3})
    sessions.fork(key, "cli:fork", at=before)
    sessions.set_meta("cli:fork", title="Boat names, again")
    sessions.add_message("cli:fork", "user", "Name it after a bird.")
    sessions.add_message("cli:fork", "assistant", "Tern.")
    at("2024-05-03 07:20")
    sessions.set_history(
        "cli:fork", [{"role": "user", "content": "A bird."}, {"role": "assistant", "content": "Gull."}]
    )


def make_generations(sessions: nacre.Sessions) -> None:
    """A key with an archived generation below the active one, and a session that is only archived."""
    at("2024-04-01 12:00")
    sessions.add_message("weekly", "user", "The report of March?")
    sessions.add_message("weekly", "assistant", "March had 31 days.")
    sessions.archive("weekly")
    at("2024-05-04 12:00")
    sessions.add_message("weekly", "user", "The report of April?")
    sessions.add_message("weekly", "assistant", "April had 30 days.")
    at("2024-04-02 12:00")
    sessions.set_meta("closed", title="Done long ago")
    sessions.add_message("closed", "user", "Is the boat paid?")
    sessions.add_message("closed", "assistant", "Yes, all of it.")
    sessions.archive("closed")


def make_odd(sessions: nacre.Sessions) -> None:
    """A key and texts that must be escaped, a picture that is a blob, an interrupted call, an unanswered question."""
    key = "irc:#boats & <b>/ü"
    at("2024-05-05 20:00")
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x04\x08\x06\0\0\0" + bytes(50_000)
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    parts = [{"type": "text", "text": "What is <i>this</i>?"}, {"type": "image_url", "image_url": {"url": url}}]
    sessions.set_meta(key, title="<script>alert('title')</script>", tags=["boats", "a & b"])
    sessions.add_full_message(key, {"role": "user", "content": parts, "name": "ada"})
    sessions.add_message(key, "assistant", "A picture\x07 of \x1b[31mnothing\x1b[0m.\n<script>alert(1)</script>")
    at("2024-05-05 20:10")
    stopped = call("call_9", "shell", '{"command":"sleep 100"}')
    sessions.add_message("chat-20240505-2010-c3d4", "user", "Wait a little.")
    sessions.add_full_message("chat-20240505-2010-c3d4", {"role": "assistant", "content": "", "tool_calls": [stopped]})
    sessions.append("chat-20240505-2010-c3d4", "tool", {"call": "call_9", "name": "shell"})
    sessions.add_message("open", "user", "Is anybody there?")


def make_compacted(sessions: nacre.Sessions) -> None:
    """A session whose old messages were moved out of its log."""
    at("2024-05-06 08:00")
    for number in range(6):
        sessions.add_message("compacted", "user", f"number {number}: " + "much text " * 6000)
    sessions.add_message("compacted", "assistant", "That was much.")
    sessions.truncate_history("compacted", 1)
    sessions.save("compacted")


def make_memory(sessions: nacre.Sessions) -> None:
    """Facts: learned, replaced, waiting for a confirmation, written by a person; and a note of a day."""
    inside, key = sessions.with_internal_keys(), "nacre:memory"
    at("2024-05-07 10:00")
    inside.set_meta(key, title="what nacre remembers", epoch="00112233aabbccdd")
    # Nothing that was said before this moment is gone through.
    inside.append(key, "x.cursor", {"begun": "2999-01-01T00:00:00.000+00:00"})
    fact = {"page": "MEMORY.md", "at": "2024-05-02T18:45:00.000+00:00"}
    source = {"source": {"key": "telegram:42", "n": 3, "upto": 4, "at": "2024-05-02T18:30:00.000+00:00"}}
    berlin = {**fact, **source, "id": "a000000001", "text": "Ada lives in Berlin.", "subject": "Ada"}
    inside.append(key, "x.fact", berlin)
    inside.append(key, "x.fact", {**berlin, "id": "a000000002", "text": "Ada lives in Lisbon."})
    inside.append(key, "x.strike", {"id": "a000000001", "why": "replaced", "by": "a000000002"})
    inside.append(
        key, "x.fact", {**fact, "id": "a000000003", "text": "The blue boat is in Faro. ⛵", "subject": "boat"}
    )
    waiting = {**fact, **source, "id": "a000000004", "text": "The bank is closed on Friday.", "pending": True}
    inside.append(key, "x.pending", waiting)
    note = {"page": "memory/2024-05-02.md", "at": "2024-05-02T18:45:00.000+00:00", "turn": "b000000000000001"}
    last = {"source": {"key": "telegram:42", "n": 10, "upto": 12, "at": "2024-05-02T18:45:00.000+00:00"}}
    words = "“Thanks 👍🏽” → “Have a good trip, Ada!”"
    inside.append(key, "x.daily", {**note, **last, "id": "a000000005", "text": words})


def damage(root: Path) -> None:
    """Change a byte in a session, and repair it: what is no longer whole goes to quarantine."""
    with nacre.open(root) as sessions:
        at("2024-05-08 16:00")
        sessions.add_message("damaged", "user", "before")
        sessions.add_messages("damaged", [{"role": "user", "content": f"part {number}"} for number in range(3)])
    (log,) = (path for path in (root / "sessions").glob("*.jsonl") if b"part 1" in path.read_bytes())
    log.write_bytes(log.read_bytes().replace(b"part 1", b"part l"))
    at("2024-05-08 17:00")
    main(["sessions", "repair", "damaged", "--store", str(root), "--quiet"])
    with nacre.open(root) as sessions:
        sessions.add_message("damaged", "assistant", "after")


def discard(root: Path) -> None:
    """Put a session into the trash."""
    with nacre.open(root) as sessions:
        at("2024-05-09 11:00")
        sessions.set_meta("unwanted", title="Nothing of interest")
        sessions.add_message("unwanted", "user", "Never mind.")
    at("2024-05-09 12:00")
    main(["sessions", "rm", "unwanted", "--store", str(root), "--quiet"])


def make(root: Path) -> None:
    with nacre.open(root) as sessions:
        make_tax(sessions)
        make_summary(sessions)
        make_branches(sessions)
        make_generations(sessions)
        make_odd(sessions)
        make_compacted(sessions)
        make_memory(sessions)
    damage(root)
    discard(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
