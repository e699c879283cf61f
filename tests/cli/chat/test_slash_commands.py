"""The commands of a conversation, typed by a script into the real thing without a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

import nacre
from nacre.cli.chat.chat_session import Talk
from nacre.cli.chat.reader import About, Line
from nacre.cli.chat.repl import Repl
from nacre.cli.chat.screen import Screen
from nacre.cli.chat.slash_commands import COMMANDS, Command
from nacre.cli.output import Out
from nacre.cli.verbs import Flags
from nacre.providers.scripted import Scripted
from tests.cli.chat.agents import running

KEY = "talk"


class Typist:
    """Types lines one after the other, and keeps what is shown."""

    reads_ahead = is_released = False

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.shown: list[str] = []
        self.drafts: list[str] = []

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def released(self) -> AbstractContextManager[None]:
        return nullcontext()

    def resume(self) -> None:
        return

    def alert(self, text: str) -> None:
        self.shown.append(f"bell: {text}")

    async def read(self, draft: str = "") -> Line:
        self.drafts.append(draft)
        line = next(self._lines, None)
        if line is None:
            raise EOFError
        return Line(line)

    async def ask(self, question: str, answers: Collection[str], about: About | None = None) -> str:
        return "no"

    def show(self, lines: Sequence[str]) -> None:
        self.shown += lines

    def refresh(self) -> None:
        return


class Ended:
    """What was seen in a conversation, and the session it ended in."""

    def __init__(self, typist: Typist, talk: Talk) -> None:
        self.text = "\n".join(typist.shown)
        self.words = " ".join(self.text.split())
        self.drafts = typist.drafts
        self.key = talk.key


def talked(
    root: Path | str, *lines: str, answers: Sequence[Any] = ("One.", "Two.", "Three."), system: str = ""
) -> Ended:
    async def run() -> Ended:
        async with running(root, Scripted(answers), system=system) as app:
            typist = Typist(lines)
            screen = Screen(app, Out(Flags()), folder=Path())
            talk = Talk(app, screen, key=KEY, make_reader=lambda _: typist)
            await Repl(talk).run()
            return Ended(typist, talk)

    return anyio.run(run)


def said(root: Path, key: str = KEY) -> list[Any]:
    with nacre.open(root) as sessions:
        return [message.content for message in sessions.get_history(key)]


def test_every_command_is_explained(root: Path) -> None:
    text = talked(root, "/help").text
    assert all(f"/{name}" in text for name in COMMANDS)
    wanted = "help new sessions resume fork rewind undo diff compact context cost tools skills model attach export"
    assert list(COMMANDS) == [*wanted.split(), "archive", "exit"]


def test_undo_takes_the_last_turn_back_and_rewind_back_brings_it_again(root: Path) -> None:
    ended = talked(root, "first", "second", "/undo")
    assert said(root) == ["first", "One."]
    assert ended.drafts[-1] == "second"
    talked(root, "third", "/undo", "/rewind back")
    assert said(root) == ["first", "One.", "third", "One."]


SUMMARY = "The user said first, and was answered with One. Nothing else has happened since then."


def test_compact_summarises_all_but_the_last_turn_and_is_undone(root: Path) -> None:
    ended = talked(root, "first", "second", "/compact the first", answers=("One.", "Two.", SUMMARY))
    assert SUMMARY in ended.text
    assert "tokens became" in ended.text
    assert said(root) == ["second", "Two."]
    assert "the model sees 2 messages again" in talked(root, "/compact --undo").text
    assert said(root) == ["first", "One.", "second", "Two."]


def test_compact_preview_changes_nothing(root: Path) -> None:
    ended = talked(root, "first", "second", "/compact --preview", answers=("One.", "Two.", SUMMARY))
    assert "tokens would become" in ended.text
    assert said(root) == ["first", "One.", "second", "Two."]


def test_compact_knows_no_other_option(root: Path) -> None:
    ended = talked(root, "first", "second", "/compact --foo", answers=("One.", "Two.", SUMMARY))
    assert "/compact takes --preview or --undo, not --foo" in ended.text
    assert said(root) == ["first", "One.", "second", "Two."]


def test_compact_says_if_there_is_nothing_to_do(root: Path) -> None:
    assert "nothing to summarise" in talked(root, "first", "/compact").text


def test_rewind_goes_to_before_a_message(root: Path) -> None:
    with nacre.open(root) as sessions:
        for text in ("first", "second", "third"):
            sessions.add_message(KEY, "user", text)
            sessions.add_message(KEY, "assistant", f"{text}!")
    listed = talked(root, "/rewind").text
    assert [line.split() for line in listed.split("\n") if line.startswith("  #")] == [
        ["#2", "first"],
        ["#4", "second"],
        ["#6", "third"],
    ]
    talked(root, "/rewind 4")
    assert said(root) == ["first", "first!"]


def test_rewind_to_the_first_message_leaves_nothing(root: Path) -> None:
    talked(root, "first", "/undo")
    assert said(root) == []


def test_what_was_stored_with_the_system_prompt_is_taken_back_too(root: Path) -> None:
    assert "×" not in talked(root, "first", "/undo", system="You are kind.").text
    assert said(root) == []


def test_words_said_during_a_turn_are_taken_back_with_it(root: Path) -> None:
    with nacre.open(root) as sessions:
        call = nacre.ToolCall(id="1", name="look", arguments={})
        sessions.add_message(KEY, "user", "look")
        sessions.add_full_message(KEY, nacre.Message(role="assistant", tool_calls=(call,)))
        sessions.add_full_message(KEY, nacre.Message(role="tool", tool_call_id="1", content="x"))
        sessions.add_message(KEY, "user", "in French")
        sessions.add_message(KEY, "assistant", "x, en effet")
    talked(root, "/undo")
    assert said(root) == []


def test_there_is_nothing_to_undo_at_first(root: Path) -> None:
    assert "× there is nothing to undo yet" in talked(root, "/undo").text
    assert "there is no message '7' of yours" in talked(root, "/rewind 7").text
    assert "there is no rewind to undo" in talked(root, "/rewind back").text


def test_a_fork_leaves_the_other_as_it_is(root: Path) -> None:
    ended = talked(root, "first", "/fork", "second")
    assert ended.key == f"{KEY}-2"
    assert said(root) == ["first", "One."]
    assert said(root, f"{KEY}-2") == ["first", "One.", "second", "Two."]


def test_a_new_session_begins_empty(root: Path) -> None:
    ended = talked(root, "first", "/new", "second")
    assert ended.key.startswith("chat-")
    assert said(root, ended.key) == ["second", "Two."]


def test_a_session_is_resumed_by_the_row_of_the_list(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message("older", "user", "are you there?")
    ended = talked(root, "/sessions", "/resume @1")
    assert ended.key == "older"
    assert "the last turn was interrupted; finishing it" in ended.text
    assert said(root, "older") == ["are you there?", "One."]


def test_a_turn_that_runs_elsewhere_is_not_taken_for_an_unfinished_one(root: Path) -> None:
    with nacre.open(root) as sessions:
        sessions.add_message(KEY, "user", "are you there?")
        hold = sessions.hold(KEY)
        hold.take()
        text = talked(root).text
        hold.close()
    assert "another process is running a turn in this session" in text
    assert said(root) == ["are you there?"]


def test_an_unknown_session_is_an_error_and_nothing_changes(root: Path) -> None:
    ended = talked(root, "/resume nowhere")
    assert "there is no session 'nowhere'" in ended.text
    assert ended.key == KEY


def test_an_archived_session_can_be_found_again(root: Path) -> None:
    ended = talked(root, "first", "/archive")
    assert ended.key != KEY
    with nacre.open(root) as sessions:
        assert [info.key for info in sessions.list(archived=True)] == [KEY]
    assert talked(root, "/new", f"/resume {KEY}").key == KEY


def test_files_go_along_with_the_next_message_only(root: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    talked(root, f"/attach {tmp_path}/notes.txt", f"/attach {tmp_path}/dot.png", "what is it?", "and now?")
    first, _, second, _ = said(root)
    assert [part["type"] for part in first] == ["text", "image_url", "text"]
    assert "buy milk" in first[0]["text"]
    assert first[1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert second == "and now?"


@pytest.mark.parametrize(("name", "complaint"), [("none", "cannot be read"), ("blob.bin", "neither text nor an image")])
def test_what_cannot_be_attached_is_told(root: Path, tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "blob.bin").write_bytes(b"\xff\xfe\x00\x01")
    assert complaint in talked(root, f"/attach {tmp_path}/{name}").words


def test_a_session_is_exported_once_and_never_over_another_file(root: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "talk.html", tmp_path / "talk.md"
    ended = talked(root, "first", f"/export {page}", f"/export {text}", f"/export {text}")
    assert page.read_text().startswith("<!doctype html>")
    assert "One." in text.read_text()
    assert "exists already; nothing was written" in ended.words
    assert "--force" not in ended.words


def test_models_are_listed_and_changed(root: Path) -> None:
    text = talked(root, "/model", "/model test/two").text
    assert "test/one" in text
    assert "test/two answers from now on" in text


def test_tools_and_skills_are_listed(root: Path) -> None:
    text = talked(root, "/tools", "/skills").text
    assert "shell for tests" in text
    assert "there are no skills" in text


def test_a_mistyped_command_is_not_sent_to_the_model(root: Path) -> None:
    assert "did you mean /sessions?" in talked(root, "/session").text
    with nacre.open(root) as sessions:
        assert list(sessions.list()) == []


def test_a_path_is_no_command(root: Path) -> None:
    talked(root, "/etc/passwd is what?", " /help me")
    assert said(root) == ["/etc/passwd is what?", "One.", "/help me", "Two."]


def test_a_bug_in_a_part_does_not_end_the_conversation(root: Path) -> None:
    ended = talked(root, "first", "second", answers=[RuntimeError("oops"), "Two."])
    assert "a bug in nacre: RuntimeError: oops" in ended.text
    assert "Two." in ended.text


def test_a_bug_in_a_command_does_not_either(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setitem(COMMANDS, "tools", Command(run=broken, meaning=""))
    ended = talked(root, "/tools", "first")
    assert "a bug in nacre: RuntimeError: oops" in ended.text
    assert "One." in ended.text


def test_a_title_is_given_once(root: Path) -> None:
    talked(root, "what is the\nweather like", "and tomorrow?")
    with nacre.open(root) as sessions:
        assert sessions.get_meta(KEY)["title"] == "what is the weather like"


def test_everything_works_without_a_disk() -> None:
    ended = talked(":memory:", "first", "/undo", "again", "/fork", "/sessions", "/rewind")
    assert ended.key == f"{KEY}-2"
    assert "×" not in ended.text
