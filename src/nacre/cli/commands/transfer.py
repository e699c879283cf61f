"""nacre sessions export, migrate: conversations as files, and the sessions of an earlier agent."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nacre.cli.commands.show import Excerpt, live_view, whole_view
from nacre.cli.failures import DAMAGED, FAILED, NOT_FOUND, OK, PARTIAL, Failure
from nacre.cli.loading import Command
from nacre.cli.many import Done, each, keys_of
from nacre.cli.notices import silence_losses
from nacre.cli.one_line import clean, clean_json, several, size
from nacre.cli.output import Out
from nacre.cli.refs import add_ref, find
from nacre.cli.store_choice import is_url, open_store, show, store_of
from nacre.history import record_lines
from nacre.records import Losses, View
from nacre.render.conversation import unreadable

if TYPE_CHECKING:
    from nacre.legacy.migration import Migration

_FORMATS = ("md", "html", "json", "jsonl", "picoclaw")
_BLOCK = 1024 * 1024
_LEFT_BEHIND = ("unreadable", "failed")
_MAX_NAMED = 20


# ---- export


def _add_export(parser: ArgumentParser) -> None:
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


def _export(args: Namespace, out: Out) -> int:
    chosen = args.format or ("jsonl" if out.jsonl else "json" if out.json else "md")
    if chosen == "picoclaw":
        return _export_picoclaw(args, out)
    if not args.ref:
        raise Failure("usage", "which session? a REF is missing", hint="`nacre sessions list` shows them")
    to_stdout, is_json = args.output == "-", chosen.startswith("json")
    if to_stdout and out.json and (not is_json or args.dry_run):
        raise Failure("usage", "--json needs a file for the export: both go to stdout", hint="add -o PATH")
    path = Path(args.output)
    if not to_stdout and not args.force:
        _refuse_existing(path)
    pieces: Iterator[bytes]
    with open_store(args) as sessions, silence_losses():
        key = find(sessions, args.ref).key
        if is_json:
            generations = sessions.read_generations(key, _read_lines)
            losses = sum((one.losses for one in generations), Losses())
            lines = (line for one in generations for line in one.lines)
            pieces = _json_document(key, generations) if chosen == "json" else lines
        else:
            excerpt = whole_view(sessions, key) if args.all else live_view(sessions, key)
            losses, pieces = excerpt.losses, _pages(excerpt, chosen)
            if excerpt.cut is not None and excerpt.cut.hidden:
                hidden = several(excerpt.cut.hidden, "message")
                out.note(f"{hidden} before the summary or truncation left out; --all includes them")
    damage = None
    if (notice := unreadable(key, losses)) is not None:
        what = f"session {key!r}: {notice.text}, so the export is not whole"
        damage = Failure("damaged", what, hint=f"`{notice.command}` shows where")
    if to_stdout and not args.dry_run:
        for block in _blocks(pieces):
            out.raw(block)
    else:
        count = sum(map(len, _blocks(pieces))) if args.dry_run else write(path, _blocks(pieces), force=args.force)
        document = {"ok": damage is None, "operation": "export", "dry_run": args.dry_run, "key": key, "format": chosen}
        document |= {"path": None if to_stdout else args.output, "bytes": count}
        if damage is not None:
            document["error"] = damage.to_mapping()
        name = "stdout" if to_stdout else clean(args.output)
        out.receipt(document, f"{name}: {size(count)}{' would be written' if args.dry_run else ''}")
    if damage is not None:
        out.warn(f"nacre: {clean(damage.message)}\n  {clean(damage.hint)}")
    return OK if damage is None else DAMAGED


def _export_picoclaw(args: Namespace, out: Out) -> int:
    """Write the files of one session, or of every active one, into a folder: the way back to an earlier agent."""
    from nacre.legacy.formats import LINES, META, export, file_of  # noqa: PLC0415 - only for this format

    if args.output == "-":
        raise Failure("usage", "picoclaw reads a folder of files", hint="add -o DIR")
    folder = Path(args.output)
    written: dict[str, str] = {}
    with open_store(args) as sessions:
        every: dict[str, str | Failure] = {key: key for key in sorted(info.key for info in sessions.list())}
        chosen = keys_of(sessions, [args.ref], internal=True) if args.ref else every

        def export_one(key: str) -> Done:
            exported = sessions.read(key, lambda view: export(view, key, dropped=args.all))
            if exported is None:
                raise Failure("not_found", f"there is no session {key!r}")
            name = file_of(key)
            if name in written:
                raise Failure("conflict", f"picoclaw has one file for sessions {written[name]!r} and {key!r}")
            written[name] = key
            # The metadata first, since without it the messages to skip would be live again.
            files = {folder / f"{name}{META}": exported.meta, folder / f"{name}{LINES}": exported.lines}
            if not args.dry_run:
                try:
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                except OSError as error:
                    raise Failure("failed", f"{folder} cannot be made: {error.strerror or error}") from error
                for path in () if args.force else files:
                    _refuse_existing(path)
                for path, data in files.items():
                    write(path, [data], force=args.force)
            more = {"path": str(folder / f"{name}{LINES}"), "messages": exported.messages}
            return Done(key, "exported", more, f"{several(exported.messages, 'message')} to {name}{LINES}")

        return each(out, "export", chosen, export_one, dry_run=args.dry_run)


def write(path: Path, blocks: Iterable[bytes], *, force: bool) -> int:
    """Write a file whole or not at all, for its user's eyes only; returns its size.

    Raises Failure if there is one already, also one that came meanwhile, unless it may be replaced.
    """
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                count = sum(map(file.write, blocks))
                file.flush()
                os.fsync(file.fileno())
            # Give the file its name, unless another has it.
            if force:
                scratch.replace(path)
                return count
            try:
                path.hardlink_to(scratch)
            except FileExistsError:
                _refuse_existing(path)
            except OSError:
                # Some file systems have no links.
                _refuse_existing(path)
                scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise Failure("failed", f"{path} cannot be written: {error.strerror or error}") from error
    return count


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise Failure("exists", f"{path} exists already; nothing was written", hint="add --force to replace it")


class _Generation(NamedTuple):
    """One generation of a session: a line for each record, and what of it is lost."""

    uid: str
    lines: list[bytes]
    losses: Losses


def _read_lines(view: View) -> _Generation:
    lines = [record_lines.whole_line(view, record, line) for record, line in view.all_lines()]
    return _Generation(view.uid, lines, view.losses)


def _json_document(key: str, generations: list[_Generation]) -> Iterator[bytes]:
    """One document: the generations of a session, oldest first, each with its records."""

    def text(value: str) -> bytes:
        return clean_json(msgspec.json.encode(value).decode()).encode()

    yield b'{"schema_version":1,"key":' + text(key) + b',"generations":['
    for place, (uid, lines, _) in enumerate(generations):
        yield (b"," if place else b"") + b'\n{"uid":' + text(uid) + b',"records":[\n'
        for at, line in enumerate(lines):
            yield (b"," if at else b" ") + line
        yield b"]}"
    yield b"]}\n"


def _pages(excerpt: Excerpt, chosen: str) -> Iterator[bytes]:
    """A conversation to read: a page of HTML, or Markdown."""
    if chosen == "html":
        from nacre.render.html_page import page  # noqa: PLC0415 - only the format that is asked for

        return (piece.encode() for piece in page(excerpt.cover, excerpt.parts()))
    from nacre.render.markdown_export import document  # noqa: PLC0415 - the same

    return (piece.encode() for piece in document(excerpt.cover, excerpt.parts()))


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


export = Command(
    _add_export,
    _export,
    ("one self-contained page to read or send", "nacre sessions export @last --format html -o talk.html"),
    ("Markdown on stdout", "nacre sessions export telegram:42"),
    ("every record with every field", "nacre sessions export telegram:42 --format jsonl -o 42.jsonl"),
    ("every session, for picoclaw", "nacre sessions export --format picoclaw -o ~/.picoclaw/workspace/sessions"),
)


# ---- migrate


def _add_migrate(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="folder of the earlier sessions; DIR/sessions is searched too")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _migrate(args: Namespace, out: Out) -> int:
    if not os.path.isdir(args.directory):
        raise Failure("not_found", f"there is no directory {args.directory}")
    try:
        from nacre.legacy.migration import migrate_into  # noqa: PLC0415 - so that its absence is one clear line
    except ModuleNotFoundError as error:
        raise Failure("unavailable", "this version of nacre cannot migrate sessions") from error
    if is_url(store := store_of(args)):
        raise Failure(
            "usage",
            f"sessions of an earlier agent are migrated into a folder, not into {show(store)}",
            hint="migrate them with --store FOLDER, then `nacre sessions copy FOLDER URL`",
        )
    seen = 0
    with out.progress("migrating") as step:

        def progress(done: int, total: int) -> None:
            nonlocal seen
            step.total = total
            step(done - seen)
            seen = done

        migration = migrate_into(store, args.directory, dry_run=args.dry_run, progress=progress)
    if out.json:
        results: list[dict[str, object]] = []
        for found in migration.report:
            item: dict[str, object] = {"ref": found.file, "key": found.key, "ok": found.outcome not in _LEFT_BEHIND}
            item |= {"status": found.outcome, "messages": found.messages, "set_aside": found.set_aside}
            results.append({**item, "detail": found.detail} if found.detail else item)
        document = {"ok": migration.ok and migration.is_known, "operation": "migrate", "dry_run": args.dry_run}
        out.document({**document, "results": results, "unknown": list(migration.unknown)})
    else:
        _print_migration(out, migration, dry_run=args.dry_run)
    if not migration.is_known:
        return NOT_FOUND
    left = sum(found.outcome in _LEFT_BEHIND for found in migration.report)
    if not left:
        return OK
    return FAILED if left == len(migration.report) else PARTIAL


def _print_migration(out: Out, migration: Migration, *, dry_run: bool) -> None:
    for found in migration.report:
        line = f"{clean(found.file)}: {found.outcome}"
        if found.outcome in _LEFT_BEHIND:
            out.warn(f"nacre: {line}: {clean(found.detail)}")
            continue
        line += f" as {clean(found.key)}, {several(found.messages, 'message')}" if found.key else ""
        aside = f", {several(found.set_aside, 'bad line')} moved to quarantine" if found.set_aside else ""
        out.say(f"{line}{aside}")
    for path in migration.unknown[:_MAX_NAMED]:
        out.warn(f"nacre: not a session that nacre knows: {clean(path)}")
    if len(migration.unknown) > _MAX_NAMED:
        out.warn(f"nacre: {len(migration.unknown) - _MAX_NAMED} more files are unknown; --json names all")
    if not migration.is_known:
        out.warn("nacre: no session of an earlier agent was found; docs/migration.md says what is recognised")
    elif not migration.report:
        out.note("there is nothing to migrate")
    elif dry_run:
        out.note("nothing was done: --dry-run")


migrate = Command(
    _add_migrate,
    _migrate,
    ("see what would be done", "nacre sessions migrate ~/.picoclaw/workspace --dry-run"),
    ("import them; the originals are kept as ….migrated", "nacre sessions migrate ~/.picoclaw/workspace"),
)
