"""nacre config: show, change and check the settings."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from nacre import config as settings
from nacre.cli.failures import OK, USAGE, Failure
from nacre.cli.one_line import clean, is_utf8, wrap
from nacre.cli.output import Out
from nacre.cli.store_choice import shown_store
from nacre.errors import ConfigError, NacreError
from nacre.user_files import locked

EXAMPLES = (
    ("every setting, its value and where it was set", "nacre config show"),
    ("choose a model", "nacre config set agent.model qwen3:8b"),
    ("a list", "nacre config set agent.only read_file list_files"),
    ("the price of a model, whose name has a dot", "nacre config set 'prices.\"gpt-4.1\".input' 2.0"),
    ("the value of one setting", "nacre config get agent.model"),
    ("back to the default", "nacre config unset agent.model"),
    ("open the file in $EDITOR, and check it afterwards", "nacre config edit"),
    ("check the configuration", "nacre config check"),
    ("set one for a single command", "NACRE_CLI_COLOR=never nacre sessions list"),
)


def add(parser: ArgumentParser) -> None:
    actions = ("show", "set", "get", "unset", "edit", "path", "check")
    parser.add_argument("action", choices=actions, nargs="?", default="show", help="default: show")
    parser.add_argument("key", nargs="?", metavar="KEY", help="a setting, as agent.model")
    parser.add_argument("values", nargs="*", metavar="VALUE", help="for `set`; several for a list")


def run(args: Namespace, out: Out) -> int:
    needs_key = args.action in {"set", "get", "unset"}
    if needs_key and args.key is None:
        value = " VALUE" if args.action == "set" else ""
        raise Failure("usage", f"`config {args.action}` needs a setting", hint=f"nacre config {args.action} KEY{value}")
    if args.action == "set" and not args.values:
        raise Failure("usage", f"`config set` needs a value for {args.key}", hint=f"nacre config set {args.key} VALUE")
    if (args.values and args.action != "set") or (args.key is not None and not needs_key):
        raise Failure("usage", f"`config {args.action}` takes no such argument: {(args.values or [args.key])[0]!r}")
    actions = {"show": _show, "set": _set, "get": _get, "unset": _unset, "edit": _edit, "path": _path, "check": _check}
    return actions[args.action](args, out)


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
        values = {value.setting.key: {"value": settings.shown(value), "source": value.source} for value in found}
        return out.document({"path": settings.path(), "store": shown_store(args), "settings": values})
    with out.pager():
        for one in found:
            setting, source = one.setting, one.source
            text = f"{setting.key} = {clean(settings.to_toml(settings.shown(one)))}"
            out.say(
                f"{out.dim(text)}  {out.dim('(default)')}" if source == "default" else f"{out.bold(text)}  ({source})"
            )
            choices = f": {', '.join(setting.choices)}" if setting.choices else ""
            room = out.width - 4 if out.has_width else 1000
            for line in wrap(f"{setting.meaning}{choices}", room):
                out.say(f"    {out.dim(line)}")
        out.say(f"\nfile   {clean(settings.path())}{'' if os.path.exists(settings.path()) else ' (does not exist)'}")
        out.say(f"store  {clean(shown_store(args))}")
    return OK


def _get(args: Namespace, out: Out) -> int:
    tables = settings.read()
    known = {found.setting.key: found for found in settings.current(tables, os.environ)}.get(args.key)
    value: Any = None if known is None else settings.shown(known)
    source = "file" if known is None else known.source
    if known is None:
        # A key that is not one of the settings, as `mcp.files.command`.
        from nacre.cli.settings_file import split_key  # noqa: PLC0415 - only for such a key

        value = tables
        for name in split_key(args.key):
            value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        near = settings.close_matches(args.key)
        hint = f"did you mean {', '.join(near)}?" if near else "`nacre config show` lists all settings"
        raise Failure("config", f"{args.key} is not a setting, and the file does not set it", hint=hint)
    if out.json:
        out.document({"key": args.key, "value": value, "source": source})
    elif isinstance(value, tuple | list) and all(isinstance(one, str) for one in value):
        for one in value:
            out.say(clean(one))
    else:
        out.say(clean(value if isinstance(value, str) else settings.to_toml(value)))
    return OK


def _set(args: Namespace, out: Out) -> int:
    from nacre.cli.settings_file import set_key, split_key  # noqa: PLC0415 - only to write

    value = _value(args.key, args.values)
    if args.key.rpartition("permissions.")[2] in {"allow", "ask", "deny"}:
        from nacre.tools.permission_rules import parse_rule  # noqa: PLC0415 - only for rules

        try:
            for rule in value:
                parse_rule(rule)
        except ConfigError as error:
            raise Failure("config", f"{args.key}: {error}") from error
    _change(lambda text: set_key(text, split_key(args.key), value))
    setting = settings.setting_of(args.key)
    note = f"{clean(args.key)} = {clean(settings.to_toml(value))}  ({clean(settings.path())})"
    out.receipt({"key": args.key, "value": value, "path": settings.path()}, note=note)
    if setting is not None and setting.key == args.key and setting.variable in os.environ:
        out.warn(f"{setting.variable} is set, and overrides the file")
    return OK


def _unset(args: Namespace, out: Out) -> int:
    from nacre.cli.settings_file import split_key, unset_key  # noqa: PLC0415 - only to write

    _change(lambda text: unset_key(text, split_key(args.key)))
    note = f"{clean(args.key)} is no longer set in {clean(settings.path())}"
    return out.receipt({"key": args.key, "path": settings.path()}, note=note)


def _value(key: str, words: Sequence[str]) -> Any:
    """What the words on the command line mean for a key; raises Failure if they are not valid."""
    if not all(is_utf8(word) for word in words):
        raise Failure("usage", f"the value for {key} is not UTF-8 text")
    setting = settings.setting_of(key)
    if setting is None:
        if len(words) > 1:
            return list(words)
        try:
            import tomllib  # noqa: PLC0415 - only to write

            tables = tomllib.loads(f"value = {words[0]}")
        except ValueError:
            return words[0]
        return tables["value"] if len(tables) == 1 else words[0]
    # One rule, as shell(git status), is a list of one: it is not split at its spaces.
    is_rule = words[0].count("(") == 1 and not words[0].lstrip().startswith("[")
    if isinstance(setting.default, tuple) and (len(words) > 1 or is_rule):
        return tuple(words)
    if len(words) > 1:
        hint = f"nacre config set {key} {shlex.quote(' '.join(words))}"
        raise Failure("usage", f"{key} is {setting.kind}, one value", hint=hint)
    try:
        return settings.parse_value(setting, words[0])
    except ConfigError as error:
        raise Failure("config", str(error)) from error


def _change(change: Callable[[str], str]) -> None:
    """Change the file under its lock, unless that would make a problem that it does not have."""
    from nacre.cli import settings_file  # noqa: PLC0415 - only to write

    with locked(os.path.dirname(settings.path())):
        text = settings.read_text() if os.path.exists(settings.path()) else ""
        known = settings.problems(settings.parse(text), {})
        after = change(text)
        wrong = [problem for problem in settings.problems(settings.parse(after), {}) if problem not in known]
        if wrong:
            raise Failure("config", "; ".join(problem.text for problem in wrong), hint="the file was not changed")
        settings_file.write(settings.path(), after)


def _edit(args: Namespace, out: Out) -> int:
    from nacre.cli import settings_file  # noqa: PLC0415 - the same
    from nacre.cli.chat.external_editor import run_editor  # noqa: PLC0415 - only to edit

    path = settings.path()
    if not os.path.exists(path):
        with locked(os.path.dirname(path)):
            # Every setting as a comment, with its default.
            lines = ["# Settings of nacre; `nacre config check` checks them.\n"]
            section = ""
            for setting in settings.SETTINGS:
                table, _, name = setting.key.partition(".")
                if table != section:
                    lines += [f"\n[{table}]\n"]
                    section = table
                choices = f": {', '.join(setting.choices)}" if setting.choices else ""
                lines += [f"# {setting.meaning}{choices}\n", f"# {name} = {settings.to_toml(setting.default)}\n"]
            settings_file.write(path, "".join(lines))
    while True:
        try:
            run_editor(path)
        except NacreError as error:
            raise Failure("failed", str(error), hint=f"the file is {path}") from error
        try:
            code = _check(args, out)
        except ConfigError as error:
            if out.json:
                raise
            out.warn(clean(str(error)))
            code = USAGE
        if code == OK or out.json or not sys.stdin.isatty():
            return code
        if out.ask("Edit it again? [Y/n] ") not in {"", "y", "yes"}:
            return code


def _check(args: Namespace, out: Out) -> int:
    from nacre.cli.commands.diagnostics import code_of, print_checks, settings_checks  # noqa: PLC0415 - only to check

    found = print_checks(settings_checks(args, out), out)
    code = code_of(found)
    if out.json:
        bad = [check.detail for check in found if check.status == "fail"]
        checks = [check._asdict() for check in found]
        out.document({"ok": code == OK, "path": settings.path(), "problems": bad, "checks": checks})
    return code
