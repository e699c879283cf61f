"""One tree of exceptions, split by what the caller can do about it.

NacreError
├── StoreError
│   ├── Refused             nothing was stored: disk full, no permission, a failed write rolled back
│   ├── DurabilityUnknown   written, but the flush failed: it may or may not survive a crash
│   ├── LogDamaged          the bytes on disk are not what was written, and going on would guess
│   ├── SessionNotFound     there is no session under that key
│   ├── SessionBusy         another process holds it
│   ├── Conflict            the session is not as the caller assumed; read it again
│   │   └── LeaseLost       another took the turn over; end yours
│   ├── FormatTooNew        written by a later version of nacre
│   └── InvalidArgument     a call's argument has the wrong type or value; nothing was done
│       ├── InvalidKey      this text cannot name a session
│       └── InvalidMessage  this value cannot be stored as a message or record
├── Busy                    a session has more waiting than it takes; try again later
├── Stopped                 a turn was stopped before it had an answer
├── ProviderError           a model or its server failed
│   ├── ContextOverflow     what the model was shown is longer than it can take
│   ├── ModelUnavailable    no answer from this model now, whatever it is asked; another one may answer
│   │   ├── NoModel         no model was named, and none was found
│   │   └── ServerFailed    the model's server failed while it was asked
│   │       └── RateLimited it takes no further requests for now
│   ├── InvalidAnswer       the model's answers do not have the form that was asked for
│   └── ModelNotAllowed     a remote model would get a session of a local one, and nobody said yes
├── ToolError               a tool failed
├── ChannelError            words could not be sent to where they belong
└── ConfigError             the configuration cannot work
"""

from __future__ import annotations

import os


class NacreError(Exception):
    """Anything nacre raises on purpose.

    `summary` is what a log may say of an error whose sentence may quote what somebody said: see `describe_error`.

    >>> try:
    ...     sessions.rewind("cli:1", 99)
    ... except nacre.NacreError as error:
    ...     print(error)
    there is no record 99 to go back to
    """

    summary = ""


class StoreError(NacreError):
    """The store could not do what it was asked.

    >>> try:
    ...     nacre.open(":memory:").search("pearl")
    ... except nacre.StoreError as error:
    ...     print(error)
    :memory: has no index to search
    """


class Refused(StoreError):
    """Nothing was stored; the same call may be tried again.

    >>> try:
    ...     number = sessions.add_message("cli:1", "user", "And a pearl?")
    ... except nacre.Refused:
    ...     print("the disk is full: nothing was stored")
    """


class DurabilityUnknown(StoreError):
    """The record was written, but whether it survives a crash is not known; retry with the same `id`.

    >>> turn = [nacre.Message(role="user", content="And a pearl?")]
    >>> try:
    ...     number = sessions.add_messages("cli:1", turn, id="message-7")
    ... except nacre.DurabilityUnknown:
    ...     number = sessions.add_messages("cli:1", turn, id="message-7")  # stored once, whatever happened
    """


class LogDamaged(StoreError):
    """The log does not hold what was written to it, and going on would mean to guess.

    >>> try:
    ...     number = sessions.add_message("cli:1", "user", "And a pearl?")
    ... except nacre.LogDamaged:
    ...     receipt = sessions.repair("cli:1")
    """


class SessionNotFound(StoreError):
    """No session has that key.

    >>> try:
    ...     sessions.archive("cli:2")
    ... except nacre.SessionNotFound as error:
    ...     print(error)
    there is no active session 'cli:2'
    """


class SessionBusy(StoreError):
    """Another process is at work on the session.

    >>> turn = sessions.hold("cli:1")
    >>> try:
    ...     turn.take()
    ... except nacre.SessionBusy:
    ...     print("another process is answering")
    >>> turn.close()
    """


class Conflict(StoreError):
    """The session is not in the state that the caller assumed; nothing was stored.

    >>> try:
    ...     sessions.add_messages("cli:1", [{"role": "user", "content": "And a pearl?"}], expect=2)
    ... except nacre.Conflict as error:
    ...     print(error)
    history last changed at record 3, not 2; nothing was stored
    """


class LeaseLost(Conflict):
    """Another holder has taken the turn of the session over; nothing was stored. Stop, and write no more of the turn.

    >>> slow, other = sessions.hold("cli:1"), sessions.hold("cli:1")
    >>> slow.take()
    >>> other.take_over()
    >>> try:
    ...     sessions.append("cli:1", "x.rating", {"stars": 5}, lease=slow)
    ... except nacre.LeaseLost as error:
    ...     print(error)
    the turn of session 'cli:1' was taken over; nothing was stored
    >>> other.close()
    """


class FormatTooNew(StoreError):
    """The session was written by a later version; this one neither reads nor changes it.

    >>> try:
    ...     history = sessions.get_history("cli:1")
    ... except nacre.FormatTooNew:
    ...     print("written by a later version: update nacre")
    """


class InvalidArgument(StoreError):
    """An argument has the wrong type or value; nothing was stored. The call must be changed, a retry does not help.

    >>> try:
    ...     sessions.truncate_history("cli:1", 2.5)
    ... except nacre.InvalidArgument as error:
    ...     print(error)
    keep_last must be an integer, not 2.5 (float)
    """


class InvalidKey(InvalidArgument):
    """The text cannot name a session.

    >>> try:
    ...     sessions.add_message("", "user", "hello")
    ... except nacre.InvalidKey as error:
    ...     print(error)
    a session key must have 1 to 1024 characters, this one has 0
    """


class InvalidMessage(InvalidArgument):
    """The value cannot be stored as a message or record; nothing was stored.

    >>> try:
    ...     sessions.add_full_message("cli:1", {"content": "hello"})
    ... except nacre.InvalidMessage as error:
    ...     print(error)
    a message needs a role, or a type if it is another kind of item
    """


class Busy(NacreError):
    """The session has more waiting than it takes; try again later."""


class Stopped(NacreError):
    """The turn was stopped before it had an answer."""


class ProviderError(NacreError):
    """A model or its server failed."""


class ContextOverflow(ProviderError):
    """What the model was shown is longer than it can take; show it less and try again."""


class ModelUnavailable(ProviderError):
    """The model cannot answer or may not be asked; the lines after the first one say what to do.

    It is not installed, its key is missing or its server is down, for example.
    """


class NoModel(ModelUnavailable):
    """No model was named, and none was found."""


class ServerFailed(ModelUnavailable):
    """The model's server was reached and failed: an error of its own, overload, or an answer that is not one."""


class RateLimited(ServerFailed):
    """The model's server takes no further requests for now; `wait` is how many seconds it asks to wait, if it does.

    >>> nacre.RateLimited("the server is busy", wait=2.5).wait
    2.5
    """

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class InvalidAnswer(ProviderError):
    """The model was asked several times, and no answer had the form that was asked for."""


class ModelNotAllowed(ProviderError):
    """The session was answered by a local model, the model is remote, and nobody said yes to sending it."""


class ToolError(NacreError):
    """A tool failed."""


class ChannelError(NacreError):
    """A message could not be sent."""


class ConfigError(NacreError):
    """The configuration cannot work."""


_ABOUT_THE_MACHINE = (
    Busy,
    ConfigError,
    DurabilityUnknown,
    FormatTooNew,
    LeaseLost,
    LogDamaged,
    ModelNotAllowed,
    NoModel,
    Refused,
    SessionBusy,
    SessionNotFound,
    Stopped,
)


def describe_error(error: BaseException) -> str:
    """What a log may say of an error and of those that led to it: no word of a conversation.

    The sentence of an error is given only if it is about the machine; that of any other may quote what somebody said,
    or a server that repeats it: then its type, and its summary if it has one.
    """
    texts: list[str] = []
    seen: set[int] = set()
    found: BaseException | None = error
    # An error may have led to itself: one that is raised again while it is handled.
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        texts.append(_describe_one(found))
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "; from ".join(texts)


def _describe_one(error: BaseException) -> str:
    name = type(error).__name__
    match error:
        case BaseExceptionGroup():
            return f"{name} of {', '.join(map(describe_error, error.exceptions))}"
        case OSError(errno=int(number)):
            # Its own words have the name of the file, which a model may have chosen.
            said = f"[Errno {number}] {os.strerror(number)}"
        case _ if isinstance(error, _ABOUT_THE_MACHINE) or type(error) is StoreError:
            said = str(error)
        case _:
            # SQLite's sentences quote the query.
            said = getattr(error, "summary", "") or getattr(error, "sqlite_errorname", "")
    return f"{name}: {said}" if said else name


def ungroup(error: BaseException) -> BaseException:
    """What went wrong, without the groups that tasks put around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def install_command(extra: str) -> str:
    """The command that installs an extra; every hint that names one is made here."""
    return f'pip install "nacre-sessions[{extra}]"'


def missing_extra(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of a module whose extra is not installed, with the command that installs it."""
    return ModuleNotFoundError(f"{error.name} is not installed: {install_command(extra)}", name=error.name)
