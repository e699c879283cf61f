"""nacre sessions show: read a conversation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from nacre.cli.failures import OK, Failure
from nacre.cli.notices import hush_losses
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.refs import Target, add_ref, find, missing
from nacre.cli.store_choice import opened
from nacre.codec import message_of, parse_time, time_of
from nacre.history import record_lines, session_state
from nacre.history.overview import Labels, labels
from nacre.messages import Stored
from nacre.records import Losses, Record, Records, View
from nacre.render.conversation import Cover, Cut, Part, parts
from nacre.render.quarantine_report import Notice, notices, unreadable
from nacre.render.usage import Usage, summed

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("read the newest conversation", "nacre sessions show @last"),
    ("its last ten messages, tool calls unfolded", "nacre sessions show @last --last 10 --full"),
    ("the messages around record 17", "nacre sessions show telegram:42@17"),
    ("every message, with truncated and replaced ones", "nacre sessions show telegram:42 --all"),
    ("the lines of the log", "nacre sessions show telegram:42 --raw | jq .t"),
)

T = TypeVar("T")

_AROUND = 5


def add(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument("--full", action="store_true", help="show tool calls, results and reasoning in full")
    parser.add_argument("--all", action="store_true", help="include messages that are no longer in the history, dimmed")
    parser.add_argument("--last", type=int, metavar="K", help="only the last K messages")
    parser.add_argument("--entry", type=int, metavar="N", help="only record N, in full")
    parser.add_argument("--raw", action="store_true", help="print the lines of the log unchanged")


def run(args: Namespace, out: Out) -> int:
    if args.last is not None and args.last < 1:
        raise Failure("usage", f"--last is 1 or more, not {args.last}")
    with opened(args) as sessions, hush_losses():
        target = find(sessions, args.ref)
        if args.raw:
            found, losses = _raw(sessions, target.key, args)
            with out.pager():
                for line in found:
                    out.raw(line)
            tell_losses(out, target.key, losses)
            return OK
        excerpt = _view(sessions, target, args)
        excerpt = excerpt._replace(aside=notices(sessions.quarantine(target.key)).get(target.key))
    if out.json:
        _print_json(out, excerpt)
    else:
        _print(out, excerpt, is_full=args.full or args.entry is not None)
    tell_losses(out, target.key, excerpt.losses)
    return OK


def tell_losses(out: Out, key: str, losses: Losses) -> None:
    """Say on stderr what of a session could not be read."""
    notice = unreadable(key, losses)
    if notice is not None:
        out.warn(f"nacre: session {clean(repr(key))}: {notice.text}\n  `{clean(notice.command)}` shows where")


# ---- what is read


class Excerpt(NamedTuple):
    """Messages as they were read; `live` are the numbers that are in the history now, None for all of them."""

    cover: Cover
    stored: Sequence[Stored]
    live: frozenset[int] | None = None
    newest: str = ""
    cut: Cut | None = None
    summary: str = ""
    labels: Labels = Labels()
    aside: Notice | None = None
    losses: Losses = Losses()

    def parts(self) -> Iterator[Part]:
        return parts(self.stored, live=self.live, newest=self.newest, cut=self.cut)

    def is_live(self, one: Stored) -> bool:
        return self.live is None or (one.generation == self.newest and one.n in self.live)


def live_view(sessions: Sessions, key: str, *, last: int | None = None) -> Excerpt:
    """The history of a session as it is now; all of it, or its last messages."""

    def get(view: View) -> Excerpt:
        # Everything is read, once, where it is shown or counted; else only the last messages are.
        held, used = record_lines.read_once(view) if last is None else (view, None)
        records = list(islice(session_state.chain(held, view.state), last))[::-1]
        hidden = view.state.i - view.state.live
        text = session_state.summary(held, view.state)
        is_whole = last is None or len(records) < last or last >= view.state.live
        return Excerpt(
            cover=_cover(view, held, key, messages=session_state.count(held), used=used),
            stored=[_stored(view, record) for record in records],
            newest=view.uid,
            cut=Cut(summary=text, hidden=hidden) if is_whole and (text or hidden) else None,
            summary=text,
            labels=labels(session_state.meta(held, view.state)),
            losses=view.losses,
        )

    return _found(sessions.read(key, get), key, sessions)


def whole_view(sessions: Sessions, key: str) -> Excerpt:
    """Everything ever said in a session, in all its generations."""

    def get(view: View) -> Excerpt:
        held, used = record_lines.read_once(view)
        stored = [_stored(view, record) for record in held.all() if record.t == "msg"]
        numbers = frozenset(record.n for record in session_state.chain(held, view.state))
        text = session_state.summary(held, view.state)
        cut = Cut(summary=text) if text or len(numbers) < view.state.i else None
        cover = _cover(view, held, key, messages=len(stored), used=used)
        found = labels(session_state.meta(held, view.state))
        return Excerpt(cover, stored, numbers, view.uid, cut, text, found, losses=view.losses)

    lives = sessions.read_generations(key, get)
    newest = _found(lives[-1] if lives else None, key, sessions)
    stored = [one for excerpt in lives for one in excerpt.stored]
    usage = sum((excerpt.cover.usage or Usage() for excerpt in lives), Usage())
    cover = Cover(key=key, title=newest.cover.title, created=lives[0].cover.created, messages=len(stored), usage=usage)
    losses = sum((excerpt.losses for excerpt in lives), Losses())
    return newest._replace(stored=stored, cover=cover, losses=losses)


def _view(sessions: Sessions, target: Target, args: Namespace) -> Excerpt:
    if args.entry is not None:
        return _entry(sessions, target.key, args.entry)
    if target.n is not None:
        return _around(whole_view(sessions, target.key), target.n, target.generation)
    if not args.all:
        return live_view(sessions, target.key, last=args.last)
    excerpt = whole_view(sessions, target.key)
    return excerpt if args.last is None else excerpt._replace(stored=excerpt.stored[-args.last :], cut=None)


def _entry(sessions: Sessions, key: str, n: int) -> Excerpt:
    """One message with the results of its calls."""

    def get(view: View) -> Excerpt:
        record = view.find(n)
        if record is None:
            raise Failure("not_found", f"session {key!r} has no record {n}", hint="--raw shows all records")
        if record.t != "msg":
            hint = f"--raw --entry {n} shows its line"
            raise Failure("not_found", f"record {n} of session {key!r} is a {record.t!r}, not a message", hint=hint)
        stored = [_stored(view, one) for one in (record, *_results(view, record))]
        numbers = frozenset(one.n for one in session_state.chain(view, view.state))
        cover = _cover(view, view, key, messages=session_state.count(view))
        found = labels(session_state.meta(view, view.state))
        return Excerpt(cover=cover, stored=stored, live=numbers, newest=view.uid, labels=found)

    return _found(sessions.read(key, get), key, sessions)


def _results(view: View, record: Record) -> Iterator[Record]:
    """The results that follow right behind a message with calls."""
    calls = len(record.m.tool_calls) if record.m is not None else 0
    for n in range(record.n + 1, record.n + 1 + calls):
        found = view.find(n)
        if found is None or found.m is None or found.m.role != "tool":
            return
        yield found


def _around(excerpt: Excerpt, n: int, generation: str) -> Excerpt:
    """The messages around one of the newest generation, or of the one that is named."""
    uid = generation or excerpt.newest
    at = [place for place, one in enumerate(excerpt.stored) if one.generation == uid and one.n >= n]
    if not at:
        raise Failure("not_found", f"session {excerpt.cover.key!r} has no message {n}", hint="--all shows all messages")
    nearby = excerpt.stored[max(at[0] - _AROUND, 0) : at[0] + _AROUND + 1]
    return excerpt._replace(stored=nearby, cut=None)


def _raw(sessions: Sessions, key: str, args: Namespace) -> tuple[list[bytes], Losses]:
    """Lines of the newest generation, or of all of them, and what could not be read."""
    if args.entry is not None:
        return _found(sessions.read(key, lambda view: _line(view, key, args.entry)), key, sessions)
    newest = None if args.all else sessions.read(key, _lines)
    lives = sessions.read_generations(key, _lines) if args.all else [_found(newest, key, sessions)]
    lines = [line for life, _ in lives for line in life]
    losses = sum((losses for _, losses in lives), Losses())
    return lines if args.last is None else lines[-args.last :], losses


def _lines(view: View) -> tuple[list[bytes], Losses]:
    return [line for _, line in record_lines.lines(view)], view.losses


def _line(view: View, key: str, n: int) -> tuple[list[bytes], Losses]:
    for record, line in record_lines.lines(view):
        if record.n == n:
            return [line], Losses()
    raise Failure("not_found", f"session {key!r} has no record {n}", hint="--raw shows all records")


def _found(value: T | None, key: str, sessions: Sessions) -> T:
    if value is None:
        raise missing(sessions, key)
    return value


def _cover(view: View, held: Records, key: str, *, messages: int, used: Sequence[Record] | None = None) -> Cover:
    """What stands above; tokens only where everything is read anyway."""
    title = session_state.meta(held, view.state).get("title", "")
    return Cover(
        key=key,
        title=title if isinstance(title, str) else "",
        created=parse_time(view.created) if view.created else None,
        messages=messages,
        usage=None if used is None else summed(record.data for record in used),
    )


def _stored(view: View, record: Record) -> Stored:
    return Stored(generation=view.uid, n=record.n, ts=time_of(record), message=message_of(record, view))


# ---- how it is shown


def _print(out: Out, excerpt: Excerpt, *, is_full: bool) -> None:
    from nacre.render import terminal  # noqa: PLC0415 - only for people

    sheet = terminal.Sheet(columns=out.width, has_colour=out.color, is_full=is_full, theme=out.theme)
    with out.pager():
        for line in terminal.cover(excerpt.cover, sheet, when=out.when):
            out.say(line)
        if marks := _marks(excerpt.labels):
            out.say(out.yellow(marks))
        if excerpt.aside is not None:
            out.say(out.red(f"{clean(excerpt.aside.text)}; {clean(excerpt.aside.command)}"))
        for line in terminal.conversation(excerpt.parts(), sheet, when=out.when):
            out.say(line)


def _marks(found: Labels) -> str:
    return " · ".join(filter(None, ("★ pinned" * found.pinned, clean(", ".join(found.tags)))))


def _print_json(out: Out, excerpt: Excerpt) -> None:
    items = (_item(one, is_live=excerpt.is_live(one)) for one in excerpt.stored)
    if out.jsonl:
        out.listing(items)
        return
    cover = excerpt.cover
    usage = None if cover.usage is None else asdict(cover.usage)
    head = {"schema_version": 1, "key": cover.key, "title": cover.title, "created": cover.created}
    head |= excerpt.labels._asdict()
    found = list(items)
    head |= {"quarantine": excerpt.aside, "unreadable": unreadable(cover.key, excerpt.losses)}
    out.document({**head, "summary": excerpt.summary, "tokens": usage, "count": len(found), "items": found})


def _item(one: Stored, *, is_live: bool) -> dict[str, Any]:
    return {
        "generation": one.generation,
        "n": one.n,
        "ts": one.ts,
        "live": is_live,
        "message": one.message.to_mapping(),
    }
