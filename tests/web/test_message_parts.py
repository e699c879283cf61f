"""What tools did, as the pages show it: runs, changes, colours, pictures and files."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import nacre
from nacre.messages import Message, ToolCall
from nacre.sessions import Sessions
from tests.web.browser.site import asked, called, got, returned, said


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        yield found


def ran(sessions: Sessions, count: int, *, failed: int = -1) -> None:
    """Messages that do nothing but call, and the answer."""
    sessions.add_message("k", "user", "go")
    for at in range(count):
        sessions.add_messages("k", [called(f"c{at}", "read_file", path=f"{at}.txt")])
        sessions.add_messages("k", [returned(f"c{at}", "read_file", "text", failed=at == failed)])
    sessions.add_message("k", "assistant", "done")


# ---- runs


def test_many_calls_are_one_line(sessions: Sessions) -> None:
    ran(sessions, 14)
    html = got(sessions, "/s/k")
    assert '<details class="run" id="r3"><summary><b>14 tool calls</b> <i>read_file ×14' in html
    assert html.count('class="assistant compact"') == 14


def test_a_run_with_a_failure_says_so_and_is_open(sessions: Sessions) -> None:
    ran(sessions, 5, failed=3)
    html = got(sessions, "/s/k")
    assert '<details class="run" id="r3" open><summary><b>5 tool calls</b>, <em>1 failed</em>' in html
    assert html.count('class="failed" open') == 1


def test_two_calls_are_not_a_run(sessions: Sessions) -> None:
    ran(sessions, 2)
    assert "tool calls" not in got(sessions, "/s/k")


def test_a_run_ends_where_something_is_said(sessions: Sessions) -> None:
    ran(sessions, 3)
    ran(sessions, 4)
    assert re.findall(r"<b>(\d) tool calls", got(sessions, "/s/k")) == ["3", "4"]


def test_many_calls_of_one_message_that_speaks_are_folded_inside_it(sessions: Sessions) -> None:
    calls = tuple(ToolCall(id=str(at), name="shell", arguments={"command": "ls"}) for at in range(3))
    sessions.add_messages("k", [Message(role="assistant", content="I look.", tool_calls=calls)])
    assert "no result yet" in got(sessions, "/s/k")
    sessions.add_message("k", "user", "well?")
    html = got(sessions, "/s/k")
    assert '<details class="run" id="c2"><summary><b>3 tool calls</b>, <em>3 without result</em>' in html
    assert html.index("I look.") < html.index('id="c2"')


# ---- changes and colours


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a.py", "old_text": "one\ntwo\n", "new_text": "one\n2\n"},
        {"path": "a.py", "old_string": "one\ntwo\n", "new_string": "one\n2\n"},
        '{"path": "a.py", "old_text": "one\\ntwo\\n", "new_text": "one\\n2\\n"}',
        {"patch": "--- a\n+++ b\n one\n-two\n+2\n"},
    ],
)
def test_an_edit_is_shown_as_what_it_changes(sessions: Sessions, arguments: Any) -> None:
    call = ToolCall(id="e", name="edit_file", arguments=arguments)
    sessions.add_messages("k", [Message(role="assistant", content="", tool_calls=(call,))])
    html = got(sessions, "/s/k")
    assert "<del>-two\n</del><ins>+2\n</ins>" in html
    assert "<span> one\n</span>" in html


def test_arguments_that_are_nested_too_deep_to_be_read_are_shown_as_their_text(sessions: Sessions) -> None:
    call = ToolCall(id="e", name="edit_file", arguments="[" * 5000)
    sessions.add_messages("k", [Message(role="assistant", content="", tool_calls=(call,))])
    assert "[[[[[[" in got(sessions, "/s/k")


def test_a_written_file_and_other_arguments_are_shown(sessions: Sessions) -> None:
    sessions.add_messages("k", [called("w", "write_file", path="a.py", content="x = 1\n", mode="0644")])
    html = got(sessions, "/s/k")
    assert "<ins>+x = 1\n</ins>" in html
    assert '<pre tabindex="0">mode=&quot;0644&quot;</pre>' in html


def test_output_has_its_colours_and_its_line_has_none(sessions: Sessions) -> None:
    sessions.add_messages("k", [called("a", "shell", command="ls"), returned("a", "shell", "\x1b[31m<b>\x1b[0m ok")])
    html = got(sessions, "/s/k")
    assert '<pre tabindex="0"><span class="fg1">&lt;b&gt;</span> ok</pre>' in html
    assert "<i>→</i> &lt;b&gt; ok <i>" in html


def test_what_git_shows_is_drawn(sessions: Sessions) -> None:
    text = "diff --git a/x b/x\n@@ -1 +1 @@\n-old\n+new\n"
    sessions.add_messages("k", [called("a", "shell", command="git diff"), returned("a", "shell", text)])
    assert "<del>-old\n</del><ins>+new\n</ins>" in got(sessions, "/s/k")


# ---- pictures and files


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * width) * height, 0))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


def address(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def attached(sessions: Sessions, part: Any, **message: Any) -> tuple[str, httpx.Response]:
    """A message with one attachment: its page, and what is sent for it."""
    given = {"content": [{"type": "text", "text": "look"}, part], **message}
    sessions.add_full_message("a/b", Message(role="user", **given))
    html = got(sessions, "/s/a%2Fb")
    found = re.search(r'(?:src|href)="(/blob/[^"]+)"', html)

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get(found[1].replace("&amp;", "&") if found else "/blob/a%2Fb?n=2&part=1")

    return html, asked(sessions, ask)


PICTURE = png(3, 2)
DATA = base64.b64encode(PICTURE).decode()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": address("image/png", PICTURE)}},
        {"type": "input_image", "image_url": address("image/png", PICTURE)},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "image", "data": DATA, "mimeType": "image/png"},
        {"type": "image_url", "image_url": {"url": address("text/html", PICTURE)}},
    ],
)
def test_a_picture_is_shown_when_it_comes_into_view(sessions: Sessions, part: Any) -> None:
    html, answer = attached(sessions, part)
    assert re.search(
        r'<img src="/blob/a%2Fb\?[^"]+" alt="Picture, \d+ B" loading="lazy"[^>]* width="3" height="2">', html
    )
    assert (answer.content, answer.headers["content-type"]) == (PICTURE, "image/png")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_picture_that_is_stored_apart_is_shown(sessions: Sessions) -> None:
    large = png(300, 300)
    html, answer = attached(sessions, {"type": "image_url", "image_url": {"url": address("image/png", large)}})
    assert 'width="300" height="300"' in html
    assert answer.content == large


def test_a_picture_among_media_is_shown(sessions: Sessions) -> None:
    html, answer = attached(sessions, {"type": "text", "text": "!"}, media=(address("image/png", PICTURE),))
    assert 'width="3" height="2"' in html
    assert answer.content == PICTURE


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"),
        ("text/html", b"<script>alert(1)</script>"),
        ("image/png", b"<script>alert(1)</script>"),
        ("application/pdf", b"%PDF-1.7"),
    ],
)
def test_everything_else_is_a_file_to_keep(sessions: Sessions, kind: str, data: bytes) -> None:
    part = {"type": "file", "file": {"filename": 'a"\r\nb.x', "file_data": address(kind, data)}}
    html, answer = attached(sessions, part)
    assert "<img" not in html
    assert answer.content == data
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%22%5Cx0d"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_picture_elsewhere_is_linked_and_not_loaded(sessions: Sessions) -> None:
    html, answer = attached(sessions, {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}})
    assert '<a href="https://x.example/a.png" rel="noopener noreferrer nofollow">' in html
    assert "<img" not in html
    assert answer.status_code == 404


def seen(id: str) -> Message:
    """A result with a picture, as an MCP server gives one."""
    part = {"type": "image", "data": DATA, "mimeType": "image/png"}
    return Message(role="tool", tool_call_id=id, name="look", content=[{"type": "text", "text": "seen"}, part])


def test_a_result_shows_its_picture_while_it_is_folded(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "look"), called("a", "look"), seen("a")])
    html = got(sessions, "/s/k")
    assert html.count("<img") == 1
    assert re.search(r'<details id="4">(?:(?!<img).)*</details><p class="picture">', html, re.DOTALL)


def test_a_result_with_a_picture_is_not_folded_into_a_run(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "look")])
    for at in range(7):
        answer = seen("c3") if at == 3 else returned(f"c{at}", "look", "")
        sessions.add_messages("k", [called(f"c{at}", "look"), answer])
    html = got(sessions, "/s/k")
    assert html.count("<b>3 tool calls</b>") == 2
    shown = html.index("<img")
    assert html.count('<details class="run"', 0, shown) == 1
    assert html.rindex('<article id="9" class="assistant"', 0, shown) > html.rindex("compact", 0, shown)


def test_many_calls_of_one_message_show_their_pictures_below(sessions: Sessions) -> None:
    calls = tuple(ToolCall(id=f"c{at}", name="look", arguments={}) for at in range(3))
    sessions.add_messages("k", [Message(role="assistant", tool_calls=calls), *(seen(f"c{at}") for at in range(3))])
    html = got(sessions, "/s/k")
    assert html.count("<img") == 3
    assert html.index("</details></details>") < html.index("<img")


def test_broken_data_is_named(sessions: Sessions) -> None:
    html, answer = attached(sessions, {"type": "image_url", "image_url": {"url": "data:image/png;base64,&&&&"}})
    assert "[image/png, " in html
    assert answer.status_code == 404


def test_a_files_name_is_no_longer_than_a_head_may_be(sessions: Sessions) -> None:
    part = {"type": "file", "filename": "n" * 300_000, "file_data": "data:text/plain;base64,aGk="}
    sessions.add_messages("k", [Message(role="user", content=[part])])

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/blob/k?n=2&part=1")

    answer = asked(sessions, ask)
    assert (answer.status_code, len(answer.headers["content-disposition"]) < 1000) == (200, True)
