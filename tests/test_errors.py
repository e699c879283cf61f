"""What a log may say of an error: no word of a conversation, and all that helps to mend a machine."""

from __future__ import annotations

import sqlite3

import pytest

from nacre.channels.channel import Lost
from nacre.channels.http_client import Refusal
from nacre.errors import (
    ChannelError,
    ConfigError,
    InvalidMessage,
    NacreError,
    ProviderError,
    RateLimited,
    Refused,
    StoreError,
    ToolError,
    describe_error,
    install_command,
    ungroup,
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refused("the disk is full"), "Refused: the disk is full"),
        (ConfigError("irc.port is no number"), "ConfigError: irc.port is no number"),
        (StoreError("/x is no directory"), "StoreError: /x is no directory"),
        (InvalidMessage("'said' is no message"), "InvalidMessage"),
        (ProviderError("said"), "ProviderError"),
        (ToolError("said"), "ToolError"),
        (ChannelError("said"), "ChannelError"),
        (ValueError("said"), "ValueError"),
        (FileNotFoundError(2, "said", "/said"), "FileNotFoundError: [Errno 2] No such file or directory"),
        (OSError("said"), "OSError"),
        (Lost("closed the connection", said="said"), "Lost: closed the connection"),
        (Refusal(400, {}, "said", wait=None), "Refusal: answered 400"),
        (ExceptionGroup("said", [ValueError("said"), Refused("full")]), "ExceptionGroup of ValueError, Refused: full"),
    ],
)
def test_a_sentence_is_told_if_it_is_about_the_machine(error: BaseException, told: str) -> None:
    assert describe_error(error) == told


def test_a_summary_is_told_in_place_of_a_sentence() -> None:
    error = ProviderError("the server answered 400: said")
    error.summary = "the server answered 400"
    assert describe_error(error) == "ProviderError: the server answered 400"


def test_what_led_to_an_error_is_told_too_unless_it_is_hidden() -> None:
    error = NacreError("said")
    error.__cause__ = Refused("full")
    assert describe_error(error) == "NacreError; from Refused: full"
    error = NacreError("said")
    error.__context__ = Refused("full")
    assert describe_error(error) == "NacreError; from Refused: full"
    error.__suppress_context__ = True
    assert describe_error(error) == "NacreError"


def test_of_a_query_that_sqlite_cannot_read_there_is_the_kind_of_error() -> None:
    with sqlite3.connect(":memory:") as connection, pytest.raises(sqlite3.Error) as raised_error:
        connection.execute("SELECT said FROM")
    connection.close()
    assert describe_error(raised_error.value) == "OperationalError: SQLITE_ERROR"


def test_errors_that_led_to_each_other_are_told_once() -> None:
    one, other = Refused("full"), NacreError("said")
    one.__context__, other.__context__ = other, one
    assert describe_error(one) == "Refused: full; from NacreError"


def test_a_server_that_asks_to_wait_says_how_long() -> None:
    assert RateLimited("too many requests", wait=7.0).wait == 7.0


def test_a_missing_extra_is_named_by_the_command_that_installs_it() -> None:
    assert install_command("agent") == 'pip install "nacre-sessions[agent]"'


def test_an_error_is_taken_out_of_all_groups_around_it() -> None:
    error = Refused("full")
    assert ungroup(ExceptionGroup("outer", [ExceptionGroup("inner", [error]), NacreError("second")])) is error
    assert ungroup(error) is error
