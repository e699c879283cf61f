"""nacre sessions search: search the messages of all sessions."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from nacre.cli.failures import FAILED, OK, Failure
from nacre.cli.one_line import clean, several, wrap
from nacre.cli.output import Out
from nacre.cli.refs import find
from nacre.cli.store_choice import open_store
from nacre.keys import is_internal

if TYPE_CHECKING:
    from nacre.messages import Hit
    from nacre.sessions import Sessions

EXAMPLES = (
    ("messages with both words", "nacre sessions search database timeout"),
    (
        "a phrase, in messages of users this month",
        "nacre sessions search '\"connection refused\"' --role user --since 2026-11-01",
    ),
    ("by meaning too, after `nacre setup embeddings`", "nacre sessions search where did I park --meaning"),
    ("without a word", "nacre sessions search 'invoice -paid'"),
    ("in one session", "nacre sessions search invoice --session @last"),
    ("only the places, to pass to `show`", "nacre s search invoice --jsonl | jq -r .place"),
)

_PIECE, _MAX_WAIT = 16, 10.0
_FILTERS = ("role", "tool", "since", "until")


def add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "query", metavar="QUERY", nargs="+", help='words, "phrases", -not, role: tool: session: since: until:'
    )
    parser.add_argument("-n", "--limit", type=int, default=50, metavar="N", help="maximum number of results (50)")
    parser.add_argument("--meaning", action="store_true", help="find messages in other words too (needs embeddings)")
    parser.add_argument("--role", help="only messages of this role: user, assistant, tool, system")
    parser.add_argument("--tool", help="only calls and results of this tool")
    parser.add_argument("--internal", action="store_true", help="search nacre's own sessions (nacre:…) too")
    parser.add_argument("--session", metavar="REF", help="search only this session")
    parser.add_argument("--since", metavar="DATE", help="only messages from this date on")
    parser.add_argument("--until", metavar="DATE", help="only messages up to this date")


def run(args: Namespace, out: Out) -> int:
    from nacre.index.query import MOMENT, describe_unread_times, is_moment  # noqa: PLC0415 - `--help` needs no index

    if args.limit < 1:
        raise Failure("usage", f"--limit is 1 or more, not {args.limit}")
    for name in ("since", "until"):
        if (given := getattr(args, name)) and not is_moment(given):
            raise Failure("usage", f"--{name} is {MOMENT}, not {given!r}")
    with open_store(args) as sessions:
        key = find(sessions, args.session).key if args.session else ""
        hits = _find_hits(args, out, sessions, key)
    shown, has_more = hits[: args.limit], len(hits) > args.limit
    if out.json:
        out.listing([{"place": hit.place, **asdict(hit)} for hit in shown], has_more=has_more)
    elif shown:
        _print(out, shown, has_more=has_more)
    else:
        unread = clean(describe_unread_times(" ".join(args.query)))
        out.note(f"nothing found; {unread}" if unread else "nothing found")
    return OK if shown else FAILED


def _find_hits(args: Namespace, out: Out, sessions: Sessions, key: str) -> list[Hit]:
    """What is found; one more than is shown tells that there is more."""
    if not sessions.is_durable:
        return []  # there is no store yet
    if args.meaning:
        _make_vectors(sessions, out)
    # The words and the options as one query; `session:` takes a key in quotes, or how it begins.
    words = list(args.query)
    for name in _FILTERS:
        value = getattr(args, name)
        if value:
            words.append(f'{name}:"{value}"' if any(char.isspace() for char in value) else f"{name}:{value}")
    if key and '"' not in key:
        words.append(f'session:"{key}"')
    elif beginning := key.partition('"')[0]:
        words.append(f"session:{beginning}")
    internal = args.internal or is_internal(key)
    found = sessions.search(" ".join(words), limit=args.limit + 1, internal=internal, meaning=args.meaning)
    return [hit for hit in found if key in ("", hit.key)]


def _make_vectors(sessions: Sessions, out: Out) -> None:
    """Read messages for their meaning that have not been; a search does not wait for more than some seconds of them."""
    end = time.monotonic() + _MAX_WAIT
    left = sessions.make_vectors(0)
    with out.progress("reading for meaning:", total=left, unit="messages") as progress:
        while left and time.monotonic() < end:
            before, left = left, sessions.make_vectors(_PIECE)
            progress(before - left)
    if left:
        out.note(f"{left:,} messages were searched by words only; search again to read on, or let `nacre serve` do it")


def _print(out: Out, hits: list[Hit], *, has_more: bool) -> None:
    with out.pager():
        for hit in hits:
            out.say(f"{out.bold(clean(hit.place))}  {out.cyan(clean(hit.role))}  {out.dim(out.when(hit.ts))}")
            is_found = False
            for line in wrap(clean(hit.snippet), max(20, out.width - 4)):
                pieces = [line]
                if out.color:
                    # What was found has a colour in place of its stars.
                    pieces = line.split("**")
                    for at, piece in enumerate(pieces):
                        is_found = is_found != (at > 0)
                        pieces[at] = out.yellow(piece) if is_found and piece else piece
                out.say(f"    {''.join(pieces)}")
    found = several(len(hits), "result")
    out.note(f"the first {found}; --limit shows more" if has_more else found)
