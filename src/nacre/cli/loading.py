"""Loading one verb, reading its arguments, and running it."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn

from nacre.cli import verbs
from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out
from nacre.cli.verbs import HELP, NAMES, Flags

Add = Callable[[ArgumentParser], None]
Run = Callable[[Namespace, Out], int]


class Command:
    """A verb: its own arguments, how it runs, and what people do with it, each with the command for that."""

    def __init__(self, add: Add, run: Run, *examples: tuple[str, str]) -> None:
        self.add, self.run, self.examples = add, run, examples


class _Parser(ArgumentParser):
    """A parser that raises Failure, and names the option that was meant."""

    words: Sequence[str] = ()
    """The command line, for hints about it."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        hint = f"`{self.prog} --help` shows the usage"
        key = self._key_like_an_option()
        if key:
            hint = f"a key that begins with - stands after --: `{self.prog} -- {key}`"
        if unknown == message:
            raise Failure("usage", f"{self.prog}: {message}", hint=hint)
        word = next((word for word in unknown.split() if word.startswith("-")), unknown.split()[0])
        if not word.startswith("-"):
            raise Failure("usage", f"{self.prog}: unexpected argument {word!r}", hint=hint)
        near = "" if word == key else closest(word.partition("=")[0], [*self._option_string_actions, *NAMES])
        meant = f"did you mean {near}? " if near else ""
        raise Failure("usage", f"{self.prog} has no option {word!r}", hint=f"{meant}{hint}")

    def _key_like_an_option(self) -> str:
        """The first word with one dash that is too long for an option, if the verb takes a session; else ""."""
        if not any(action.dest in {"ref", "refs"} for action in self._actions):
            return ""
        return next((word for word in self.words if re.match(r"-[^-]\w*[-/:]", word)), "")


def run(program: str, verb: str, flags: Flags, words: list[str]) -> int:
    """Run a verb with its arguments."""
    command = load(verb)
    if flags.help:
        Out(flags).write(help_of(program, verb, command))
        return OK
    if verb in verbs.HIDDEN:
        args = Namespace(words=words)
    else:
        # Options may stand before, between and after arguments. But Python 3.11 drops `--` when they are intermixed,
        # and would take what follows for options.
        parser = parser_of(program, command)
        parser.words = words
        args = parser.parse_args(words) if "--" in words else parser.parse_intermixed_args(words)
    args.store, args.agent, args.quiet = flags.store, flags.agent, flags.quiet
    return command.run(args, Out(flags))


def load(verb: str) -> Command:
    """Load the module of a verb; raises Failure where there is none."""
    name = verb.strip("_").replace("-", "_").replace(" ", "_")
    shared = next((module for module, names in verbs.MODULES.items() if verb in names), "")
    path = f"nacre.cli.commands.{shared or name}"
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        raise Failure("unavailable", f"this version of nacre has no `{verb}`") from error
    command: Command = getattr(module, name) if shared else Command(module.add, module.run, *module.EXAMPLES)
    return command


def parser_of(program: str, command: Command) -> _Parser:
    """The parser of a verb's own arguments."""
    columns = os.environ.get("COLUMNS", "")
    width = min(int(columns), 100) if columns.isdigit() else 80
    formatter = partial(HelpFormatter, max_help_position=24, width=width)
    parser = _Parser(prog=program, add_help=False, allow_abbrev=False, formatter_class=formatter)
    parser.color = False  # type: ignore[attr-defined] # newer versions of Python would paint the help
    command.add(parser)
    return parser


def help_of(program: str, verb: str, command: Command) -> str:
    """What `--help` prints for a verb: usage, arguments, examples, and the options of every verb."""
    parser = parser_of(program, command)
    summary = (verbs.SESSIONS.get(verb) or verbs.TOP.get(verb) or verbs.NESTED.get(verb) or "").rstrip()
    parser.description = f"{summary[:1].upper()}{summary[1:]}."
    examples = "".join(f"  {line}\n      {what}\n" for what, line in command.examples)
    takes_ref = any(action.dest in {"ref", "refs"} and action.metavar for action in parser._actions)  # noqa: SLF001 - argparse has no public way
    refs = f"{verbs.REF}\n" if takes_ref else ""
    return f"{parser.format_help()}\nexamples:\n{examples}\n{refs}{HELP}"


def closest(word: str, names: Sequence[str]) -> str:
    """The name that was probably meant; "" if none is close."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a typing error

    near = get_close_matches(word, names, n=1, cutoff=0.7)
    return near[0] if near else ""
