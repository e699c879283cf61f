"""IRC, with a real server and with one that says what the test wants."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.channels.channel import Absent, Doubtful, Gone, InboundMessage
from nacre.channels.channel_files import RetryPolicy, parse_settings
from nacre.channels.irc import Config, Pace
from nacre.channels.irc_lines import Incoming, Line, fold, outgoing, parse, plain
from nacre.errors import ChannelError, ConfigError
from tests.channels.irc_peers import Person, bot, person, saying, to_nick, welcome
from tests.channels.servers import PATIENT, Heard, Server, ended, ngircd, running

RIGHT = "right"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ngircd(tmp_path_factory.mktemp("ngircd")).running() as made:
        yield made


def test_a_private_message_is_accepted_once_and_its_answer_arrives_as_it_is(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "one")
        async with running(channel, heard), person("Bob", server.port) as bob:
            await bob.meets("one")
            bob.say("one", "grüß dich \x02fett\x02 \x0304rot")
            (arrived,) = await heard.until(1)
            assert arrived == InboundMessage(
                channel="irc",
                account="one@127.0.0.1",
                chat="bob",
                sender="bob",
                id=arrived.id,
                text="grüß dich fett rot",
                shown="Bob",
                handle="Bob",
            )
            await channel.send(arrived, "erste Zeile\n\n    zweite 🦪\nQUIT :x", id="a")
            assert await bob.hears(3) == ["erste Zeile", "    zweite 🦪", "QUIT :x"]
        assert heard.calls == 1

    anyio.run(run)


def test_in_a_channel_only_what_is_said_to_the_bot_is_for_it(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "two", channels=("#Two", "#keyed word"))
        async with person("carol", server.port, "#two", "#keyed word") as carol, running(channel, heard):
            await carol.line("JOIN")
            await carol.line("JOIN")
            for text in ("hello all", "two is a number", "two: first", "TWO, second", "@two third", "@two2 no", "two:"):
                carol.say("#two", text)
            carol.write("NOTICE two :not for bots")
            carol.say("two", "\x01VERSION\x01")
            carol.say("two", "\x01ACTION waves\x01")
            words = await heard.until(4)
            assert heard.texts == ["first", "second", "third", "*waves*"]
            assert [arrived.chat for arrived in words] == ["#two", "#two", "#two", "carol"]
            await channel.send(words[0], "here", id="a")
            assert (await carol.line("PRIVMSG")).params == ("#two", "carol: here")

    anyio.run(run)


def test_many_messages_keep_their_order(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "three")
        async with running(channel, heard), person("dave", server.port) as dave:
            await dave.meets("three")
            for number in range(300):
                dave.say("three", f"number {number}")
            words = await heard.until(300)
            assert heard.texts == [f"number {number}" for number in range(300)]
            assert len({arrived.id for arrived in words}) == 300
            for arrived in words[:100]:
                await channel.send(arrived, f"to {arrived.text}", id=arrived.id)
            assert await dave.hears(100) == [f"to number {number}" for number in range(100)]

    anyio.run(run)


def test_what_was_not_accepted_comes_again_under_the_same_id_after_a_restart(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        stuck, heard = Heard(stuck=True), Heard()
        async with person("erin", server.port) as erin:
            channel = bot(server.port, tmp_path, "four")
            async with running(channel, stuck):
                await erin.meets("four")
                erin.say("four", "first")
                erin.say("four", "second")
                await stuck.until(1)
                await erin.meets("four")
                # When the server has taken this, the bot has read all that came before.
                await channel.send(stuck.words[0], "one moment", id="a")
            async with running(bot(server.port, tmp_path, "four"), heard):
                words = await heard.until(2)
            assert heard.texts == ["first", "second"]
            assert words[0] == stuck.words[0]
            assert (tmp_path / "irc").read_bytes() == b""

    anyio.run(run)


def test_a_server_that_was_restarted_is_joined_again(tmp_path: Path) -> None:
    async def run() -> None:
        server = ngircd(tmp_path)
        heard, channel = Heard(), bot(server.port, tmp_path, "five", channels=("#five",))
        server.start()
        try:
            async with running(channel, heard):
                async with person("frank", server.port) as frank:
                    await frank.meets("five")
                server.stop()
                server.start()
                async with person("frank", server.port) as frank:
                    await frank.meets("five")
                    frank.write("JOIN #five")
                    while "five" not in (await frank.line("353")).param(-1).replace("@", " ").split():
                        frank.write("NAMES #five")
                    frank.say("#five", "five: again")
                    (arrived,) = await heard.until(1)
                    await channel.send(arrived, "back", id="a")
                    assert await frank.hears() == ["frank: back"]
        finally:
            server.stop()

    anyio.run(run)


def test_an_answer_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    async def run() -> None:
        server = ngircd(tmp_path)
        channel = bot(server.port, tmp_path, "six")
        to = InboundMessage(channel="irc", chat="grace", sender="grace", id="1", text="?", shown="grace")
        async with running(channel, Heard()), anyio.create_task_group() as tasks:

            async def answer() -> None:
                # A connection may break while the server starts, and grace comes later; the gateway does the same.
                with anyio.fail_after(PATIENT):
                    while True:
                        with suppress(Doubtful, Absent):
                            return await channel.send(to, "late", id="a")

            tasks.start_soon(answer)
            await asyncio.to_thread(server.start)
            try:
                async with person("grace", server.port) as grace:
                    assert (await grace.hears())[0].endswith("late")
            finally:
                server.stop()

    anyio.run(run)


def test_a_nick_in_use_is_replaced_and_taken_back_when_it_is_free(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "seven", pace=Pace(every=0.0, quiet=0.05))
        async with AsyncExitStack() as stack, person("heidi", server.port) as heidi:
            async with person("seven", server.port):
                await stack.enter_async_context(running(channel, heard))
                await heidi.meets("seven1")
                heidi.say("seven1", "hello")
                await heard.until(1)
            await heidi.misses("seven1")
            await heidi.meets("seven")
            heidi.say("seven", "hello again")
            await heard.until(2)

    anyio.run(run)


def test_a_long_line_is_cut_between_words_and_nothing_of_it_is_lost(server: Server, tmp_path: Path) -> None:
    text = " ".join(f"wörd{number}🦪" for number in range(400))

    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "eight")
        async with running(channel, heard), person("ivan", server.port) as ivan:
            await ivan.meets("eight")
            ivan.say("eight", "long, please")
            (arrived,) = await heard.until(1)
            await channel.send(arrived, text, id="a")
            lines = await ivan.hears(len(outgoing(text, "ivan", "eight")))
            assert " ".join(lines) == text
            assert len(lines) > 10

    anyio.run(run)


def test_bytes_that_are_no_text_do_no_harm(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "nine")
        async with running(channel, heard), person("judy", server.port) as judy:
            await judy.meets("nine")
            judy.write(b"PRIVMSG nine :\xff\xfe \x1b[31m\x07bell\xc3")
            judy.say("nine", "\u202e" + "x" * 460)
            words = await heard.until(2)
            assert words[0].text == "\ufffd\ufffd [31mbell\ufffd"
            await channel.send(words[0], "a\r\nQUIT\0\x01VERSION\x01\x1b", id="a")
            assert await judy.hears(2) == ["a", "QUITVERSION"]

    anyio.run(run)


def test_nothing_of_the_configuration_ends_a_line(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "plain", channels=("#plain\r\nNICK evil",))
        async with running(channel, heard), person("leo", server.port) as leo:
            await leo.meets("plain")
            leo.say("plain", "hello")
            (arrived,) = await heard.until(1)
            await channel.send(arrived, "still plain", id="a")
            assert (await leo.line("PRIVMSG")).nick == "plain"

    anyio.run(run)


def test_nobody_there_is_absent_and_what_is_no_name_is_gone(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        channel = bot(server.port, tmp_path, "ten")
        async with running(channel, Heard()), person("kate", server.port) as kate:
            await kate.meets("ten")
            for chat in ("nobody", "#nowhere"):
                with pytest.raises(Absent):
                    await channel.send(to_nick(chat), "hello?", id="a")
            for chat in ("a b", ":x"):
                with pytest.raises(Gone):
                    await channel.send(to_nick(chat), "hello?", id="a")

    anyio.run(run)


def test_somebody_who_shares_a_session_with_nobody_else_is_found_by_the_chat(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        channel = bot(server.port, tmp_path, "twelve")
        async with running(channel, Heard()), person("Judy", server.port) as judy:
            await channel.send(InboundMessage(channel="irc", chat="judy", sender="", id="", text=""), "morning", id="1")
            assert await judy.hears() == ["morning"]
            assert channel._connection is not None
            assert channel._connection._turns == {}

    anyio.run(run)


@pytest.mark.parametrize("nick", ["nacre", "abcdefgh1"], ids=["short", "like one of its variants"])
def test_where_every_nick_is_taken_few_are_tried(tmp_path: Path, nick: str) -> None:
    tried: list[str] = []

    async def refuse(client: Person) -> None:
        await client.line("CAP")
        client.write("CAP * LS :")
        while len(tried) < 50:
            tried.append((await client.line("NICK")).param(0))
            client.write(f"433 * {tried[-1]} :is taken")

    async def run() -> None:
        once = RetryPolicy(first=3600, limit=3600)
        async with saying(refuse) as port, running(bot(port, tmp_path, nick, retry=once), Heard()):
            with anyio.fail_after(PATIENT):
                while len(tried) < 10:  # noqa: ASYNC110 - the server has no event for that
                    await anyio.sleep(0.01)
            await anyio.wait_all_tasks_blocked()

    anyio.run(run)
    assert len(tried) == 10


def test_a_nick_is_taken_back_soon(server: Server, tmp_path: Path) -> None:
    """After a restart the server may still have the connection of before."""

    async def run() -> None:
        channel = bot(server.port, tmp_path, "fourteen", pace=Pace(every=0.0, quiet=3600, retake=0.05))
        async with person("mike", server.port) as mike, AsyncExitStack() as stack:
            async with person("fourteen", server.port):
                await stack.enter_async_context(running(channel, Heard()))
                await mike.meets("fourteen1")
            await mike.misses("fourteen1")
            await mike.meets("fourteen")

    anyio.run(run)


@pytest.mark.parametrize("table", [{"port": 65536}, {"port": -1}, {"channels": [" "]}])
def test_what_no_server_could_take_is_said_at_once(table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"\[channels.irc\] cannot be used"):
        parse_settings(Config, {"host": "irc.example.org", **table}, section="channels.irc")


def test_a_password_that_is_refused_ends_the_channel(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("wrong")
    with ngircd(tmp_path, Password=RIGHT).running() as server:
        channel = bot(server.port, tmp_path, "eleven", password_file=str(tmp_path / "secret"))
        with pytest.raises(ConfigError, match="password"):
            anyio.run(ended, channel)


def test_tls_is_spoken_and_a_strange_certificate_is_not_believed(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made with openssl, which is not on the path")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    key.chmod(0o644)

    async def run(server: Server) -> None:
        heard, waits = Heard(), anyio.Event()

        async def sleep(_: float) -> None:
            waits.set()
            await anyio.sleep(0.01)

        strange = bot(server.port, tmp_path, "twelve", tls=True, retry=RetryPolicy(sleep=sleep))
        async with running(strange, heard):
            await waits.wait()
        channel = bot(server.port, tmp_path, "twelve", tls=True, ca_file=str(certificate))
        to = InboundMessage(channel="irc", chat="twelve", sender="twelve", id="1", text="?", shown="twelve")
        async with running(channel, heard):
            await channel.send(to, "to myself", id="a")
        assert heard.words == []

    with ngircd(tmp_path, CertFile=str(certificate), KeyFile=str(key)).running() as server:
        anyio.run(run, server)


# ---- a server that says what the test wants


def test_ids_times_and_accounts_of_the_server_are_used_where_it_tells_them(tmp_path: Path) -> None:
    async def talk(client: Person) -> None:
        await welcome(client, "message-tags server-time account-tag batch")
        client.write("@msgid=a\\s1;account=Bob :B[ob!u@h PRIVMSG nacre :one")
        client.write("@msgid=b :mallory!u@h PRIVMSG nacre :without an account")
        for _ in range(2):
            client.write("@time=2026-01-01T00:00:00.000Z;account=Bob :B[ob!u@h PRIVMSG nacre :two")
        client.write("@msgid=c;account=Bob :B[ob!u@h PRIVMSG nacre :three")

    async def run() -> None:
        heard = Heard()
        async with saying(talk) as port, running(bot(port, tmp_path, "nacre", identify="account"), heard):
            words = await heard.until(3)
        assert heard.calls == 4
        assert [(arrived.sender, arrived.chat, arrived.shown) for arrived in words] == [("Bob", "Bob", "B[ob")] * 3
        assert words[0].id == "a 1"

    anyio.run(run)


@pytest.mark.parametrize(
    ("mapping", "heard"),
    [
        ("rfc1459", ["bob[m]", "bob[m]", "eve^", "eve^"]),
        ("rfc1459-strict", ["bob[m]", "bob[m]", "eve^", "eve~"]),
        ("ascii", ["bob[m]", "bob{m}", "eve^", "eve~"]),
    ],
)
def test_a_nick_of_the_configuration_is_whoever_the_server_takes_for_it(
    tmp_path: Path, mapping: str, heard: list[str]
) -> None:
    async def talk(client: Person) -> None:
        await welcome(client)
        client.write(f"005 nacre CASEMAPPING={mapping} :ok")
        for nick in ("Bob[m]", "Bob{m}", "Eve^", "Eve~"):
            client.write(f":{nick}!b@c PRIVMSG nacre :hi")

    async def run() -> None:
        told = Heard()
        async with saying(talk) as port, running(bot(port, tmp_path, "nacre", named=["bob[m]", "eve^"]), told):
            assert [arrived.sender for arrived in await told.until(4)] == heard

    anyio.run(run)


def test_sasl_logs_in_before_registration_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_IRC_PASSWORD", "s" * 300)
    seen: list[str] = []

    async def talk(client: Person) -> None:
        await client.line("CAP")
        client.write("CAP * LS :sasl=PLAIN,EXTERNAL")
        client.write(f"CAP * ACK :{(await client.line('CAP')).param(1)}")
        assert (await client.line("AUTHENTICATE")).params == ("PLAIN",)
        client.write("AUTHENTICATE +")
        seen.extend([(await client.line("AUTHENTICATE")).param(0) for _ in range(2)])
        client.write("904 nacre :no")

    async def run() -> None:
        async with saying(talk) as port:
            with pytest.raises(ConfigError, match="password"):
                await ended(bot(port, tmp_path, "nacre", login="me"))

    anyio.run(run)
    assert base64.b64decode("".join(part for part in seen if part != "+")) == b"me\0me\0" + b"s" * 300


@pytest.mark.parametrize(("more", "word"), [({"identify": "account"}, "accounts"), ({"login": "me"}, "SASL")])
def test_a_server_that_cannot_do_what_is_needed_ends_the_channel(
    more: dict[str, str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_IRC_PASSWORD", "x")

    async def run() -> None:
        async with saying(welcome) as port:
            with pytest.raises(ConfigError, match=word):
                await ended(bot(port, tmp_path, "nacre", **more))

    anyio.run(run)


def test_a_server_that_falls_silent_or_hangs_up_is_left_for_a_new_connection(tmp_path: Path) -> None:
    came: list[int] = []

    async def talk(client: Person) -> None:
        came.append(1)
        await welcome(client)
        if len(came) == 2:
            client.write("ERROR :Closing IrcConnection")
        if len(came) == 3:
            client.write(":a!b@c PRIVMSG nacre :at last")

    async def run() -> None:
        heard = Heard()
        async with saying(talk, silent=True) as port:
            channel = bot(port, tmp_path, "nacre", pace=Pace(every=0.0, quiet=0.02, answer=0.1))
            async with running(channel, heard):
                await heard.until(1)

    anyio.run(run)


def test_an_answer_that_may_have_been_heard_says_so_when_it_is_said_again(tmp_path: Path) -> None:
    said: list[str] = []

    async def talk(client: Person) -> None:
        await welcome(client)
        while True:
            said.extend(await client.hears())
            if len(said) == 1:
                client.write("ERROR :Closing IrcConnection")
                return
            client.write(f"PONG :{(await client.line('PING')).param(-1)}")

    async def run() -> None:
        async with saying(talk) as port:
            channel = bot(port, tmp_path, "nacre", pace=Pace(every=0.0, answer=5))
            assert not channel.is_up
            async with running(channel, Heard()):
                with pytest.raises(ChannelError, match="not known"):
                    await channel.send(to_nick("ann"), "words", id="a")
                while channel.is_up:
                    await anyio.lowlevel.checkpoint()
                await channel.send(to_nick("ann"), "words", id="a")
                await channel.send(to_nick("ann"), "more", id="b")
                assert channel.is_up

    anyio.run(run)
    assert said == ["words", "(again) words", "more"]


def test_a_line_without_end_is_left_out_and_the_next_is_heard(tmp_path: Path) -> None:
    async def talk(client: Person) -> None:
        await welcome(client)
        client.write(":a!b@c PRIVMSG nacre :" + "x" * 1_000_000)
        client.write(":a!b@c PRIVMSG nacre :short")

    async def run() -> None:
        heard = Heard()
        async with saying(talk) as port, running(bot(port, tmp_path, "nacre"), heard):
            await heard.until(1)
        assert heard.texts == ["short"]

    anyio.run(run)


def test_lines_go_out_at_the_pace_that_was_set(server: Server, tmp_path: Path) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> None:
        channel = bot(server.port, tmp_path, "paced", pace=Pace(burst=3, every=10.0, sleep=sleep))
        to = InboundMessage(channel="irc", chat="paced", sender="paced", id="1", text="?", shown="paced")
        async with running(channel, Heard()):
            await channel.send(to, "1\n2\n3\n4\n5", id="a")

    anyio.run(run)
    assert [round(wait) for wait in waits] == [0, 0, 0, 10, 20]


def test_no_secret_is_in_the_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    (tmp_path / "secret").write_text("hunter2")
    with ngircd(tmp_path, Password=RIGHT).running() as server:
        channel = bot(server.port, tmp_path, "eleven", password_file=str(tmp_path / "secret"))
        with pytest.raises(ConfigError) as raised:
            anyio.run(ended, channel)
    assert "hunter2" not in caplog.text + str(raised.value)


# ---- lines


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"PING", Line(command="PING")),
        (b"ping :a b\r", Line(command="PING", params=("a b",))),
        (b":n!u@h PRIVMSG #c ::)", Line(command="PRIVMSG", params=("#c", ":)"), prefix="n!u@h")),
        (b"  @a=1;b;c=x\\:y\\s\\\\ :s  001   n  : hi ", Line(
            command="001", params=("n", " hi "), prefix="s", tags={"a": "1", "b": "", "c": "x;y \\"}
        )),
        (b"", None),
        (b":only.prefix", None),
        (b"\xff\x00", Line(command="\ufffd")),
    ],
)  # fmt: skip
def test_a_line_is_taken_apart(raw: bytes, line: Line | None) -> None:
    assert parse(raw) == line


def test_lines_are_found_in_bytes_however_they_come() -> None:
    data = b"PING 1\r\nPING 2\n" + b"x" * 20_000 + b"\r\nPING 3\r\n"
    for size in (1, 3, 1000, len(data)):
        incoming = Incoming()
        found = [line for at in range(0, len(data), size) for line in incoming.feed(data[at : at + size])]
        assert [line.params for line in found] == [("1",), ("2",), ("3",)]


def test_no_line_is_longer_than_a_server_relays() -> None:
    for text in ("x" * 2000, "ü" * 2000, "🦪" * 2000, "a b " * 900, "\n\n \n"):
        lines = outgoing(text, "#channel", "nacre")
        assert all(len(f":nacre!~{'u' * 10}@{'h' * 63} {line}\r\n".encode()) <= 512 for line in lines)
        assert "".join(line.removeprefix("PRIVMSG #channel :") for line in lines).replace(" ", "") == "".join(
            text.split()
        )


def test_names_that_leave_no_room_in_a_line_leave_some() -> None:
    lines = outgoing("hello there " * 20, "#" + "c" * 500, "n" * 30, head="x" * 300, mark="| ")
    assert (
        "".join(line.partition(" :")[2].removeprefix("x" * 300).removeprefix("| ") for line in lines).count("hello")
        == 20
    )


def test_names_are_compared_as_the_server_does() -> None:
    assert fold("N[ic]k\\^Ä", "rfc1459") == "n{ic}k|~Ä"
    assert fold("N[ic]k^", "rfc1459-strict") == "n{ic}k^"
    for mapping in ("ascii", "rfc7613", "utf8"):
        assert fold("N[ic]k^", mapping) == "n[ic]k^"
    assert plain("\x0304,12a\x03b\x04ff00ffc\x0f\x1dd") == "abcd"
