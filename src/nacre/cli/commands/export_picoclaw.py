"""nacre sessions export --format picoclaw: the way back to an earlier agent."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from nacre.cli.commands.transfer import refuse_existing, write
from nacre.cli.failures import Failure
from nacre.cli.many import Done, each, keys_of
from nacre.cli.one_line import several
from nacre.cli.output import Out
from nacre.cli.store_choice import opened
from nacre.legacy.formats import LINES, META, Exported, export, file_of


def export_all(args: Namespace, out: Out) -> int:
    """Write the files of one session, or of every active one, into a folder."""
    if args.output == "-":
        raise Failure("usage", "picoclaw reads a folder of files", hint="add -o DIR")
    folder = Path(args.output)
    written: dict[str, str] = {}
    with opened(args) as sessions:
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
            if not args.dry_run:
                _write(folder, name, exported, force=args.force)
            more = {"path": str(folder / f"{name}{LINES}"), "messages": exported.messages}
            return Done(key, "exported", more, f"{several(exported.messages, 'message')} to {name}{LINES}")

        return each(out, "export", chosen, export_one, dry_run=args.dry_run)


def _write(folder: Path, name: str, exported: Exported, *, force: bool) -> None:
    """Write both files; the metadata first, since without it the messages to skip would be live again."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure("failed", f"{folder} cannot be made: {error.strerror or error}") from error
    paths = folder / f"{name}{META}", folder / f"{name}{LINES}"
    if not force:
        for path in paths:
            refuse_existing(path)
    for path, data in zip(paths, (exported.meta, exported.lines), strict=True):
        write(path, [data], force=force)
