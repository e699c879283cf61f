"""One question, one answer: what `nacre chat PROMPT` prints, and how it ends."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from nacre.agent.actor import UserMessage
from nacre.agent.kernel import AnyKernel
from nacre.agent.ports import Ask, Called, ChildReturned, Emit, Event, Notice, Returned, Text, Thought
from nacre.cli.chat.plain_input import asker
from nacre.cli.chat.questions import ask_with
from nacre.cli.chat.resume import resume_command, tell_how_to_resume
from nacre.cli.chat.ticker import Ticker
from nacre.cli.chat.turn_output import DrawnOutput, JsonLinesOutput, PlainOutput, TurnOutput, refusal
from nacre.cli.failures import OK, PIPE_CLOSED, SIGNALLED, Failure, failure_of, internal_failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.errors import NacreError, Stopped, ungroup
from nacre.history.message_text import text_of
from nacre.messages import Message
from nacre.render.turn import question
from nacre.runtime.app import App

_AGAIN = 0.03
_SUMMARY_SECONDS = 60.0
_LEARNING_SECONDS, _EARLIER_SECONDS = 3.0, 60.0
_LIMITS = {
    "steps": (
        "the turn was stopped: it reached the maximum number of steps",
        "agent.max_steps is the limit; resume the session to continue",
    ),
    "repeated": (
        "the turn was stopped: the model repeated a call of {name} that fails",
        "change what makes it fail, or ask in other words; resume the session to continue",
    ),
    "length": (
        "the answer was cut: it reached the model's maximum length",
        "ask for a shorter answer, or resume the session to continue",
    ),
}
"""The problem and the hint for each limit that a turn may reach."""


async def answer(app: App, args: Namespace, out: Out, inbound: UserMessage) -> int:
    """Answer once; returns the exit code, or raises Failure with the answer so far in its details."""
    await _ask_about_remote(app, out, inbound.key)
    is_drawn = out.is_terminal and not out.json and not args.print
    stream = sys.stdout if is_drawn else sys.stderr
    ticker = Ticker(lambda: view.status if not out.quiet else "", lambda: view.live, stream=stream)
    view: TurnOutput = JsonLinesOutput(out) if out.jsonl else TurnOutput(out) if out.json else PlainOutput(out)
    if is_drawn:
        view = DrawnOutput(out, ticker.clear)
    key = inbound.key
    turn = _Turn(app, args, key)

    lost: list[OSError] = []

    def emit(event: Event) -> None:
        turn.take(event)
        if not view.live:
            ticker.clear()
        try:
            view.take(event)
        except OSError as error:
            lost.append(error)
            once.stop(signal.SIGPIPE)

    once = Once(app.kernel, inbound, emit=emit, ask=_ask(out, view, ticker), ticker=ticker)
    view.begin(turn.session, app.notes)
    try:
        outcome = await once.run()
    except Exception as error:
        view.end()
        single = ungroup(error)
        failure = (failure_of(single) if isinstance(single, Exception) else None) or internal_failure(single)
        failure.details = turn.details("")
        failure.hint = "\n".join(filter(None, [failure.hint, turn.how_to_ask_again(args, out)]))
        raise failure from error
    if outcome.signal == signal.SIGPIPE:
        if lost and not isinstance(lost[0], BrokenPipeError):
            raise lost[0]
        return PIPE_CLOSED
    view.end()
    if not out.json and sys.stderr.isatty():
        tell_how_to_resume(app, args, out, key)
    # The summary comes after the answer; the last line of --jsonl comes after both.
    caught = await _summarise(app, key, view, out) if out.jsonl else 0
    code = _finish(out, turn, outcome)
    out.flush()
    if not out.jsonl:
        caught = await _summarise(app, key, view, out)
    return caught or await _learn(app, out) or code


async def _summarise(app: App, key: str, view: TurnOutput, out: Out) -> int:
    """Wait for the summary that is due after the turn, for a limited time; the exit code of a signal, else 0.

    Nothing is lost if it does not get done: it is due after the next turn as well.
    """
    app.compactor.listeners.append(lambda _, draft: view.take(Notice(draft.sentence)))

    async def finish() -> None:
        with anyio.move_on_after(_SUMMARY_SECONDS):
            await app.compactor.finish(key)

    return await _wait_for(finish, "summarising earlier messages; Ctrl-C skips it", out)


async def _learn(app: App, out: Out) -> int:
    """Let memory learn from the turn for a limited time; the exit code of a signal, else 0.

    Nothing is lost if it does not get done: the next process learns it. That one waits longer for what this one left,
    so that commands in a row learn from every turn, one by one, however slow the model is.
    """
    learner = app.learner
    if learner is None:
        return 0

    async def finish() -> None:
        with anyio.move_on_after(_LEARNING_SECONDS):
            await learner.rest()
        with anyio.move_on_after(_EARLIER_SECONDS):
            await learner.learn_earlier()

    return await _wait_for(finish, "remembering; Ctrl-C skips it", out)


async def _wait_for(work: Callable[[], Awaitable[None]], what: str, out: Out) -> int:
    """Wait for work that is done after a turn, and say so; the exit code of the signal that ended it, else 0."""
    ticker = Ticker(lambda: "" if out.quiet else what)
    caught = 0
    async with anyio.create_task_group() as tasks:

        async def end_at_signal() -> None:
            nonlocal caught
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
                async for number in signals:
                    caught = int(number)
                    tasks.cancel_scope.cancel()

        tasks.start_soon(end_at_signal)
        tasks.start_soon(ticker.run)
        await work()
        tasks.cancel_scope.cancel()
    ticker.clear()
    return SIGNALLED + caught if caught else 0


async def _ask_about_remote(app: App, out: Out, key: str) -> None:
    """Ask before a session of a local model is sent to a remote one; in a script that fails, before it is stored."""
    text = app.remote_question(key)
    if not text:
        return
    if out.can_ask:
        ask = asker(lambda lines: out.warn("\n".join(lines)))
        if await ask(f"{clean(text)} [y]es or [n]o: ", ("y", "yes", "n", "no")) in {"y", "yes"}:
            app.allow_remote(key)
            return
    problem = f"session {key!r} was answered by a local model, and {app.model} is remote: nothing was sent"
    raise Failure("model_not_allowed", problem, hint="--allow-remote sends it; -m NAME names another model")


def _finish(out: Out, turn: _Turn, outcome: Outcome) -> int:
    """Print the end of the JSON output, or what was wrong with the answer; returns the exit code."""
    stopped = outcome.answer.extra.get("stopped") if outcome.answer is not None else None
    # What ends a turn without an answer is a mark in the log, not something that the model said.
    text = text_of(outcome.answer) if outcome.answer is not None and stopped not in {"steps", "repeated"} else ""
    # What is wrong with it, the worst first.
    failure: Failure | None = None
    if outcome.signal:
        name = signal.Signals(outcome.signal).name
        left = "" if outcome.signal == signal.SIGINT else "; the turn is not finished and can be resumed"
        failure = Failure("interrupted", f"stopped by {name}{left}", code=SIGNALLED + outcome.signal)
    elif stopped in _LIMITS:
        problem, hint = _LIMITS[stopped]
        name = turn.calls[-1]["name"] if turn.calls else "a tool"
        failure = Failure("limit_reached", problem.format(name=name), hint=hint)
    elif not text.strip():
        hint = "ask again, or ask another model (-m)"
        failure = Failure("empty_answer", "the model gave no answer" + turn.only_thought, hint=hint)
    elif turn.refusals:
        failure = Failure("tool_refused", turn.refusals[0])
    if failure is None:
        head = {"schema_version": 1, **({"type": "done"} if out.jsonl else {}), "ok": True}
        if out.json:
            out.line({**head, **turn.details(text)})
        return OK
    failure.details = turn.details(text)
    if failure.kind == "tool_refused" and not out.json:
        return failure.code  # each refused call has had its line
    raise failure


class _Turn:
    """What happened in one turn, for the JSON output and the exit code."""

    def __init__(self, app: App, args: Namespace, key: str) -> None:
        self._app = app
        self._folder = str(args.folder)
        self._key = key
        self._before = app.sessions.snapshot(key, last=0).n
        self._shown_key = None if args.incognito else key
        self._pieces: list[str] = []
        self._has_thought = False
        self.calls: list[dict[str, Any]] = []
        self.refusals: list[str] = []

    @property
    def session(self) -> dict[str, Any]:
        """The fields of the record that `--jsonl` begins with."""
        return {"session": self._shown_key, "model": self._app.model, "folder": self._folder}

    def how_to_ask_again(self, args: Namespace, out: Out) -> str:
        """What to tell a person after a failure: that the message is stored and how to resume; "" if it is not."""
        if out.json or not sys.stderr.isatty():
            return ""
        is_stored = False
        with suppress(NacreError):
            is_stored = not args.incognito and self._app.sessions.snapshot(self._key, last=0).n > self._before
        return f"your message is stored; {resume_command(args, self._key)} asks again" if is_stored else ""

    @property
    def only_thought(self) -> str:
        return ", only reasoning" if self._has_thought else ""

    def take(self, event: Event) -> None:
        match event:
            case Text(text):
                self._pieces.append(text)
            case Called():
                self._pieces.clear()
            case Returned(call, output):
                self._pieces.clear()
                self.calls.append({"name": call.name, "failed": output.failed})
                if output.is_refused:
                    self.refusals.append(refusal(call, output))
            case Thought():
                self._has_thought = True
            case ChildReturned() | Notice():
                pass

    def details(self, text: str) -> dict[str, Any]:
        """What the last JSON object has: the answer, or as much of it as came, and what it took."""
        found = {"answer": text or "".join(self._pieces), "model": self._app.model, "session": self._shown_key}
        return {**found, "usage": self._usage(), "calls": self.calls}

    def _usage(self) -> dict[str, int | float]:
        """The tokens of all requests of the turn, and what they cost where every one of them has a price."""
        total: dict[str, int | float] = {"requests": 0, "prompt": 0, "completion": 0, "cached": 0}
        costs: list[float | None] = []
        with suppress(NacreError):  # a session that cannot be read is what the failure itself is about
            n, last = self._before, self._app.sessions.snapshot(self._key, last=0).n
            entries = self._app.sessions.follow(self._key, after=n)
            while n < last:
                entry = next(entries)
                n = entry.n
                if entry.kind == "use":
                    total["requests"] += 1
                    for field in ("prompt", "completion", "cached"):
                        total[field] += int(entry.data.get(field, 0))
                    costs.append(self._app.cost(entry.data))
            entries.close()
        known = [cost for cost in costs if cost is not None]
        if known and len(known) == len(costs):
            total["cost"] = round(sum(known), 6)
        return total


def _ask(out: Out, view: TurnOutput, ticker: Ticker) -> Ask | None:
    """Ask the person at the terminal about tool calls; None if there is nobody to ask."""
    if not out.can_ask:
        return None

    def show(lines: Sequence[str]) -> None:
        view.pause()
        ticker.clear()
        if lines:
            out.warn("\n".join(lines))

    return ask_with(lambda approval, limit: question(approval, out.sheet(), limit=limit), show, asker(show))


# ---- the turn, and what is done after it


class Outcome(Struct, frozen=True, kw_only=True):
    """The answer, or the signal that came before it."""

    answer: Message | None = None
    signal: int = 0


class Once:
    """A turn that ends with its answer or is stopped by SIGINT; other signals leave it unfinished in the log."""

    def __init__(self, kernel: AnyKernel, inbound: UserMessage, *, emit: Emit, ask: Ask | None, ticker: Ticker) -> None:
        self._kernel = kernel
        self._inbound = inbound
        self._emit = emit
        self._ask = ask
        self._ticker = ticker
        self._signal = 0

    async def run(self) -> Outcome:
        """Wait for the answer; raises what `Kernel.deliver` raises, but for Stopped, in a group."""
        answer: Message | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._signals, tasks)
                tasks.start_soon(self._ticker.run)
                try:
                    answer = await self._kernel.deliver(self._inbound, emit=self._emit, ask=self._ask)
                except Stopped:
                    self._signal = self._signal or int(signal.SIGINT)
                tasks.cancel_scope.cancel()
        finally:
            self._ticker.clear()
        return Outcome(answer=answer, signal=self._signal)

    async def _signals(self, tasks: TaskGroup) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if self._signal or number != signal.SIGINT:
                    # Nobody stopped the turn: it is finished when the session is resumed.
                    self._signal = self._signal or int(number)
                    tasks.cancel_scope.cancel()
                else:
                    self._signal = int(number)
                    tasks.start_soon(self._stop_turn)

    def stop(self, number: signal.Signals) -> None:
        """Stop the turn that runs as if this signal had come; what the model said so far is kept."""
        self._signal = self._signal or int(number)
        self._kernel.stop(self._inbound.key)

    async def _stop_turn(self) -> None:
        """Stop the turn, also one that is only about to begin."""
        while not self._kernel.stop(self._inbound.key):  # noqa: ASYNC110 - it says by no event that it begins
            await anyio.sleep(_AGAIN)
