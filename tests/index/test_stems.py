"""Stems are those of FTS5, and other forms are known."""

from __future__ import annotations

import re
import sqlite3
from itertools import product
from pathlib import Path

import nacre
from nacre.index.stems import irregular, is_stop_word, stem

_BEGINNINGS = ("", "b", "be", "tr", "hop", "happ", "relat", "control", "gener", "oscill", "syzyg", "vietnamiz", "qu")
_ENDINGS = (
    *("", "s", "es", "ies", "sses", "ed", "eed", "ing", "ating", "bling", "izing", "lling", "y", "ational", "tional"),
    *("enci", "anci", "izer", "logi", "bli", "alli", "entli", "eli", "ousli", "ization", "ation", "ator", "alism"),
    *("iveness", "fulness", "ousness", "aliti", "iviti", "biliti", "icate", "ative", "alize", "iciti", "ical", "ful"),
    *("ness", "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "sion", "tion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize", "e", "ee", "ll", "lle", "oe", "x" * 60, "ü", "ой"),
)


def test_stems_are_those_of_the_table() -> None:
    text = " ".join(path.read_text() for path in Path(nacre.__file__).parent.rglob("*.py"))
    words = set(re.findall("[a-z]+", text.lower())) | {"".join(pair) for pair in product(_BEGINNINGS, _ENDINGS)}
    listed = sorted(words - {""})
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5 (body, tokenize='porter unicode61 remove_diacritics 0')")
    connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab (words, instance)")
    connection.executemany("INSERT INTO words (rowid, body) VALUES (?, ?)", enumerate(listed))
    found = {listed[row]: term for term, row in connection.execute("SELECT term, doc FROM stems")}
    connection.close()
    assert {word: stem(word) for word in listed} == found


def test_irregular_forms_are_known_in_both_directions() -> None:
    assert irregular("mouse") == ["mice"]
    assert irregular("mice") == ["mouse"]
    assert set(irregular("goes")) >= {"went", "gone"}
    assert irregular("table") == []


def test_stop_words_are_no_names_of_things() -> None:
    assert all(map(is_stop_word, ("the", "what", "und", "avec", "para")))
    assert not any(map(is_stop_word, ("son", "door", "van", "code", "group", "die")))
