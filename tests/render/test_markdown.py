"""Markdown as models write it: what each piece of it is taken for."""

from __future__ import annotations

import pytest

from nacre.render.html import html
from nacre.render.markdown import (
    Code,
    Definitions,
    Heading,
    Item,
    Line,
    Listing,
    Paragraph,
    Quote,
    Table,
    blocks,
    open_fence,
    parse,
)
from nacre.render.spans import BOLD, CODE, ITALIC, STRUCK, Span, is_linkable, spans
from nacre.render.text import visible
from tests.growth import assert_linear


def test_blocks_are_told_apart() -> None:
    text = "# Title\ntext\n\n> said\n\n---\n```py\nx = 1\n```"
    assert blocks(text) == (
        Heading(1, "Title"),
        Paragraph("text"),
        Quote((Paragraph("said"),)),
        Line(),
        Code("py", "x = 1"),
    )


def test_a_fence_that_is_never_closed_runs_to_the_end() -> None:
    assert blocks("```\na\n# b") == (Code("", "a\n# b"),)
    assert open_fence("```\na\n# b") == "```"
    assert open_fence("~~~~\na\n~~~\n~~~~") == ""


def test_tabs_in_code_stay_tabs() -> None:
    assert blocks("```make\nall:\n\techo\n```") == (Code("make", "all:\n\techo"),)


def test_indented_lines_are_code() -> None:
    assert blocks("a\n\n    b\n\n      c\n\nd\n    e") == (Paragraph("a"), Code("", "b\n\n  c"), Paragraph("d\n    e"))


def test_a_line_below_a_paragraph_makes_it_a_heading() -> None:
    assert blocks("A\n===\nB\nC\n--\n\n---") == (Heading(1, "A"), Heading(2, "B\nC"), Line())


def test_items_hold_blocks_of_their_own() -> None:
    (found,) = blocks("1. one\n   ```\n   code\n   ```\n2. two\n   - inner\n\n   more")
    assert found == Listing(
        (
            Item("1.", (Paragraph("one"), Code("", "code"))),
            Item("2.", (Paragraph("two"), Listing((Item("-", (Paragraph("inner"),)),)), Paragraph("more"))),
        )
    )


def test_another_sort_of_list_is_another_list() -> None:
    assert [type(block) for block in blocks("- a\n\n- b\n\n1. c\n\ntext")] == [Listing, Listing, Paragraph]
    assert len(blocks("- a\n* b\n1. c\n2) d")) == 4


def test_text_goes_on_with_an_item_without_indentation() -> None:
    assert blocks("- a\nb") == (Listing((Item("-", (Paragraph("a\nb"),)),)),)


def test_a_table_is_rows_of_cells() -> None:
    assert blocks("| a | b |\n|---|:-:|\n| 1 | x \\| y |\nend") == (
        Table((("a", "b"), ("1", "x | y")), ("", "center")),
        Paragraph("end"),
    )


def test_a_line_with_a_bar_is_no_table() -> None:
    assert blocks("a | b\nc | d") == (Paragraph("a | b\nc | d"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", [Span("plain")]),
        ("a **b** c", [Span("a "), Span("b", BOLD), Span(" c")]),
        ("*a* _b_ ~~c~~", [Span("a", ITALIC), Span(" "), Span("b", ITALIC), Span(" "), Span("c", STRUCK)]),
        ("***a***", [Span("a", BOLD | ITALIC)]),
        ("**a *b***", [Span("a ", BOLD), Span("b", BOLD | ITALIC)]),
        ("`**a**`", [Span("**a**", CODE)]),
        ("``a ` b``", [Span("a ` b", CODE)]),
        ("a `b", [Span("a `b")]),
        ("snake_case_name 2 * 3 * 4", [Span("snake_case_name 2 * 3 * 4")]),
        ("**a `b`**", [Span("a ", BOLD), Span("b", BOLD | CODE)]),
        ("\\*a\\*", [Span("*a*")]),
        ("*a **b*", [Span("*a *"), Span("b", ITALIC)]),
        ("&lt;b&gt; &copy; &nothing;", [Span("<b> © &nothing;")]),
        ("**注意。**这是", [Span("注意。", BOLD), Span("这是")]),
    ],
)
def test_spans_have_styles(text: str, expected: list[Span]) -> None:
    assert list(spans(text)) == expected


@pytest.mark.parametrize(
    "formula",
    [
        "$x$",
        "$a_1 * b_1 * c$",
        "$\\frac{1}{2}$",
        "$$\n\\sum_{i=1}^n a_i * b_i * c_i\n$$",
        "\\(a_1 + b_1 * c*d\\)",
        "\\[\n\\begin{aligned}\na_1 &= b \\\\\nc_1 &= d\n\\end{aligned}\n\\]",
    ],
)
def test_a_formula_stays_as_it_is_written(formula: str) -> None:
    assert list(spans(f"So {formula}, then.")) == [Span("So "), Span(formula, CODE), Span(", then.")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from $5 to $10 or 5$ **each**", [Span("from $5 to $10 or 5$ "), Span("each", BOLD)]),
        ("$5 or *at most* 6$", [Span("$5 or "), Span("at most", ITALIC), Span(" 6$")]),
        ("$HOME/bin:$PATH ${a}-${b} $(x)$(y)", [Span("$HOME/bin:$PATH ${a}-${b} $(x)$(y)")]),
        (
            "\\[not a link\\] \\(an aside of *mine*\\)",
            [Span("[not a link] (an aside of "), Span("mine", ITALIC), Span(")")],
        ),
        ("`$x_1$` costs \\$1", [Span("$x_1$", CODE), Span(" costs $1")]),
    ],
)
def test_what_only_has_such_signs_is_no_formula(text: str, expected: list[Span]) -> None:
    assert list(spans(text)) == expected


@pytest.mark.parametrize(
    ("text", "label", "address"),
    [
        ("[a](https://x.org/y_(z))", "a", "https://x.org/y_(z)"),
        ('[a](https://x.org "title")', "a", "https://x.org"),
        ("<https://x.org>", "https://x.org", "https://x.org"),
        ("https://x.org/y.", "https://x.org/y", "https://x.org/y"),
        ("(https://x.org/y)", "https://x.org/y", "https://x.org/y"),
        ("![alt](http://x.org/i.png)", "alt", "http://x.org/i.png"),
        ("[![alt](http://x.org/i.png)](http://x.org)", "alt", "http://x.org"),
        ("<a@x.org>", "a@x.org", "mailto:a@x.org"),
        ("[https://x.org](https://x.org/a)", "https://x.org", "https://x.org/a"),
        ("http://[::1]:80/a]", "http://[::1]:80/a", "http://[::1]:80/a"),
        ("[a](<https://x.org/a b>)", "a", "https://x.org/a%20b"),
    ],
)
def test_links_keep_their_address(text: str, label: str, address: str) -> None:
    assert [(span.text, span.address) for span in spans(text) if span.address] == [(label, address)]


def test_the_label_of_a_link_has_styles() -> None:
    assert list(spans("[a **b**](https://x.org) c")) == [
        Span("a ", address="https://x.org"),
        Span("b", BOLD, "https://x.org"),
        Span(" c"),
    ]


def test_links_by_label_are_defined_anywhere() -> None:
    found = parse("[a][1]\n\n> [1]: https://x.org 'title'\n> [2]: <b>")
    assert found.blocks == (Paragraph("[a][1]"), Quote((Definitions("[1]: https://x.org 'title'\n[2]: <b>"),)))
    assert list(spans("[a][1]", found.references)) == [Span("a", address="https://x.org")]
    assert list(spans("[a][1]")) == [Span("[a][1]")]


@pytest.mark.parametrize("text", ["&#27;[2J", "&#x1b;", "&#x202e;", "&#155;", "[a](&#27;)", "&NewLine;", "&#10;"])
def test_an_entity_is_no_way_around_what_is_made_visible(text: str) -> None:
    for span in spans(text):
        assert visible(span.text + span.address) == span.text + span.address
        assert "\n" not in span.text


@pytest.mark.parametrize("address", ["https://x.org", "HTTP://x.org", "mailto:a@x.org"])
def test_pages_and_letters_may_be_opened(address: str) -> None:
    assert is_linkable(address)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//x.org",
        "/x",
        "java\tscript:x",
        "\x01https://x.org",
        "https:x",
    ],
)
def test_nothing_else_may_be(address: str) -> None:
    assert not is_linkable(address)


@pytest.mark.parametrize(
    "piece",
    [
        "*a **b ",
        "_a ",
        "[",
        "[a](b ",
        "[a](b(c)",
        "`a``b",
        ">",
        "- ",
        "|",
        "~~a",
        "![a",
        "```\n",
        "1. a\n\n",
        "http://a)",
        "$a",
        "$$a",
        "$a_ $",
        "\\(a",
        "\\[a\n",
        "\\(a\\",
        *("[a](", "[a]", "[[a]", "[a]]", "![](", "[a](b)[", "[a](b '", "[a](b (", "[a](<b", "[a](((", "[a]( "),
        *("*_", "a**b*", "***a** ", "*a***b", "*a_", "**a*", "~~~~a ", "中**", "*(", "_*a"),
        *("&", "&#1", "<a@", "<http://", "http://a]", "http://[a", "\\\n", "\\"),
        *("> a\nb\n", "- - - ", "-\n\n", "    a\n\n", "a\n=\n", "a|b\n-|-\n", "* a\n+ b\n", "# # "),
        *("[a]: b\n", "[a]: <b", "[a][1]\n\n[1]: b\n\n"),
    ],
)
def test_hostile_repetition_is_read_in_time_that_grows_with_it_alone(piece: str) -> None:
    assert_linear(html, piece * 10_000)
    assert_linear(spans, piece * 10_000)


def test_short_rows_of_a_wide_table_do_not_become_many_times_their_size() -> None:
    head = f"|{'a|' * 60}\n|{'-|' * 60}\n"
    first, *rest = blocks(head + "|a\n" * 10_000 + f"\n{head}" + "|a\n" * 10_000)
    assert isinstance(first, Table)
    assert sum(len(row) for table in (first, *rest) if isinstance(table, Table) for row in table.rows) < 12_000
    assert sum(one.text.count("|a") for one in rest if isinstance(one, Paragraph)) > 19_000


def test_deep_nesting_becomes_text() -> None:
    found = blocks(">" * 1000 + "deep")
    depth = 0
    while isinstance(found[0], Quote):
        found, depth = found[0].blocks, depth + 1
    assert depth == 8
    assert isinstance(found[0], Paragraph)
    assert found[0].text.endswith(">deep")
