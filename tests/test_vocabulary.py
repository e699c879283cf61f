"""Words that the documentation and the source do not use, each with a plainer one to use instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = ("*.md", "docs/**/*.md", "src/**/*.py", "src/**/*.js", "src/**/*.css")
PAGES = sorted(page for root in ROOTS for page in ROOT.glob(root))


class Dropped(NamedTuple):
    """A pattern of whole words, in any case; `fine` is a use of them that is allowed."""

    pattern: str
    instead: str
    fine: str = ""


DROPPED = (
    # Old or literary words.
    # `x.anew` is a kind of record on disk, and `/beside/` an address of the page.
    Dropped("anew|afresh", "again, from the start", fine="x\\.anew"),
    Dropped("befell|befall|befalls|befallen", "happened to, happens to"),
    Dropped("whoever|whosoever|whomever", "anyone who, the caller, the process that"),
    Dropped("beside", "next to, besides, compared with", fine='/beside/|"beside"|dataset\\.beside'),
    # A list of stop words has "upon", and a lock of the kernel a field "whence".
    Dropped("lest|whilst|amid|amidst|amongst|unto|upon", "so that … not, while, among, on", fine="up upon us"),
    Dropped("whence|hence|thence|hither|thither", "so, therefore, from there", fine='"whence"'),
    Dropped("(?:there|where)(?:of|in|upon|with|unto)", "of it, in it, in which"),
    Dropped("nought|naught|aught", "nothing, anything"),
    Dropped("seldom|nigh|oft", "rarely, nearly, often"),
    Dropped("for ever", "forever, without limit"),
    Dropped("as ever", "as usual, as before"),
    Dropped("furnish|furnishes|furnished|befit|befits", "provide, suit"),
    Dropped("yardstick", "comparison, measure"),
    Dropped("led astray|leads astray", "misled"),
    # Phrases that a reader with another first language has to guess.
    Dropped("(?:is|are|was|were|be|been|being)(?: not| only| never)? told", "is given, is reported, learns, gets"),
    Dropped("(?:let|lets|letting) go", "release, close, drop"),
    Dropped("(?:look|looks|looking) after (?:it|them|the)|looked after", "maintain, manage"),
    Dropped("(?:at|in) hand", "available, in memory"),
    Dropped("(?:can|cannot|could|may|to) be had", "is available"),
    Dropped("wherever [\\w ]+ stands", "in every place that has"),
    Dropped("what [\\w ]+ makes? of", "the result of"),
    Dropped("(?:at most|only|after) so many", "at most N, a maximum"),
    # "Behind" is a place: of a proxy, or what someone left there. A message comes after another.
    Dropped(
        "behind",
        "after, below",
        fine="behind[ -](?:(?:a|an|the|this|your|such a)[ -])?(?:reverse )?(?:proxy|proxies|nginx|Caddy)"
        "|(?:leave|leaves|left|leaving|lag|lags|fall|falls|fallen)[ _](?:\\w+ ){0,3}behind",
    ),
    # Private names for what the field has a word for.
    # Memory knows the word as one that people use.
    Dropped("wish|wishes|wished", "operation, want", fine="\\|wish"),
    Dropped("\\w*_told|told_\\w*", "a verb: report, notify"),
    Dropped("keepsakes?", "kept text"),
    Dropped("manners", "access, rules"),
    Dropped("turnstiles?", "queue, admission"),
    Dropped("glances?|glanced", "look, overview"),
    Dropped("sieves?|sieved", "filter"),
    Dropped("ledgers?", "record, log"),
    Dropped("twins?", "copy, counterpart, the same page as Markdown"),
    # "stranger" is a value of the interface: a file that is not nacre's, and a sender who may not write.
    Dropped("strangers?", "unknown user, other program", fine='[`"]stranger[`"]'),
    Dropped("(?-i:Desk|Letter)", "ports, request"),
)


def uses(page: Path, word: Dropped) -> list[int]:
    """The lines of a page that use a dropped word."""
    pattern = re.compile(rf"(?<![^\W_])(?:{word.pattern})(?![^\W_])", re.IGNORECASE)
    lines = page.read_text().splitlines()
    if word.fine:
        lines = [re.sub(word.fine, "", line, flags=re.IGNORECASE) for line in lines]
    return [number for number, line in enumerate(lines, 1) if pattern.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_no_dropped_word(page: Path) -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}: {word.pattern!r}: say {word.instead}"
        for word in DROPPED
        for number in uses(page, word)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ["The index is made anew.", "a keepsake", "on_told", "The caller is not told.", "behind the log"]
)
def test_a_dropped_word_is_found(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"A line.\n{text}\n")
    assert [number for word in DROPPED for number in uses(page, word)] == [2]


@pytest.mark.parametrize(
    "text", ["He told me.", "besides", "behind a proxy", "leaves nothing behind", "a letter", "a desk"]
)
def test_a_word_in_its_normal_use_is_not(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert not any(uses(page, word) for word in DROPPED)
