"""The small files beside the logs with every bit of them flipped: what is read is a value, or a ConfigError."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from nacre.channels.channel import InboundMessage
from nacre.channels.channel_files import Spool
from nacre.cli.chat.input_history import Recall
from nacre.errors import ConfigError
from nacre.memory.page_files import Base, PageFiles
from nacre.memory.store import RenderedLine
from nacre.runtime.access_tokens import FILE, Tokens
from nacre.runtime.context_budget import Calibrations, Known, Windows
from nacre.runtime.permissions import PermissionStore
from nacre.runtime.trust import Notices, TrustStore
from nacre.tools.mcp.client_types import Config, TokenFile

ARRIVED = InboundMessage(channel="irc", chat="bob", sender="bob", id="1", text="h\u00e9llo")


def tokens(room: Path) -> tuple[Path, Callable[[], object]]:
    secret = Tokens(str(room)).add("bob", "guest")
    return room / FILE, lambda: (Tokens(str(room)).find(secret), Tokens(str(room)).all())


def permissions(room: Path) -> tuple[Path, Callable[[], object]]:
    PermissionStore(room / "permissions.json").add("/home/ann", ["shell(git status)"])
    return room / "permissions.json", lambda: PermissionStore(room / "permissions.json").rules("/home/ann")


def trust(room: Path) -> tuple[Path, Callable[[], object]]:
    TrustStore(room).accept(room, {"AGENTS.md": "1"})
    return TrustStore(room).file, lambda: TrustStore(room).entries()


def notices(room: Path) -> tuple[Path, Callable[[], object]]:
    Notices(room).is_new("hello")
    return room / "notices.json", lambda: Notices(room).is_new("hello")


def windows(room: Path) -> tuple[Path, Callable[[], object]]:
    Windows(room / "windows.json").remember("m", Known(tokens=4096))
    return room / "windows.json", lambda: Windows(room / "windows.json").of("m")


def calibrations(room: Path) -> tuple[Path, Callable[[], object]]:
    mine = Calibrations(room / "calibrations.json")
    mine.learn("m", {"latin": 500, "thai": 500}, 3000)
    mine.save()

    def read() -> None:
        again = Calibrations(room / "calibrations.json")
        assert 0.3 <= again.of("m").ratio({"thai": 1}) <= 8.0
        again.learn("m", {"latin": 500, "thai": 500}, 3000)
        assert again.of("m").tokens({"thai": 1000}) > 0

    return room / "calibrations.json", read


def waiting(room: Path) -> tuple[Path, Callable[[], object]]:
    Spool(room / "irc.json").put(ARRIVED)
    return room / "irc.json", lambda: len(Spool(room / "irc.json"))


def mcp_tokens(room: Path) -> tuple[Path, Callable[[], object]]:
    file = TokenFile(room, Config(name="notes", url="https://notes.example/mcp"))
    file.change(tokens={"access_token": "s\u00e9same"})
    return next(room.glob("notes~*.json")), file.read


def memory_page(room: Path) -> tuple[Path, Callable[[], object]]:
    PageFiles(room).set_base("MEMORY.md", Base("1", [RenderedLine("a", "The user has a c\u00e2t.")]))
    PageFiles(room).extend_base("MEMORY.md", [RenderedLine("b", "The user has a dog.")])
    return next(room.glob("memory/.rendered/*.json")), lambda: PageFiles(room).base("MEMORY.md")


def typed_lines(room: Path) -> tuple[Path, Callable[[], object]]:
    Recall(room / "chat-history").add("h\u00e9llo")
    return room / "chat-history", lambda: Recall(room / "chat-history").lines


FILES = [tokens, permissions, trust, notices, windows, calibrations, waiting, mcp_tokens, memory_page, typed_lines]


@pytest.mark.parametrize("make", FILES)
def test_a_damaged_file_is_understood_or_said_to_be_damaged(
    make: Callable[[Path], tuple[Path, Callable[[], object]]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    file, read = make(tmp_path)
    whole = file.read_bytes()
    flipped = (
        whole[:at] + bytes([byte ^ 1 << bit]) + whole[at + 1 :] for at, byte in enumerate(whole) for bit in range(8)
    )
    for data in (*flipped, b"", b"[" * 5000, b'{"x": ' + b"[" * 5000):
        file.write_bytes(data)
        with suppress(ConfigError):
            read()
