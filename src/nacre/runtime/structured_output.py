"""Answers in a form that was asked for: the model gets it, answers are checked, and asked for again if need be."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import RunVar
from msgspec.structs import replace

from nacre.agent.model_request import terms_of
from nacre.agent.ports import Context, Emit, Event, Form, Notice, Reply, Text, Usage
from nacre.errors import ConfigError, InvalidAnswer, InvalidArgument, ProviderError, install_command
from nacre.history.message_text import text_of
from nacre.messages import Message
from nacre.runtime import schema_check
from nacre.runtime.counters import ProviderWrapper

ATTEMPTS = 3
_TIMEOUT = 60.0
"""Seconds that one check may take on a machine that has much else to do; its CPU time has a limit of its own."""
_AT_ONCE = 4
"""How many checks run side by side; others wait, and callers take turns."""
_SCRIPT = Path(schema_check.__file__)
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL | re.IGNORECASE)
_HOW = (
    "Answer with one JSON value that follows this JSON schema, and with nothing before or after it "
    "(no explanation, no code block):\n{schema}"
)
_AGAIN = "This is not the JSON value that was asked for: {why}\nAnswer again, with the corrected JSON value alone."


async def check_schema(schema: dict[str, Any]) -> None:
    """Raise InvalidArgument unless a value is a JSON schema that answers can be checked against."""
    if why := (await _check({"schema": schema}))["why"]:
        raise InvalidArgument(f"the schema is not valid: {why}")


class Formed(ProviderWrapper):
    """A provider that keeps to the terms of the message that it answers.

    Of an answer in a form nothing is emitted before it was checked. One that does not have the form is asked for
    again, with the reason and without tools, so that servers that can hold the model to the form do so.
    """

    async def close(self) -> None:
        """Close the provider inside."""
        await self._inner.close()

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        """Answer; raises InvalidAnswer if no attempt has the form, and what the provider inside raises."""
        terms = terms_of(context.messages)
        if terms.instructions:
            system = "\n\n".join(part for part in (context.system, terms.instructions) if part)
            context = replace(context, system=system)
        if terms.form is None:
            return await self._inner.complete(context, emit=emit)

        # At the end of the user's message: what comes before it stays the same for the server's cache.
        how = _HOW.format(schema=msgspec.json.encode(terms.form.schema).decode())
        messages = list(context.messages)
        at = max(at for at, one in enumerate(messages) if one.role == "user")
        content = messages[at].content
        said: Any = [*content, {"type": "text", "text": how}] if isinstance(content, list) else f"{content}\n\n{how}"
        messages[at] = replace(messages[at], content=said)
        return await self._ask_until_valid(replace(context, messages=tuple(messages)), terms.form, emit)

    async def _ask_until_valid(self, context: Context, form: Form, emit: Emit) -> Reply:
        from nacre.providers.text_tools.provider import render  # noqa: PLC0415 - most answers need no form

        def hear(event: Event) -> None:
            if not isinstance(event, Text):
                emit(event)

        used, why = Usage(), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                emit(Notice("the answer did not have the form that was asked for; asking again"))
            reply = await self._ask(context, form, hear)
            if (more := reply.usage) is not None:
                used = Usage(
                    prompt=used.prompt + more.prompt,
                    completion=used.completion + more.completion,
                    cached=used.cached + more.cached,
                    request=more.request,
                )
                reply = replace(reply, usage=used)
            if reply.message.tool_calls:
                return reply
            text = text_of(reply.message).strip()
            if found := _FENCED.fullmatch(text):
                # A code block around it, which many models cannot leave out.
                text = found[1].strip()
            # What was cut off says so, and would be cut off again.
            is_cut, given = reply.finish == "length", {"schema": form.schema, "text": text}
            checked = {"wrong": "", "why": ""} if is_cut else await _check(given)
            if checked["wrong"] == "schema":
                raise InvalidAnswer(f"the schema that was asked for is not valid: {checked['why']}")
            if not (why := checked["why"]):
                emit(Text(text))
                return replace(reply, message=replace(reply.message, content=text))
            again = Message(role="user", content=_AGAIN.format(why=why))
            before = replace(reply.message, content=text or "(nothing)")
            context = render(replace(context, messages=(*context.messages, before, again), tools=()))
        raise InvalidAnswer(f"the model gave {ATTEMPTS} answers, and none had the form that was asked for: {why}")

    async def _ask(self, context: Context, form: Form, emit: Emit) -> Reply:
        """Ask with the form in the request; a server that refuses it is asked without."""
        try:
            return await self._inner.complete(replace(context, form=form), emit=emit)
        except ProviderError as error:
            # Those of other kinds say that it is something else.
            if type(error) is not ProviderError:
                raise
        return await self._inner.complete(context, emit=emit)


async def _check(given: dict[str, Any]) -> dict[str, str]:
    """Run the check in a process of its own, which is ended if it takes too long."""
    command = [sys.executable, "-I", str(_SCRIPT)]
    try:
        limit = _LIMIT.get()
    except LookupError:
        _LIMIT.set(limit := FairLimit(_AT_ONCE))
    async with limit.place():
        with anyio.move_on_after(_TIMEOUT):
            # Without memory the process could not end for wanting to say where in its Rust code that was.
            env = {**os.environ, "RUST_BACKTRACE": "0"}
            done = await anyio.run_process(command, input=msgspec.json.encode(given), check=False, env=env)
            if done.returncode == schema_check.MISSING:
                raise ConfigError(f"answers in a form need the package jsonschema-rs: {install_command('serve')}")
            if done.returncode > 0:
                raise ProviderError(f"the check of an answer's form failed with exit code {done.returncode}")
            if done.returncode == 0:
                return msgspec.json.decode(done.stdout, type=dict[str, str])
    return {"wrong": "schema", "why": "a check takes too long, or too much memory; use a simpler schema"}


# ---- how many checks run at once


CALLER: ContextVar[str] = ContextVar("caller", default="")
"""For whom the running task works; tasks that it starts do so too."""


class FairLimit:
    """Lets `limit` in at once; of those who wait, one of each caller in turn, and a caller's own in their order."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: dict[str, deque[anyio.Event]] = {}

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and have it for a while."""
        if self._free:
            self._free -= 1
        else:
            caller, turn = CALLER.get(), anyio.Event()
            self._waiting.setdefault(caller, deque()).append(turn)
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():
                    # It was given a place at the moment at which it gave up.
                    self._leave()
                else:
                    self._waiting[caller].remove(turn)
                    if not self._waiting[caller]:
                        del self._waiting[caller]
                raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        """Pass a place on to the caller whose turn it is, who comes after all others then."""
        caller = next(iter(self._waiting), None)
        if caller is None:
            self._free += 1
            return
        queue = self._waiting.pop(caller)
        queue.popleft().set()
        if queue:
            self._waiting[caller] = queue


_LIMIT: RunVar[FairLimit] = RunVar("checks of forms")
