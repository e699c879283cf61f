"""`!command` and `@file`: what a person at the terminal does beside talking.

Both count only when they are typed. Text that was pasted, that comes through a pipe or a channel, or that an
earlier message brings back may say `!rm` or `@/etc/passwd` as often as it likes.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.text import TextReceiveStream

from nacre.cli.chat.attachments import attached
from nacre.cli.chat.chat_ports import Line
from nacre.cli.chat.chat_session import Talk
from nacre.cli.chat.paste import spellings, typed_mentions
from nacre.errors import NacreError

_MOST_OUTPUT = 30_000


async def run_shell(talk: Talk, line: Line) -> None:
    """Run `!command` as the user, outside the sandbox; the model sees its output with the next message.

    Raises NacreError if it was not typed, or a turn is running.
    """
    command = line.text[1:].strip()
    if not talk.reader.reads_ahead:
        raise NacreError("!command needs the line editor, which can tell typed text from pasted text")
    if any("!" in text for text in line.foreign):
        talk.draft = line.text
        raise NacreError("pasted text is never run: type the command, or put a space before the ! to send it")
    if not command:
        raise NacreError("name a command: !ls")
    if talk.is_at_work:
        talk.draft = line.text
        raise NacreError("a command has to wait: a turn is running, Ctrl-C stops it")
    talk.hint("(runs as you, outside the sandbox)")
    shell = os.environ.get("SHELL") or "/bin/sh"
    output: list[str] = []
    with talk.reader.released():
        # Standard input is the terminal's, so that a command can ask something.
        async with await anyio.open_process(
            [shell, "-c", command],
            stdin=None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=talk.cwd or None,
        ) as process:
            rest = ""
            assert process.stdout is not None  # noqa: S101 - a pipe was asked for
            async for piece in TextReceiveStream(process.stdout, errors="replace"):
                output.append(piece)
                *lines, rest = (rest + piece).split("\n")
                talk.show(*(talk.desk.safe(one) for one in lines))
            if rest:
                talk.show(talk.desk.safe(rest))
            code = await process.wait()
    talk.parts.append(_as_part(command, "".join(output), code))
    talk.hint(f"(exit code {code}; the model sees the output with your next message)")


def attach_mentions(talk: Talk, line: Line) -> None:
    """Attach every file that was mentioned by typing `@path`, and say so; other words with an @ stay words."""
    for mention in typed_mentions(line.text, line.foreign):
        names = (name for name in spellings(mention) if Path(talk.cwd, Path(name).expanduser()).is_file())
        if found := next(names, ""):
            talk.parts.append(attached(found, talk.cwd))
            talk.hint(f"attached: {talk.desk.safe(found)}")
        elif "/" in mention or "." in mention.rstrip("."):
            talk.hint(f"not attached: {talk.desk.safe(mention)} is not a file")


def _as_part(command: str, output: str, code: int) -> dict[str, Any]:
    """A command with its output, as a part of a message."""
    hidden = len(output) - _MOST_OUTPUT
    if hidden > 0:
        output = f"[the first {hidden} characters are left out]\n{output[-_MOST_OUTPUT:]}"
    end = "" if output.endswith("\n") or not output else "\n"
    text = f"The user ran a command in their shell, exit code {code}:\n$ {command}\n{output}{end}"
    return {"type": "text", "text": text}
