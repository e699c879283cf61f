"""nacre sessions list: every session, newest first."""

from __future__ import annotations

import gc
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from nacre.cli import rows, table
from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out
from nacre.cli.place import opened, root_of
from nacre.cli.table import Column
from nacre.cli.text import clean, several, short_path, size
from nacre.cli.times import rfc3339
from nacre.keys import is_internal

if TYPE_CHECKING:
    from nacre.cli.labels import Details
    from nacre.entries import SessionInfo
    from nacre.index.warm import Listed
    from nacre.render.quarantine import Notice

    Info = SessionInfo | Listed
    Known = Callable[[Info], Details]

EXAMPLES = (
    ("the ten newest sessions", "nacre sessions list -n 10"),
    ("all sessions of one channel, with archived ones", "nacre sessions list --all --prefix telegram:"),
    ("the chats of the current folder", "nacre sessions list --folder"),
    ("largest first", "nacre sessions list --sort size"),
    ("pinned sessions with a tag", "nacre sessions list --tag work --pinned"),
    ("only the keys, for a script", "nacre sessions list --format '{key}'"),
)

_SORTS = {"updated": "updated", "created": "created", "size": "bytes", "messages": "messages", "key": "key"}
_FIELD = re.compile(r"\{(\w+)\}|\\([tn\\])")
_BREAKS = {"t": "\t", "n": "\n", "\\": "\\"}
# Details are read from each log, which takes a tenth of a millisecond: a longer list does not wait for them unasked.
_MOST_DETAILED = 500
_WIDTH_FOR_FOLDERS = 100
_MOST_REPORTED = 5


class _Page(NamedTuple):
    """What is shown of the list: sessions, their details (None where nobody looked), and how it goes on."""

    infos: list[Info]
    details: list[Details | None]
    total: int
    cursor: str | None
    aside: Mapping[str, Notice]


def add(parser: ArgumentParser) -> None:
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="maximum number of sessions")
    parser.add_argument("--all", action="store_true", help="active and archived sessions")
    parser.add_argument("--internal", action="store_true", help="also nacre's own sessions (nacre:…)")
    parser.add_argument("--archived", action="store_true", help="archived sessions only")
    parser.add_argument("--prefix", default="", help="only sessions whose key starts with this")
    folder = "only chats of this folder or below it; default: the current one"
    parser.add_argument("--folder", metavar="DIR", nargs="?", const=".", help=folder)
    parser.add_argument("--tag", action="append", default=[], metavar="TAG", help="only with this tag; may be repeated")
    parser.add_argument("--pinned", action="store_true", help="only pinned sessions")
    parser.add_argument(
        "--sort", choices=tuple(_SORTS), default="updated", help="sort by this, newest or largest first"
    )
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument("--cursor", metavar="C", help="continue after this cursor, next_cursor of an earlier list")
    parser.add_argument(
        "--format",
        metavar="TEXT",
        help="a line per session: {key} {title} {messages} {updated} {created} {bytes} {archived} {pinned} {tags} "
        "{cwd}, \\t",
    )


def run(args: Namespace, out: Out) -> int:
    # Thousands of values that are needed to the end: to look for garbage among them takes a fifth of the time.
    gc.disable()
    try:
        return _run(args, out)
    finally:
        gc.enable()


def _run(args: Namespace, out: Out) -> int:
    location = root_of(args)
    known = lru_cache(None)(partial(_details, location))
    chosen = _sorted(_filtered(_chosen(args, location), args, out, known), args)
    shown = _behind(chosen, args.cursor)
    rest = len(shown)
    if args.limit is not None:
        shown = shown[: _positive(args.limit)]
    cursor = _cursor(shown[-1]) if shown and len(shown) < rest else None
    rows.remember(location, [info.key for info in shown])
    details = map(known, shown) if _are_details_wanted(shown, args) else repeat(None, len(shown))
    aside = _quarantined(args, location)
    _print(out, _Page(shown, list(details), len(chosen), cursor, aside), args)
    _report(out, {key: aside[key] for key in aside if key.startswith(args.prefix)})
    if not (args.all or args.archived):
        _hint_at_archived(out, location)
    return OK


def as_item(info: Info, details: Details | None) -> dict[str, Any]:
    """A session as JSON lists it; without its details where nobody looked."""
    return {
        "key": info.key,
        "title": info.title,
        "messages": info.messages,
        "created": rfc3339(info.created),
        "updated": rfc3339(info.updated),
        "bytes": info.bytes,
        "archived": info.archived,
        "pinned": None if details is None else details.pinned,
        "tags": None if details is None else details.tags,
        "cwd": None if details is None else details.cwd,
    }


def _report(out: Out, aside: Mapping[str, Notice]) -> None:
    """Say below the list what is in quarantine; also of sessions that are not in it, since that may be all of them."""
    for key, notice in list(aside.items())[:_MOST_REPORTED]:
        out.note(f"{clean(key)}: {clean(notice.text)}; `{clean(notice.command)}` shows more")
    if len(aside) > _MOST_REPORTED:
        out.note(f"{several(len(aside), 'session')} have something in quarantine: `nacre sessions quarantine`")


def _quarantined(args: Namespace, root: str) -> Mapping[str, Notice]:
    """What is in quarantine, by session; most stores have none, and are not opened for it."""
    if not os.path.isdir(f"{root}/quarantine"):
        return {}
    from nacre.render.quarantine import notices  # noqa: PLC0415 - only where there may be some

    with opened(args) as sessions:
        return notices(sessions.quarantine())


def _details(root: str, info: Info) -> Details:
    from nacre.cli.labels import details_of  # noqa: PLC0415 - a long list opens no log

    return details_of(root, info)


def _filtered(infos: list[Info], args: Namespace, out: Out, known: Known) -> list[Info]:
    """The sessions that have the labels and the folder that are wanted."""
    if not args.tag and not args.pinned and args.folder is None:
        return infos
    from nacre.history.labels import tags_in  # noqa: PLC0415 - the same

    tags = set(tags_in(",".join(args.tag)))
    folder = None if args.folder is None else os.path.realpath(os.path.expanduser(args.folder)).rstrip("/")
    found: list[Info] = []
    with out.progress("reading sessions", total=len(infos), unit="sessions") as step:
        for info in infos:
            details = known(info)
            is_there = folder is None or f"{details.cwd}/".startswith(f"{folder}/")
            if tags.issubset(details.tags) and (details.pinned or not args.pinned) and is_there:
                found.append(info)
            step(1)
    return found


def _are_details_wanted(shown: list[Info], args: Namespace) -> bool:
    if args.format is not None:
        return any(field in args.format for field in ("{pinned}", "{tags}", "{cwd}"))
    return bool(args.tag or args.pinned or args.folder) or len(shown) <= _MOST_DETAILED


def _chosen(args: Namespace, root: str) -> list[Info]:
    found = None if args.all or args.archived else _warm(root)
    infos: Sequence[Info] = _read(args) if found is None else found
    return [info for info in infos if info.key.startswith(args.prefix) and (args.internal or not is_internal(info.key))]


def _warm(root: str) -> list[Listed] | None:
    """The active sessions from an index that is up to date, without opening the store; None if there is none."""
    try:
        from nacre.index.warm import listed  # noqa: PLC0415 - a Python may have been built without SQLite
    except ImportError:
        return None
    return listed(root)


def _read(args: Namespace) -> list[Info]:
    with opened(args) as sessions:
        found: list[Info] = [] if args.archived and not args.all else list(sessions.list(internal=True))
        if args.archived or args.all:
            found += sessions.list(archived=True, internal=True)
    return found


def _sorted(infos: list[Info], args: Namespace) -> list[Info]:
    downwards = args.sort != "key"
    infos.sort(key=attrgetter("key"))
    infos.sort(key=attrgetter(_SORTS[args.sort]), reverse=downwards)
    if args.reverse:
        infos.reverse()
    return infos


def _cursor(info: Info) -> str:
    return f"{rfc3339(info.created)}/{info.key}"


def _behind(infos: list[Info], cursor: str | None) -> list[Info]:
    """The sessions after the one that a cursor names."""
    if cursor is None:
        return infos
    for at, info in enumerate(infos):
        if _cursor(info) == cursor:
            return infos[at + 1 :]
    raise Failure("not_found", f"the cursor {cursor!r} is not in this list", hint="start again without --cursor")


def _positive(limit: int) -> int:
    if limit < 1:
        raise Failure("usage", f"--limit is 1 or more, not {limit}")
    return limit


def _print(out: Out, page: _Page, args: Namespace) -> None:
    if out.json:
        items = map(as_item, page.infos, page.details)
        aside = ({**item, "quarantine": page.aside.get(item["key"])} for item in items)
        out.listing(aside, total=page.total, cursor=page.cursor)
    elif args.format is not None:
        for item in map(as_item, page.infos, page.details):
            out.say(_formatted(args.format, item))
    elif page.infos:
        marks = [_mark(details) for details in page.details]
        folders = [short_path(details.cwd) if details is not None else "" for details in page.details]
        if out.has_width and out.width < _WIDTH_FOR_FOLDERS:
            folders = []
        columns = _columns(out, all=args.all, marked=any(marks), has_folders=any(folders))
        with out.pager():
            table.show(out, columns, _rows(out, page.infos, marks, folders, all=args.all))
    else:
        out.note(_nothing(args))
    if page.cursor is not None:
        out.note(f"{several(page.total - len(page.infos), 'more session')}; use --limit or --cursor to see more")


def _nothing(args: Namespace) -> str:
    if args.folder is not None:
        return f"no session was started in {clean(os.path.realpath(os.path.expanduser(args.folder)))} or below it"
    if args.tag or args.pinned:
        return "no session has these labels"
    return "no sessions yet" if not args.prefix else f"no key starts with {args.prefix!r}"


def _mark(details: Details | None) -> str:
    """A star if it is pinned, and its tags."""
    if details is None:
        return ""
    return " ".join(filter(None, ("★" * details.pinned, clean(", ".join(details.tags)))))


def _columns(out: Out, *, all: bool, marked: bool, has_folders: bool) -> list[Column]:
    marks = [Column("TAGS", shrinks=True, style=out.yellow)] if marked else []
    folders = [Column("FOLDER", shrinks=True, style=out.dim)] if has_folders else []
    state = [Column("STATE", style=out.dim)] if all else []
    return [
        Column("#", right=True, style=out.dim),
        Column("KEY", wraps=True, style=out.bold),
        Column("TITLE", shrinks=True),
        *marks,
        *folders,
        Column("MSGS", right=True),
        Column("SIZE", right=True),
        *state,
        Column("UPDATED", right=not out.iso, style=out.dim),
    ]


def _rows(out: Out, infos: list[Info], marks: list[str], folders: list[str], *, all: bool) -> list[tuple[str, ...]]:
    """The cells of the table, made column by column: that is twice as quick for thousands of rows."""
    sized, said = lru_cache(size), lru_cache("{:,}".format)
    cells = [
        map(str, range(1, len(infos) + 1)),
        [clean(info.key) for info in infos],
        [clean(info.title) for info in infos],
        marks if any(marks) else None,
        folders if any(folders) else None,
        [said(info.messages) for info in infos],
        [sized(info.bytes) for info in infos],
        ["archived" if info.archived else "active" for info in infos] if all else None,
        [out.when(info.updated) for info in infos],
    ]
    return list(zip(*filter(None, cells), strict=True))


def _formatted(template: str, item: dict[str, Any]) -> str:
    def fill(found: re.Match[str]) -> str:
        if found[2]:
            return _BREAKS[found[2]]
        if found[1] not in item:
            raise Failure("usage", f"--format has no field {{{found[1]}}}", hint=f"its fields are {', '.join(item)}")
        value = item[found[1]]
        return clean(",".join(value) if isinstance(value, tuple) else str(value))

    return _FIELD.sub(fill, template)


def _hint_at_archived(out: Out, location: str) -> None:
    try:
        count = sum(name.endswith(".jsonl") for name in os.listdir(f"{location}/archive"))
    except OSError:
        return
    if count:
        out.note(f"{several(count, 'archived session')} hidden, use --all")
