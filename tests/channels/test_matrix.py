"""Matrix, with a real home server and with one that says what the test wants."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import pytest

from nacre.channels.channel import Gone, InboundMessage
from nacre.channels.channel_files import RetryPolicy
from nacre.channels.matrix import Config, Matrix
from nacre.errors import ChannelError, ConfigError
from nacre.storage.documents import FileDocument
from tests.channels.servers import (
    HASTY,
    PATIENT,
    SECRET,
    Heard,
    Reply,
    Request,
    Server,
    ended,
    running,
    scripted,
    synapse,
)

API = "/_matrix/client/v3"
_names = itertools.count()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with synapse(request.config, tmp_path_factory.mktemp("synapse")).running() as made:
        yield made


class Person:
    """Somebody with a plain client."""

    def __init__(self, client: httpx2.AsyncClient, user: str) -> None:
        self.user, self.since = user, ""
        self._client = client
        self._numbers = itertools.count()

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        response = await self._client.request(method, API + path, json=body, params=query)
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    async def room(self, *invited: str, encrypted: bool = False) -> str:
        state = [{"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}] if encrypted else []
        body = {"preset": "private_chat", "invite": invited, "initial_state": state}
        return str((await self.ask("POST", "/createRoom", body))["room_id"])

    async def say(self, room: str, text: str, **more: Any) -> str:
        kind = more.pop("kind", "m.room.message")
        content = {"msgtype": "m.text", "body": text, **more}
        path = f"/rooms/{quote(room)}/send/{kind}/{next(self._numbers)}"
        return str((await self.ask("PUT", path, content))["event_id"])

    async def hears(self, room: str, count: int = 1) -> list[dict[str, Any]]:
        """The contents of the next messages of others in a room."""
        found: list[dict[str, Any]] = []
        with anyio.fail_after(PATIENT):
            while len(found) < count:
                answer = await self.sync()
                timeline = answer.get("rooms", {}).get("join", {}).get(room, {}).get("timeline", {})
                found += [
                    event["content"]
                    for event in timeline.get("events", [])
                    if event["type"] == "m.room.message" and event["sender"] != self.user
                ]
        assert len(found) == count
        return found

    async def sync(self) -> dict[str, Any]:
        since = {"since": self.since} if self.since else {}
        answer = await self.ask("GET", "/sync", timeout="30000" if since else "0", **since)
        self.since = str(answer["next_batch"])
        return answer

    async def all(self, room: str) -> list[str]:
        """Everything that others said in a room."""
        page = await self.ask("GET", f"/rooms/{quote(room)}/messages", dir="b", limit="1000")
        return [
            event["content"]["body"]
            for event in reversed(page["chunk"])
            if event["type"] == "m.room.message" and event["sender"] != self.user
        ]


@asynccontextmanager
async def person(server: Server, name: str) -> AsyncIterator[Person]:
    """Somebody new; nobody has the same name twice."""
    name = f"{name}{next(_names)}"
    address = f"http://127.0.0.1:{server.port}"
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:
        token, user = await registered(client, name)
        client.headers["authorization"] = f"Bearer {token}"
        yield Person(client, user)


async def registered(client: httpx2.AsyncClient, name: str) -> tuple[str, str]:
    """A token and the full name of a new user, whose password is its name."""
    path = "/_synapse/admin/v1/register"
    nonce = (await client.get(path)).json()["nonce"]
    signed = f"{nonce}\0{name}\0{name}\0notadmin"
    mac = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha1).hexdigest()
    answer = (await client.post(path, json={"nonce": nonce, "username": name, "password": name, "mac": mac})).json()
    return str(answer["access_token"]), str(answer["user_id"])


class Made:
    """A bot that was registered, and may be made as often as the test restarts it."""

    def __init__(self, server: Server, room: Path, name: str, user: str) -> None:
        self.user = user
        self._server, self._room = server, room
        (room / "password").write_text(name)
        self.state = room / "matrix"

    def channel(self, retry: RetryPolicy = HASTY, kind: type[Matrix] = Matrix, **more: Any) -> Matrix:
        address = f"http://127.0.0.1:{self._server.port}"
        config = Config(homeserver=address, user=self.user, password_file=str(self._room / "password"))
        welcome = more.pop("welcome", lambda _: True)
        return kind(config, state=FileDocument(str(self.state)), welcome=welcome, retry=retry, **more)


async def bot(server: Server, room: Path) -> Made:
    name = f"bot{next(_names)}"
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        _, user = await registered(client, name)
    return Made(server, room, name, user)


Run = Callable[[Person, Made], Any]


@pytest.fixture
def scene(server: Server, tmp_path: Path) -> Callable[[Run], None]:
    """Run a test with somebody and a bot."""

    def play(run: Run) -> None:
        async def whole() -> None:
            made = await bot(server, tmp_path)
            async with person(server, "alice") as alice:
                await run(alice, made)

        anyio.run(whole)

    return play


Scene = Callable[[Run], None]


def test_an_invited_bot_hears_what_was_said_since_and_answers_once(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        room = await alice.room(made.user)
        first = await alice.say(room, "grüß dich 🦪")
        heard, channel = Heard(), made.channel()
        async with running(channel, heard):
            (arrived,) = await heard.until(1)
            assert arrived == InboundMessage(
                channel="matrix",
                account=made.user,
                chat=room,
                sender=alice.user,
                id=first,
                text="grüß dich 🦪",
                shown=alice.user,
            )
            for _ in range(3):
                await channel.send(arrived, "auch dir\n\n*Gruß*", id="answer/1")
            await alice.say(room, "and now?")
            await channel.send((await heard.until(2))[1], "this", id="answer/2")
        assert await alice.all(room) == ["auch dir\n\n*Gruß*", "this"]
        assert heard.calls == 2

    scene(run)


def test_an_answer_is_shown_once_although_bot_and_server_were_restarted(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async def run(server: Server) -> None:
        made, heard = await bot(server, tmp_path), Heard()
        async with person(server, "alice") as alice:
            room = await alice.room(made.user)
            async with running(channel := made.channel(), heard):
                await alice.say(room, "hello")
                (arrived,) = await heard.until(1)
                await channel.send(arrived, "once", id="a")
            async with running(channel := made.channel(), heard):
                await channel.send(arrived, "once", id="a")
                server.stop()
                server.start()
                await channel.send(arrived, "once", id="a")
                await alice.say(room, "still there?")
                await channel.send((await heard.until(2))[1], "yes", id="b")
            assert await alice.all(room) == ["once", "yes"]

    with synapse(request.config, tmp_path).running() as server:
        anyio.run(run, server)


def test_what_was_not_accepted_comes_again_under_the_same_id_after_a_restart(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        stuck, heard = Heard(stuck=True), Heard()
        room = await alice.room(made.user)
        async with running(made.channel(), stuck):
            await alice.say(room, "first")
            await stuck.until(1)
        await alice.say(room, "second")
        async with running(made.channel(), heard):
            words = await heard.until(2)
        assert heard.texts == ["first", "second"]
        assert words[0] == stuck.words[0]
        async with running(made.channel(), heard):
            await alice.say(room, "third")
            await heard.until(3)

    scene(run)


@pytest.mark.parametrize("has_entered", [True, False])
def test_what_is_said_to_a_bot_that_was_killed_as_it_came_is_heard(scene: Scene, has_entered: bool) -> None:
    async def run(alice: Person, made: Made) -> None:
        killed = anyio.Event()

        class Killed(Matrix):
            async def _join_rooms(self, invitations: list[tuple[str, str]]) -> None:
                if not invitations:
                    return
                if has_entered:
                    await super()._join_rooms(invitations)
                killed.set()
                await anyio.sleep_forever()

        room = await alice.room(made.user)
        async with running(made.channel(kind=Killed), Heard()):
            await killed.wait()
        await alice.say(room, "are you there?")
        # Synapse answers the same question for some minutes as it did the first time.
        heard = Heard()
        async with running(made.channel(page=99), heard):
            await heard.until(1)

    scene(run)


def test_what_was_said_while_the_bot_was_away_comes_in_order_however_much_it_is(
    scene: Scene,
) -> None:
    async def run(alice: Person, made: Made) -> None:
        heard = Heard()
        room = await alice.room(made.user)
        async with running(made.channel(page=10), heard):
            await alice.say(room, "0")
            await heard.until(1)
        for number in range(1, 36):
            await alice.say(room, str(number))
        async with running(made.channel(page=10), heard):
            words = await heard.until(36)
        assert heard.texts == [str(number) for number in range(36)]
        assert len({arrived.id for arrived in words}) == 36

    scene(run)


def test_a_thread_is_answered_in_the_thread(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        heard, channel = Heard(), made.channel(html=lambda text: f"<b>{text}</b>")
        room = await alice.room(made.user)
        async with running(channel, heard):
            root = await alice.say(room, "a thread")
            await heard.until(1)
            inside = {"rel_type": "m.thread", "event_id": root}
            there = await alice.say(room, "in it", **{"m.relates_to": inside})
            arrived = (await heard.until(2))[1]
            assert arrived.thread == root
            await alice.sync()
            await channel.send(arrived, "here", id="a")
            (content,) = await alice.hears(room)
        assert content["m.relates_to"]["event_id"] == root
        assert content["m.relates_to"]["m.in_reply_to"] == {"event_id": there}
        assert (content["msgtype"], content["formatted_body"]) == ("m.notice", "<b>here</b>")

    scene(run)


def test_edits_notices_and_pictures_are_not_words_and_a_quote_is_not_repeated(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        heard = Heard()
        room = await alice.room(made.user)
        async with running(made.channel(), heard):
            first = await alice.say(room, "right")
            edit = {"rel_type": "m.replace", "event_id": first}
            await alice.say(room, "* wrong", **{"m.relates_to": edit, "m.new_content": {"body": "wrong"}})
            await alice.say(room, "beep", msgtype="m.notice")
            await alice.say(room, "cat.png", msgtype="m.image", url="mxc://x/y")
            reply = {"m.in_reply_to": {"event_id": first}}
            await alice.say(room, "> <@a:b> right\n> more\n\nanswer\x07\x1b[0m", **{"m.relates_to": reply})
            await heard.until(2)
        assert heard.texts == ["right", "answer[0m"]

    scene(run)


def test_an_encrypted_room_is_told_once_that_it_cannot_be_read(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        heard = Heard()
        room, open_room = await alice.room(made.user, encrypted=True), await alice.room(made.user)
        for text in ("one", "two"):
            async with running(made.channel(), heard):
                for _ in range(2):
                    await alice.say(
                        room, "…", kind="m.room.encrypted", algorithm="m.megolm.v1.aes-sha2", ciphertext="x"
                    )
                await alice.say(open_room, text)
                await heard.until(["one", "two"].index(text) + 1)
        (said,) = await alice.all(room)
        assert "encrypted" in said
        assert json.loads(made.state.read_text())["told"] == [room]
        assert heard.texts == ["one", "two"]

    scene(run)


def test_an_invitation_of_a_stranger_is_left_alone(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        async with person(made._server, "mallory") as mallory:
            strange = await mallory.room(made.user)
            room, heard = await alice.room(made.user), Heard()
            async with running(made.channel(welcome=lambda sender: sender == alice.user), heard):
                await alice.say(room, "hello")
                await heard.until(1)
            joined = await mallory.ask("GET", f"/rooms/{quote(strange)}/joined_members")
            assert list(joined["joined"]) == [mallory.user]

    scene(run)


def test_among_several_only_what_is_said_to_the_bot_is_for_it(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        heard, name = Heard(), made.user.removeprefix("@").partition(":")[0]
        async with person(made._server, "bob") as bob:
            room = await alice.room(made.user, bob.user)
            await bob.ask("POST", f"/join/{quote(room)}", {})
            async with running(made.channel(), heard):
                await alice.say(room, f"{made.user}: first")
                await heard.until(1)
                await bob.say(room, "hello everybody")
                await bob.say(room, "Bot: second", **{"m.mentions": {"user_ids": [made.user]}})
                await bob.say(room, f"{name}, third")
                words = await heard.until(3)
        assert heard.texts == ["first", "Bot: second", "third"]
        assert {arrived.sender for arrived in words} == {alice.user, bob.user}

    scene(run)


def test_it_shows_that_it_is_at_work(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        heard, channel = Heard(), made.channel()
        room = await alice.room(made.user)

        async def typing() -> list[str]:
            with anyio.fail_after(PATIENT):
                while True:
                    found = (await alice.sync()).get("rooms", {}).get("join", {}).get(room, {})
                    for event in found.get("ephemeral", {}).get("events", []):
                        if event["type"] == "m.typing":
                            return list(event["content"]["user_ids"])

        async with running(channel, heard):
            await alice.say(room, "hello")
            (arrived,) = await heard.until(1)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(channel.show_typing, arrived)
                assert await typing() == [made.user]
                tasks.cancel_scope.cancel()
            assert await typing() == []

    scene(run)


def test_a_giant_answer_comes_in_pieces_that_the_server_takes(scene: Scene) -> None:
    text = "\n\n".join(f"{number} " + "🦪ü" * 400 for number in range(40))

    async def run(alice: Person, made: Made) -> None:
        heard, channel = Heard(), made.channel(html=lambda text: text)
        room = await alice.room(made.user)
        async with running(channel, heard):
            await alice.say(room, "long, please")
            (arrived,) = await heard.until(1)
            for _ in range(2):
                await channel.send(arrived, text, id="a")
        assert "\n\n".join(await alice.all(room)) == text

    scene(run)


def test_a_room_that_was_left_is_gone(scene: Scene) -> None:
    async def run(alice: Person, made: Made) -> None:
        channel = made.channel()
        to = InboundMessage(channel="matrix", chat="!nowhere:nacre.test", sender=alice.user, id="$1", text="?")
        async with running(channel, Heard()):
            with pytest.raises(Gone, match="nowhere"):
                await channel.send(to, "hello?", id="a")

    scene(run)


def test_a_wrong_password_or_token_ends_the_channel(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{server.port}"
    monkeypatch.setenv("NACRE_MATRIX_PASSWORD", "hunter2")
    with pytest.raises(ConfigError, match="rejects the login of '@nobody:nacre"):
        anyio.run(
            ended,
            Matrix(Config(homeserver=address, user="@nobody:nacre.test"), state=FileDocument(str(tmp_path / "m"))),
        )
    monkeypatch.setenv("NACRE_MATRIX_TOKEN", "hunter2")
    with pytest.raises(ConfigError, match="token_file"):
        anyio.run(ended, Matrix(Config(homeserver=address), state=FileDocument(str(tmp_path / "m"))))
    monkeypatch.delenv("NACRE_MATRIX_TOKEN")
    with pytest.raises(ConfigError, match="NACRE_MATRIX_TOKEN"):
        Matrix(Config(homeserver=address), state=FileDocument(str(tmp_path / "m")))


# ---- a server that says what the test wants

TOKEN = "syt_very_secret"  # noqa: S105 - of no server


def simple(config_address: str, room: Path, retry: RetryPolicy = HASTY) -> Matrix:
    (room / "token").write_text(TOKEN)
    config = Config(homeserver=config_address, token_file=str(room / "token"))
    return Matrix(config, state=FileDocument(str(room / "matrix")), retry=retry)


def test_events_of_any_shape_do_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    odd: list[Any] = [None, 1, "x", [], {}, {"type": 1}, {"type": "m.room.message", "sender": "@a:b", "event_id": "$1"}]
    contents: tuple[Any, ...] = (None, [], {"body": 1}, {"msgtype": [], "body": "x"}, {"msgtype": "m.text", "body": ""})
    odd += [{"type": "m.room.message", "sender": "@a:b", "event_id": "$2", "content": content} for content in contents]
    odd += [
        {"type": "m.room.message", "sender": "\ud800", "event_id": "$3", "content": {"msgtype": "m.text", "body": "x"}}
    ]
    good = {"msgtype": "m.text", "body": "a\ud800\0b", "m.relates_to": {"rel_type": "m.thread", "event_id": {}}}
    odd += [
        {
            "type": "m.room.message",
            "sender": "@a:b",
            "event_id": "$4",
            "content": good | {"m.mentions": {"user_ids": 1}},
        }
    ]

    def answer(request: Request) -> Reply:
        path, _, query = request.path.partition("?")
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        if path.endswith("whoami"):
            return Reply({"user_id": "@bot:b"})
        if path.endswith("joined_members"):
            return Reply({"joined": {}})
        rooms = {"join": {"!r:b": {"timeline": {"events": odd}}, "!s:b": [], "\ud800": {}}, "invite": {"!t:b": 3}}
        return Reply({"next_batch": "s2", "rooms": rooms}) if "since=s1" in query else first(query)

    def first(query: str) -> Reply:
        return Reply(how="hold") if "since=s2" in query else Reply({"next_batch": "s1"})

    async def run() -> None:
        heard = Heard()
        async with scripted(answer) as server, running(simple(server.address, tmp_path), heard):
            await heard.until(1)
        assert heard.texts == ["a\ufffdb"]

    anyio.run(run)
    assert TOKEN not in caplog.text
    assert "httpx2" in caplog.text or "HTTP Request" in caplog.text


def test_a_room_that_the_server_refuses_to_tell_of_does_not_stop_all_others(tmp_path: Path) -> None:
    def said(number: int) -> list[Any]:
        content = {"msgtype": "m.text", "body": f"words {number}"}
        return [{"type": "m.room.message", "sender": "@a:b", "event_id": f"${number}", "content": content}]

    def answer(request: Request) -> Reply:
        path, _, query = request.path.partition("?")
        if "%21r%3Ab" in path or ("%21q%3Ab" in path and "messages" in path):
            return Reply({"errcode": "M_FORBIDDEN"}, status=403)
        if path.endswith("whoami"):
            return Reply({"user_id": "@bot:b"})
        if path.endswith("joined_members"):
            return Reply({"joined": {}})
        gap = {"events": said(2), "limited": True, "prev_batch": "p"}
        rooms = {"!r:b": {"timeline": {"events": said(1)}}, "!q:b": {"timeline": gap}}
        rooms |= {"!s:b": {"timeline": {"events": said(3)}}}
        if "since=s1" in query:
            return Reply({"next_batch": "s2", "rooms": {"join": rooms}})
        return Reply(how="hold") if "since=s2" in query else Reply({"next_batch": "s1"})

    async def run() -> None:
        heard = Heard()
        async with scripted(answer) as server, running(simple(server.address, tmp_path), heard):
            await heard.saw("words 3")
        assert heard.texts == ["words 2", "words 3"]

    anyio.run(run)


def test_a_server_in_trouble_is_asked_again_with_the_same_transaction(tmp_path: Path) -> None:
    troubles = iter([
        Reply(b"<html>", status=502),
        Reply({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1500}, status=429),
        Reply({}, status=429, headers={"retry-after": "7"}),
        Reply(how="cut"),
        Reply({"event_id": "$1"}),
    ])  # fmt: skip
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    def answer(request: Request) -> Reply:
        if "/send/" in request.path:
            return next(troubles)
        return Reply(how="hold") if "/sync" in request.path else Reply({"user_id": "@bot:b"})

    async def run() -> None:
        retry = RetryPolicy(first=0.001, limit=0.001, sleep=sleep)
        async with scripted(answer) as server, running(channel := simple(server.address, tmp_path, retry), Heard()):
            to = InboundMessage(channel="matrix", chat="!r/ü:b", sender="@a:b", id="$1", text="?")
            await channel.send(to, "words", id="a/1")
            assert channel.is_up
        sent = [request.path for request in server.asked if "/send/" in request.path]
        assert sent == [f"{API}/rooms/%21r%2F%C3%BC%3Ab/send/m.room.message/a%2F1"] * 5

    anyio.run(run)
    assert [wait for wait in waits if wait > 1] == [1.5, 7.0]


def test_a_server_that_is_away_for_too_long_is_a_channel_error(tmp_path: Path) -> None:
    async def run() -> None:
        channel = simple("http://127.0.0.1:9", tmp_path, RetryPolicy(first=0.01, outage=0.05))
        to = InboundMessage(channel="matrix", chat="!r:b", sender="@a:b", id="$1", text="?")
        async with running(channel, Heard()):
            with pytest.raises(ChannelError, match=":9"):
                await channel.send(to, "words", id="a")
            assert not channel.is_up

    anyio.run(run)
