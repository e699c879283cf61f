"""Telegram, with an independent fake of its API and with one that says what the test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from nacre.channels.channel import Gone, InboundMessage, Later
from nacre.channels.channel_files import RetryPolicy
from nacre.channels.telegram import Config, Telegram, to_markdown_v2
from nacre.errors import ChannelError, ConfigError
from nacre.storage.documents import FileDocument
from tests.channels.servers import HASTY, PATIENT, Heard, Reply, Request, Server, ended, running, scripted, telegram

TOKEN = "4242:very-secret"  # noqa: S105 - of no bot
ONE, TWO, THREE, UNKNOWN = "1:a", "2:a", "3:a", "5:secretive"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with telegram(request.config, tmp_path_factory.mktemp("telegram")).running() as made:
        yield made


def bot(address: str, room: Path, *, retry: RetryPolicy = HASTY, token: str = TOKEN, **more: Any) -> Telegram:
    (room / "token").write_text(token)
    clock = {"clock": more.pop("clock")} if "clock" in more else {}
    config = Config(address=address, token_file=str(room / "token"), **more)
    return Telegram(config, state=FileDocument(str(room / "telegram")), retry=retry, **clock)


class Person:
    """Somebody who writes to a bot of the fake."""

    def __init__(self, server: Server, token: str) -> None:
        self._token = token
        self._client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def say(self, text: str) -> None:
        sender = {"id": 7, "first_name": "Bob", "username": "bob", "is_bot": False}
        body = {"botToken": self._token, "from": sender, "chat": {"id": 7, "type": "private"}, "date": 1, "text": text}
        (await self._client.post("/sendMessage", json=body)).raise_for_status()

    async def heard(self) -> list[dict[str, Any]]:
        """What the bot said, and how."""
        answer = await self._client.post("/getUpdates", json={"token": self._token, "chatId": 7})
        return [found["message"] for found in answer.json()["result"]]


@asynccontextmanager
async def person(server: Server, token: str) -> AsyncIterator[Person]:
    made = Person(server, token)
    yield made
    await made.close()


def test_a_message_is_accepted_once_and_its_answer_arrives_as_it_is(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(f"http://127.0.0.1:{server.port}", tmp_path, token=ONE, markdown=False)
        async with running(channel, heard), person(server, ONE) as bob:
            await bob.say("grüß dich 🦪")
            (arrived,) = await heard.until(1)
            assert (arrived.channel, arrived.account, arrived.chat, arrived.thread) == ("telegram", "666", "7", "")
            assert (arrived.sender, arrived.shown, arrived.text) == ("7", "bob", "grüß dich 🦪")
            await channel.send(arrived, "auch *dir*\n\n<b>", id="a")
            await channel.send(arrived, "auch *dir*\n\n<b>", id="a")
            assert [(said["chat_id"], said["text"]) for said in await bob.heard()] == [("7", "auch *dir*\n\n<b>")]
        assert heard.calls == 1

    anyio.run(run)


def test_many_messages_keep_their_order_and_long_answers_come_in_pieces(server: Server, tmp_path: Path) -> None:
    text = "\n\n".join(f"{number} " + "🦪ü" * 300 for number in range(20))

    async def run() -> None:
        heard, channel = Heard(), bot(f"http://127.0.0.1:{server.port}", tmp_path, token=TWO, markdown=False)
        async with running(channel, heard), person(server, TWO) as bob:
            for number in range(150):
                await bob.say(str(number))
            words = await heard.until(150)
            assert heard.texts == [str(number) for number in range(150)]
            await channel.send(words[0], text, id="a")
            said = [piece["text"] for piece in await bob.heard()]
        assert "\n\n".join(said) == text
        assert all(len(piece.encode("utf-16-le")) <= 2 * 4096 for piece in said)

    anyio.run(run)


def test_a_server_that_was_restarted_is_asked_again(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async def run(server: Server) -> None:
        heard, channel = Heard(), bot(f"http://127.0.0.1:{server.port}", tmp_path, token=THREE)
        async with running(channel, heard), person(server, THREE) as bob:
            await bob.say("before")
            await heard.until(1)
            server.stop()
            with anyio.fail_after(PATIENT):
                while channel.is_up:
                    await anyio.lowlevel.checkpoint()
            server.start()
            # The fake counts from one again; these two are known, and the third is new.
            for text in ("x", "y", "after"):
                await bob.say(text)
            await channel.send(await heard.saw("after"), "here", id="a")
            assert channel.is_up
            assert [said["text"] for said in await bob.heard()] == ["here"]

    with telegram(request.config, tmp_path).running() as server:
        anyio.run(run, server)


# ---- a server that keeps its updates until they are acknowledged, as Telegram does


class Fake:
    """Telegram's side of the wire: updates stay until an offset confirms them."""

    def __init__(self, updates: Sequence[Any], sent: Callable[[Request], Reply] | None = None) -> None:
        self.updates = list(updates)
        self._sent = sent or (lambda _: Reply({"ok": True, "result": {}}))

    def __call__(self, request: Request) -> Reply:
        method = request.path.rpartition("/")[2]
        if request.path != f"/bot{TOKEN}/{method}":
            return Reply({"ok": False, "error_code": 404, "description": "Not Found"}, status=404)
        if method == "getMe":
            return Reply({"ok": True, "result": {"id": 42, "is_bot": True, "username": "NacreBot", "first_name": "N"}})
        if method in ("sendMessage", "sendChatAction"):
            return self._sent(request)
        self.updates = [update for update in self.updates if _number(update) >= request.body["offset"]]
        return Reply({"ok": True, "result": self.updates}) if self.updates else Reply(how="hold")


def _number(update: Any) -> int:
    return int(update["update_id"]) if isinstance(update, dict) and "update_id" in update else 10**9


def said(number: int, text: str, **more: Any) -> dict[str, Any]:
    sender = {"id": 7, "first_name": "Bob", "is_bot": False}
    message = {"message_id": number, "from": sender, "chat": {"id": 7, "type": "private"}, "date": 1, "text": text}
    return {"update_id": number, "message": message | more}


def test_what_was_not_accepted_comes_again_under_the_same_id_and_what_was_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        stuck, heard = Heard(stuck=True), Heard()
        fake = Fake([said(1, "first"), said(2, "second")])
        async with scripted(fake) as server:
            async with running(bot(server.address, tmp_path), stuck):
                await stuck.until(1)
            async with running(bot(server.address, tmp_path), heard):
                words = await heard.until(2)
                assert words[0] == stuck.words[0]
                await polled(server.paths, 3)
            async with running(bot(server.address, tmp_path), heard):
                await polled(server.paths, 4)
            assert fake.updates == []
        assert [request.body["offset"] for request in server.paths("getUpdates")] == [0, 0, 3, 3]
        assert heard.calls == 2

    anyio.run(run)


async def polled(paths: Callable[[str], list[Request]], count: int, method: str = "getUpdates") -> None:
    with anyio.fail_after(PATIENT):
        while len(paths(method)) < count:
            await anyio.lowlevel.checkpoint()


def test_a_place_that_is_a_week_old_or_another_bots_is_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "telegram"

    async def run(first: str, now: float) -> int:
        place.write_text(first)
        async with scripted(Fake([])) as server, running(bot(server.address, tmp_path, clock=lambda: now), Heard()):
            await polled(server.paths, 1)
        return int(server.paths("getUpdates")[0].body["offset"])

    kept = '{"bot": 42, "offset": 9, "heard": 1000.0}'
    assert anyio.run(run, kept, 2000.0) == 9
    assert anyio.run(run, kept, 1000.0 + 7 * 86400) == 0
    assert anyio.run(run, '{"bot": 1, "offset": 9, "heard": 1000.0}', 2000.0) == 0
    assert anyio.run(run, '{"bot": 42, "off', 2000.0) == 0
    assert (tmp_path / "telegram.unreadable").read_text() == '{"bot": 42, "off'


def test_in_a_group_only_what_is_said_to_the_bot_is_for_it(tmp_path: Path) -> None:
    group = {"chat": {"id": -100, "type": "supergroup"}}
    of_bot = {"reply_to_message": {"from": {"id": 42, "first_name": "N"}, "message_id": 1, "chat": {"id": -100}}}
    updates = [
        said(1, "hello all", **group),
        said(2, "@nacrebot first", **group),
        said(3, "what says @NacreBot to it?", **group),
        said(4, "third", **group, **of_bot),
        said(5, "/new@NacreBot now", **group),
        said(6, "/new@OtherBot", **group),
        said(7, "@nacrebot2 no", **group),
        said(8, "@nacrebot topic", **group, message_thread_id=77, is_topic_message=True),
    ]

    async def run() -> None:
        heard = Heard()
        async with scripted(Fake(updates)) as server, running(channel := bot(server.address, tmp_path), heard):
            words = await heard.until(5)
            await channel.send(words[0], "here", id="a")
            await channel.send(words[4], "there", id="b")
        assert heard.texts == ["first", "what says @NacreBot to it?", "third", "/new now", "topic"]
        one, two = (request.body for request in server.paths("sendMessage"))
        assert one["reply_parameters"] == {"message_id": 2, "allow_sending_without_reply": True}
        assert (words[4].thread, two["message_thread_id"], two["chat_id"]) == ("77", 77, "-100")

    anyio.run(run)


def test_updates_of_any_shape_do_no_harm_and_are_not_asked_for_again(tmp_path: Path) -> None:
    bots = said(6, "beep", **{"from": {"id": 8, "first_name": "B", "is_bot": True}})
    odd: list[Any] = [{"update_id": 1}, {"update_id": 2, "message": []}, {"update_id": 3, "message": {"text": {}}}]
    odd += [said(4, ""), {"update_id": 5, "edited_message": said(5, "x")["message"]}, bots]
    odd += [said(7, "", caption="a\ud800\0b\x1b[0m"), said(8, "x" * 100_000)]

    async def run() -> None:
        heard = Heard()
        async with scripted(Fake([*odd, said(9, "end")])) as server, running(bot(server.address, tmp_path), heard):
            await heard.until(3)
            await polled(server.paths, 2)
        assert heard.texts == ["a\ufffdb[0m", "x" * 100_000, "end"]
        assert server.paths("getUpdates")[1].body["offset"] == 10

    anyio.run(run)


TO = InboundMessage(channel="telegram", chat="7", sender="7", id="7.1", text="?")


def sending(
    tmp_path: Path, replies: Sequence[Reply], text: str, *, times: int = 1, **more: Any
) -> tuple[Any, list[float]]:
    """What is sent for an answer to these replies, and how long was waited."""
    left, waits = iter(replies), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> list[Any]:
        async with scripted(Fake([], lambda _: next(left))) as server:
            channel = bot(server.address, tmp_path, retry=RetryPolicy(first=0.001, limit=0.001, sleep=sleep), **more)
            try:
                for last in range(times, 0, -1):
                    try:
                        await channel.send(TO, text, id="a")
                    except ChannelError:
                        if last == 1:
                            raise
            finally:
                await channel.close()
            return [request.body for request in server.paths("sendMessage")]

    return anyio.run(run), waits


OK = Reply({"ok": True, "result": {}})


def refused(status: int, text: str, **parameters: Any) -> Reply:
    return Reply({"ok": False, "error_code": status, "description": text, "parameters": parameters}, status=status)


def test_who_sends_is_told_when_telegram_asks_to_wait_and_nobody_else_waits(tmp_path: Path) -> None:
    with pytest.raises(Later, match="wait 17 seconds") as raised:
        sending(tmp_path, [refused(429, "Too Many Requests: retry after 17", retry_after=17)], "words")
    assert raised.value.wait == 17.0


def test_typing_is_shown_until_it_is_cancelled_and_a_refusal_of_it_is_no_matter(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        to = InboundMessage(channel="telegram", chat="-7", thread="3", sender="7", id="-7.1", text="?")
        replies = iter([OK, refused(403, "Forbidden")])
        async with scripted(Fake([], lambda _: next(replies))) as server:
            channel = bot(server.address, tmp_path)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(channel.show_typing, to)
                    await polled(server.paths, 1, "sendChatAction")
                    tasks.cancel_scope.cancel()
                await channel.show_typing(to)
            finally:
                await channel.close()
            return [request.body for request in server.paths("sendChatAction")]

    assert anyio.run(run) == [{"chat_id": "-7", "action": "typing", "message_thread_id": 3}] * 2


def test_markup_that_telegram_does_not_take_is_sent_as_plain_text(tmp_path: Path) -> None:
    bodies, _ = sending(tmp_path, [refused(400, "Bad Request: can't parse entities: x"), OK], "**so**")
    assert [(body["text"], body.get("parse_mode")) for body in bodies] == [("*so*", "MarkdownV2"), ("**so**", None)]


def test_a_piece_that_was_sent_is_not_sent_again(tmp_path: Path) -> None:
    text = "a" * 4000 + "\n" + "b" * 4000
    bodies, _ = sending(tmp_path, [OK, Reply(how="cut"), OK], text, times=2, markdown=False)
    assert [body["text"][:9] for body in bodies] == ["a" * 9, "b" * 9, "(again) b"]


def test_code_that_is_sent_again_stays_code(tmp_path: Path) -> None:
    bodies, _ = sending(tmp_path, [Reply(how="cut"), OK], "```\nx\n```", times=2)
    assert [body["text"] for body in bodies] == ["```\nx\n```", "\\(again\\) \n```\nx\n```"]


def test_words_that_may_have_been_sent_are_not_sent_again_by_themselves(tmp_path: Path) -> None:
    for trouble in (Reply(how="cut"), Reply(b"<html>", status=502)):
        with pytest.raises(ChannelError, match="not known"):
            sending(tmp_path, [trouble], "words")


def test_a_chat_that_shut_the_bot_out_is_gone(tmp_path: Path) -> None:
    with pytest.raises(Gone, match="blocked"):
        sending(tmp_path, [refused(403, "Forbidden: bot was blocked by the user")], "words")


def test_an_answer_that_nobody_was_there_to_take_is_in_doubt_no_more(tmp_path: Path) -> None:
    replies = [Reply(how="cut"), refused(403, "Forbidden: bot was blocked by the user"), OK]
    bodies, _ = sending(tmp_path, replies, "words", times=3)
    assert [body["text"] for body in bodies] == ["words", "\\(again\\) words", "words"]


@pytest.mark.parametrize("status", [401, 404])
def test_an_answer_waits_for_a_token_that_telegram_knows(tmp_path: Path, status: int) -> None:
    with pytest.raises(ChannelError, match="nothing was sent") as raised:
        sending(tmp_path, [refused(status, "Unauthorized")], "words")
    assert not isinstance(raised.value, Gone)


def test_code_that_is_cut_is_code_in_both_pieces(tmp_path: Path) -> None:
    text = "```python\n" + "x = 1\n" * 1000 + "```\nend"
    bodies, _ = sending(tmp_path, [OK] * 3, text)
    assert all(body["text"].startswith("```python\n") and "\n```" in body["text"] for body in bodies)
    assert all(len(body["text"]) <= 4096 for body in bodies)
    assert len(bodies) == 2


def test_an_unknown_token_ends_the_channel_and_is_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)

    async def run() -> None:
        async with scripted(Fake([said(1, "x")])) as server:
            heard = Heard()
            async with running(bot(server.address, tmp_path), heard):
                await heard.until(1)
            with pytest.raises(ConfigError) as raised:
                await ended(bot(server.address, tmp_path, token=UNKNOWN))
            assert "secretive" not in str(raised.value)

    anyio.run(run)
    assert "HTTP Request" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("plain", "plain"),
        ("1. a-b (c) _d_ *e* [f] g! h=i #j a|b {k} ~l~ >m \\n", None),
        ("**bold** and **a_b**", "*bold* and *a\\_b*"),
        ("`a_b\\` c.", "`a_b\\\\` c\\."),
        ("# Title.\ntext", "*Title\\.*\ntext"),
        ("[a.b](https://x.y/z?q=1)", "[a\\.b](https://x.y/z?q=1)"),
        ("```py\na_b `c` **d**\n```\ne.", "```py\na_b \\`c\\` **d**\n```\ne\\."),
        ("```\nopen.", "```\nopen.```"),
        ("** not bold ** 2*3*4", "\\*\\* not bold \\*\\* 2\\*3\\*4"),
    ],
)
def test_markdown_is_marked_up_as_telegram_wants_it(text: str, marked: str | None) -> None:
    expected = marked or "".join(f"\\{char}" if char in "_*[]()~`>#+-=|{}.!\\" else char for char in text)
    assert to_markdown_v2(text) == expected
