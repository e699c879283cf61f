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
    from nacre.async_sessions import AsyncLease, AsyncSession, AsyncSessions, open_async
    from nacre.errors import (
        Busy,
        ChannelError,
        ConfigError,
        Conflict,
        ContextOverflow,
        DurabilityUnknown,
        FormatTooNew,
        InvalidAnswer,
        InvalidArgument,
        InvalidKey,
        InvalidMessage,
        LeaseLost,
        LogDamaged,
        ModelNotAllowed,
        ModelUnavailable,
        NacreError,
        NoModel,
        ProviderError,
        RateLimited,
        Refused,
        ServerFailed,
        SessionBusy,
        SessionNotFound,
        Stopped,
        StoreError,
        ToolError,
    )
    from nacre.history.client_messages import to_anthropic, to_openai
    from nacre.history.list_page import Order, Which
    from nacre.messages import (
        DiskUsage,
        Entry,
        Finding,
        GenerationInfo,
        Hit,
        Leftover,
        Load,
        Message,
        Page,
        QuarantineEntry,
        QuarantineRecord,
        Receipt,
        Redaction,
        Report,
        SessionInfo,
        Settlement,
        Snapshot,
        Stored,
        ToolCall,
        TrashedSession,
        Version,
    )
    from nacre.opening import open
    from nacre.records import AppendRecord, Losses, Pop, Record, Rewind, SetMeta, State, Summarise, Truncate, View
    from nacre.sessions import AnyEntry, AnyMessage, AnyOperation, Forgiving, Session, Sessions, SessionStore
    from nacre.storage.file_store import Durability
    from nacre.storage.group_commit import Pending
    from nacre.storage.protocol import AnyLease, Document, Journal, Lease, Status
    from nacre.storage.watch import Watch

__version__ = "0.1.0"

__all__ = [
    "AnyEntry",
    "AnyLease",
    "AnyMessage",
    "AnyOperation",
    "AppendRecord",
    "AsyncLease",
    "AsyncSession",
    "AsyncSessions",
    "Busy",
    "ChannelError",
    "ConfigError",
    "Conflict",
    "ContextOverflow",
    "DiskUsage",
    "Document",
    "Durability",
    "DurabilityUnknown",
    "Entry",
    "Finding",
    "Forgiving",
    "FormatTooNew",
    "GenerationInfo",
    "Hit",
    "InvalidAnswer",
    "InvalidArgument",
    "InvalidKey",
    "InvalidMessage",
    "Journal",
    "Lease",
    "LeaseLost",
    "Leftover",
    "Load",
    "LogDamaged",
    "Losses",
    "Message",
    "ModelNotAllowed",
    "ModelUnavailable",
    "NacreError",
    "NoModel",
    "Order",
    "Page",
    "Pending",
    "Pop",
    "ProviderError",
    "QuarantineEntry",
    "QuarantineRecord",
    "RateLimited",
    "Receipt",
    "Record",
    "Redaction",
    "Refused",
    "Report",
    "Rewind",
    "ServerFailed",
    "Session",
    "SessionBusy",
    "SessionInfo",
    "SessionNotFound",
    "SessionStore",
    "Sessions",
    "SetMeta",
    "Settlement",
    "Snapshot",
    "State",
    "Status",
    "Stopped",
    "StoreError",
    "Stored",
    "Summarise",
    "ToolCall",
    "ToolError",
    "TrashedSession",
    "Truncate",
    "Version",
    "View",
    "Watch",
    "Which",
    "open",
    "open_async",
    "to_anthropic",
    "to_openai",
]

_HOMES = ("errors", "messages", "records", "sessions", "opening")
# What few programs name; looked for last, so that nobody else loads it.
_FAR = (
    "history.list_page",
    "history.client_messages",
    "storage.protocol",
    "storage.file_store",
    "storage.group_commit",
    "storage.watch",
    "async_sessions",
)


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = next(module for module in map(_load, _HOMES + _FAR) if name in vars(module))
        value = globals()[name] = getattr(home, name)
        return value
    if name in _HOMES or name == "async_sessions":
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def _load(module: str) -> Any:
    return import_module(f"{__name__}.{module}")
