"""Loading one verb, reading its arguments, and running it."""

from __future__ import annotations

import os
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, Protocol

from nacre.cli import verbs
from nacre.cli.failures import OK, Failure
from nacre.cli.flags import HELP, Flags
from nacre.cli.output import Out


class Verb(Protocol):
    """What the module of a verb has."""

    EXAMPLES: Sequence[tuple[str, str]]

    def add(self, parser: ArgumentParser) -> None:
        """Declare the verb's own arguments."""

    def run(self, args: Namespace, out: Out) -> int:
        """Do it; returns the exit code."""


class Parser(ArgumentParser):
    """A parser whose complaints are failures like any other."""

    def error(self, message: str) -> NoReturn:
        raise Failure("usage", f"{self.prog}: {message}", hint=f"`{self.prog} --help` says how it is used")


def run(program: str, verb: str, flags: Flags, words: list[str]) -> int:
    """Run a verb with the words behind it."""
    module = load(verb)
    if flags.help:
        Out(flags).write(help_of(program, verb, module))
        return OK
    args = Namespace(words=words) if verb in verbs.HIDDEN else parser_of(program, module).parse_args(words)
    args.store, args.agent = flags.store, flags.agent
    return module.run(args, Out(flags))


def load(verb: str) -> Verb:
    """The module of a verb; raises Failure where this installation has none."""
    name = f"nacre.cli.{verbs.MODULES.get(verb, verb)}"
    try:
        module: Verb = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise Failure("unavailable", f"this version of nacre has no `{verb}` yet") from error
    return module


def parser_of(program: str, module: Verb) -> ArgumentParser:
    """The parser of a verb's own arguments."""
    parser = Parser(prog=program, add_help=False, allow_abbrev=False, formatter_class=_formatter)
    parser.color = False  # type: ignore[attr-defined] # newer versions of Python would paint the help
    module.add(parser)
    return parser


def help_of(program: str, verb: str, module: Verb) -> str:
    """What `--help` prints for a verb: usage, arguments, examples, and what all verbs share."""
    parser = parser_of(program, module)
    summary = (verbs.SESSIONS.get(verb) or verbs.TOP.get(verb) or "").rstrip()
    parser.description = f"{summary[:1].upper()}{summary[1:]}."
    examples = "".join(f"  {command}\n      {what}\n" for what, command in module.EXAMPLES)
    takes_ref = any(action.dest in {"ref", "refs"} and action.metavar for action in parser._actions)  # noqa: SLF001 - argparse has no public way
    refs = f"{verbs.REF}\n" if takes_ref else ""
    return f"{parser.format_help()}\nexamples:\n{examples}\n{refs}{HELP}"


def _formatter(prog: str) -> HelpFormatter:
    columns = os.environ.get("COLUMNS", "")
    return HelpFormatter(prog, max_help_position=24, width=min(int(columns), 100) if columns.isdigit() else 80)
