"""A session brought in from elsewhere: all of its records at once, with their old times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nacre.entries import FORMAT, Founding, Recalled, Record, Rules, Stamp, State
from nacre.log import blobs
from nacre.log.format import seal, short_enough
from nacre.log.recovery import Header
from nacre.log.rewrite import Successor


def founded(  # noqa: PLR0913 - all that a session from elsewhere has
    records: Sequence[Founding], *, key: str, uid: str, src: dict[str, Any], created: str, rules: Rules
) -> tuple[Successor, blobs.Payloads]:
    """The log of a session that says in its header where it came from, and its large payloads.

    Raises what any of its wishes raises.
    """
    header = Record(v=FORMAT, n=1, t="open", ts=created, sid=key, uid=uid, src=src, st=State())
    lines = [seal(header)]
    payloads: blobs.Payloads = {}
    past = Recalled([header])
    for founding in records:
        stamp = Stamp(n=past.n + 1, ts=founding.ts)
        record = rules.advance(founding.wish, stamp, past.state, past)
        if record is not None:
            light, taken = blobs.lightened(record)
            payloads |= taken
            lines.append(short_enough(seal(light)))
            past.add(light)
    kept = Header(uid=uid, sid=key, created=created, raw=lines[0][:-1])
    return Successor(kept, past.n, past.state, lines), payloads
