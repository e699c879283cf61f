"""What happens in a session, in the words of the Agent Client Protocol: pieces of text, tool calls, diffs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from acp import schema

from nacre.agent.ports import Called, Change, Event, Notice, Output, Returned, Text, Thought
from nacre.errors import NacreError
from nacre.history.message_text import text_of
from nacre.history.pairing import as_shown
from nacre.messages import Message, ToolCall

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
_MAX_TITLE = 200
_MAX_TEXT = 100_000
UNKNOWN = "interrupted, outcome unknown"


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


class Calls:
    """The tool calls of one turn: each begins once, under an id that no other call of the session has.

    Models may use an id again once its call has ended: what the editor shows of one must not be that of another.
    `preview` tells what a call would do to a file, and `folder` is where its path is relative to.
    """

    def __init__(self, turn: str, *, folder: str, preview: Callable[[ToolCall], Change | None]) -> None:
        self._turn, self._folder, self._preview = turn, folder, preview
        self._diffs: dict[str, list[Any]] = {}
        """Of the calls that began and have not ended."""
        self._ended: Counter[str] = Counter()

    def id_of(self, call: ToolCall) -> str:
        return f"{self._turn}.{self._ended[call.id]}:{call.id}"

    def begin(self, call: ToolCall, change: Change | None, *, status: Any) -> list[Update]:
        """A call appears, or goes on if it did before."""
        if call.id in self._diffs:
            return [
                schema.ToolCallProgress(session_update="tool_call_update", tool_call_id=self.id_of(call), status=status)
            ]
        path = call.arguments.get("path") if isinstance(call.arguments, dict) else None
        where = os.path.join(self._folder, path) if isinstance(path, str) else ""  # noqa: PTH118 - a name for the editor
        self._diffs[call.id] = [_diff(change, self._folder)] if change is not None else []
        return [
            schema.ToolCallStart(
                session_update="tool_call",
                tool_call_id=self.id_of(call),
                title=title_of(call),
                kind=_KINDS.get(call.name, "other"),
                status=status,
                content=self._diffs[call.id] or None,
                locations=[schema.ToolCallLocation(path=where)] if where else None,
                raw_input=call.arguments,
            )
        ]

    def end(self, call: ToolCall, output: Output) -> list[Update]:
        """A call has its result; a diff is shown with it if the change was made, and alone otherwise said why not."""
        begun = [] if call.id in self._diffs else self.begin(call, None, status="pending")
        diffs = self._diffs.pop(call.id)
        ended = schema.ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=self.id_of(call),
            status="failed" if output.failed else "completed",
            content=[*([] if output.failed else diffs), *_output(call, output.text)],
        )
        self._ended[call.id] += 1
        return [*begun, ended]

    def updates(self, event: Event) -> list[Update]:
        """What an editor gets of an event."""
        match event:
            case Text(text=text):
                return [agent_text(text)] if text else []
            case Thought(text=text):
                return [thought(text)] if text else []
            case Called(call=call):
                change = None
                if call.id not in self._diffs:
                    try:
                        change = self._preview(call)
                    except (NacreError, OSError):
                        # The tool says what is wrong.
                        change = None
                return self.begin(call, change, status="in_progress")
            case Returned(call=call, output=output):
                return self.end(call, output)
            case Notice(text=text):
                return [thought(f"({text})\n")]


def title_of(call: ToolCall) -> str:
    """A line about a call: its name, and what it is about."""
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    texts = [value for value in arguments.values() if isinstance(value, str)]
    line = " ".join(texts[0].split()) if texts else ""
    line = f"{line[:_MAX_TITLE]}…" if len(line) > _MAX_TITLE else line
    return f"{call.name}: {line}" if line else call.name


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
    return [schema.ContentToolCallContent(type="content", content=_text(text))]


# ---- what was said before


def replay(messages: Iterable[Message], *, summary: str, folder: str) -> Iterator[Update]:
    """A conversation as the updates that an editor would have got of it; a call without a result ends as failed.

    The model knows more than what the user and it said: a summary of what came before, and what others stored, such as
    a client of MCP. It is shown in the words that the model gets. Editors join chunks, so blank lines are around it.
    """
    if summary.strip():
        yield agent_text(f"[summary of what was said before]\n{summary.strip()}\n\n")
    calls, waiting = Calls("0", folder=folder, preview=lambda _: None), dict[str, ToolCall]()
    for at, message in enumerate(messages):
        if message.role in {"user", "assistant"}:
            yield from _end_open(calls, waiting)
        if message.role == "user":
            for block in _blocks(message):
                yield schema.UserMessageChunk(session_update="user_message_chunk", content=block)
        elif message.role == "assistant":
            if message.reasoning:
                yield thought(str(message.reasoning))
            if text := text_of(message):
                yield agent_text(text)
            calls = Calls(f"h{at}", folder=folder, preview=lambda _: None)
            for call in message.tool_calls or ():
                waiting[call.id] = call
                yield from calls.begin(call, None, status="pending")
        elif message.role == "tool":
            if (found := waiting.pop(message.tool_call_id or "", None)) is not None:
                yield from calls.end(found, Output(text=text_of(message), failed=bool(message.extra.get("failed"))))
        elif (shown := as_shown(message)) is not None:
            yield schema.UserMessageChunk(
                session_update="user_message_chunk", content=_text(f"\n\n{text_of(shown)}\n\n")
            )
    yield from _end_open(calls, waiting)


def _end_open(calls: Calls, waiting: dict[str, ToolCall]) -> Iterator[Update]:
    while waiting:
        _, call = waiting.popitem()
        yield from calls.end(call, Output(text=UNKNOWN, failed=True))


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
