"""A key's file name: no two keys share one, on any file system, and none leads elsewhere."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nacre.errors import InvalidKey
from nacre.storage.paths import is_log_name, key_of, log_stem, stem, stem_of_log

SETTINGS = settings(derandomize=True, deadline=None, max_examples=300)
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=1024)
ALIKE = st.text("aAbB:/\\_-.~ é\u0301", min_size=1, max_size=4)


@SETTINGS
@given(KEYS)
def test_a_name_is_short_lower_case_ascii_without_dots_or_slashes(key: str) -> None:
    assert re.fullmatch(r"[a-z0-9~][a-z0-9_~-]*", stem(key))
    assert len(f"{stem(key)}.jsonl") <= 120


@SETTINGS
@given(KEYS | ALIKE, KEYS | ALIKE)
@example("a:b", "a/b")
@example("a:b", "a_b")
@example("a", "A")
@example("é", "e\u0301")
@example("K", "\u212a")
@example("x" * 1024, "x" * 1023)
def test_distinct_keys_have_distinct_names(one: str, other: str) -> None:
    assume(one != other)
    assert stem(one) != stem(other)


@SETTINGS
@given(KEYS | ALIKE)
def test_the_name_of_a_name_is_another_unless_it_is_the_key(key: str) -> None:
    name = stem(key)
    assert name == key or stem(name) != name


@SETTINGS
@given(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True))
def test_a_plain_key_is_its_own_name(key: str) -> None:
    reserved = re.fullmatch(r"con|prn|aux|nul|(com|lpt)[0-9]", key)
    assert (stem(key) == key) is (reserved is None)
    assert key_of(key) == (None if reserved else key)


@pytest.mark.parametrize("key", ["con", "prn", "aux", "nul", "com1", "lpt9", "CON", "Nul", ".", "..", "-rf", "~"])
def test_a_name_that_means_something_to_a_system_is_not_used(key: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]*~[0-9a-f]{32}", stem(key))
    assert key_of(stem(key)) is None


@SETTINGS
@given(KEYS | ALIKE, KEYS | ALIKE)
@example("a", "A")
@example("a-b", "a b")
def test_the_log_of_every_session_has_a_name_that_is_only_its_own(one: str, other: str) -> None:
    log = log_stem(stem(one))
    assert re.fullmatch(r"[a-z0-9_-]*~[0-9a-f]{32}", log)
    assert is_log_name(log)
    assert stem_of_log(log) == stem(one)
    assert (log == log_stem(stem(other))) is (one == other)


@pytest.mark.parametrize(
    "name", ["discord_bob", "telegram_42", "a~b", "agent_main", "sk_v1_" + "0" * 64, "A~" + "0" * 32]
)
def test_a_name_of_an_earlier_agents_file_is_no_logs(name: str) -> None:
    assert not is_log_name(name)
    assert stem_of_log(name) == name


def test_names_never_change() -> None:
    assert stem("cli") == "cli"
    assert log_stem("cli") == "cli~be63cad463a503bd0eb0dc68fe7c6844"
    assert log_stem("telegram-42~ceb2ba478aaf22c22f9fc2d1f7c8fb21") == "telegram-42~ceb2ba478aaf22c22f9fc2d1f7c8fb21"
    assert stem("telegram:42") == "telegram-42~ceb2ba478aaf22c22f9fc2d1f7c8fb21"
    assert stem("../../Etc") == "etc~9d35065a956a96350f694f3d5c4b4ee3"
    assert stem("日本語") == "~7ce831c0ff398dc29f79baf7b2a79592"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "1 to 1024 characters"),
        ("x" * 1025, "this one has 1025"),
        ("a\0b", "must not contain NUL"),
        ("\ud800", "lone surrogate"),
        ("a\udfff", "lone surrogate"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_the_reason(key: str, reason: str) -> None:
    with pytest.raises(InvalidKey, match=reason):
        stem(key)


@pytest.mark.parametrize("key", [None, 42, b"cli"])
def test_what_is_no_text_is_refused(key: object) -> None:
    with pytest.raises(InvalidKey, match="must be text, not"):
        stem(key)


def test_the_longest_key_has_a_name() -> None:
    assert len(stem("字" * 1024)) == 33
    assert len(stem("x" * 1024)) == 73
