"""Durable sessions for AI agents.

Names are loaded when they are first used: `import nacre` alone costs next to nothing.
"""

import sys

# `python -m nacre` searches the current folder for modules first, and an untrusted one may have an argparse.py.
# While Python looks for the module to run, the first argument is "-m". Nothing else may be imported before this.
_IS_PROGRAM = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
if _IS_PROGRAM and not sys.flags.safe_path:  # pragma: no branch
    del sys.path[0]  # pragma: no cover - runs in a process of its own; it is tested

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from nacre.async_sessions import AsyncSessions, open_async
    from nacre.errors import (
        Busy,
        ChannelError,
        ConfigError,
        Conflict,
        ContextOverflow,
        DurabilityUnknown,
        FormatTooNew,
        InvalidArgument,
        InvalidKey,
        InvalidMessage,
        LeaseLost,
        LogDamaged,
        NacreError,
        ProviderError,
        Refused,
        SessionBusy,
        SessionNotFound,
        Stopped,
        StoreError,
        ToolError,
    )
    from nacre.messages import (
        DiskUsage,
        Entry,
        Finding,
        GenerationInfo,
        Hit,
        Leftover,
        Message,
        Page,
        QuarantineEntry,
        QuarantineRecord,
        Receipt,
        Redaction,
        Report,
        SessionInfo,
        Settlement,
        Stored,
        ToolCall,
        TrashedSession,
        Version,
    )
    from nacre.opening import open
    from nacre.sessions import Forgiving, Session, Sessions, SessionStore
    from nacre.storage.protocol import Lease

__version__ = "0.1.0"

__all__ = [
    "AsyncSessions",
    "Busy",
    "ChannelError",
    "ConfigError",
    "Conflict",
    "ContextOverflow",
    "DiskUsage",
    "DurabilityUnknown",
    "Entry",
    "Finding",
    "Forgiving",
    "FormatTooNew",
    "GenerationInfo",
    "Hit",
    "InvalidArgument",
    "InvalidKey",
    "InvalidMessage",
    "Lease",
    "LeaseLost",
    "Leftover",
    "LogDamaged",
    "Message",
    "NacreError",
    "Page",
    "ProviderError",
    "QuarantineEntry",
    "QuarantineRecord",
    "Receipt",
    "Redaction",
    "Refused",
    "Report",
    "Session",
    "SessionBusy",
    "SessionInfo",
    "SessionNotFound",
    "SessionStore",
    "Sessions",
    "Settlement",
    "Stopped",
    "StoreError",
    "Stored",
    "ToolCall",
    "ToolError",
    "TrashedSession",
    "Version",
    "open",
    "open_async",
]

_HOMES = ("errors", "messages", "records", "sessions", "opening", "async_sessions")


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = next(module for module in map(_load, _HOMES) if name in vars(module))
        value = globals()[name] = getattr(home, name)
        return value
    if name in _HOMES:
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def _load(module: str) -> Any:
    return import_module(f"{__name__}.{module}")
