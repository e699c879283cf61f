"""nacre sessions show, tail: read a conversation, its last records, and those to come."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.notices import silence_losses
from nacre.cli.one_line import clean, size
from nacre.cli.output import Out
from nacre.cli.refs import Target, add_ref, find, find_active, missing
from nacre.cli.store_choice import open_store
from nacre.codec import message_of, parse_time, time_of
from nacre.history import record_lines, session_state
from nacre.history.overview import Labels, labels
from nacre.messages import Entry, Stored
from nacre.records import Losses, Record, Records, View
from nacre.render.conversation import Cover, Cut, MessageView, Notice, Part, notices, parts, unreadable
from nacre.render.usage import Usage, total_usage

if TYPE_CHECKING:
    from nacre.sessions import Sessions

T = TypeVar("T")

_AROUND = 5
_FAR = 128
"""How many records are searched for the results of a message."""


# ---- show


def _add_show(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument("--full", action="store_true", help="show tool calls, results and reasoning in full")
    parser.add_argument("--all", action="store_true", help="include messages that are no longer in the history, dimmed")
    parser.add_argument("--last", type=int, metavar="K", help="only the last K messages")
    parser.add_argument("--entry", type=int, metavar="N", help="only record N, in full")
    parser.add_argument("--raw", action="store_true", help="print the lines of the log unchanged")


def _show(args: Namespace, out: Out) -> int:
    if args.last is not None and args.last < 1:
        raise Failure("usage", f"--last is 1 or more, not {args.last}")
    with open_store(args) as sessions, silence_losses():
        target = find(sessions, args.ref)
        excerpt = None if args.raw else _read(sessions, target, args)
        if excerpt is None:
            found, losses = _raw_lines(sessions, target.key, args)
            with out.pager():
                for line in found:
                    out.raw(line)
        else:
            excerpt = excerpt._replace(aside=notices(sessions.quarantine(target.key)).get(target.key))
            losses = excerpt.losses
    if excerpt is not None and out.json:
        _print_json(out, excerpt)
    elif excerpt is not None:
        _print(out, excerpt, is_full=args.full or args.entry is not None)
    # Say on stderr what of the session could not be read.
    notice = unreadable(target.key, losses)
    if notice is not None:
        out.warn(f"nacre: session {clean(repr(target.key))}: {notice.text}\n  `{clean(notice.command)}` shows where")
    return OK


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


def _read(sessions: Sessions, target: Target, args: Namespace) -> Excerpt:
    """What the options ask for: one record, those around one, the last ones, or all."""
    if args.entry is not None:
        return _read_entry(sessions, target.key, args.entry)
    if target.n is None and not args.all:
        return live_view(sessions, target.key, last=args.last)
    excerpt = whole_view(sessions, target.key)
    stored = excerpt.stored
    if target.n is None:
        return excerpt if args.last is None else excerpt._replace(stored=stored[-args.last :], cut=None)
    # The messages around one of the newest generation, or of the one that is named.
    uid = target.generation or excerpt.newest
    at = next((place for place, one in enumerate(stored) if one.generation == uid and one.n >= target.n), None)
    if at is None:
        what = f"session {target.key!r} has no message {target.n}"
        raise Failure("not_found", what, hint="--all shows all messages")
    return excerpt._replace(stored=stored[max(at - _AROUND, 0) : at + _AROUND + 1], cut=None)


def _read_entry(sessions: Sessions, key: str, n: int) -> Excerpt:
    """One message with the results of its calls."""

    def get(view: View) -> Excerpt:
        record = view.find(n)
        if record is None:
            raise Failure("not_found", f"session {key!r} has no record {n}", hint="--raw shows all records")
        if record.t != "msg":
            hint = f"--raw --entry {n} shows its line"
            raise Failure("not_found", f"record {n} of session {key!r} is a {record.t!r}, not a message", hint=hint)
        live = frozenset(one.n for one in session_state.chain(view, view.state))
        # The results follow soon after a message with calls.
        following = range(n + 1, n + 1 + _FAR) if record.m is not None and record.m.tool_calls else ()
        near = [one for one in map(view.find, following) if one is not None and one.m is not None]
        stored = [_stored(view, one) for one in (record, *near)]
        asked = next(one for one in parts(stored, live=live, newest=view.uid) if isinstance(one, MessageView))
        own = {asked.label, *(call.result.label for call in asked.calls if call.result is not None)}
        return Excerpt(
            cover=_cover(view, view, key, messages=session_state.count(view)),
            stored=[one for one in stored if str(one.n) in own],
            live=live,
            newest=view.uid,
            labels=labels(session_state.meta(view, view.state)),
        )

    return _found(sessions.read(key, get), key, sessions)


def _raw_lines(sessions: Sessions, key: str, args: Namespace) -> tuple[list[bytes], Losses]:
    """Lines of the newest generation, or of all of them, and what could not be read."""

    def get(view: View) -> tuple[list[bytes], Losses]:
        if args.entry is None:
            return [line for _, line in view.all_lines()], view.losses
        found = next((line for record, line in view.all_lines() if record.n == args.entry), None)
        if found is None:
            raise Failure("not_found", f"session {key!r} has no record {args.entry}", hint="--raw shows all records")
        return [found], Losses()

    if args.entry is not None:
        return _found(sessions.read(key, get), key, sessions)
    every = sessions.read_generations(key, get) if args.all else [_found(sessions.read(key, get), key, sessions)]
    lines = [line for found, _ in every for line in found]
    losses = sum((losses for _, losses in every), Losses())
    return lines if args.last is None else lines[-args.last :], losses


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
        usage=None if used is None else total_usage(record.data for record in used),
    )


def _stored(view: View, record: Record) -> Stored:
    return Stored(generation=view.uid, n=record.n, ts=time_of(record), message=message_of(record, view))


def _print(out: Out, excerpt: Excerpt, *, is_full: bool) -> None:
    from nacre.render import terminal  # noqa: PLC0415 - only for people

    sheet = terminal.Sheet(columns=out.width, has_colour=out.color, is_full=is_full, theme=out.theme)
    with out.pager():
        for line in terminal.cover(excerpt.cover, sheet, when=out.when):
            out.say(line)
        pinned, tags = "★ pinned" * excerpt.labels.pinned, clean(", ".join(excerpt.labels.tags))
        if pinned or tags:
            out.say(out.yellow(" · ".join(filter(None, (pinned, tags)))))
        if excerpt.aside is not None:
            out.say(out.red(f"{clean(excerpt.aside.text)}; {clean(excerpt.aside.command)}"))
        for line in terminal.conversation(excerpt.parts(), sheet, when=out.when):
            out.say(line)


def _print_json(out: Out, excerpt: Excerpt) -> None:
    items = [
        {
            "generation": one.generation,
            "n": one.n,
            "ts": one.ts,
            "live": excerpt.live is None or (one.generation == excerpt.newest and one.n in excerpt.live),
            "message": one.message.to_mapping(),
        }
        for one in excerpt.stored
    ]
    if out.jsonl:
        out.listing(items)
        return
    cover = excerpt.cover
    usage = None if cover.usage is None else asdict(cover.usage)
    head = {"key": cover.key, "title": cover.title, "created": cover.created, **excerpt.labels._asdict()}
    head |= {"quarantine": excerpt.aside, "unreadable": unreadable(cover.key, excerpt.losses)}
    out.document({**head, "summary": excerpt.summary, "tokens": usage, "count": len(items), "items": items})


show = Command(
    _add_show,
    _show,
    ("read the newest conversation", "nacre sessions show @last"),
    ("its last ten messages, tool calls unfolded", "nacre sessions show @last --last 10 --full"),
    ("the messages around record 17", "nacre sessions show telegram:42@17"),
    ("every message, with truncated and replaced ones", "nacre sessions show telegram:42 --all"),
    ("the lines of the log", "nacre sessions show telegram:42 --raw | jq .t"),
)


# ---- tail


def _add_tail(parser: ArgumentParser) -> None:
    add_ref(parser, point=True)
    parser.add_argument("-f", "--follow", action="store_true", help="print new records as any process writes them")
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N", help="number of records to begin with (10)")
    parser.add_argument("--full", action="store_true", help="print the text of messages too")


def _tail(args: Namespace, out: Out) -> int:
    if args.lines < 0:
        raise Failure("usage", f"--lines is 0 or more, not {args.lines}")
    if args.follow and out.json and not out.jsonl:
        raise Failure("usage", "--json prints one document and cannot follow a session", hint="use --jsonl")
    with open_store(args) as sessions:
        target = find_active(sessions, args.ref)
        if target.n is None:
            last = list(sessions.records(target.key, last=args.lines))
        else:
            last = list(sessions.records(target.key, after=max(0, target.n - 1)))
        if out.json and not out.jsonl:
            total = sum(1 for _ in sessions.records(target.key))
            return out.listing([_record_item(entry, full=args.full) for entry in last], total=total)
        for entry in last:
            _print_record(out, entry, full=args.full)
        if args.follow:
            out.flush()
            after = last[-1].n if last else sessions.snapshot(target.key, last=0).n
            for entry in sessions.follow(target.key, after=after):
                _print_record(out, entry, full=args.full)
                out.flush()
    return OK


def _print_record(out: Out, entry: Entry, *, full: bool) -> None:
    if out.jsonl:
        out.line(_record_item(entry, full=full))
        return
    data = entry.data if isinstance(entry.data, dict) else {}
    text, tools = _text_and_tools(data)
    what = f"msg {data['role'] or data['extra']['type']}" if entry.kind == "msg" else entry.kind
    # What it is about, without its words: which tools are called, and how long it is.
    about = [f"calls {clean(', '.join(tools))}"] if tools else []
    about += [size(len(text.encode()))] if text else []
    number, when = out.bold(f"{entry.n:>6}"), out.dim(out.when(entry.ts))
    out.say(f"{number}  {when}  {out.cyan(clean(what))}  {', '.join(about)}".rstrip())
    for line in clean(text, lines=True).splitlines() if full else ():
        out.say(f"        {line}")


def _record_item(entry: Entry, *, full: bool) -> dict[str, Any]:
    item = {"generation": entry.generation, "n": entry.n, "ts": entry.ts, "kind": entry.kind}
    if full:
        return {**item, "data": entry.data}
    data = entry.data if isinstance(entry.data, dict) else {}
    text, tools = _text_and_tools(data)
    return {**item, "role": data.get("role"), "bytes": len(text.encode()), "tools": tools}


def _text_and_tools(data: dict[str, Any]) -> tuple[str, list[str]]:
    """The text of a record, and the names of the tools that it calls."""
    content = data.get("content", data.get("text"))
    if isinstance(content, list):
        parts = (part.get("text", "") for part in content if isinstance(part, dict))
        content = "\n".join(part for part in parts if isinstance(part, str))
    calls = data.get("tool_calls") or ()
    tools = [str(call.get("name", "")) for call in calls if isinstance(call, dict)]
    return content if isinstance(content, str) else "", tools


tail = Command(
    _add_tail,
    _tail,
    ("the last records", "nacre sessions tail @last"),
    ("follow a session, with the text of messages", "nacre sessions tail -f --full telegram:42"),
    ("the same for a program", "nacre sessions tail -f --jsonl telegram:42"),
)
