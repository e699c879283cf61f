"""Who is who on IRC: nicks change, and neither a session nor a right goes to whoever takes one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nacre.channels.channel import Absent
from nacre.channels.irc_lines import People
from tests.channels.irc_peers import Person, bot, person, saying, welcome
from tests.channels.servers import PATIENT, Heard, Server, ngircd, running

HERE = "#reef"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ngircd(tmp_path_factory.mktemp("ngircd")).running() as made:
        yield made


async def renamed(who: Person, nick: str) -> None:
    who.write(f"NICK {nick}")
    await who.line("NICK")


def test_a_person_is_followed_to_another_nick_with_session_and_answers(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "one", channels=(HERE,), named=["bob"])
        async with person("Bob", server.port, HERE) as bob, running(channel, heard):
            await bob.line("JOIN")
            bob.say("one", "first")
            bob.say(HERE, "one: second")
            first, second = await heard.until(2)
            await renamed(bob, "away")
            bob.say("one", "third")
            third = (await heard.until(3))[2]
            assert [each.sender for each in heard.words] == ["bob", "bob", "bob"]
            assert (third.chat, third.shown, third.handle) == ("bob", "away", "Bob")
            for number, to in enumerate((first, second, third)):
                await channel.send(to, f"answer {number}", id=str(number))
            assert await bob.hears(3) == ["answer 0", "away: answer 1", "answer 2"]

    anyio.run(run)


def test_who_takes_the_nick_of_somebody_who_is_here_has_neither_session_nor_rights_nor_answers(
    server: Server, tmp_path: Path
) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "two", channels=(HERE,), named=["owner"])
        async with (
            person("owner", server.port, HERE) as owner,
            person("mallory", server.port, HERE) as mallory,
            running(channel, heard),
        ):
            await owner.line("JOIN")
            await mallory.line("JOIN")
            owner.say("two", "my secret")
            (asked,) = await heard.until(1)
            await renamed(owner, "busy")
            await mallory.line("NICK")
            await renamed(mallory, "owner")
            mallory.say("two", "what did I say?")
            words = await heard.until(2)
            assert (words[1].shown, words[1].handle) == ("owner", "")
            assert words[1].sender == words[1].chat == "owner!~mallory@127.0.0.1"
            await channel.send(asked, "the secret", id="1")
            await channel.send(words[1], "nothing", id="2")
            assert await owner.hears() == ["the secret"]
            assert await mallory.hears() == ["nothing"]

    anyio.run(run)


def test_an_answer_waits_for_who_asked_and_not_for_whoever_has_the_nick(server: Server, tmp_path: Path) -> None:
    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "three", channels=(HERE,))
        async with person("watch", server.port) as watch, running(channel, heard):
            async with person("carol", server.port, HERE) as carol:
                await carol.line("JOIN")
                carol.say("three", "a question")
                (asked,) = await heard.until(1)
            await watch.misses("carol")
            with pytest.raises(Absent):
                await channel.send(asked, "the answer", id="1")
            async with person("eve", server.port) as eve:
                await renamed(eve, "carol")
                with pytest.raises(Absent):
                    await channel.send(asked, "the answer", id="1")
            await watch.misses("carol")
            async with person("carol", server.port) as carol:
                await channel.send(asked, "the answer", id="1")
                assert await carol.hears() == ["the answer"]

    anyio.run(run)


def test_a_nick_that_is_taken_before_a_word_was_said_is_what_the_person_is_called(
    server: Server, tmp_path: Path
) -> None:
    """Who comes as `dave_` because `dave` is still there for a moment, and then takes `dave`, is dave."""

    async def run() -> None:
        heard, channel = Heard(), bot(server.port, tmp_path, "four", channels=(HERE,), named=["dave"])
        async with person("dave_", server.port, HERE) as dave, running(channel, heard):
            await dave.line("JOIN")
            await renamed(dave, "dave")
            dave.say("four", "hello")
            (arrived,) = await heard.until(1)
            assert (arrived.sender, arrived.handle) == ("dave", "dave")

    anyio.run(run)


def test_who_left_gives_the_name_free_and_old_people_are_forgotten() -> None:
    people = People()
    one = people.hear("ann", shown="Ann", mask="a@h")
    people.rename("ann", "away", shown="away")
    assert people.hear("ann", shown="ann", mask="b@h").name == "ann!b@h"
    people.leave("away")
    assert not one.is_here
    assert people.hear("ann", shown="ann", mask="c@h").name == "ann"
    for number in range(2000):
        people.remember(f"s{number}", "n", people.hear(f"n{number}", shown="n", mask="m"))
    assert people.who_said("s0", "n") is None
    assert people.who_said("s1999", "n") is not None


# ---- what only newer servers say


def test_what_the_server_marks_as_a_bots_is_not_heard_and_we_mark_ourselves(tmp_path: Path) -> None:
    told: list[str] = []

    async def talk(client: Person) -> None:
        await welcome(client, "message-tags", "BOT=b")
        told.extend((await client.line("MODE")).params)
        for tag in ("bot", "draft/bot", "inspircd.org/bot"):
            client.write(f"@{tag} :r!u@h PRIVMSG nacre :I am one")
        client.write("@time=2026-01-01T00:00:00Z :a!u@h PRIVMSG nacre :I am not")

    async def run() -> None:
        heard = Heard()
        async with saying(talk) as port, running(bot(port, tmp_path, "nacre"), heard):
            await heard.until(1)
        assert heard.texts == ["I am not"]

    anyio.run(run)
    assert told == ["nacre", "+b"]


@pytest.mark.parametrize("offered", ["message-tags", "server-time"])
def test_typing_is_shown_where_the_server_passes_it_on_and_ends(tmp_path: Path, offered: str) -> None:
    seen: list[tuple[str, str]] = []
    done = anyio.Event()

    async def talk(client: Person) -> None:
        await welcome(client, offered)
        client.write(":Ann!u@h PRIVMSG nacre :hello")
        while len(seen) < 2:
            line = await client.line("TAGMSG")
            seen.append((line.param(0), line.tags["+typing"]))
        done.set()

    async def run() -> None:
        heard = Heard()
        async with saying(talk) as port:
            channel = bot(port, tmp_path, "nacre")
            async with running(channel, heard):
                (arrived,) = await heard.until(1)
                with anyio.move_on_after(0.05):
                    await channel.show_typing(arrived)
                if offered == "message-tags":
                    with anyio.fail_after(PATIENT):
                        await done.wait()

    anyio.run(run)
    assert seen == ([("Ann", "active"), ("Ann", "done")] if offered == "message-tags" else [])
