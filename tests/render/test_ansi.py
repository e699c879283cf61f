"""Terminal output as HTML: colours kept, nothing else of it obeyed, no text lost or hidden."""

from __future__ import annotations

import random

import pytest

from nacre.render.html import ansi, plain
from nacre.render.html_page import style
from tests.growth import assert_linear


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain <b>", "plain &lt;b&gt;"),
        ("\x1b[31mred\x1b[0m not", '<span class="fg1">red</span> not'),
        ("\x1b[1;4;92mall\x1b[22;24;39m none", '<span class="fg10 bold under">all</span> none'),
        ("\x1b[38;5;208m256\x1b[38;2;250;1;1mtrue", '<span class="fg3">256</span><span class="fg9">true</span>'),
        ("\x1b[38:5:12mcolons", '<span class="fg12">colons</span>'),
        ("\x1b[31;41mhidden\x1b[m", '<span class="bg1">hidden</span>'),
        ("\x1b[8mconcealed", "concealed"),
        ("\x1b[7minverse \x1b[33mof yellow", '<span class="inverse">inverse </span><span class="bg3">of yellow</span>'),
        ("\x1b]0;title\x07a\x1b[2J\x1b[1;1Hb\x1b(Bc", "abc"),
        ("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r20%\r\x1b[Kdone\r\nnext", "done\nnext"),
        ("abcdef\rXY", "XYcdef"),
        ("\x1b[99999999999999m unknown", " unknown"),
        ("cut \x1b[", "cut "),
        ("bell\x07 back\x08", "bell\\x07 back\\x08"),
    ],
)
def test_colours_become_classes_and_the_rest_is_dropped(text: str, html: str) -> None:
    assert ansi(text) == html


def test_what_is_left_is_all_of_the_text() -> None:
    assert plain("\x1b[1mone\x1b[0m\r\n\x1b[2Ktwo") == "one\ntwo"


def test_no_output_can_break_out() -> None:
    random_ = random.Random(4)
    for _ in range(2000):
        text = "".join(random_.choices("\x1b[]0;1m38:5\r\n<>&\"'\x07\\Kab\u202e", k=40))
        left = ansi(text)
        for tag in ("</span>", *{f'<span class="{name}">' for name in _classes(left)}):
            left = left.replace(tag, "")
        assert not set(left) & set("<>\"'\x1b\x07\u202e"), repr(text)


def test_every_class_has_a_style() -> None:
    names = {name for number in range(256) for name in _classes(ansi(f"\x1b[38;5;{number}mx\x1b[0;48;5;{number}mx"))}
    names |= {name for number in range(108) for group in _classes(ansi(f"\x1b[{number}mx")) for name in group.split()}
    assert [name for name in names if f".{name}{{" not in style()] == []


def _classes(html: str) -> set[str]:
    return {piece.partition('"')[0] for piece in html.split('<span class="')[1:]}


def test_a_sequence_with_very_many_codes_takes_no_longer_than_its_text() -> None:
    assert ansi(f"\x1b[{'0;' * 400_000}31mred") == '<span class="fg1">red</span>'
    assert_linear(lambda codes: ansi(f"\x1b[{codes}31mred"), "0;" * 400_000)
