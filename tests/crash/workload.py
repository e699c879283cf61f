"""A short life of four sessions, the states that its answers allow, and what a clean process finds afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import nacre
from tests.crash.warm import Say

BIG = "m2" + "x" * 300_000
FORGOTTEN = "third-t1"

Kind = Literal["say", "summarise", "truncate", "save", "archive", "unarchive", "delete"]
Answer = Literal["done", "refused", "impossible", "unknown"]


class Step(NamedTuple):
    """One call on one session."""

    kind: Kind
    key: str
    texts: tuple[str, ...] = ()
    keep: int = 0


STEPS = (
    Step("say", "main", ("m1",)),
    Step("say", "main", (BIG,)),
    Step("say", "main", ("g1.0", "g1.1", "g1.2")),
    Step("say", "main", ("m3",)),
    Step("summarise", "main", ("what was said",)),
    Step("say", "main", ("m4",)),
    Step("truncate", "main", keep=2),
    Step("save", "main"),
    Step("say", "main", ("g2.0", "g2.1")),
    Step("say", "other", ("o1",)),
    Step("archive", "other"),
    Step("say", "other", ("o2",)),
    Step("say", "third", (FORGOTTEN,)),
    Step("delete", "third"),
    Step("say", "fourth", ("f1",)),
    Step("archive", "fourth"),
    Step("unarchive", "fourth"),
    Step("say", "fourth", ("f2",)),
    Step("say", "torn", ("t2",)),
    Step("say", "main", ("m6",)),
)
KEYS = tuple(dict.fromkeys(step.key for step in STEPS))


class Generation(NamedTuple):
    """One log: what was ever said in it, what of it is live, and the summary."""

    said: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    summary: str = ""


class State(NamedTuple):
    """What one key may hold: the active log if there is one, and the archived ones."""

    active: Generation | None = None
    archived: tuple[Generation, ...] = ()


class Seen(NamedTuple):
    """One key as a reader finds it."""

    listed: bool
    exists: bool
    history: tuple[str, ...]
    summary: str
    transcript: tuple[str, ...]


# --- in the child -------------------------------------------------------------------------------------------


def live(say: Say, root: str) -> None:
    """Take every step, and say how each was answered."""
    sessions = _opened(say, root)
    if sessions is None:
        return
    numbers: dict[str, tuple[int, str]] = {}
    for index, step in enumerate(STEPS):
        upto = numbers.get(step.key, (0, ""))
        say(begun=index, upto=upto[1][:2])
        answer, number = _attempt(sessions, step, upto[0])
        if answer == "done" and step.kind == "say":
            numbers[step.key] = (number, step.texts[-1])
        say(step=index, answer=answer)
    say(closed=_answer(sessions.close))


def _opened(say: Say, root: str) -> nacre.Sessions | None:
    for _ in range(2):
        try:
            return nacre.open(root)
        except nacre.StoreError as error:
            say(unopened=repr(error))
    return None


def _attempt(sessions: nacre.Sessions, step: Step, upto: int) -> tuple[Answer, int]:
    number = 0

    def act() -> None:
        nonlocal number
        number = _take(sessions, step, upto)

    return _answer(act), number


def _answer(act: Any) -> Answer:
    try:
        act()
    except nacre.DurabilityUnknown:
        return "unknown"
    except (nacre.Conflict, nacre.SessionNotFound):
        return "impossible"
    except nacre.Refused:
        return "refused"
    return "done"


def _take(sessions: nacre.Sessions, step: Step, upto: int) -> int:
    match step.kind:
        case "say" if len(step.texts) == 1:
            return sessions.add_message(step.key, "user", step.texts[0])
        case "say":
            return sessions.add_messages(step.key, [nacre.Message(role="user", content=text) for text in step.texts])
        case "summarise":
            sessions.set_summary(step.key, step.texts[0], upto=upto or None)
        case "truncate":
            sessions.truncate_history(step.key, step.keep)
        case "save" | "archive" | "unarchive" | "delete":
            getattr(sessions, step.kind)(step.key)
    return 0


# --- what may be true afterwards ----------------------------------------------------------------------------


def answers(lines: Iterable[dict[str, Any]]) -> Iterator[tuple[Step, Answer, str]]:
    """Every step that was begun, its answer (`unknown` if a kill took it) and what a summary was to cover."""
    begun = {line["begun"]: line["upto"] for line in lines if "begun" in line}
    answered = {line["step"]: line["answer"] for line in lines if "step" in line}
    for index, upto in begun.items():
        yield STEPS[index], answered.get(index, "unknown"), upto


def allowed(lines: Iterable[dict[str, Any]], key: str, before: State) -> set[State]:
    """Every state of one key that agrees with the answers."""
    states = {before}
    for step, answer, upto in answers(lines):
        if step.key != key or answer == "refused":
            continue
        outcomes = {state: _after(state, step, upto) for state in states}
        possible = {after for after in outcomes.values() if after is not None}
        match answer:
            case "done":
                states = possible
            case "impossible":
                states = {state for state, after in outcomes.items() if after is None}
            case _:
                states |= possible
        assert states, f"{step.kind} on {key} cannot have been {answer}"
    return states


def _after(state: State, step: Step, upto: str) -> State | None:
    """The state after a step, or None where the step is not possible."""
    match step.kind:
        case "delete":
            return State()
        case "archive":
            return state.active and State(None, (*state.archived, state.active))
        case "unarchive":
            stands_free = state.active is None and state.archived
            return State(state.archived[-1], state.archived[:-1]) if stands_free else None
        case "say":
            return state._replace(active=_said(state.active or Generation(), step.texts))
        case _ if state.active is None:
            return state
        case _:
            changed = _changed(state.active, step, upto)
            return changed and state._replace(active=changed)


def _said(log: Generation, texts: tuple[str, ...]) -> Generation:
    return log._replace(said=log.said + texts, live=log.live + texts)


def _changed(log: Generation, step: Step, upto: str) -> Generation | None:
    match step.kind:
        case "truncate":
            return log._replace(live=log.live[-step.keep :])
        case "summarise":
            places = [place for place, text in enumerate(log.live) if text.startswith(upto)] if upto else [-1]
            return log._replace(live=log.live[places[-1] + 1 :], summary=step.texts[0]) if places else None
        case _:
            return log


def seen_in(state: State) -> Seen:
    """What a reader must find in a state."""
    logs = [*state.archived, *filter(None, [state.active])]
    read = logs[-1] if logs else Generation()
    return Seen(
        listed=state.active is not None,
        exists=bool(logs),
        history=read.live,
        summary=read.summary,
        transcript=tuple(text for log in logs for text in log.said),
    )


def look(sessions: nacre.Sessions, key: str) -> Seen:
    """What a reader does find."""
    stored = sessions.transcript(key)
    numbers = [(entry.generation, entry.n) for entry in stored]
    assert all(one[0] != two[0] or one[1] < two[1] for one, two in pairwise(numbers))
    return Seen(
        listed=key in {info.key for info in sessions.list()},
        exists=sessions.exists(key),
        history=tuple(str(message.content) for message in sessions.get_history(key)),
        summary=sessions.get_summary(key),
        transcript=tuple(str(entry.message.content) for entry in stored),
    )


def check(root: Path, lines: list[dict[str, Any]], before: dict[str, State]) -> None:
    """A clean process finds what the answers allow, can go on, and has nothing to complain of then."""
    with nacre.open(root) as sessions:
        for key in KEYS:
            states = allowed(lines, key, before.get(key, State()))
            found = look(sessions, key)
            possible = {seen_in(state) for state in states}
            assert found in possible, f"{key} holds {_short(found)}, allowed: {[_short(one) for one in possible]}"
            sessions.add_message(key, "user", "after")
            assert sessions.get_history(key)[-1].content == "after"
        report = sessions.verify()
        assert report.ok, report.findings
    if ("delete", "done") in {(step.kind, answer) for step, answer, _ in answers(lines)}:
        assert not any(FORGOTTEN.encode() in file.read_bytes() for file in root.rglob("*") if file.is_file())


def _short(seen: Seen) -> str:
    return str(seen).replace("x" * 300_000, "…")
