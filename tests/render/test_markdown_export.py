"""A conversation as Markdown."""

from __future__ import annotations

from nacre.render.conversation import Cover, Cut, parts
from nacre.render.markdown import open_fence
from nacre.render.markdown_export import document
from tests.render.talk import NOW, call, listing, stored


def test_a_conversation_reads_from_top_to_bottom() -> None:
    cover = Cover(key="telegram:42", title="Tax", created=NOW, messages=4)
    assert "".join(document(cover, parts(listing(), cut=Cut(summary="Before.", hidden=2)))) == (
        "# Tax\n\n`telegram:42` · created 2026-11-15 18:00 UTC · 4 messages\n"
        "\n## summary · 2 messages before it\n\nBefore.\n"
        "\n## user · #2 · 2026-11-15 18:02 UTC\n\nwhat is **here**?\n"
        "\n## assistant · #3 · 2026-11-15 18:03 UTC · tiny\n"
        '\n**list_files**\n\n```\npath="."\n```\n\n→ #4\n\n```\na.py\nb.py\n```\n'
        "\n## assistant · #5 · 2026-11-15 18:05 UTC\n\nTwo files:\n\n- `a.py`\n- `b.py`\n"
    )


def test_a_fence_left_open_does_not_swallow_what_follows() -> None:
    messages = [stored(2, "user", "~~~py\nx"), stored(3, "user", "next")]
    text = "".join(document(Cover(key="k"), parts(messages)))
    assert "~~~py\nx\n~~~\n\n## user" in text


def test_that_an_answer_was_stopped_stands_outside_of_its_code() -> None:
    messages = [stored(2, "assistant", "So:\n\n```py\nx = 1\n\n[stopped by the user]")]
    text = "".join(document(Cover(key="k"), parts(messages)))
    assert text.endswith("So:\n\n```py\nx = 1\n```\n\n[stopped by the user]\n")


def test_a_result_with_fences_is_fenced_longer() -> None:
    messages = [
        stored(2, "assistant", tool_calls=(call("c", "read_file"),)),
        stored(3, "tool", "````\ninner\n```", tool_call_id="c"),
    ]
    text = "".join(document(Cover(key="k"), parts(messages)))
    assert "`````\n````\ninner\n```\n`````\n" in text
    assert open_fence(text) == ""


def test_control_characters_are_visible() -> None:
    evil = "\x1b[2J\u202e\x07"
    messages = [stored(2, evil, evil, reasoning=evil, model=evil, media=[evil]), stored(3, "tool", evil)]
    text = "".join(document(Cover(key=evil, title=evil), parts(messages, cut=Cut(summary=evil))))
    assert all(char == "\n" or char.isprintable() for char in text)
