"""Manual pages made from the help: `python -m nacre.cli.man DIR` writes nacre.1 and one page per verb."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser
from collections.abc import Iterator
from pathlib import Path

from nacre import __version__
from nacre.cli import verbs
from nacre.cli.loading import Verb, load, parser_of
from nacre.cli.verbs import HELP

EXIT_CODES = (
    (0, "success; search: at least one result"),
    (1, "failure; search: no result"),
    (2, "wrong usage or configuration"),
    (3, "not found"),
    (4, "ambiguous reference"),
    (5, "in use by another process"),
    (6, "verify: damage was found"),
    (7, "repair: some records could not be restored"),
    (8, "the store was written by a newer version"),
    (9, "some of several targets failed"),
    (10, "chat: a tool call was refused"),
    (11, "chat: a limit was reached (steps, length)"),
    (12, "chat: the answer was empty"),
    (13, "chat: the model is not available or not allowed"),
    (130, "interrupted (SIGINT)"),
    (141, "the reader of the output closed it (SIGPIPE)"),
)


def pages() -> Iterator[tuple[str, str]]:
    """Every manual page: its file name and its text."""
    yield "nacre.1", _main_page()
    for verb in (verb for verb in verbs.TOP if verb not in {*verbs.GROUPS, "help"}):
        yield f"nacre-{verb}.1", _verb_page(("nacre", verb), verb, verbs.TOP[verb])
    for verb, summary in verbs.NESTED.items():
        yield f"nacre-{verb.replace(' ', '-')}.1", _verb_page(("nacre", *verb.split()), verb, summary)
    for group, table in verbs.GROUPS.items():
        yield f"nacre-{group}.1", _group_page(group, table)
        for verb, summary in table.items():
            yield f"nacre-{group}-{verb}.1", _verb_page(("nacre", group, verb), verb, summary)


def write(folder: Path) -> int:
    """Write every page into a folder; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    found = list(pages())
    for name, text in found:
        (folder / name).write_text(text, encoding="utf-8")
    return len(found)


def _main_page() -> str:
    others = [f"nacre-{verb}" for verb in verbs.TOP if verb != "help"]
    return "".join(
        (
            _head("nacre", "an agent in your terminal whose sessions survive every crash"),
            ".SH SYNOPSIS\n.B nacre\n.I VERB\n\\&...\n",
            ".SH VERBS\n",
            *(_item(verb, summary) for verb, summary in verbs.TOP.items()),
            _shared_options(),
            _exit_status(),
            ".SH SEE ALSO\n",
            *(f".BR {_text(name)} (1)\n" for name in others),
        )
    )


def _group_page(group: str, table: dict[str, str]) -> str:
    return "".join(
        (
            _head(f"nacre-{group}", verbs.TOP[group]),
            f".SH SYNOPSIS\n.B nacre {group}\n.RI [ VERB ]\n\\&...\n",
            ".SH VERBS\n",
            *(_item(verb, summary) for verb, summary in table.items()),
            f".SH NAMING A SESSION\n{_verbatim(verbs.REF)}",
            _shared_options(),
            _exit_status(),
            ".SH SEE ALSO\n.BR nacre (1)\n",
        )
    )


def _verb_page(words: tuple[str, ...], verb: str, summary: str) -> str:
    module: Verb = load(verb)
    parser = parser_of(" ".join(words), module)
    usage = parser.format_usage().removeprefix("usage: ")
    return "".join(
        (
            _head("-".join(words), summary),
            f".SH SYNOPSIS\n{_verbatim(usage)}",
            _options(parser),
            _shared_options(),
            ".SH EXAMPLES\n",
            *(f".TP\n{_text(what)}\n.nf\n{_text(command)}\n.fi\n" for what, command in module.EXAMPLES),
            _exit_status(),
            ".SH SEE ALSO\n.BR nacre (1)\n",
        )
    )


def _head(name: str, summary: str) -> str:
    return f'.TH {name.upper()} 1 "" "nacre {__version__}" "nacre"\n.SH NAME\n{_text(name)} \\- {_text(summary)}\n'


def _options(parser: ArgumentParser) -> str:
    rows = [_item(_names(action), action.help or "") for action in parser._actions]  # noqa: SLF001 - argparse has no public way
    return f".SH OPTIONS\n{''.join(rows)}" if rows else ""


def _names(action: Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    shown = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return shown
    options = ", ".join(action.option_strings)
    if action.nargs == 0:
        return options
    return f"{options} [{shown}]" if action.nargs == "?" else f"{options} {shown}"


def _shared_options() -> str:
    return f".SH OPTIONS OF EVERY VERB\n{_verbatim(HELP.partition(chr(10))[2])}"


def _exit_status() -> str:
    return ".SH EXIT STATUS\n" + "".join(_item(str(code), meaning) for code, meaning in EXIT_CODES)


def _item(name: str, text: str) -> str:
    return f".TP\n.B {_text(name)}\n{_text(text)}\n"


def _verbatim(text: str) -> str:
    return f".nf\n{''.join(f'{_text(line)}{chr(10)}' for line in text.splitlines())}.fi\n"


def _text(text: str) -> str:
    """Text as roff: no character of it is a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


if __name__ == "__main__":
    made = write(Path(sys.argv[1] if len(sys.argv) > 1 else "build/man"))
    sys.stdout.write(f"{made} manual pages\n")
