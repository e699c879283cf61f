"""A message from a page: its text and files, what it takes the place of, and the turn that answers it."""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread
from msgspec import Struct

from nacre.agent.actor import UserMessage
from nacre.agent.ports import Ask, Emit
from nacre.channels.file_parts import content, file_part
from nacre.errors import Busy, Conflict, NacreError, SessionBusy, Stopped, StoreError
from nacre.history import session_state
from nacre.history.replies import is_final
from nacre.history.transcript import FAILED
from nacre.messages import Message
from nacre.records import View
from nacre.render.text import one_line
from nacre.runtime import App
from nacre.runtime.app import CHOSEN
from nacre.runtime.titles import first_title
from nacre.web.api import queries
from nacre.web.api.retries import deliver_once, newest
from nacre.web.caller import Caller, fault_for
from nacre.web.http_errors import Fault

Work = Callable[[Emit], Awaitable[Message | None]]
"""A turn, given what hears of its events; gives the answer, None if another turn gave it."""

MAX_FILES = 20
_DIGITS = 18
_MAX_ID = 64


class File(Struct, frozen=True):
    """A file that was attached, its bytes as base64."""

    name: str
    data: str


class Saying(Struct, frozen=True):
    """What a page sends: a message, or `again` for another answer to the last one, or to the one before message `n`.

    `edit` is the number of the message that this one takes the place of, on another branch. `model` is for a session
    that begins.
    """

    content: str = ""
    id: str = ""
    edit: str = ""
    again: str = ""
    model: str = ""
    files: tuple[File, ...] = ()


def parse_saying(body: bytes) -> Saying:
    """What the script sent; raises Fault if it is not that."""
    try:
        return msgspec.json.decode(body, type=Saying)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # What the page itself sends can be read; the parser's words are no help to a person.
        raise Fault("usage", "the message cannot be read; reload the page and send it again") from error


def saying_of(fields: Mapping[str, str]) -> Saying:
    """What a form sent."""
    content, id, edit, again = (fields.get(name, "") for name in ("content", "id", "edit", "again"))
    return Saying(content=content, id=id, edit=edit, again=again)


def inbound_of(key: str, saying: Saying) -> UserMessage | None:
    """The message; None if there is none, and another answer is wanted. Raises Fault."""
    words = saying.content.replace("\r\n", "\n").strip()
    if saying.again and not words:
        return None
    if not (words or saying.files):
        raise Fault("usage", "the message is empty")
    if len(saying.files) > MAX_FILES:
        raise Fault("usage", f"a message has at most {MAX_FILES} files")
    meta = {**first_title(words or saying.files[0].name), **({CHOSEN: saying.model} if saying.model else {})}
    parts: list[dict[str, Any]] = []
    for file in saying.files:
        try:
            parts.append(file_part(one_line(file.name), b64decode(file.data, validate=True)))
        except ValueError as error:
            raise Fault("usage", f"the file {file.name!r:.100} did not arrive whole: {error}") from error
        except NacreError as error:
            raise Fault("usage", str(error)) from error
    id = saying.id[:_MAX_ID] or secrets.token_hex(16)
    return UserMessage(key=key, content=content(words, parts), id=id, sender="web", meta=meta)


def turn(
    app: App, key: str, saying: Saying, *, ask: Ask | None = None, began: Callable[[int], None] = lambda _: None
) -> Work:
    """The work of a turn; a message that was sent before under its id is not stored again.

    `began` gets the session's last record before the turn.
    """
    inbound = inbound_of(key, saying)

    async def work(emit: Emit) -> Message | None:
        before = await to_thread.run_sync(newest, app.sessions, key)
        began(before.n)
        if inbound is None:
            await _go_back(app, key, saying.again if saying.again.isdecimal() else "", is_edit=False)
            return await app.kernel.resume(key, emit=emit, ask=ask)
        edit = partial(_go_back, app, key, saying.edit, is_edit=True) if saying.edit else None
        return await deliver_once(app, inbound, before, emit=emit, ask=ask, prepare=edit)

    return work


def keep_failures(app: App, key: str, work: Work, who: Caller) -> Work:
    """The same work; why it fails is stored in the session, so that a page that is opened later can show it.

    It is said in the words that the caller may know.
    """

    def keep(fault: Fault) -> None:
        now = app.sessions.snapshot(key, last=1)
        if now.messages and not is_final(now.messages[-1]):
            said = {"after": now.numbers[-1], "code": fault.kind, "reason": fault.detail}
            app.sessions.append(key, FAILED, said)

    async def kept(emit: Emit) -> Message | None:
        try:
            return await work(emit)
        except (Fault, Busy, Conflict, SessionBusy, Stopped):
            # Nothing was begun, or a person ended it.
            raise
        except Exception as error:
            # The store may be what has failed; the turn's own error is the one to report.
            with suppress(StoreError):
                await to_thread.run_sync(keep, fault_for(error, who))
            raise

    return kept


async def _go_back(app: App, key: str, number: str, *, is_edit: bool) -> None:
    """Go back to before message `number`, or to after the person's message that it answers."""
    if number and not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
        raise Fault("usage", f"a message is named by its number, not {number!r:.40}")
    if app.kernel.is_at_work(key):
        raise Fault("conflict", f"session {key!r} has a running turn; stop it first")

    n = int(number or 0)

    def find(view: View) -> tuple[int, int]:
        """The message itself, or the person's message that it answers; and the newest of the history."""
        record = view.find(n) if n else None
        if n and (record is None or record.t != "msg"):
            raise Fault("not_found", f"there is no message {n}")
        if is_edit:
            return n, view.state.hd
        state = view.state if record is None else record.st
        asked = next(
            (one.n for one in session_state.chain(view, state) if one.m is not None and one.m.role == "user"), 0
        )
        if not asked:
            raise Fault("conflict", "there is no message to answer")
        return asked, view.state.hd

    def go() -> None:
        with queries.hold(app.sessions, key):
            goal, newest = queries.require(app.sessions.read(key, find), key)
            if is_edit:
                app.sessions.rewind(key, before=goal)
            elif goal != newest:
                app.sessions.rewind(key, goal)

    await to_thread.run_sync(go)
