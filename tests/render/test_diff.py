"""Changes of a text as HTML."""

from __future__ import annotations

from nacre.render.changes import addition_html, edit_html, is_patch, patch_html
from tests.growth import assert_linear


def test_lines_are_taken_away_put_there_or_stay() -> None:
    assert edit_html("a\nb<\nc\n", "a\nB<\nc\n") == (
        '<pre class="diff" tabindex="0"><span> a\n</span><del>-b&lt;\n</del><ins>+B&lt;\n</ins><span> c\n</span></pre>'
    )


def test_many_lines_that_stay_are_left_out() -> None:
    many = "\n".join(map(str, range(50)))
    html = edit_html(f"{many}\nold", f"{many}\nnew")
    assert '<span class="hunk">… 47 lines\n</span>' in html
    assert html.count("<span>") == 3


def test_a_new_text_is_all_put_there() -> None:
    assert addition_html("a\n") == '<pre class="diff" tabindex="0"><ins>+a\n</ins></pre>'


def test_a_patch_is_known_and_drawn() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n"
    assert is_patch(text)
    assert not is_patch("--- a list\n- of things")
    html = patch_html(text)
    assert "<del>-old\n</del><ins>+new\n</ins><span> same\n</span>" in html
    assert html.count('class="hunk"') == 4


def test_large_texts_are_not_compared() -> None:
    many = "x\n" * 2000
    assert edit_html(many, many).count("<del>") == 2000


def test_lines_that_are_all_alike_are_compared_in_no_time() -> None:
    html = edit_html("a\n" * 1000, "a\nb\n" * 500)
    assert html.startswith('<pre class="diff" tabindex="0"><span> a\n</span>')
    assert_linear(lambda lines: edit_html(lines, lines.replace("a\na\n", "a\nb\n")), "a\n" * 1000)
