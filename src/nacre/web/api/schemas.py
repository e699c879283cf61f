"""What the API for sessions takes and gives, in the shapes that `nacre sessions … --json` prints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Key = Annotated[str, Meta(min_length=1, max_length=1024, pattern="^[^\\x00]*$")]
Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=500)]


# ---- what is asked for


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter, order and cursor of a list."""

    state: Literal["active", "archived", "all"] = "active"
    prefix: Annotated[str, Meta(max_length=1024)] = ""
    sort: Literal["updated", "created", "size", "messages", "key"] = "updated"
    order: Literal["usual", "reverse"] = "usual"
    limit: Limit = 50
    cursor: str = ""


class ReadQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to read: the current history, or all; the newest page first."""

    scope: Literal["live", "whole"] = "live"
    tokens: Literal["no", "yes"] = "no"
    limit: Limit = 50
    cursor: str = ""


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query; `"a phrase"`, `-not`, `role:`, `tool:`, `session:`, `since:` and `until:` narrow it."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Limit = 50
    meaning: Annotated[bool, Meta(description="find messages in other words too; needs embeddings")] = False


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record to start after, and whether to wait for new ones."""

    after: Number = 0
    wait: Literal["yes", "no"] = "yes"


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing."""


class Send(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message for a session."""

    content: Annotated[str, Meta(min_length=1)]
    stream: bool = False


class Rename(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A title; an empty one removes it."""

    title: Annotated[str, Meta(max_length=1000)]


class Fork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key, start and title of a fork; the default key is the old one with a number."""

    key: Key | None = None
    at: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    title: Annotated[str, Meta(max_length=1000)] = ""


# ---- what is given


class Readiness(Struct, frozen=True, kw_only=True):
    """Whether new messages can be stored and answered; with the token, also what fails and why.

    Its `role` is `waiting` while another daemon on the same store serves the channels.
    """

    ready: bool
    role: Literal["serving", "waiting"]
    failing: list[Literal["store", "channels", "agents"]]
    reasons: list[str]


class Aside(Struct, frozen=True, kw_only=True):
    """What of a session is in quarantine until somebody settles it, and the command that shows it."""

    records: Count
    bytes: Count
    text: str
    command: str


class Unreadable(Struct, frozen=True, kw_only=True):
    """What of a session could not be read because it is damaged or lost, and the command that shows more."""

    records: Count
    payloads: Count
    text: str
    command: str


class Session(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    key: str
    title: str
    messages: Count
    created: Moment
    updated: Moment
    bytes: Count
    archived: bool
    pinned: bool
    tags: list[str]
    cwd: str
    role: str
    model: str
    quarantine: Aside | None = None


class _List(Struct, frozen=True, kw_only=True):
    schema_version: Literal[1] = 1
    count: Count
    total: Count
    has_more: bool
    next_cursor: str | None


class SessionList(_List, frozen=True, kw_only=True):
    """A page of sessions, at most 8 MiB of them and one at least; `next_cursor` goes to `cursor`."""

    items: list[Session]


class Item(Struct, frozen=True, kw_only=True):
    """A message of a session, in OpenAI's chat shape, with its number; `live` if it is in the history now."""

    generation: str
    n: Count
    ts: Moment
    live: bool
    message: dict[str, Any]


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens that went in and came out."""

    input: Count
    output: Count
    total: Count


class Conversation(Struct, frozen=True, kw_only=True):
    """A page of a session, oldest message first; `next_cursor` goes to `cursor` and leads further back.

    A page has as many messages as were asked for, but at most 8 MiB of them, and one at least. `total` is how many
    there are on all pages, `unreadable` what was not found of this one.
    """

    schema_version: Literal[1] = 1
    key: str
    title: str
    created: Moment | None
    summary: str
    tokens: Tokens | None
    quarantine: Aside | None = None
    unreadable: Unreadable | None = None
    count: Count
    total: Count
    has_more: bool
    next_cursor: str | None
    items: list[Item]


class Found(Struct, frozen=True, kw_only=True):
    """A message that a search found; `generation` is empty if it is in the active one.

    Of its text there are about 160 characters in `snippet`, and of one long match at most 1,000.
    """

    key: str
    generation: str
    n: Count
    ts: Moment
    role: str
    snippet: str


class FoundList(_List, frozen=True, kw_only=True):
    """The results of a search, best first."""

    items: list[Found]


class Done(Struct, frozen=True, kw_only=True):
    """The result of an operation on a session."""

    schema_version: Literal[1] = 1
    ok: bool = True
    operation: Literal["archive", "unarchive", "rm", "stop"]
    dry_run: bool = False
    key: str
    status: Literal["archived", "active", "erased", "stopped", "idle"]


class RedactQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which generation of a session is meant; the newest if none is named."""

    generation: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")] = ""


class Redacted(Struct, frozen=True, kw_only=True):
    """What was erased with the content of a message, and who may still have its words."""

    schema_version: Literal[1] = 1
    ok: bool = True
    operation: Literal["redact"] = "redact"
    dry_run: bool = False
    key: str
    generation: str
    n: int
    erased: tuple[int, ...]
    payloads: int
    kept: int
    quarantined: int
    summaries: tuple[int, ...]
    forks: tuple[str, ...]
    originals: tuple[str, ...]
    facts: int


class Renamed(Struct, frozen=True, kw_only=True):
    """A session's new and old title."""

    schema_version: Literal[1] = 1
    ok: bool = True
    operation: Literal["rename"] = "rename"
    dry_run: bool = False
    key: str
    title: str
    previous: str


class Forked(Struct, frozen=True, kw_only=True):
    """A session that shares the history of another."""

    ok: bool = True
    operation: Literal["fork"] = "fork"
    dry_run: bool = False
    source: str
    at: int | None
    key: str


class Sent(Struct, frozen=True, kw_only=True):
    """The answer to a message; `joined` if it joined a running turn, whose answer goes to the client that began it."""

    ok: bool = True
    operation: Literal["send"] = "send"
    key: str
    joined: bool
    answer: dict[str, Any] | None


class Record(Struct, frozen=True, kw_only=True):
    """One record of a session, as an event's data."""

    generation: str
    n: Count
    ts: Moment
    kind: str
    data: Any
