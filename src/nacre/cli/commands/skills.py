"""nacre skills: what the agent was taught, whether it is written as it should be, and how to begin a new one."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from nacre.cli import table
from nacre.cli.failures import FAILED, OK, Failure
from nacre.cli.one_line import clean, several
from nacre.cli.output import Out
from nacre.cli.store_choice import root_of
from nacre.cli.table import Column
from nacre.skills import catalogue, skill_file
from nacre.skills.skill_file import FILE, read

EXAMPLES = (
    ("list the skills and where they come from", "nacre skills list"),
    ("check all of them", "nacre skills check"),
    ("check one in a folder", "nacre skills check ./my-skill"),
    ("create one", "nacre skills new release-notes"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "check", "new"), nargs="?", default="list", help="default: list")
    parser.add_argument("names", metavar="NAME", nargs="*", help="check: a folder or a skill; new: the name")
    parser.add_argument("--description", metavar="TEXT", default="", help="new: what it does and when to use it")
    parser.add_argument(
        "--in", dest="folder", metavar="DIR", help="new: folder to create it in (default: your own skills)"
    )


def run(args: Namespace, out: Out) -> int:
    return {"list": _list, "check": _check, "new": _new}[args.action](args, out)


def _places(args: Namespace) -> tuple[catalogue.Place, ...]:
    return catalogue.usual_places(home=Path(root_of(args)) / "home", user=Path.home(), projects=[Path.cwd()])


def _list(args: Namespace, out: Out) -> int:
    if args.names:
        raise Failure("usage", f"`nacre skills list` takes no {args.names[0]!r}", hint="it lists all of them")
    found, warnings = catalogue.find(_places(args))
    items, rows = [], []
    for one in found:
        item = {"name": one.skill.name, "description": one.skill.description, "from": one.place.whose}
        items.append({**item, "path": str(one.skill.folder / FILE)})
        rows.append((clean(one.skill.name), one.place.whose, clean(one.skill.description)))
    if out.json:
        out.listing(items)
    else:
        columns = [Column("NAME", style=out.bold), Column("FROM", style=out.dim), Column("FOR", shrinks=True)]
        table.show(out, columns, rows)
    for warning in warnings:
        out.note(clean(warning))
    return OK


def _check(args: Namespace, out: Out) -> int:
    folders = [folder for place in _places(args) for folder in catalogue.folders(place)]
    if args.names:
        folders = [folder for name in args.names for folder in _named(name, folders)]
    readings = [read(folder) for folder in folders]
    wrong = sum(bool(reading.errors) for reading in readings)
    if out.json:
        skills = [
            {
                "name": reading.skill.name if reading.skill else reading.folder.name,
                "path": str(reading.folder / FILE),
                "ok": not reading.errors,
                "usable": reading.skill is not None,
                "errors": list(reading.errors),
                "advice": list(reading.advice),
            }
            for reading in readings
        ]
        out.document({"ok": not wrong, "checked": len(readings), "skills": skills})
        return FAILED if wrong else OK
    for reading in readings:
        if reading.errors or reading.advice:
            out.say(out.bold(clean(str(reading.folder / FILE))))
        for error in reading.errors:
            out.say(f"  {out.red('wrong')}   {clean(error)}")
        for advice in reading.advice:
            out.say(f"  {out.yellow('advice')}  {clean(advice)}")
    if not wrong:
        out.note(f"{several(len(readings), 'skill')} checked, all valid")
    return FAILED if wrong else OK


def _named(name: str, known: list[Path]) -> list[Path]:
    """The folder that is meant: one that is there, or all skills in a folder, or a skill by its name."""
    path = Path(name).parent if Path(name).name == FILE else Path(name)
    if (path / FILE).exists():
        # Absolute, since a skill's name is compared with its folder's.
        return [path.absolute() if path.name else path.resolve()]
    if path.is_dir() and os.sep in name:
        inside = list(catalogue.folders(catalogue.Place(whose="user", folder=path.absolute())))
        return inside or [path.absolute()]
    same = [folder for folder in known if folder.name == name]
    if not same:
        raise Failure("not_found", f"there is no skill {name!r}", hint="`nacre skills list` shows them all")
    return same


def _new(args: Namespace, out: Out) -> int:
    if len(args.names) != 1:
        raise Failure("usage", "name the new skill, in one word", hint="nacre skills new release-notes")
    folder = Path(args.folder or Path(root_of(args)) / "home" / "skills")
    path = skill_file.make(folder.absolute(), args.names[0], description=args.description)
    document = {"operation": "new", "name": args.names[0], "path": str(path)}
    note = "describe in it what it does; `nacre skills check` finds mistakes"
    return out.receipt(document, clean(str(path)), note=note)
