"""The built-in tools that pass a call on: the shell, a delegated task, skills, memory, and earlier conversations."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from msgspec import Struct

from nacre.agent.ports import Emit, Notice, Output, Sandbox, Scene
from nacre.codec import message_of, time_of
from nacre.errors import InvalidKey, ToolError
from nacre.history.message_text import text_of
from nacre.keys import is_internal
from nacre.messages import Hit, Stored, place_of
from nacre.records import View
from nacre.tools.functions import Function
from nacre.tools.tool_output import MAX_LENGTH, harmless, limit_output, strip_terminal_codes

# ---- shell

_MAX_SECONDS = 600
_MAX_BYTES = 4_000_000
_SHELLS = ("/bin/bash", "/usr/bin/bash")


def shell_tool(sandbox: Sandbox) -> Function:
    """The tool that runs commands in the workspace, by the sandbox."""
    # Models write bash; what is not there is not available inside the sandbox either.
    program = next((path for path in _SHELLS if Path(path).exists()), "/bin/sh")

    async def shell(command: str, scene: Scene, timeout: int = 120) -> Output:  # noqa: ASYNC109 - a limit on the command
        """Run a shell command in the workspace and give what it prints, errors too, and how it ended.

        There is no terminal and nobody to answer questions; the command ends with the call, so nothing is left
        running in the background.

        Args:
            command: what to run
            timeout: seconds after which it is stopped; maximum 600
        """
        seconds = min(max(timeout, 1), _MAX_SECONDS)
        finished = await sandbox.run([program, "-c", command], timeout=seconds, max_bytes=_MAX_BYTES)
        for note in finished.notes:
            scene.emit(Notice(note))
        text = strip_terminal_codes(finished.output.decode("utf-8", "replace")).rstrip("\n")
        found = limit_output(text or "(no output)", failed=finished.timed_out or finished.status != 0)
        # How it ended.
        ends = [f"it printed more than {_MAX_BYTES:,} bytes; the rest was not kept"] if finished.cut else []
        if finished.timed_out:
            ends.append(f"stopped after {seconds} s: timeout")
        elif finished.status < 0:
            name = f"signal {-finished.status}"
            with suppress(ValueError):
                name = signal.Signals(-finished.status).name
            ends.append(f"killed by {name}")
        elif finished.status:
            ends.append(f"exit status {finished.status}")
        notes = "".join(f"\n[{note}]" for note in (*ends, *finished.notes))
        whole = None if found.whole is None else found.whole + notes
        return Output(text=found.text + notes, whole=whole, failed=found.failed)

    return Function(shell, effect="run")


# ---- delegate: a piece of work for a session of its own, linked to the one that asked for it

Status = Literal["done", "steps", "repeated", "tokens", "length", "failed", "interrupted"]
_STATUS = {
    "done": "done",
    "steps": "stopped: it used all its steps",
    "repeated": "stopped: it repeated a call that fails",
    "tokens": "stopped: it used all its tokens",
    "length": "its answer was cut off",
    "failed": "failed",
    "interrupted": "interrupted; what it did so far is kept",
}


class Task(Struct, frozen=True, kw_only=True):
    """Work for a child: its parent and the call that asked for it, what to do, and what it may use."""

    parent: str
    call: str
    text: str
    depth: int
    steps: int
    tokens: int


class Report(Struct, frozen=True, kw_only=True):
    """What became of a child: its session, how it ended, its last answer, and what it used."""

    key: str
    status: Status
    answer: str = ""
    steps: int = 0
    tokens: int = 0


class Children(Protocol):
    """Who runs child sessions."""

    def depth(self, key: str) -> int:
        """How many parents a session has; 0 for one that a person began."""

    async def run(self, task: Task, emit: Emit) -> Report:
        """Run a new child to its end, and pass on what its calls gave; it is cancelled with the call."""


def delegate_tool(
    children: Children, *, max_depth: int = 2, max_steps: int = 30, max_tokens: int = 200_000
) -> Function:
    """The tool that delegates; sessions may delegate so deep, and one child may use so many steps and tokens."""

    async def delegate(task: str, scene: Scene, steps: int | None = None) -> Output:
        """Give a piece of work to a helper with a conversation of its own, and wait for its answer.

        It knows nothing of this conversation, so say all that it needs; it has the same workspace and tools.

        Args:
            task: what to do, and what to answer
            steps: maximum number of steps, if fewer than the default
        """
        depth = children.depth(scene.key)
        if depth >= max_depth:
            raise ToolError(f"this session is already {depth} levels deep and cannot delegate: do the work here")
        if not task.strip():
            raise ToolError("the task is empty: describe what to do")
        work = Task(
            parent=scene.key,
            call=scene.call.id,
            text=task,
            depth=depth + 1,
            steps=max_steps if steps is None else min(max(steps, 1), max_steps),
            tokens=max_tokens,
        )
        report = await children.run(work, scene.emit)
        used = f"{report.steps:,} step{'s' * (report.steps != 1)}, {report.tokens:,} tokens"
        heading = f"[session {report.key}: {_STATUS[report.status]}; {used}]"
        return limit_output(f"{heading}\n\n{report.answer or '(no answer)'}", failed=report.status != "done")

    return Function(delegate, effect="run")


# ---- use_skill: the instructions of a skill, and the files that come with it

Load = Callable[[str, str], str]
"""Give the text of a skill, or of the file of it that is named; raises ToolError."""

_NEAR = 2000
_FOR_THE_NOTE = 200


def skill_tool(names: Sequence[str], load: Load) -> Function:
    """The tool that loads one of these skills; `names` must not be empty."""

    def use_skill(name: str, file: str = "", offset: int = 0) -> Output:
        """Load the instructions of a skill before doing what it is for, or a file that it comes with.

        A long text comes in parts: read all of them. Its files are in the folder that is named with it; other tools
        can read them and run its scripts there, by their full path.

        Args:
            name: which skill
            file: one of the skill's files, as its instructions name it; empty for the instructions
            offset: how many characters of the text to leave out, since they were read before
        """
        text = harmless(load(name, file))
        if offset < 0 or (offset and offset >= len(text)):
            raise ToolError(f"offset is from 0 to {max(len(text) - 1, 0)}, not {offset}: the text ends there")
        rest = text[offset:]
        if len(rest) <= MAX_LENGTH:
            return Output(text=rest)
        # Up to the end of a line if there is one near, with a note that says how to get the next part.
        limit = MAX_LENGTH - _FOR_THE_NOTE
        end = rest.rfind("\n", limit - _NEAR, limit) + 1 or limit
        after = offset + end
        note = f"[{len(text) - after:,} of {len(text):,} characters follow; offset={after} continues]"
        return Output(text=f"{rest[:end]}\n{note}")

    use_skill.__annotations__["name"] = Literal.__getitem__(tuple(sorted(names)))
    return Function(use_skill, effect="read")


# ---- remember and forget: what the agent is to know in every later conversation

Remember = Callable[[str, str, str], str]
"""Keep a fact, given its text, its subject and the session it was said in; gives the text that is kept."""

Forget = Callable[[str], str]
"""Take out the fact that a text or an id means; gives its text. Raises what the model is to be given."""


def memory_tools(remember_fact: Remember, forget_fact: Forget) -> list[Function]:
    """The tools that write memory."""

    def remember(fact: str, scene: Scene, subject: str = "") -> str:
        """Keep a fact or a preference for all later conversations; only what the user wants kept.

        Args:
            fact: one short sentence that can be understood on its own
            subject: what it is about, in one to three words; a fact about it that this one contradicts is replaced
        """
        return f"remembered: {remember_fact(fact, subject, scene.key)}"

    def forget(fact: str) -> str:
        """Remove a fact from memory that is wrong or no longer wanted.

        Args:
            fact: its text, or its id
        """
        return f"forgotten: {forget_fact(fact)}"

    return [Function(remember, effect="write"), Function(forget, effect="write")]


# ---- search_sessions: what was said in earlier conversations

T = TypeVar("T")
Sees = Callable[[str, str], bool]
"""Whether one session may see what was said in another."""

_MAX_RESULTS = 50
_AROUND = 2
_MAX_NEIGHBOUR = 1000
# Between two messages there are few other records.
_GAP = 64
# A turn has far fewer records; one that cannot be found is not looked for through the whole log.
_MAX_TURN = 4096


class Searchable(Protocol):
    """What of `Sessions` is needed."""

    def search(  # noqa: PLR0913 - what a search can be narrowed to
        self, query: str, *, limit: int, fill: bool, skip: tuple[str, int] | None, only: str, meaning: bool
    ) -> Sequence[Hit]:
        """The messages that a query finds, best first; with `only`, those of one session."""

    def read(self, key: str, get: Callable[[View], T]) -> T | None:
        """The result of a function of the records of a session; None if there is none."""

    def transcript(self, key: str) -> Sequence[Stored]:
        """Every message of a session, those of its archived generations too."""


def search_tool(
    sessions: Searchable, *, sees: Sees = lambda *_: True, meaning: Callable[[], bool] = lambda: False
) -> Function:
    """The tool that searches and reads sessions; by meaning, too, while `meaning` says that it can be done."""

    def search_sessions(scene: Scene, query: str = "", place: str = "", limit: int = 10) -> str:
        """Search all earlier conversations, or read a result in full.

        Each result has its place (session@record), time and role, and an excerpt.

        Args:
            query: a question, or words; "a phrase", -not, role:user, tool:NAME, since:2026-01-31 narrow it
            place: instead of a query: read the message at this place, such as cli:1@42, with those before and after it
            limit: maximum number of results
        """
        if bool(query.strip()) == bool(place.strip()):
            raise ToolError("give a query to search for, or a place to read")
        if place.strip():
            return _read_place(sessions, place.strip(), lambda key: sees(scene.key, key))
        start = sessions.read(scene.key, lambda view: _turn_start(view, scene.call.id))
        # Who may see little gets the best of what may be seen, and nothing by which words of others could be guessed.
        found = sessions.search(
            query,
            limit=min(max(limit, 1), _MAX_RESULTS),
            fill=True,
            skip=(scene.key, start) if start else None,
            only="" if sees(scene.key, "") else scene.key,
            meaning=meaning(),
        )
        hits = [hit for hit in found if sees(scene.key, hit.key)]
        lines = [f"{hit.place}  {hit.ts:%Y-%m-%d %H:%M}  {hit.role}: {' '.join(hit.snippet.split())}" for hit in hits]
        return "\n".join(lines) or f"nothing was found for {query!r}"

    return Function(search_sessions, effect="read")


def _read_place(sessions: Searchable, place: str, sees: Callable[[str], bool]) -> str:
    """A message in full, with its neighbours.

    A place without a generation is in the active one, or, if that has no such message, in the newest that has.
    """
    key, _, numbered = place.rpartition("@")
    generation, _, number = numbered.rpartition("/")
    if not key or not number.isascii() or not number.isdecimal():
        raise ToolError(f"{place!r} is no place: give it as a search shows it, such as cli:1@42")
    n, found = int(number), list[Stored]()
    with suppress(InvalidKey):
        if sees(key) and not is_internal(key):
            active, near = sessions.read(key, lambda view: (view.uid, _neighbours(view, n))) or ("", [])
            found = near if generation in {"", active} else []
            if not found:
                every = sessions.transcript(key)
                same = (one.generation for one in reversed(every) if one.n == n)
                uid = next((one for one in same if generation in {"", one}), None)
                said = [one for one in every if one.generation == uid]
                at = next((at for at, one in enumerate(said) if one.n == n), 0)
                found = said[max(0, at - _AROUND) : at + _AROUND + 1]
    if not found:
        raise ToolError(f"there is no message {place}: a search shows where messages are")

    texts = []
    for one in found:
        shown = place_of(key, one.generation, one.n)
        parts = [text_of(one.message), *(f"{call.name} {call.arguments}" for call in one.message.tool_calls)]
        text = "\n".join(part for part in parts if part)
        if one.n != n and len(text) > _MAX_NEIGHBOUR:
            text = f"{text[:_MAX_NEIGHBOUR]}… (read {shown} for the rest)"
        texts.append(f"{shown}  {one.ts:%Y-%m-%d %H:%M}  {one.message.role}:\n{text}")
    return "\n\n".join(texts)


def _neighbours(view: View, n: int) -> list[Stored]:
    """A message and those before and after it, until there is none for long; nothing if record `n` is not one."""
    record = view.find(n)
    if record is None or record.m is None:
        return []
    before = [one for one in islice(view.back(n - 1), _GAP) if one.m is not None][:_AROUND]
    found, last = [*before[::-1], record], n
    while n < min(view.n, last + _GAP) and len(found) <= len(before) + _AROUND:
        n += 1
        record = view.find(n)
        if record is not None and record.m is not None:
            found.append(record)
            last = n
    return [Stored(generation="", n=one.n, ts=time_of(one), message=message_of(one, view)) for one in found]


def _turn_start(view: View, call: str) -> int:
    """The record with which the turn of a tool call begins: its words are in the question and in the call itself.

    A turn begins after the last answer that called nothing. 0 if the call is not in the log.
    """
    start, is_in_turn = 0, False
    for count, record in enumerate(view.back(view.n)):
        message = record.m
        if count == _MAX_TURN:
            break
        if message is None:
            continue
        if message.role == "assistant" and not message.tool_calls and is_in_turn:
            break
        is_in_turn = is_in_turn or any(one.id == call for one in message.tool_calls)
        start = record.n
    return start if is_in_turn else 0
