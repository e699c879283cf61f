"""Answers in a form that was asked for: told to the model, checked, and asked for again if they do not have it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import RunVar
from msgspec.structs import replace

from nacre.agent.model_request import Terms, terms_of
from nacre.agent.ports import Context, Emit, Event, Form, Notice, Provider, Reply, Text, Usage
from nacre.errors import ConfigError, InvalidAnswer, InvalidArgument, ProviderError, install_command
from nacre.history.message_text import text_of
from nacre.messages import Message
from nacre.runtime import schema_check
from nacre.runtime.fair_limit import Fair

ATTEMPTS = 3
_PATIENCE = 60.0
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


class Formed:
    """A provider that keeps to the terms of the message that it answers.

    Of an answer in a form nothing is emitted before it was checked. One that does not have the form is asked for
    again, with the reason and without tools, so that servers that can hold the model to the form do so.
    """

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    @property
    def model(self) -> str:
        return self._inner.model

    async def close(self) -> None:
        """Close the provider inside."""
        await self._inner.close()

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        """Answer; raises InvalidAnswer if no attempt has the form, and what the provider inside raises."""
        terms = terms_of(context.messages)
        shown = _instructed(context, terms)
        if terms.form is None:
            return await self._inner.complete(shown, emit=emit)
        return await self._held(shown, terms.form, emit)

    async def _held(self, context: Context, form: Form, emit: Emit) -> Reply:
        from nacre.providers.text_tools.provider import render  # noqa: PLC0415 - most answers need no form

        def hear(event: Event) -> None:
            if not isinstance(event, Text):
                emit(event)

        used, why = Usage(), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                emit(Notice("the answer did not have the form that was asked for; asking again"))
            reply = await self._ask(context, form, hear)
            used = _added(used, reply.usage)
            reply = replace(reply, usage=used if reply.usage is not None else None)
            if reply.message.tool_calls:
                return reply
            text = _without_fence(text_of(reply.message))
            # What was cut off is said to be, and would be cut off again.
            checked = {"wrong": "", "why": ""} if reply.finish == "length" else await _check(_pair(form, text))
            if checked["wrong"] == "schema":
                raise InvalidAnswer(f"the schema that was asked for is not valid: {checked['why']}")
            if not (why := checked["why"]):
                emit(Text(text))
                return replace(reply, message=replace(reply.message, content=text))
            again = Message(role="user", content=_AGAIN.format(why=why))
            said = replace(reply.message, content=text or "(nothing)")
            context = render(replace(context, messages=(*context.messages, said, again), tools=()))
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


def _instructed(context: Context, terms: Terms) -> Context:
    """The context with what the terms say.

    The form is told at the end of the user's message: what comes before it stays the same for the server's cache.
    """
    system = "\n\n".join(part for part in (context.system, terms.instructions) if part)
    if terms.form is None:
        return replace(context, system=system) if terms.instructions else context
    how = _HOW.format(schema=msgspec.json.encode(terms.form.schema).decode())
    messages = list(context.messages)
    at = max(at for at, one in enumerate(messages) if one.role == "user")
    content = messages[at].content
    said: Any = [*content, {"type": "text", "text": how}] if isinstance(content, list) else f"{content}\n\n{how}"
    messages[at] = replace(messages[at], content=said)
    return replace(context, system=system, messages=tuple(messages))


def _without_fence(text: str) -> str:
    """The text without a code block around it, which many models cannot leave out."""
    found = _FENCED.fullmatch(text.strip())
    return found[1].strip() if found else text.strip()


def _pair(form: Form, text: str) -> dict[str, Any]:
    return {"schema": form.schema, "text": text}


def _added(before: Usage, more: Usage | None) -> Usage:
    if more is None:
        return before
    return Usage(
        prompt=before.prompt + more.prompt,
        completion=before.completion + more.completion,
        cached=before.cached + more.cached,
        request=more.request,
    )


async def _check(given: dict[str, Any]) -> dict[str, str]:
    """Run the check in a process of its own, which is ended if it takes too long."""
    command = [sys.executable, "-I", str(_SCRIPT)]
    async with _limit().place():
        with anyio.move_on_after(_PATIENCE):
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


_LIMIT: RunVar[Fair] = RunVar("checks of forms")


def _limit() -> Fair:
    """What a check waits at in this event loop."""
    try:
        return _LIMIT.get()
    except LookupError:
        _LIMIT.set(limit := Fair(_AT_ONCE))
        return limit
