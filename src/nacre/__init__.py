"""Durable sessions for AI agents."""

from nacre.entries import Entry, Finding, Hit, Message, Receipt, Report, SessionInfo, Stored, ToolCall
from nacre.errors import (
    ConfigError,
    Conflict,
    DurabilityUnknown,
    FormatTooNew,
    InvalidKey,
    InvalidMessage,
    LogDamaged,
    NacreError,
    ProviderError,
    Refused,
    SessionBusy,
    SessionNotFound,
    StoreError,
    ToolError,
)
from nacre.opening import open
from nacre.sessions import Forgiving, Sessions, SessionStore

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Conflict",
    "DurabilityUnknown",
    "Entry",
    "Finding",
    "Forgiving",
    "FormatTooNew",
    "Hit",
    "InvalidKey",
    "InvalidMessage",
    "LogDamaged",
    "Message",
    "NacreError",
    "ProviderError",
    "Receipt",
    "Refused",
    "Report",
    "SessionBusy",
    "SessionInfo",
    "SessionNotFound",
    "SessionStore",
    "Sessions",
    "StoreError",
    "Stored",
    "ToolCall",
    "ToolError",
    "open",
]
