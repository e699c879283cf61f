"""Erasing a message together with what the agent made of it: lines of memory, and the gateway's copy of it."""

from __future__ import annotations

from msgspec import Struct

from nacre.memory.agent_memory import Memory
from nacre.messages import Redaction
from nacre.runtime.gateway.inbox import KEYS, forget_answered
from nacre.sessions import Sessions


class Erasure(Struct, frozen=True, kw_only=True):
    """What was erased: in the store, how many lines of memory, and whether the gateway's copies are gone.

    A daemon that serves the store erases those itself, within the hour.
    """

    redaction: Redaction
    facts: int
    are_copies_gone: bool


def redact(sessions: Sessions, memory: Memory | None, key: str, n: int, *, generation: str = "") -> Erasure:
    """Erase the content of a message wherever the store or the agent has it; raises what `Sessions.redact` raises.

    Killed at any point it is finished by the next opening of the store, and memory's part by the next start of the
    agent. An agent without memory has learned nothing.
    """
    facts, are_copies_gone = 0, True

    def erase(found: Redaction) -> None:
        nonlocal facts, are_copies_gone
        facts, are_copies_gone = _erase_copies(sessions, memory, found)

    redaction = sessions.redact(key, n, generation=generation, erase_copies=erase)
    return Erasure(redaction=redaction, facts=facts, are_copies_gone=are_copies_gone)


def finish_redactions(sessions: Sessions, memory: Memory) -> None:
    """Finish what was cut short, memory's part too."""

    def erase(found: Redaction) -> None:
        _erase_copies(sessions, memory, found)

    sessions.finish_redactions(erase)


def _erase_copies(sessions: Sessions, memory: Memory | None, found: Redaction) -> tuple[int, bool]:
    """Erase the lines that were learned from a message, and copies of answered messages."""
    facts = 0
    if memory is not None and memory.lines_from(found.key):
        facts = memory.forget_message(found.key, found.n)
    return facts, not any(map(sessions.exists, KEYS)) or forget_answered(sessions)
