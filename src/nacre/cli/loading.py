"""Loading one verb, reading its arguments, and running it."""

from __future__ import annotations

import os
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn, Protocol

from nacre.cli import verbs
from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out
from nacre.cli.verbs import HELP, NAMES, Flags


class Verb(Protocol):
    """A verb: its module, or a `Command` in a module of several."""

    @property
    def EXAMPLES(self) -> Sequence[tuple[str, str]]:  # noqa: N802 - a constant of the module
        """What people do with it, and the command for that."""

    def add(self, parser: ArgumentParser) -> None:
        """Declare the verb's own arguments."""

    def run(self, args: Namespace, out: Out) -> int:
        """Run it; returns the exit code."""


class Command(NamedTuple):
    """A verb that shares its module with others."""

    EXAMPLES: Sequence[tuple[str, str]]
    add: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Out], int]


class Parser(ArgumentParser):
    """A parser that raises Failure, and names the option that was meant."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        hint = f"`{self.prog} --help` shows the usage"
        if unknown == message:
            raise Failure("usage", f"{self.prog}: {message}", hint=hint)
        word = next((word for word in unknown.split() if word.startswith("-")), unknown.split()[0])
        if not word.startswith("-"):
            raise Failure("usage", f"{self.prog}: unexpected argument {word!r}", hint=hint)
        near = closest(word.partition("=")[0], [*self._option_string_actions, *NAMES])
        meant = f"did you mean {near}? " if near else ""
        raise Failure("usage", f"{self.prog} has no option {word!r}", hint=f"{meant}{hint}")


def run(program: str, verb: str, flags: Flags, words: list[str]) -> int:
    """Run a verb with its arguments."""
    module = load(verb)
    if flags.help:
        Out(flags).write(help_of(program, verb, module))
        return OK
    args = Namespace(words=words) if verb in verbs.HIDDEN else _parse(parser_of(program, module), words)
    args.store, args.agent, args.quiet = flags.store, flags.agent, flags.quiet
    return module.run(args, Out(flags))


def _parse(parser: ArgumentParser, words: list[str]) -> Namespace:
    """Read arguments, with options before, between and after them."""
    # Python 3.11 drops `--` when arguments are intermixed, and would take what follows for options.
    return parser.parse_args(words) if "--" in words else parser.parse_intermixed_args(words)


def load(verb: str) -> Verb:
    """The module of a verb; raises Failure where this installation has none."""
    module_name, _, command = verbs.MODULES.get(verb, verb).partition(":")
    name = f"nacre.cli.commands.{module_name}"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise Failure("unavailable", f"this version of nacre has no `{verb}`") from error
    found: Verb = getattr(module, command) if command else module
    return found


def parser_of(program: str, module: Verb) -> ArgumentParser:
    """The parser of a verb's own arguments."""
    parser = Parser(prog=program, add_help=False, allow_abbrev=False, formatter_class=_formatter)
    parser.color = False  # type: ignore[attr-defined] # newer versions of Python would paint the help
    module.add(parser)
    return parser


def help_of(program: str, verb: str, module: Verb) -> str:
    """What `--help` prints for a verb: usage, arguments, examples, and the options of every verb."""
    parser = parser_of(program, module)
    summary = (verbs.SESSIONS.get(verb) or verbs.TOP.get(verb) or verbs.NESTED.get(verb) or "").rstrip()
    parser.description = f"{summary[:1].upper()}{summary[1:]}."
    examples = "".join(f"  {command}\n      {what}\n" for what, command in module.EXAMPLES)
    takes_ref = any(action.dest in {"ref", "refs"} and action.metavar for action in parser._actions)  # noqa: SLF001 - argparse has no public way
    refs = f"{verbs.REF}\n" if takes_ref else ""
    return f"{parser.format_help()}\nexamples:\n{examples}\n{refs}{HELP}"


def closest(word: str, names: Sequence[str]) -> str:
    """The name that was probably meant; "" if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

    near = get_close_matches(word, names, n=1, cutoff=0.7)
    return near[0] if near else ""


def _formatter(prog: str) -> HelpFormatter:
    columns = os.environ.get("COLUMNS", "")
    return HelpFormatter(prog, max_help_position=24, width=min(int(columns), 100) if columns.isdigit() else 80)
