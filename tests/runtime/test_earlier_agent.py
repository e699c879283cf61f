"""People of earlier agents find their conversation by the names that it had there, and nobody else's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

import nacre
from nacre import Sessions
from nacre.channels.channel import InboundMessage, key_of
from nacre.config import Settings
from nacre.runtime.gateway.access import Access, Guests
from nacre.runtime.gateway.earlier_agent import Earlier, kinds_of

DM = {"channel": "telegram", "account": "99", "chat": "42", "sender": "42", "handle": "al_ice"}
GROUP = {**DM, "chat": "-100200300"}
FORUM = {**GROUP, "thread": "789"}
IRC = {"channel": "irc", "account": "bot@net", "chat": "bob", "sender": "bob", "handle": "Bob"}
IRC_CHANNEL = {**IRC, "chat": "#nacre"}
MATRIX = {
    "channel": "matrix",
    "account": "@bot:example.org",
    "chat": "!room:example.org",
    "sender": "@alice:example.org",
}
THREAD = {**MATRIX, "thread": "$root"}


def arrived(fields: dict[str, str]) -> InboundMessage:
    return InboundMessage(**{"id": "1", "text": "hi", **fields})


def scope(text: str) -> str:
    """A session key of picoclaw since April 2026: the hash of a scope."""
    return f"sk_v1_{sha256(f'v=1|agent=main|{text}'.encode()).hexdigest()}"


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    with nacre.open(":memory:") as opened:
        yield opened


def find(sessions: Sessions, fields: dict[str, str], **access: Any) -> str | None:
    """What a gateway that has just started finds."""
    message, how = arrived(fields), Access(**access)
    return Earlier(sessions, lambda _: how)(message, key_of(message, per=how.per))


PICOCLAW = [
    # February 2026: channel and chat.
    (DM, "telegram:42"),
    (GROUP, "telegram:-100200300"),
    (IRC, "irc:bob"),
    (IRC_CHANNEL, "irc:#nacre"),
    (MATRIX, "matrix:!room:example.org"),
    # From then to April: by agent and peer.
    (DM, "agent:main:telegram:direct:42"),
    (DM, "agent:main:telegram:direct:telegram:42"),
    (DM, "agent:main:telegram:default:direct:42"),
    (GROUP, "agent:main:telegram:group:-100200300"),
    (FORUM, "agent:main:telegram:group:-100200300/789"),
    (IRC, "agent:main:irc:direct:bob"),
    (IRC_CHANNEL, "agent:main:irc:group:#nacre"),
    (MATRIX, "agent:main:matrix:direct:@alice:example.org"),
    (MATRIX, "agent:main:matrix:group:!room:example.org"),
    # The same where only the name of the file tells the key.
    (DM, "agent_main_telegram_direct_42"),
    (FORUM, "agent_main_telegram_group_-100200300_789"),
    # Since April: by scope.
    (DM, scope("channel=telegram|account=default|chat=direct:42")),
    (DM, scope("channel=telegram|account=default|sender=42")),
    (DM, scope("channel=telegram|account=default|chat=direct:42|sender=telegram:42")),
    (GROUP, scope("channel=telegram|account=default|chat=group:-100200300")),
    (GROUP, scope("channel=telegram|account=default|chat=group:-100200300|sender=42")),
    (FORUM, scope("channel=telegram|account=default|chat=group:-100200300/789")),
    (FORUM, scope("channel=telegram|account=default|chat=group:-100200300|topic=topic:789")),
    (IRC, scope("channel=irc|account=default|chat=direct:bob")),
    (IRC_CHANNEL, scope("channel=irc|account=default|chat=group:#nacre")),
    (MATRIX, scope("channel=matrix|account=default|chat=direct:!room:example.org")),
    (THREAD, scope("channel=matrix|account=default|chat=group:!room:example.org")),
]
ZEROCLAW = [
    # February 2026: channel and sender; then with the thread.
    (DM, "telegram_42"),
    (DM, "telegram_al_ice"),
    (FORUM, "telegram_789_al_ice"),
    (IRC, "irc_Bob"),
    # Since March: with the chat.
    (DM, "telegram_42_al_ice"),
    (GROUP, "telegram_-100200300_al_ice"),
    (FORUM, "telegram_-100200300_789_789_al_ice"),
    (IRC, "irc_Bob_Bob"),
    (IRC_CHANNEL, "irc__nacre_Bob"),
    # Later: with the name of the bot.
    (DM, "telegram_default_42_al_ice"),
    (FORUM, "telegram_default_-100200300_789_789_42"),
]
NANOBOT = [
    (DM, "telegram:42"),
    (FORUM, "telegram:-100200300:topic:789"),
    (THREAD, "matrix:!room:example.org:thread:$root"),
]


@pytest.mark.parametrize(("fields", "key"), [*PICOCLAW, *ZEROCLAW, *NANOBOT])
def test_a_sender_finds_the_session_that_an_earlier_agent_had(
    sessions: Sessions, fields: dict[str, str], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sessions.add_message(key, "user", "long ago")
    own = key_of(arrived(fields))
    assert find(sessions, fields) == key
    assert find(sessions, fields) == key
    assert sessions.resolve(own) == key
    assert [message.content for message in sessions.get_history(own)] == ["long ago"]
    assert [info.key for info in sessions.list()] == [key]
    assert [record.message for record in caplog.records] == ["a session of an earlier agent is continued"]


@pytest.mark.parametrize(
    ("fields", "alias"),
    [
        (DM, "agent:main:telegram:direct:42"),
        (DM, "agent:main:telegram:default:direct:42"),
        (GROUP, "agent:main:telegram:group:-100200300"),
        (IRC, "agent:main:direct:bob"),
    ],
)
def test_a_sender_finds_a_session_by_an_alias(sessions: Sessions, fields: dict[str, str], alias: str) -> None:
    sessions.add_message("sk_v1_0", "user", "long ago")
    sessions.set_meta("sk_v1_0", scope={"version": 1, "channel": fields["channel"]})
    sessions.add_alias("sk_v1_0", alias)
    assert find(sessions, fields) == "sk_v1_0"


def test_who_has_a_session_here_goes_on_with_that(sessions: Sessions) -> None:
    sessions.add_message("telegram_42", "user", "long ago")
    sessions.add_message(key_of(arrived(DM)), "user", "here")
    assert find(sessions, DM) is None


def test_a_conversation_that_was_ended_here_does_not_come_back(sessions: Sessions) -> None:
    sessions.add_message("telegram_42", "user", "long ago")
    assert find(sessions, DM) == "telegram_42"
    sessions.archive("telegram_42")
    assert find(sessions, DM) == "telegram_42"
    sessions.delete("telegram_42")
    assert find(sessions, DM) is None


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (MATRIX, "matrix__room_example_org__alice_example_org"),
        ({**MATRIX, "sender": "@alice:example_org"}, "matrix__room_example_org__alice_example_org"),
        ({**IRC, "chat": "b[m]", "sender": "b[m]", "handle": "b[m]"}, "irc_b_m_"),
        ({**IRC, "chat": "b_m_", "sender": "b_m_", "handle": "b_m_"}, "irc_b_m_"),
        ({**IRC_CHANNEL, "sender": "a_b", "handle": "a_b"}, "irc__nacre_a_b"),
        (IRC, "agent:main:direct:bob"),
    ],
)
def test_a_name_that_others_may_have_had_is_continued_only_for_who_is_named(
    sessions: Sessions, fields: dict[str, str], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.add_message(key, "user", "long ago")
    assert find(sessions, fields) is None
    assert "other senders may have had the same name" in str(caplog.records[-1].__dict__["reason"])
    assert find(sessions, fields, allow=[fields["sender"], "zoe"]) == key


def test_a_name_that_two_who_are_named_had_is_continued_for_neither(sessions: Sessions) -> None:
    sessions.add_message("irc_b_m_", "user", "long ago")
    for nick in ("b[m]", "b_m_"):
        assert find(sessions, {**IRC, "chat": nick, "sender": nick}, allow=["b[m]", "b_m_"]) is None


@pytest.mark.parametrize(("sender", "found"), [("@alice:example.org", True), ("@alice_example:org", False)])
def test_where_the_earlier_agent_noted_the_sender_it_must_be_the_same(
    sessions: Sessions, sender: str, found: bool
) -> None:
    key = "matrix__room_example_org__alice_example_org"
    sessions.add_message(key, "user", "long ago")
    sessions.set_meta(key, sender_id="@alice:example.org")
    assert find(sessions, {**MATRIX, "sender": sender}, allow=[sender]) == (key if found else None)


def test_a_persons_session_is_continued_by_one(sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    sessions.add_message("irc__nacre_Bob", "user", "long ago")
    assert find(sessions, IRC_CHANNEL) == "irc__nacre_Bob"
    assert find(sessions, {**IRC_CHANNEL, "account": "bot@elsewhere"}) is None
    assert "it was continued by irc:bot@net:#nacre::bob" in str(caplog.records[-1].__dict__["reason"])


def test_the_session_of_a_chat_is_continued_by_all_in_it(sessions: Sessions) -> None:
    sessions.add_message("agent:main:telegram:group:-100200300", "user", "long ago")
    for sender in ("42", "43"):
        assert find(sessions, {**GROUP, "sender": sender}) == "agent:main:telegram:group:-100200300"


@pytest.mark.parametrize("key", ["agent:main:telegram:direct:42", "telegram_42", "telegram_al_ice"])
def test_what_was_said_to_the_agent_alone_is_not_continued_in_a_group(sessions: Sessions, key: str) -> None:
    sessions.add_message(key, "user", "long ago")
    assert find(sessions, GROUP) is None


def test_a_persons_session_does_not_become_that_of_a_chat(sessions: Sessions) -> None:
    sessions.add_message("telegram_-100200300_al_ice", "user", "long ago")
    assert find(sessions, GROUP, per="chat") is None
    sessions.add_message("telegram:-100200300", "user", "long ago")
    assert find(sessions, GROUP, per="chat") == "telegram:-100200300"


def test_a_session_of_another_channel_is_left(sessions: Sessions) -> None:
    sessions.add_message("sk_v1_0", "user", "long ago")
    sessions.set_meta("sk_v1_0", scope={"channel": "discord"})
    sessions.add_alias("sk_v1_0", "agent:main:direct:42")
    assert find(sessions, DM, allow=["42"]) is None


@pytest.mark.parametrize("key", ["agent:main:main", "unified:default"])
def test_the_main_session_is_continued_by_the_only_user(sessions: Sessions, key: str) -> None:
    sessions.add_message(key, "user", "long ago")
    assert find(sessions, DM) is None
    assert find(sessions, DM, allow=["42", "43"]) is None
    assert find(sessions, DM, allow=["42"]) == key


def test_an_alias_of_two_sessions_is_that_of_none(sessions: Sessions) -> None:
    for key in ("sk_v1_0", "sk_v1_1"):
        sessions.add_message(key, "user", "long ago")
        sessions.add_alias(key, "agent:main:telegram:direct:42")
    assert not sessions.exists("agent:main:telegram:direct:42")
    assert find(sessions, DM) is None


def test_what_is_not_kept_is_not_looked_for(sessions: Sessions) -> None:
    sessions.add_message("telegram_42", "user", "long ago")
    assert find(sessions, DM, keeps=False) is None


@pytest.mark.parametrize(
    ("tables", "kinds"),
    [
        ({"work": {"kind": "telegram"}}, {"work": "telegram"}),
        ({"telegram": {}, "work": {"kind": "telegram"}}, {"telegram": "telegram", "work": "work"}),
    ],
)
def test_a_channel_with_a_name_of_its_own_is_of_its_kind_if_it_is_the_only_one(
    tables: dict[str, dict[str, str]], kinds: dict[str, str]
) -> None:
    assert kinds_of(tables) == kinds


@pytest.mark.parametrize(("owners", "guest"), [(["42"], False), (["43"], True)])
def test_who_continues_a_session_is_its_guest_or_owner(sessions: Sessions, owners: list[str], guest: bool) -> None:
    key = scope("channel=telegram|account=default|chat=direct:42")
    sessions.add_message(key, "user", "long ago")
    settings = Settings({"channels": {"telegram": {"owners": owners}}}, {})
    guests = Guests(settings, sessions.aliases)
    assert find(sessions, DM) == key
    assert guests(key) is guest


def test_a_session_with_names_of_a_channel_is_a_guests_until_it_is_continued(sessions: Sessions) -> None:
    sessions.add_message("sk_v1_0", "user", "long ago")
    sessions.add_alias("sk_v1_0", "agent:main:telegram:direct:42")
    guests = Guests(Settings({"channels": {"telegram": {"owners": ["42"]}}}, {}), sessions.aliases)
    assert guests("sk_v1_0")
