"""nacre sessions list: every session, newest first."""

from __future__ import annotations

import gc
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from nacre.cli import table
from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import chop, clean, several, short_path, size
from nacre.cli.output import Out
from nacre.cli.store_choice import count_logs, emptied_logs, is_url, open_store, remember_rows, shown_store
from nacre.cli.table import Column
from nacre.keys import is_internal
from nacre.render.session_item import SORTS, session_item

if TYPE_CHECKING:
    from nacre.render.conversation import Notice
    from nacre.render.session_item import Info

EXAMPLES = (
    ("the ten newest sessions", "nacre sessions list -n 10"),
    ("all sessions of one channel, with archived ones", "nacre sessions list --all --prefix telegram:"),
    ("the chats of the current folder", "nacre sessions list --folder"),
    ("largest first", "nacre sessions list --sort size"),
    ("pinned sessions with a tag", "nacre sessions list --tag work --pinned"),
    ("only the keys, for a script", "nacre sessions list --format '{key}'"),
)

_FIELD = re.compile(r"\{(\w+)\}|\\([tn\\])")
_BREAKS = {"t": "\t", "n": "\n", "\\": "\\"}
_WIDTH_FOR_FOLDERS = 100
_MAX_REPORTED = 5


class _Page(NamedTuple):
    """What is shown of the list, and how it goes on.

    `hidden` is the number of archived sessions with that prefix, `active` that of all active ones.
    """

    infos: Sequence[Info]
    total: int
    cursor: str | None
    hidden: int
    active: int


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
    parser.add_argument("--sort", choices=tuple(SORTS), default="updated", help="sort by this, newest or largest first")
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument("--cursor", metavar="C", help="continue after this cursor, next_cursor of an earlier list")
    parser.add_argument(
        "--format",
        metavar="TEXT",
        help="a line per session: {key} {title} {messages} {updated} {created} {bytes} {archived} {pinned} {tags} "
        "{cwd} {role} {model}, \\t",
    )


def run(args: Namespace, out: Out) -> int:
    # Thousands of values that are needed to the end: to look for garbage among them takes a fifth of the time.
    gc.disable()
    try:
        location = shown_store(args)
        if is_url(location):
            page, aside = _read(args)
        else:
            page = _read_warm(location, args) or _read(args)[0]
            aside = _quarantined(args, location)
        remember_rows(location, [info.key for info in page.infos])
        _print(out, page, args, aside)
        _report(out, args, aside)
        if not is_url(location):
            _report_emptied(out, page, location)
        if page.hidden and not (args.all or args.archived):
            out.note(f"{several(page.hidden, 'archived session')} hidden, use --all")
    finally:
        gc.enable()
    return OK


# ---- what is read


def _read_warm(root: str, args: Namespace) -> _Page | None:
    """All active sessions from an index that is up to date, without opening the store; None if there is none."""
    is_narrowed = args.tag or args.pinned or args.folder is not None or args.cursor is not None
    if is_narrowed or args.all or args.archived or args.limit is not None:
        return None
    try:
        from nacre.index.warm import listed  # noqa: PLC0415 - a Python may have been built without SQLite
    except ImportError:
        return None
    found = listed(root)
    if found is None:
        return None
    infos = [
        info for info in found if info.key.startswith(args.prefix) and (args.internal or not is_internal(info.key))
    ]
    infos.sort(key=attrgetter("key"))
    infos.sort(key=attrgetter(SORTS[args.sort]), reverse=args.sort != "key")
    if args.reverse:
        infos.reverse()
    hidden = count_logs(f"{root}/archive")
    if hidden and args.prefix:
        # A file's name does not always tell how its key begins.
        return None
    return _Page(infos, len(infos), None, hidden, len(found))


def _read(args: Namespace) -> tuple[_Page, Mapping[str, Notice]]:
    """The list as the library gives it, and what is in quarantine where there are no files to look at."""
    from nacre.errors import InvalidArgument  # noqa: PLC0415 - a list that is up to date loads nothing of the library
    from nacre.history.list_page import parse_cursor  # noqa: PLC0415 - the same
    from nacre.history.overview import tags_in  # noqa: PLC0415 - the same

    order = SORTS[args.sort]
    if args.cursor is not None:
        try:
            parse_cursor(args.cursor, order=order, reverse=args.reverse)
        except InvalidArgument as error:
            what = f"the cursor {args.cursor!r} is not in this list"
            raise Failure("not_found", what, hint="start again without --cursor") from error
    with open_store(args) as sessions:
        if args.limit is not None and args.limit < 1:
            raise Failure("usage", f"--limit is 1 or more, not {args.limit}")
        page = sessions.page(
            which="all" if args.all else "archived" if args.archived else "active",
            prefix=args.prefix,
            tags=tags_in(",".join(args.tag)),
            pinned=args.pinned,
            folder=None if args.folder is None else os.path.realpath(os.path.expanduser(args.folder)),
            internal=args.internal,
            order=order,
            reverse=args.reverse,
            limit=None if args.limit is None else min(args.limit, sys.maxsize),
            cursor=args.cursor,
        )
        hidden = sessions.page(which="archived", prefix=args.prefix, internal=True, limit=0).total
        active = sessions.page(internal=True, limit=0).total
        aside: Mapping[str, Notice] = {}
        if is_url(sessions.location):
            from nacre.render.conversation import notices  # noqa: PLC0415 - the same

            aside = notices(sessions.quarantine())
        return _Page(page.items, page.total, page.cursor, hidden, active), aside


def _quarantined(args: Namespace, root: str) -> Mapping[str, Notice]:
    """What is in quarantine, by session; most stores have none, and are not opened for it."""
    if not os.path.isdir(f"{root}/quarantine"):
        return {}
    from nacre.render.conversation import notices  # noqa: PLC0415 - only where there may be some

    with open_store(args) as sessions:
        return notices(sessions.quarantine())


# ---- how it is shown


def _print(out: Out, page: _Page, args: Namespace, aside: Mapping[str, Notice]) -> None:
    if out.json:
        items = ({**session_item(info), "quarantine": aside.get(info.key)} for info in page.infos)
        out.listing(items, total=page.total, cursor=page.cursor)
    elif args.format is not None:
        for item in map(session_item, page.infos):
            out.say(_fill(args.format, item))
    elif page.infos:
        _print_table(out, page.infos, all=args.all)
    elif args.folder is not None:
        folder = clean(os.path.realpath(os.path.expanduser(args.folder)))
        out.note(f"no session was started in {folder} or below it")
    elif args.tag or args.pinned:
        out.note("no session has these labels")
    elif args.prefix:
        out.note(f"no key starts with {args.prefix!r}")
    else:
        out.note("no archived sessions" if args.archived else "no sessions yet")
    if page.cursor is not None:
        # How many are on later pages, only the first page tells.
        more = several(page.total - len(page.infos), "more session") if args.cursor is None else "more sessions"
        out.note(f"{more}; go on with --cursor {page.cursor}")


def _print_table(out: Out, infos: Sequence[Info], *, all: bool) -> None:
    """Print a row for each session; cells are made column by column: that is twice as quick for thousands of rows."""
    format_size, format_count = lru_cache(size), lru_cache("{:,}".format)
    # A star if it is pinned, and its tags.
    marks = [
        " ".join(filter(None, ("★" * info.pinned, clean(", ".join(info.tags))))) if info.tags or info.pinned else ""
        for info in infos
    ]
    folders: list[str] = []
    if not out.has_width or out.width >= _WIDTH_FOR_FOLDERS:
        folders = [short_path(info.cwd) if info.cwd else "" for info in infos]
    columns = [
        (Column("#", right=True, style=out.dim), [str(number) for number in range(1, len(infos) + 1)]),
        (Column("KEY", wraps=chop, style=out.bold), [clean(info.key) for info in infos]),
        (Column("TITLE", shrinks=True), [clean(info.title) for info in infos]),
        (Column("TAGS", shrinks=True, style=out.yellow), marks if any(marks) else []),
        (Column("FOLDER", shrinks=True, style=out.dim), folders if any(folders) else []),
        (Column("MSGS", right=True), [format_count(info.messages) for info in infos]),
        (Column("SIZE", right=True), [format_size(info.bytes) for info in infos]),
        (Column("STATE", style=out.dim), ["archived" if info.archived else "active" for info in infos] if all else []),
        (Column("UPDATED", right=not out.iso, style=out.dim), [out.when(info.updated) for info in infos]),
    ]
    shown = [(column, cells) for column, cells in columns if cells]
    with out.pager():
        table.show(out, [column for column, _ in shown], list(zip(*(cells for _, cells in shown), strict=True)))


def _fill(template: str, item: dict[str, Any]) -> str:
    """A line of --format: the fields of a session in their places."""

    def fill(found: re.Match[str]) -> str:
        if found[2]:
            return _BREAKS[found[2]]
        if found[1] not in item:
            raise Failure("usage", f"--format has no field {{{found[1]}}}", hint=f"its fields are {', '.join(item)}")
        value = item[found[1]]
        return clean(",".join(value) if isinstance(value, tuple) else str(value))

    return _FIELD.sub(fill, template)


def _report(out: Out, args: Namespace, aside: Mapping[str, Notice]) -> None:
    """Say below the list what is damaged, also of sessions that are not in it."""
    aside = {key: aside[key] for key in aside if key.startswith(args.prefix)}
    for key, notice in list(aside.items())[:_MAX_REPORTED]:
        out.note(f"{clean(key)}: {clean(notice.text)}; `{clean(notice.command)}` shows more")
    if len(aside) > _MAX_REPORTED:
        out.note(f"{several(len(aside), 'session')} have something in quarantine: `nacre sessions quarantine`")


def _report_emptied(out: Out, page: _Page, root: str) -> None:
    """Name logs that have lost everything: each file is looked at only if there are more than sessions."""
    found = emptied_logs(root) if count_logs(f"{root}/sessions") > page.active else []
    if found:
        named = ", ".join(found[:_MAX_REPORTED]) + (" …" if len(found) > _MAX_REPORTED else "")
        out.note(f"{several(len(found), 'log')} empty (0 bytes): {clean(named)}; `nacre sessions verify` shows more")
