"""nacre sessions export: a conversation as Markdown, HTML or JSON."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nacre.cli.commands.show import Excerpt, live_view, whole_view
from nacre.cli.failures import DAMAGED, OK, Failure
from nacre.cli.notices import hush_losses
from nacre.cli.one_line import clean, several, size
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find
from nacre.cli.store_choice import opened
from nacre.history import record_lines
from nacre.records import Losses, View
from nacre.render.quarantine_report import unreadable

if TYPE_CHECKING:
    from nacre.sessions import Sessions

EXAMPLES = (
    ("one self-contained page to read or send", "nacre sessions export @last --format html -o talk.html"),
    ("Markdown on stdout", "nacre sessions export telegram:42"),
    ("every record with every field", "nacre sessions export telegram:42 --format jsonl -o 42.jsonl"),
    ("every session, for picoclaw", "nacre sessions export --format picoclaw -o ~/.picoclaw/workspace/sessions"),
)

_FORMATS = ("md", "html", "json", "jsonl", "picoclaw")
_BLOCK = 1024 * 1024


def add(parser: ArgumentParser) -> None:
    add_ref(parser, required=False)
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="md (default) or html to read; json or jsonl with every field; picoclaw: files that picoclaw reads, "
        "of every session if none is given",
    )
    parser.add_argument(
        "-o", "--output", default="-", metavar="PATH", help="file to write; - is stdout (default); picoclaw: a folder"
    )
    parser.add_argument(
        "--all", action="store_true", help="md, html, picoclaw: include messages that are no longer in the history"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")


def run(args: Namespace, out: Out) -> int:
    chosen = args.format or ("jsonl" if out.jsonl else "json" if out.json else "md")
    if chosen == "picoclaw":
        from nacre.cli.commands.export_picoclaw import export_all  # noqa: PLC0415 - only the format that is asked for

        return export_all(args, out)
    if not args.ref:
        raise Failure("usage", "which session? a REF is missing", hint="`nacre sessions list` shows them")
    to_stdout = args.output == "-"
    if to_stdout and out.json and (not chosen.startswith("json") or args.dry_run):
        raise Failure("usage", "--json needs a file for the export: both go to stdout", hint="add -o PATH")
    path = Path(args.output)
    if not to_stdout and not args.force:
        refuse_existing(path)
    with opened(args) as sessions, hush_losses():
        key = find(sessions, args.ref).key
        pieces, losses = (_records if chosen.startswith("json") else _pages)(sessions, key, chosen, args, out)
    damage = _damage(key, losses)
    if to_stdout and not args.dry_run:
        for block in _blocks(pieces):
            out.raw(block)
    else:
        count = sum(map(len, _blocks(pieces))) if args.dry_run else write(path, _blocks(pieces), force=args.force)
        _tell(out, args, _receipt(args, key=key, chosen=chosen, count=count, damage=damage))
    if damage is not None:
        out.warn(f"nacre: {clean(damage.message)}\n  {clean(damage.hint)}")
    return OK if damage is None else DAMAGED


def write(path: Path, blocks: Iterable[bytes], *, force: bool) -> int:
    """Write a file whole or not at all, for its user's eyes only; returns its size.

    Raises Failure if there is one already, also one that came meanwhile, unless it may be replaced.
    """
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            count = _written(fd, blocks)
            _settle(scratch, path, force=force)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise Failure("failed", f"{path} cannot be written: {error.strerror or error}") from error
    return count


def _written(fd: int, blocks: Iterable[bytes]) -> int:
    count = 0
    with os.fdopen(fd, "wb") as file:
        for block in blocks:
            count += file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return count


def _settle(scratch: Path, path: Path, *, force: bool) -> None:
    """Give the file its name, unless another has it."""
    if force:
        scratch.replace(path)
        return
    try:
        path.hardlink_to(scratch)
    except FileExistsError:
        refuse_existing(path)
    except OSError:
        # Some file systems have no links.
        refuse_existing(path)
        scratch.replace(path)


def refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise Failure("exists", f"{path} exists already; nothing was written", hint="add --force to replace it")


# ---- what is written


class _Life(NamedTuple):
    """One generation of a session: a line for each record, and what of it is lost."""

    uid: str
    lines: list[bytes]
    losses: Losses


def _lives(sessions: Sessions, key: str) -> list[_Life]:
    def get(view: View) -> _Life:
        lines = [record_lines.whole_line(view, record, line) for record, line in record_lines.lines(view)]
        return _Life(view.uid, lines, view.losses)

    return sessions.read_generations(key, get)


def _damage(key: str, losses: Losses) -> Failure | None:
    """What an export lacks; None if that is nothing."""
    notice = unreadable(key, losses)
    if notice is None:
        return None
    what = f"session {key!r}: {notice.text}, so the export is not whole"
    return Failure("damaged", what, hint=f"`{notice.command}` shows where")


def _records(sessions: Sessions, key: str, chosen: str, _args: Namespace, _out: Out) -> tuple[Iterator[bytes], Losses]:
    lives = _lives(sessions, key)
    pieces = _json(key, lives) if chosen == "json" else (line for life in lives for line in life.lines)
    return pieces, sum((life.losses for life in lives), Losses())


def _pages(sessions: Sessions, key: str, chosen: str, args: Namespace, out: Out) -> tuple[Iterator[bytes], Losses]:
    excerpt = whole_view(sessions, key) if args.all else live_view(sessions, key)
    _hint_at_hidden(out, excerpt)
    return (piece.encode() for piece in _readable(excerpt, chosen)), excerpt.losses


def _readable(excerpt: Excerpt, chosen: str) -> Iterator[str]:
    if chosen == "html":
        from nacre.render.html_page import page  # noqa: PLC0415 - only the format that is asked for

        return page(excerpt.cover, excerpt.parts())
    from nacre.render.markdown_export import document  # noqa: PLC0415 - the same

    return document(excerpt.cover, excerpt.parts())


def _json(key: str, lives: list[_Life]) -> Iterator[bytes]:
    """One document: the generations of a session, oldest first, each with its records."""
    yield b'{"schema_version":1,"key":' + _text(key) + b',"generations":['
    for place, (uid, lines, _) in enumerate(lives):
        yield (b"," if place else b"") + b'\n{"uid":' + _text(uid) + b',"records":[\n'
        for at, line in enumerate(lines):
            yield (b"," if at else b" ") + line
        yield b"]}"
    yield b"]}\n"


def _text(value: str) -> bytes:
    from nacre.cli.one_line import clean_json  # noqa: PLC0415 - beside its only use

    return clean_json(msgspec.json.encode(value).decode()).encode()


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces joined into blocks that are worth a system call."""
    waiting: list[bytes] = []
    held = 0
    for piece in pieces:
        waiting.append(piece)
        held += len(piece)
        if held >= _BLOCK:
            yield b"".join(waiting)
            waiting, held = [], 0
    if waiting:
        yield b"".join(waiting)


# ---- what is said


def _hint_at_hidden(out: Out, excerpt: Excerpt) -> None:
    if excerpt.cut is not None and excerpt.cut.hidden:
        out.note(
            f"{several(excerpt.cut.hidden, 'message')} before the summary or truncation left out; --all includes them"
        )


def _receipt(args: Namespace, *, key: str, chosen: str, count: int, damage: Failure | None) -> dict[str, Any]:
    path = None if args.output == "-" else args.output
    receipt = {"ok": damage is None, "operation": "export", "dry_run": args.dry_run, "key": key, "format": chosen}
    receipt |= {"path": path, "bytes": count}
    return receipt if damage is None else {**receipt, "error": damage.to_mapping()}


def _tell(out: Out, args: Namespace, receipt: dict[str, Any]) -> None:
    if out.json:
        out.document(receipt)
        return
    name = "stdout" if args.output == "-" else clean(args.output)
    out.say(f"{name}: {size(receipt['bytes'])}{' would be written' if args.dry_run else ''}")
