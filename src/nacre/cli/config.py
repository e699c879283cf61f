"""nacre config: the settings, where they are, and whether they can work."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from nacre import config as settings
from nacre.cli import table
from nacre.cli.failures import OK, USAGE
from nacre.cli.output import Out
from nacre.cli.place import root_of
from nacre.cli.table import Column
from nacre.cli.text import clean

EXAMPLES = (
    ("every setting, and where it was set", "nacre config show"),
    ("edit the file", '${EDITOR:-vi} "$(nacre config path)"'),
    ("is it right?", "nacre config check"),
    ("set one for a single command", "NACRE_CLI_COLOR=never nacre sessions list"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("show", "path", "check"), nargs="?", default="show", help="show if nothing is said"
    )


def run(args: Namespace, out: Out) -> int:
    return {"show": _show, "path": _path, "check": _check}[args.action](args, out)


def _path(_: Namespace, out: Out) -> int:
    path = settings.path()
    if out.json:
        out.document({"path": path, "exists": os.path.exists(path)})
    else:
        out.say(clean(path))
    return OK


def _show(args: Namespace, out: Out) -> int:
    found = settings.current(settings.read(), os.environ)
    if out.json:
        values = {value.setting.key: {"value": value.value, "source": value.source} for value in found}
        out.document({"schema_version": 1, "path": settings.path(), "store": root_of(args), "settings": values})
        return OK
    columns = [
        Column("SETTING", style=out.bold),
        Column("VALUE"),
        Column("FROM"),
        Column("MEANING", shrinks=True, style=out.dim),
    ]
    table.show(out, columns, [(v.setting.key, _shown(v.value), v.source, v.setting.meaning) for v in found])
    out.say(f"\nfile   {clean(settings.path())}{'' if os.path.exists(settings.path()) else ' (not there)'}")
    out.say(f"store  {clean(root_of(args))}")
    return OK


def _shown(value: settings.Plain) -> str:
    if isinstance(value, tuple):
        return clean(" ".join(value))
    return str(value).lower() if isinstance(value, bool) else clean(str(value))


def _check(_: Namespace, out: Out) -> int:
    wrong = settings.complaints(settings.read(), os.environ) or _wrong_rules()
    if out.json:
        out.document({"ok": not wrong, "path": settings.path(), "problems": wrong})
    else:
        for problem in wrong:
            out.say(clean(problem))
        if not wrong:
            out.note("the settings are right")
    return USAGE if wrong else OK


def _wrong_rules() -> list[str]:
    """What is wrong with permission rules."""
    from nacre.app.permissions import check_rules  # noqa: PLC0415 - loads the agent, which the other actions do not need
    from nacre.errors import ConfigError  # noqa: PLC0415 - the same

    try:
        check_rules(settings.load())
    except ConfigError as error:
        return [str(error)]
    return []
