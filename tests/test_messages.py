"""The values that callers get, and how they describe themselves."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

import nacre
from nacre.messages import QuarantineEntry, QuarantineRecord, ToolCall, describe_quarantine


def test_a_call_in_openais_shape_may_come_without_an_id() -> None:
    call = ToolCall.from_mapping({"type": "function", "function": {"name": "sh", "arguments": "{}"}})
    assert call == ToolCall(id="", name="sh", arguments="{}")


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([], ""),
        ([(0, 0)], "records of this session are lost: why"),
        ([(0, 1)], "1 byte of this session is in quarantine"),
        ([(0, 1), (0, 1999)], "2,000 bytes of this session are in quarantine"),
        ([(1, 90)], "1 record of this session is in quarantine"),
        ([(1, 90), (2, 0)], "3 records of this session are in quarantine"),
    ],
)
def test_how_much_is_in_quarantine_is_said_in_words(held: list[tuple[int, int]], expected: str) -> None:
    time = datetime(2026, 11, 15, tzinfo=UTC)
    record = QuarantineRecord(n=2, ts=time, kind="msg", text="a")
    entries = [
        QuarantineEntry(
            key="k", n=n, generation="0", ts=time, kind="rotten", reason="why", bytes=size, records=(record,) * records
        )
        for n, (records, size) in enumerate(held, 1)
    ]
    assert describe_quarantine(entries) == expected


def test_a_hit_says_its_place_with_the_generation_if_that_is_archived() -> None:
    hit = nacre.Hit(key="k", n=7, ts=datetime.now(UTC), role="user", snippet="a")
    assert hit.place == "k@7"
    assert msgspec.structs.replace(hit, generation="0190").place == "k@0190/7"
