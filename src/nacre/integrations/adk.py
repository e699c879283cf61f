"""Sessions for Google's Agent Development Kit: `Runner(session_service=NacreSessionService(sessions), …)`.

The session of an app and a user has the key `app/user/session`. What all sessions of a user share is in the meta of
`app/user/`, what all users of an app share in that of `app/`; these two have no messages.

An event that changes shared state is stored in three steps, so that a crash loses neither:

    1. `app/user/`           a pending change: which session, which event, which values
    2. `app/user/session`    the event, if the session is as the caller has seen it
    3. `app/user/`           the values, in place of the pending change

A reader of shared state looks for the event of a pending change: if it is stored, the values are in effect.

A session that was archived is not there for ADK. Shared state is no conversation: it is read although its key was
archived, and the first change of it begins a new generation with all of it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote
from uuid import NAMESPACE_OID, uuid5
from weakref import WeakValueDictionary

from msgspec.structs import replace

from nacre.checks import check_key, check_text, is_unicode
from nacre.codec import encode_data
from nacre.errors import Conflict, InvalidArgument, InvalidMessage, missing_extra
from nacre.history import session_state
from nacre.integrations.access import AnySessions, awaited, change, check_sessions, finish, read_active
from nacre.integrations.conversation import with_results
from nacre.messages import Message, Snapshot, ToolCall, Version, is_erased
from nacre.records import SetMeta, View
from nacre.sessions import AnyOperation, Sessions

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.platform import time as platform_time
    from google.adk.platform import uuid as platform_uuid
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State
    from pydantic_core import from_json, to_jsonable_python
except ModuleNotFoundError as error:
    raise missing_extra("adk", error) from error

T = TypeVar("T")
_NAME = "adk"
_STATE = "adk:"
"""How the fields of a session's meta begin that are state; the value is in a list, as None takes a field away."""
_PENDING = "adk.pending:"
"""The same of a pending change of shared state; the id of its event follows."""
_PLACE = "adk.place"
"""In `extra` of a message of others: its generation and number."""
_WORDS = {"executable_code": "code", "code_execution_result": "output"}
"""The parts of an event that are texts of another kind, and where they have their text."""
_MAY_CHANGE = re.compile(r"\d{19}|NaN|Infinity")
_DEEP = 50
_FIRST = 64
"""How many messages are read at first to find those after a time."""
_MARKER = re.compile(r"nacre:(\w*):(\d+)")
_EMPTY: dict[str, Any] = from_json(Event(id="-", timestamp=0).model_dump_json(exclude_none=True))
"""The fields of an event that say nothing, and are not stored."""


class NacreSessionService(BaseSessionService):
    """ADK's sessions in a nacre store.

    An event is appended only if the session has not changed since it was loaded: otherwise it is StaleSessionError,
    and nothing is stored. Events come back in the order in which they were appended.
    A change that is cancelled ends when it is made, or is sure never to be.
    """

    def __init__(self, sessions: AnySessions) -> None:
        self._sessions = check_sessions(sessions)
        self._appending: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Begin a session; raises AlreadyExistsError if there is one with that id that is not archived."""
        id = check_text(session_id or "", "session_id").strip() or platform_uuid.new_uuid()
        place = _Place(app_name, user_id, id)
        return await self._change(partial(_create, place=place, state=state or {}, now=platform_time.get_time()))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Load a session with its events, all or those that `config` asks for; None if there is none or it is archived.

        Those after a time are looked for from the end, until more events are older than not.
        """
        place = _Place(app_name, user_id, _stripped(session_id))
        return await self._call(partial(_load, place=place, config=config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users, without their events; the one that was last used comes last."""
        prefix = _app_key(app_name) if user_id is None else _user_key(app_name, user_id)
        return ListSessionsResponse(sessions=await self._call(partial(_list, prefix=prefix)))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Erase a session for good, also what was archived of it; the state that it shares with others stays."""
        await self._change(partial(_delete, place=_Place(app_name, user_id, _stripped(session_id))))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """What all sessions of a user share, by names without `user:`."""
        return await self._call(partial(_shared_state, key=_user_key(app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to the stored session and to the given one; durable when it returns.

        Raises StaleSessionError if the session was changed since it was loaded, SessionNotFoundError if there is none
        (any more) or it was archived, AlreadyExistsError if the session has an event with that id.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        place = _Place(session.app_name, session.user_id, session.id)
        # One after the other: the second one has seen what the first one stored.
        lock = self._appending.setdefault(place.key, threading.Lock())

        # In the thread: what it stores is in the given session too, although the caller was cancelled.
        def append(sessions: Sessions) -> None:
            _append(sessions, place=place, session=session, event=event, lock=lock)
            self._update_session_state(session, event)
            session.events.append(event)

        await self._change(append)
        return event

    async def _call(self, work: Callable[[Sessions], T]) -> T:
        return await awaited(self._sessions).call(work)

    async def _change(self, work: Callable[[Sessions], T]) -> T:
        return await finish(awaited(self._sessions), work)


# ---- where everything is


def _part(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _id(value: object, name: str) -> str:
    text = check_text(value, name)
    if not text:
        raise InvalidArgument(f"{name} must not be empty")
    return text


def _stripped(session_id: str) -> str:
    return _id(session_id, "session_id").strip()


def _app_key(app_name: str) -> str:
    # No key of an app may begin with `nacre:`.
    return check_key(_part(_id(app_name, "app_name")).replace(":", "%3A") + "/")


def _user_key(app_name: str, user_id: str) -> str:
    return check_key(_app_key(app_name) + _part(_id(user_id, "user_id")) + "/")


class _Place:
    """The names of a session, its key, and the keys of what it shares with others."""

    def __init__(self, app_name: str, user_id: str, session_id: str) -> None:
        self.app_name, self.user_id, self.session_id = app_name, user_id, session_id
        self.app = _app_key(app_name)
        self.user = _user_key(app_name, user_id)
        self.key = check_key(self.user + _part(_id(session_id, "session_id")))

    @classmethod
    def of_key(cls, key: str) -> _Place | None:
        """The names in a key; None if it is not the key of a session."""
        app, user, session = [unquote(part) for part in (key + "//").split("/")][:3]
        return cls(app, user, session) if key.count("/") == len((app, user)) and app and user and session else None


# ---- the steps of each method, in a thread


def _create(sessions: Sessions, *, place: _Place, state: Mapping[str, Any], now: float) -> Session:
    own, shared = _split_state(state, place)
    token = platform_uuid.new_uuid()
    meta = SetMeta({_NAME: {"created": now, "id": token}, **own})

    def begin() -> int:
        if read_active(sessions, place.key, last=0).n:
            raise AlreadyExistsError(f"Session with id {place.session_id} already exists.")
        with _SharedChange(sessions, shared, place.key, token, Version()):
            return sessions.submit(place.key, [meta], expect=Version()).result()

    n = change(sessions, place.key, begin)
    found = read_active(sessions, place.key, last=1)
    # Others may have used it already, or removed it: an append says so.
    created = replace(found, n=n) if found.n else Snapshot(meta=meta.fields)
    return _session(place, created, _shared_of(sessions, place), [])


def _load(sessions: Sessions, *, place: _Place, config: GetSessionConfig) -> Session | None:
    wanted, after = config.num_recent_events, config.after_timestamp
    # An event may be several messages: read on until there are enough. With none wanted, the last one has the time.
    last = _FIRST if wanted is None else wanted + 1
    while True:
        now = read_active(sessions, place.key, last=last if after or wanted is not None else None)
        is_all = len(now.messages) == now.live
        placed = [
            _placed(message, f"{now.generation}/{n}") for message, n in zip(now.messages, now.numbers, strict=True)
        ]
        read = placed if is_all else _without_rest(placed)
        messages = [one for one in read if _time_of(one) >= after] if after else read
        events = [] if wanted == 0 else list(_events_of(messages))
        # Clocks differ a little: an event may have an earlier time than the one before it.
        is_past = len(read) > 2 * len(messages)
        if is_all or is_past or (wanted is not None and len(events) >= wanted):
            break
        last *= 2
    if not now.n:
        return None
    shared = _shared_of(sessions, place)
    return _session(place, now, shared, events if wanted is None else events[-wanted:] if wanted else [])


def _list(sessions: Sessions, *, prefix: str) -> list[Session]:
    found, states = [], {}
    for info in sessions.list(prefix=prefix, order="key"):
        place = _Place.of_key(info.key)
        if place is None:
            continue
        now = read_active(sessions, info.key, last=1)
        for key in (place.app, place.user):
            if key not in states:
                states[key] = _shared_state(sessions, key)
        if now.n:
            found.append(_session(place, now, _shared_fields(states[place.app], states[place.user]), []))
    return sorted(found, key=lambda session: (session.last_update_time, session.user_id, session.id))


def _delete(sessions: Sessions, *, place: _Place) -> None:
    # What its events changed of the shared state must not depend on them any more.
    for key in (place.app, place.user):
        _shared_state(sessions, key)
    sessions.delete(place.key)


def _append(sessions: Sessions, *, place: _Place, session: Session, event: Event, lock: threading.Lock) -> None:
    own, shared = _split_state(event.actions.state_delta, place)
    operations: list[AnyOperation] = [*_messages_of(event)]
    if own:
        operations.append(SetMeta(own))
    with lock:
        seen = _seen(session) or _check_time(sessions, place, session)
        with _SharedChange(sessions, shared, place.key, event.id, seen):
            n = _store(sessions, place, operations, seen, event.id)
        session.last_update_time = event.timestamp
        session._storage_update_marker = f"nacre:{seen.generation}:{n}"  # noqa: SLF001 - it is for session services


def _store(sessions: Sessions, place: _Place, operations: list[AnyOperation], seen: Version, id: str) -> int:
    """Store the messages of an event, if there is no event that the caller has not seen."""
    expect = seen
    key = _key_of_id(seen.generation, id)

    def store() -> int:
        nonlocal expect
        try:
            return sessions.update(place.key, operations, expect=expect, id=key)
        except Conflict as error:
            now = read_active(sessions, place.key, last=0)
            if now.n and (now.generation != seen.generation or now.expect > seen.n):
                raise StaleSessionError(
                    f"Session {place.session_id} has events that are not in this object; load it again."
                ) from error
            # Only a title or a note was stored since, or nothing is there any more.
            expect = now.version
            raise

    try:
        n = change(sessions, place.key, store)
    except Conflict as error:
        raise AlreadyExistsError(f"Session {place.session_id} has another event with id {id}.") from error
    if not n:
        raise SessionNotFoundError(f"Session {place.session_id} not found.")
    if n <= seen.n:
        raise AlreadyExistsError(f"Session {place.session_id} has the event {id} already.")
    return n


def _key_of_id(generation: str, id: str) -> str:
    """The id of what is stored for an event: nacre would know that of the event itself in the next generation, too."""
    return str(uuid5(NAMESPACE_OID, f"{generation}:{id}"))


def _seen(session: Session) -> Version | None:
    """Which version a session object is, if it was made here."""
    found = _MARKER.fullmatch(session._storage_update_marker or "")  # noqa: SLF001 - it is for session services
    return Version(int(found[2]), found[1]) if found else None


def _check_time(sessions: Sessions, place: _Place, session: Session) -> Version:
    """The stored version, for a session object that came from elsewhere; its time tells whether it is stale."""
    now = read_active(sessions, place.key, last=1)
    if not now.n:
        raise SessionNotFoundError(f"Session {place.session_id} not found.")
    if _update_time(now) > session.last_update_time:
        raise StaleSessionError(f"Session {place.session_id} was updated after this object; load it again.")
    return now.version


def _session(place: _Place, now: Snapshot, shared: dict[str, Any], events: list[Event]) -> Session:
    session = Session(
        id=place.session_id,
        app_name=place.app_name,
        user_id=place.user_id,
        state={**_state_in(now.meta), **shared},
        events=events,
        last_update_time=_update_time(now),
    )
    session._storage_update_marker = f"nacre:{now.generation}:{now.n}"  # noqa: SLF001 - it is for session services
    return session


def _update_time(now: Snapshot) -> float:
    if now.messages:
        return _time_of(now.messages[-1])
    return float(_mark(now.meta).get("created", 0.0))


def _time_of(message: Message) -> float:
    if _is_own(message):
        return float(message.extra[_NAME]["timestamp"])
    return message.created.timestamp() if message.created else 0.0


def _mark(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `extra` or a meta has under our name; nothing if others have put something else there."""
    found = fields.get(_NAME)
    return found if isinstance(found, dict) else {}


def _is_own(message: Message) -> bool:
    """Whether a message was an event."""
    mark = _mark(message.extra)
    return isinstance(mark.get("id"), str) and isinstance(mark.get("timestamp"), int | float)


# ---- state


def _split_state(state: Mapping[str, Any], place: _Place) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Fields for the meta of the session, and those for the keys of what is shared."""
    own: dict[str, Any] = {}
    shared: dict[str, dict[str, Any]] = {}
    for name, value in state.items():
        if name.startswith(State.TEMP_PREFIX):
            continue
        try:
            stored = _stored_value(to_jsonable_python(value))
        except ValueError:
            # As ADK does: what cannot be stored is described.
            stored = _stored_value(to_jsonable_python(value, serialize_unknown=True))
        if name.startswith(State.APP_PREFIX):
            shared.setdefault(place.app, {})[_STATE + name.removeprefix(State.APP_PREFIX)] = stored
        elif name.startswith(State.USER_PREFIX):
            shared.setdefault(place.user, {})[_STATE + name.removeprefix(State.USER_PREFIX)] = stored
        else:
            own[_STATE + name] = stored
    return own, shared


def _state_in(meta: Mapping[str, Any]) -> dict[str, Any]:
    state = {name.removeprefix(_STATE): value for name, value in meta.items() if name.startswith(_STATE)}
    return {name: json.loads(value["json"]) if isinstance(value, dict) else value[0] for name, value in state.items()}


def _stored_value(value: Any) -> Any:
    return [value] if _is_storable(value) else {"json": json.dumps(value)}


def _is_storable(value: Any) -> bool:
    """Whether a value would be read again as it is: not a whole number of more than 64 bits, or half a surrogate."""
    # Nearly all are plain and small.
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() and _MAY_CHANGE.search(text) is None and text.count("{") + text.count("[") < _DEEP:
        return True
    try:
        encode_data({"": value})
    except InvalidMessage:
        return False
    return is_unicode(text)


def _shared_of(sessions: Sessions, place: _Place) -> dict[str, Any]:
    return _shared_fields(_shared_state(sessions, place.app), _shared_state(sessions, place.user))


def _shared_fields(app: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    of_app = {State.APP_PREFIX + name: value for name, value in app.items()}
    return of_app | {State.USER_PREFIX + name: value for name, value in user.items()}


class _SharedChange:
    """A change of shared state that is in effect if, and only if, what is done in this context is stored."""

    def __init__(
        self, sessions: Sessions, fields: dict[str, dict[str, Any]], session: str, token: str, seen: Version
    ) -> None:
        self._sessions, self._fields, self._token = sessions, fields, token
        self._about = {"session": session, "generation": seen.generation, "n": seen.n}

    def __enter__(self) -> None:
        for key, fields in self._fields.items():
            change(self._sessions, key, partial(self._note, key, {**self._about, "fields": fields}))

    def _note(self, key: str, pending: Mapping[str, Any]) -> None:
        now = self._sessions.snapshot(key, last=0)
        _set_shared(self._sessions, key, now, {_PENDING + self._token: pending})

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        refusals = Conflict | StaleSessionError | AlreadyExistsError | SessionNotFoundError
        if kind is None or issubclass(kind, refusals):
            for key in self._fields:
                _shared_state(self._sessions, key, known={self._token: kind is None})


def _set_shared(sessions: Sessions, key: str, now: Snapshot, fields: Mapping[str, Any]) -> None:
    """Set fields of the meta of an app or a user, if it is as it was read.

    What was archived goes on in a new generation, with all of its state.
    """
    kept = {name: value for name, value in now.meta.items() if now.archived and name.startswith((_STATE, _PENDING))}
    expect = Version() if now.archived else now.version
    sessions.submit(key, [SetMeta({**kept, **fields})], expect=expect).result()


def _shared_state(sessions: Sessions, key: str, *, known: Mapping[str, bool] | None = None) -> dict[str, Any]:
    """The state under the key of an app or a user, after pending changes were settled.

    Of some it is known whether their events were stored.
    """

    def settle() -> dict[str, Any]:
        now = sessions.snapshot(key, last=0)
        settled: dict[str, Any] = {}
        for name, pending in now.meta.items():
            if not name.startswith(_PENDING):
                continue
            token = name.removeprefix(_PENDING)
            is_stored = known[token] if known and token in known else _is_stored(sessions, token, pending)
            if is_stored is not None:
                settled.update(pending["fields"] if is_stored else {})
                settled[name] = None
        if settled:
            # If somebody else has changed it meanwhile, their value is newer than the pending one.
            _set_shared(sessions, key, now, settled)
        return _state_in({**now.meta, **settled})

    return change(sessions, key, settle)


def _is_stored(sessions: Sessions, token: str, pending: Mapping[str, Any]) -> bool | None:
    """Tell whether the event of a pending change was stored, or its session begun; None if that may happen yet.

    The session may have been archived since, and may be brought back or begun again.
    """
    key, generation, n = pending["session"], pending["generation"], pending["n"]
    id = _key_of_id(generation, token)

    def look_for_beginning(view: View) -> tuple[bool, bool]:
        return _mark(session_state.meta(view, view.state)).get("id") == token, not view.is_archived

    def look_for_event(view: View) -> tuple[bool, bool]:
        return any(record.id == id for record in view.after(n, view.n)), view.state.h > n

    if generation:
        is_stored, is_refused = sessions.read(key, look_for_event, generation=generation) or (False, True)
    else:
        found = sessions.read_generations(key, look_for_beginning)
        is_stored, is_refused = any(is_begun for is_begun, _ in found), any(is_active for _, is_active in found)
    return is_stored or (False if is_refused else None)


# ---- events as messages


def _messages_of(event: Event) -> list[Message]:
    """An event as one message, or as one for each result of a tool; `extra` has what these cannot say."""
    first, *others = _as_messages(event)
    own = first.extra[_NAME]
    if not _is_storable(own):
        mark = {"id": own["id"], "timestamp": own["timestamp"], "json": json.dumps(own)}
        first = replace(first, extra={**first.extra, _NAME: mark})
    return [first, *others]


def _as_messages(event: Event) -> list[Message]:
    """The messages of an event.

    The parts of its content are in `extra`, with the length of a text in place of the text.
    """
    data = from_json(event.model_dump_json(exclude_none=True))
    content, author = data.pop("content", None), data.pop("author", "")
    data["actions"] = {name: value for name, value in data["actions"].items() if _EMPTY["actions"].get(name) != value}
    own = {name: value for name, value in data.items() if value != _EMPTY.get(name) and (name != "actions" or value)}
    own |= {"id": data["id"], "timestamp": data["timestamp"]}
    if content is None:
        return [Message(role="", extra={"type": "event", _NAME: own | {"author": author}})]
    parts, given_role = content.get("parts"), content.get("role")
    if any("function_response" in part for part in parts or ()):
        return _results_of(parts, given_role, own | {"author": author})

    is_user = given_role == "user" or (given_role != "model" and author == "user")
    role, usual_role, usual_author = ("user", "user", "user") if is_user else ("assistant", "model", author or None)
    if given_role != usual_role:
        own["role"] = given_role
    if author != usual_author:
        own["author"] = author
    shown: list[Any] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    layout = [_take_part(part, shown, thoughts, calls) for part in parts or ()]
    is_text = all(isinstance(one, str) for one in shown)
    if parts is None or not is_text or layout != [{"text": len("".join(shown))}]:
        own["parts"] = None if parts is None else layout
    items = [{"type": "text", "text": one} if isinstance(one, str) else one for one in shown]
    return [
        Message(
            role=role,
            content="".join(shown) if is_text and shown else items if shown else None if calls else "",
            tool_calls=tuple(calls),
            name=None if is_user else author or None,
            reasoning="".join(thoughts) if thoughts else None,
            model=None if is_user else own.pop("model_version", None),
            extra={_NAME: own},
        )
    ]


def _take_part(part: dict[str, Any], shown: list[Any], thoughts: list[str], calls: list[ToolCall]) -> dict[str, Any]:
    """Put what a message can say of a part into its lists; returns the rest."""
    text, call, blob = part.get("text"), part.get("function_call"), part.get("inline_data")
    if isinstance(text, str):
        (thoughts if part.get("thought") is True else shown).append(text)
        return part | {"text": len(text)}
    if call is not None:
        rest = {name: value for name, value in call.items() if name not in ("id", "name", "args") or value == ""}
        arguments = call.get("args", "")
        if not _is_storable(arguments):
            arguments, rest["args"] = json.dumps(arguments), "json"
        calls.append(ToolCall(id=call.get("id", ""), name=call.get("name", ""), arguments=arguments))
        return part | {"function_call": rest}
    if blob is not None and str(blob.get("mime_type")).startswith("image/") and blob.get("data"):
        # ADK writes the alphabet for addresses, data URLs have the other one.
        url = f"data:{blob['mime_type']};base64,{blob['data'].replace('-', '+').replace('_', '/')}"
        shown.append({"type": "image_url", "image_url": {"url": url}})
        rest = {name: value for name, value in blob.items() if name not in ("data", "mime_type")}
        return part | {"inline_data": rest, "is_shown": True}
    if blob is not None and blob.get("mime_type") and blob.get("data"):
        rest = dict(blob)
        kind, data = rest.pop("mime_type"), rest.pop("data").replace("-", "+").replace("_", "/")
        family = kind.partition("/")[0]
        name = {"filename": rest.pop("display_name")} if rest.get("display_name") else {}
        shown.append(
            {"type": family if family in ("audio", "video") else "file", "mime_type": kind, "base64": data, **name}
        )
        return part | {"inline_data": rest, "is_shown": True}
    place = (part.get("file_data") or {}).get("file_uri")
    if place:
        shown.append({"type": "file", "file_uri": place})
        return part | {"is_shown": True}
    for field, words in _WORDS.items():
        if isinstance(part.get(field), dict) and isinstance(part[field].get(words), str):
            rest = dict(part[field])
            shown.append({"type": "text", "text": rest.pop(words)})
            return part | {field: rest, "is_shown": True}
    return part


def _results_of(parts: list[dict[str, Any]], role: str | None, own: dict[str, Any]) -> list[Message]:
    """An event with results: a message for each of them; the first one has the rest of the event."""
    if role != "user":
        own["role"] = role
    own["parts"] = layout = []
    found: list[Message] = []
    for part in parts:
        result = part.get("function_response")
        if result is None:
            layout.append(part)
            continue
        rest = {name: value for name, value in result.items() if name not in ("id", "name", "response") or value == ""}
        response = result.get("response")
        if isinstance(response, dict) and list(response) == ["result"] and isinstance(response["result"], str):
            content = response["result"]
        else:
            content = "" if response is None else json.dumps(response, ensure_ascii=False)
            rest["response"] = "none" if response is None else "json"
        layout.append(part | {"function_response": rest})
        extra = {"rest": len(found), "id": own["id"], "timestamp": own["timestamp"]} if found else own
        id, name = result.get("id", ""), result.get("name")
        found.append(Message(role="tool", content=content, tool_call_id=id, name=name, extra={_NAME: extra}))
    return found


def _is_rest(message: Message) -> bool:
    """Whether a message is a further result of an event that began before it."""
    return "rest" in message.extra.get(_NAME, ())


def _without_rest(messages: list[Message]) -> list[Message]:
    """The messages from the first one on that begins an event."""
    return messages[next((at for at, one in enumerate(messages) if not _is_rest(one)), len(messages)) :]


# ---- messages as events


def _placed(message: Message, place: str) -> Message:
    """A message that has its place, and nothing under our name, if it is none of ours: its event is named by it."""
    if _is_own(message):
        return message
    others = {name: value for name, value in message.extra.items() if name != _NAME}
    return replace(message, extra={**others, _PLACE: place})


def _events_of(messages: Sequence[Message]) -> Iterator[Event]:
    """The events that messages were made of, and one for each message of another framework.

    ADK quotes what another agent said, and pairs a call with its result only if one agent has both: what was erased
    is still this agent's, and a result is that of the agent that called.
    """
    agents = (one.name for one in messages if _NAME in one.extra and one.role == "assistant" and one.name)
    agent = next(agents, "assistant")
    callers: dict[str, str] = {}
    # Where the last foreign message was stored, and how many of its calls have no result that was stored.
    place, time, missing = "", 0.0, 0
    group: list[Message] = []
    for one, is_own in with_results(messages, _NAME):
        if group and is_own and _is_rest(one) and one.extra[_NAME]["id"] == group[0].extra[_NAME]["id"]:
            group.append(one)
            continue
        if group:
            yield _event_of(group, agent)
        group = [one] if is_own else []
        name = one.name or "assistant" if one.role == "assistant" else callers.get(one.tool_call_id or "", "assistant")
        if is_own and one.role == "assistant":
            agent = name
        elif not is_own:
            name = agent if is_erased(one) else name
            if _PLACE in one.extra:
                place, time, missing = one.extra[_PLACE], _time_of(one), 0
                yield _foreign_event(one, name, place, time)
            else:
                missing += 1
                yield _foreign_event(one, name, f"{place}+{missing}", time)
        callers.update((call.id, name) for call in one.tool_calls)
    if group:
        yield _event_of(group, agent)


def _event_of(group: list[Message], agent: str) -> Event:
    """The event that a message, or several with results, were made of; by `agent` if only the rest of it is left."""
    first = group[0]
    own = dict(first.extra[_NAME])
    if "json" in own:
        own = json.loads(own["json"])
    numbers = [message.extra[_NAME].get("rest", 0) for message in group]
    if "rest" in own:
        # The event began with a message that was erased.
        parts_left: list[dict[str, Any]] = [{"function_response": {}} for _ in group]
        own = {"id": own["id"], "timestamp": own["timestamp"], "author": agent, "parts": parts_left}
        numbers = list(range(len(group)))
    if not first.role:
        return _validated(own)
    own.setdefault("author", "user" if first.role == "user" else first.name or "")
    role = own.pop("role", "model" if first.role == "assistant" else "user")
    layout = own.pop("parts", [{"text": len(first.content or "")}])
    if first.model is not None:
        own["model_version"] = first.model
    parts = [] if first.role == "tool" else list(_parts_of(first, layout or ()))
    if first.role == "tool":
        # One of them may be missing if it was erased.
        results = dict(zip(numbers, group, strict=True))
        at = 0
        for part in layout:
            if "function_response" not in part:
                parts.append(part)
            elif (message := results.get(at)) is not None:
                parts.append(part | {"function_response": _result_in(message, part["function_response"])})
            at += "function_response" in part
    content = {"role": role, "parts": None if layout is None else parts}
    return _validated(own | {"content": {name: value for name, value in content.items() if value is not None}})


def _parts_of(message: Message, layout: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    calls = iter(message.tool_calls)
    items = iter(message.content if isinstance(message.content, list) else ())
    shown, thoughts = _Texts(message.content), _Texts(message.reasoning)
    for part in layout:
        if "text" in part:
            is_thought = part.get("thought") is True
            is_item = isinstance(message.content, list) and not is_thought
            texts = thoughts if is_thought else shown
            yield part | {"text": next(items)["text"] if is_item else texts.take(part["text"])}
        elif "function_call" in part:
            call = next(calls)
            given = {"id": call.id, "name": call.name, "args": call.arguments}
            if part["function_call"].get("args") == "json":
                given["args"] = json.loads(call.arguments)
            known = {name: value for name, value in given.items() if value != ""}
            yield part | {"function_call": part["function_call"] | known}
        elif "is_shown" in part:
            rest, item = {name: value for name, value in part.items() if name != "is_shown"}, next(items)
            if "inline_data" not in part:
                # A file that is elsewhere is whole in its part.
                field = next((field for field in _WORDS if field in part), "file_data")
                words = {_WORDS[field]: item["text"]} if field in _WORDS else {}
                yield rest | {field: part[field] | words}
                continue
            name = {"display_name": item["filename"]} if "filename" in item else {}
            if "image_url" in item:
                kind, data = item["image_url"]["url"].removeprefix("data:").split(";base64,", 1)
            else:
                kind, data = item["mime_type"], item["base64"]
            blob = {"mime_type": kind, "data": data.replace("+", "-").replace("/", "_"), **name}
            yield rest | {"inline_data": part["inline_data"] | blob}
        else:
            yield part


class _Texts:
    """A text that is taken in pieces."""

    def __init__(self, text: object) -> None:
        self._text, self._at = text if isinstance(text, str) else "", 0

    def take(self, length: int) -> str:
        self._at += length
        return self._text[self._at - length : self._at]


def _result_in(message: Message, rest: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in rest.items() if name != "response"}
    found |= {"id": message.tool_call_id} if message.tool_call_id else {}
    found |= {"name": message.name} if message.name else {}
    kind = rest.get("response")
    if kind == "none":
        return found
    if kind == "json":
        return found | {"response": json.loads(str(message.content))}
    return found | {"response": {"result": message.content}}


def _validated(data: dict[str, Any]) -> Event:
    # As JSON: only there are bytes read from the text that they were written as.
    event: Event = Event.model_validate_json(json.dumps(data))
    return event


def _foreign_event(given: Message, agent: str, id: str, timestamp: float) -> Event:
    """A chat message of another framework as an event, which `agent` has said if it is not the user's."""
    message = given.to_openai()
    role, content = message["role"], message.get("content")
    parts: list[dict[str, Any]] = []
    if role == "tool":
        result = {"id": message["tool_call_id"], "name": given.name or "tool", "response": {"result": content}}
        parts.append({"function_response": result})
    elif isinstance(content, str) and content:
        parts.append({"text": content if role in ("user", "assistant") else f"[{role}] {content}"})
    elif content:
        parts += (_foreign_part(item) for item in content)
    for call in message.get("tool_calls", ()):
        function = call.get("function") or {"name": call["type"], "arguments": "{}"}
        arguments = json.loads(function["arguments"])
        known = {"id": call["id"], "name": function["name"], "args": arguments}
        parts.append({"function_call": known if isinstance(arguments, dict) else known | {"args": {"": arguments}}})
    author = agent if role in ("assistant", "tool") else "user"
    content_role = "model" if role == "assistant" else "user"
    content = {"role": content_role, "parts": parts}
    return _validated({"id": id, "timestamp": timestamp, "author": author, "content": content})


def _foreign_part(item: dict[str, Any]) -> dict[str, Any]:
    url = item.get("image_url", {}).get("url", "") if item.get("type") == "image_url" else ""
    if url.startswith("data:") and ";base64," in url:
        kind, data = url.removeprefix("data:").split(";base64,", 1)
        return {"inline_data": {"mime_type": kind, "data": data.replace("+", "-").replace("/", "_")}}
    if url:
        return {"file_data": {"file_uri": url}}
    return {"text": item["text"] if isinstance(item.get("text"), str) else json.dumps(item, ensure_ascii=False)}
