"""What happens in a session, in the words of the Agent Client Protocol: pieces of text, tool calls, diffs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from acp import schema
from msgspec import Struct

from nacre.agent.ports import (
    Approval,
    Called,
    Change,
    ChildReturned,
    Event,
    Notice,
    Output,
    Returned,
    Text,
    Thought,
)
from nacre.errors import NacreError
from nacre.history.message_text import text_of
from nacre.history.pairing import INTERRUPTED, as_shown, attach_results
from nacre.messages import Message, ToolCall
from nacre.render.text import visible, visible_line
from nacre.render.turn import SUBJECTS

Update = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
)
_KINDS: dict[str, Any] = {
    "read_file": "read",
    "list_files": "search",
    "search_sessions": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "shell": "execute",
    "web_fetch": "fetch",
}
_ABOUT = {
    "list_files": "pattern",
    "search_sessions": "query",
    "use_skill": "name",
    "remember": "fact",
    "forget": "fact",
}
"""Of our tools, the argument that says what a call is about, where that is none of the usual ones."""
_MAX_TITLE = 200
_MAX_TEXT = 100_000
_SHOWN_AS_CHANGE = ("path", "content", "old_text", "new_text", "all")
NOT_RUN = "not run: the turn ended"


# ---- texts


def agent_text(text: str) -> schema.AgentMessageChunk:
    """A piece of the answer."""
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=_text(text))


def thought(text: str) -> schema.AgentThoughtChunk:
    """A piece of what the model thinks, or a notice: editors fold it away."""
    return schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=_text(text))


def fence(text: str) -> str:
    """A text as a block of code in Markdown: it is drawn as it is, and nothing in it can end the block."""
    mark = "```"
    while mark in text:
        mark += "`"
    return f"{mark}\n{text}\n{mark}"


def fence_line(text: str) -> str:
    """The same for one line."""
    mark = "`"
    while mark in text:
        mark += "`"
    # A blank keeps a mark at an end of the text apart from those around it.
    return f"{mark} {text} {mark}" if "`" in text else f"`{text}`"


def _text(text: str) -> schema.TextContentBlock:
    return schema.TextContentBlock(type="text", text=text)


# ---- calls


class _Card(Struct):
    """A call that began and has not ended, as the editor knows it."""

    id: str
    call: ToolCall
    diffs: list[Any]
    is_running: bool


class Calls:
    """The tool calls of one turn and of the tasks it delegates: each is a card with an id that no other call has.

    Models may use the id of a call again once it has ended, and delegated sessions have ids of their own: what the
    editor shows of one call must not be that of another. `preview` tells what a call would do to a file, and `folder`
    is where its path is relative to, "" if nobody knows. `session` is that of a delegated task, "" for the turn's own
    calls.
    """

    def __init__(self, turn: str, *, folder: str, preview: Callable[[ToolCall], Change | None]) -> None:
        self._turn, self._folder, self._preview = turn, folder, preview
        self._open: dict[tuple[str, str], _Card] = {}
        self._numbers = count()

    def begin(self, call: ToolCall, *, session: str = "", change: Change | None = None, status: Any) -> list[Update]:
        """A call appears, or goes on if it did before."""
        is_running = status == "in_progress"
        if (card := self._open.get((session, call.id))) is not None:
            card.is_running = is_running
            return [schema.ToolCallProgress(session_update="tool_call_update", tool_call_id=card.id, status=status)]
        diffs: list[Any] = [_diff(change, self._folder)] if change is not None else []
        card = _Card(f"{self._turn}.{next(self._numbers)}", call, diffs, is_running)
        self._open[session, call.id] = card
        start = schema.ToolCallStart(
            session_update="tool_call", tool_call_id=card.id, status=status, content=diffs or None, **self._about(call)
        )
        return [start]

    def ask(self, approval: Approval) -> tuple[list[Update], schema.ToolCallUpdate]:
        """What the editor has to know before a question, and the call of that, with all that will run.

        A call that runs may ask again, about other arguments: its card stays the same.
        """
        call, session = approval.call, approval.session
        is_new = (session, call.id) not in self._open
        begun = self.begin(call, session=session, change=approval.change, status="pending") if is_new else []
        card = self._open[session, call.id]
        # Editors may show the question alone, so all of it is said again.
        content = list(_explain(approval, self._folder))
        return begun, schema.ToolCallUpdate(tool_call_id=card.id, content=content, **self._about(call))

    def end(self, call: ToolCall, output: Output, *, session: str = "") -> list[Update]:
        """A call has its result; a diff is shown with it if the change was made, and alone otherwise said why not."""
        begun = [] if (session, call.id) in self._open else self.begin(call, session=session, status="pending")
        card = self._open.pop((session, call.id))
        ended = schema.ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=card.id,
            status="failed" if output.failed else "completed",
            content=[*([] if output.failed else card.diffs), *_output(call, output.text)],
        )
        return [*begun, ended]

    def end_all(self) -> list[Update]:
        """The turn is over: what has no result will not get one."""
        updates: list[Update] = []
        for (session, _), card in list(self._open.items()):
            text = INTERRUPTED if card.is_running else NOT_RUN
            updates += self.end(card.call, Output(text=text, failed=True), session=session)
        return updates

    def updates(self, event: Event) -> list[Update]:
        """What an editor gets of an event."""
        match event:
            case Text(text=text):
                return [agent_text(text)] if text else []
            case Thought(text=text):
                return [thought(text)] if text else []
            case Called(call=call):
                change = None
                if ("", call.id) not in self._open:
                    try:
                        change = self._preview(call)
                    except (NacreError, OSError):
                        # The tool says what is wrong.
                        change = None
                return self.begin(call, change=change, status="in_progress")
            case Returned(call=call, output=output, session=session):
                return self.end(call, output, session=session)
            case ChildReturned(call=call, output=output, session=session):
                # What nobody was asked about is not shown: its task says what came of it.
                return self.end(call, output, session=session) if (session, call.id) in self._open else []
            case Notice(text=text):
                return [thought(f"({text})\n")]

    def _about(self, call: ToolCall) -> dict[str, Any]:
        """The fields that say what a call is."""
        path = call.arguments.get("path") if isinstance(call.arguments, dict) else None
        where = os.path.join(self._folder, path) if isinstance(path, str) else ""  # noqa: PTH118 - a name for the editor
        return {
            "title": title_of(call),
            "kind": _KINDS.get(call.name, "other"),
            # The protocol wants a full path: without a folder a relative one says nothing.
            "locations": [schema.ToolCallLocation(path=where)] if os.path.isabs(where) else None,  # noqa: PTH117 - a name
            "raw_input": call.arguments,
        }


def title_of(call: ToolCall) -> str:
    """A line about a call: its name, and what it is about, by fields that the model does not choose."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    fields = [_ABOUT[call.name]] if call.name in _ABOUT else SUBJECTS
    subject = next((arguments[field] for field in fields if isinstance(arguments.get(field), str)), "")
    return _clip(": ".join(visible_line(part) for part in (call.name, subject) if part))


def _explain(approval: Approval, folder: str) -> Iterator[Any]:
    """What a person has to know for an answer: the task that asks, the change to a file, all other arguments whole."""
    if approval.task:
        yield _block(f"Asked by the delegated task: {fence_line(_clip(visible_line(approval.task)))}")
    given = approval.call.arguments
    rest = dict(given) if isinstance(given, Mapping) else {"arguments": given}
    if approval.change is not None:
        yield _diff(approval.change, folder)
        rest = {field: value for field, value in rest.items() if field not in _SHOWN_AS_CHANGE}
    # What the call is about comes first, however many others the model gives.
    for field in sorted(rest, key=lambda field: field not in SUBJECTS):
        value = rest[field]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield _block(f"{fence_line(visible_line(field))}\n{fence(visible(text))}")


def _clip(line: str) -> str:
    return f"{line[:_MAX_TITLE]}…" if len(line) > _MAX_TITLE else line


def _block(text: str) -> schema.ContentToolCallContent:
    return schema.ContentToolCallContent(type="content", content=_text(text))


def _diff(change: Change, folder: str) -> schema.FileEditToolCallContent:
    path = os.path.join(folder, change.path)  # noqa: PTH118 - a name for the editor
    return schema.FileEditToolCallContent(
        type="diff", path=path, old_text=change.before, new_text=change.after if change.after is not None else ""
    )


def _output(call: ToolCall, text: str) -> list[Any]:
    """The output of a call; that of a command as it is, in a block that no text of it can end."""
    if not text:
        return []
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}\n… {len(text) - _MAX_TEXT:,} more characters"
    if _KINDS.get(call.name) == "execute":
        text = fence(text)
    return [_block(text)]


# ---- what was said before


def replay(messages: Sequence[Message], *, summary: str, folder: str) -> Iterator[Update]:
    """A conversation as the updates that an editor would have got of it, each call with its result.

    `folder` is the one that the conversation was in, "" if nobody knows. Calls have the results that the model sees,
    whatever the order in which they were stored: of several the last one, and one without any ends as failed. The model
    knows more than what the user and it said: a summary of what came before, and what others stored, such as a client
    of MCP. It is shown in the words that the model gets. Editors join chunks, so blank lines are around it.
    """
    if summary.strip():
        yield agent_text(f"[summary of what was said before]\n{summary.strip()}\n\n")
    calls = Calls("h", folder=folder, preview=lambda _: None)
    # Each message that calls tools, and directly after it one result for each of its calls.
    settled = (message for message in attach_results(messages).messages if message.tool_calls or message.role == "tool")
    for message in messages:
        if message.role == "user":
            for block in _blocks(message):
                yield schema.UserMessageChunk(session_update="user_message_chunk", content=block)
        elif message.role == "assistant":
            if message.reasoning:
                yield thought(str(message.reasoning))
            if text := text_of(message):
                yield agent_text(text)
            for call in next(settled).tool_calls if message.tool_calls else ():
                result = next(settled)
                yield from calls.end(call, Output(text=text_of(result), failed=result.extra.get("failed") is True))
        elif message.role != "tool" and (shown := as_shown(message)) is not None:
            yield schema.UserMessageChunk(
                session_update="user_message_chunk", content=_text(f"\n\n{text_of(shown)}\n\n")
            )


def _blocks(message: Message) -> Iterator[Any]:
    """The parts of a message: its texts, and the images that are in it."""
    parts = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    for part in parts:
        found = part if isinstance(part, dict) else {}
        image = found.get("image_url")
        url = str(image.get("url", "")) if isinstance(image, dict) else ""
        if url.startswith("data:") and ";base64," in url:
            kind, _, data = url.removeprefix("data:").partition(";base64,")
            yield schema.ImageContentBlock(type="image", mime_type=kind, data=data)
        elif text := found.get("text"):
            yield _text(str(text))
