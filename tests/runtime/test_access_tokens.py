"""Tokens of the HTTP interface: made once, kept by their hashes, revoked for good."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
from pathlib import Path

import pytest

from nacre.errors import ConfigError, Conflict, InvalidArgument
from nacre.runtime.access_tokens import FILE, Tokens


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(str(tmp_path / "store"))


def test_a_token_has_256_bits_and_only_its_hash_is_kept(tmp_path: Path, tokens: Tokens) -> None:
    secret = tokens.add("bob", "guest")
    file = tmp_path / "store" / FILE
    assert re.fullmatch(r"nacre_[\w-]{43}", secret)
    assert secret != tokens.add("eve", "guest")
    assert secret[6:] not in file.read_text()
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "store", file.parent, file)] == [0o700, 0o700, 0o600]


def test_a_token_is_known_by_what_it_is(tokens: Tokens) -> None:
    secret = tokens.add("bob", "guest", agent="clerk")
    found = tokens.find(secret)
    assert found is not None
    assert (found.name, found.role, found.agent) == ("bob", "guest", "clerk")
    assert [tokens.find(wrong) for wrong in ("", "bob", secret[:-1], f"{secret}x", found.digest, "ü\udcff")] == [
        None
    ] * 6


def test_what_another_process_does_counts_at_once(tmp_path: Path, tokens: Tokens) -> None:
    other = Tokens(str(tmp_path / "store"))
    assert tokens.get("bob") is None
    secret = other.add("bob", "guest")
    assert tokens.find(secret) is not None
    other.revoke("bob")
    assert (tokens.find(secret), tokens.get("bob")) == (None, None)


def test_a_name_is_taken_by_one_token(tokens: Tokens) -> None:
    tokens.add("bob", "guest")
    with pytest.raises(Conflict, match="there is a token 'bob' already; revoke it first"):
        tokens.add("bob", "guest")


def test_a_revoked_name_means_the_same_sessions_and_keeps_its_role(tokens: Tokens) -> None:
    old = tokens.add("bob", "guest")
    tokens.revoke("bob")
    for role, agent in (("owner", "main"), ("guest", "clerk")):
        with pytest.raises(Conflict, match="choose another name"):
            tokens.add("bob", role, agent=agent)  # type: ignore[arg-type]
    new = tokens.add("bob", "guest")
    assert (tokens.find(old), tokens.find(new) is not None) == (None, True)


def test_a_role_is_known_after_the_token_is_revoked(tokens: Tokens) -> None:
    for name, role in (("desk", "owner"), ("bob", "guest")):
        tokens.add(name, role)  # type: ignore[arg-type]
        tokens.revoke(name)
    assert [tokens.is_owners(name) for name in ("desk", "bob", "nobody", "")] == [True, False, False, False]


@pytest.mark.parametrize("name", ["", "Bob", "a b", "a:b", "a@b", "-a", "a" * 33, "é", "a/b"])
def test_a_name_is_part_of_keys_and_addresses(tokens: Tokens, name: str) -> None:
    with pytest.raises(InvalidArgument, match="the name of a token has"):
        tokens.add(name, "guest")
    assert tokens.all() == []


def test_what_is_not_there_cannot_be_revoked(tokens: Tokens) -> None:
    tokens.add("bob", "guest")
    tokens.revoke("bob")
    for name in ("bob", "eve"):
        with pytest.raises(InvalidArgument, match="there is no token"):
            tokens.revoke(name)


@pytest.mark.parametrize("text", ["", "{", '{"tokens": 1}', '{"schema_version": 2, "tokens": []}'])
def test_a_file_that_cannot_be_read_lets_nobody_in_and_is_not_overwritten(
    tmp_path: Path, tokens: Tokens, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tokens.add("bob", "guest")
    file = tmp_path / "store" / FILE
    file.write_text(text)
    with caplog.at_level(logging.ERROR):
        assert [tokens.find(secret), tokens.find(secret)] == [None, None]
    assert len(caplog.records) == 1
    for act in (tokens.all, lambda: tokens.add("eve", "guest"), lambda: tokens.revoke("bob")):
        with pytest.raises(ConfigError, match="cannot be read"):
            act()
    assert file.read_text() == text


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Tokens(str(tmp_path / "file")).add("bob", "guest")


def test_a_file_is_replaced_whole(tmp_path: Path, tokens: Tokens) -> None:
    tokens.add("bob", "guest")
    file = tmp_path / "store" / FILE
    inode = file.stat().st_ino
    with file.open() as before:
        tokens.add("eve", "guest")
        assert [one["name"] for one in json.load(before)["tokens"]] == ["bob"]
    assert file.stat().st_ino != inode
    assert list(file.parent.iterdir()) == [file]


def test_a_token_counts_again_once_its_file_can_be_opened_again(tokens: Tokens) -> None:
    secret = tokens.add("bob", "guest")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        assert tokens.find(secret) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert tokens.find(secret) is not None


def test_a_digest_that_is_none_is_nobodys(tmp_path: Path, tokens: Tokens) -> None:
    secret = tokens.add("bob", "guest")
    file = tmp_path / "store" / FILE
    file.write_text(re.sub(r'"digest": ?"[^"]*"', '"digest":"é"', file.read_text()))
    assert Tokens(str(tmp_path / "store")).find(secret) is None
