"""Manual pages made from the help: `python -m nacre.cli.man DIR` writes nacre.1 and one page per verb."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from nacre import __version__
from nacre.cli import verbs
from nacre.cli.loading import load, parser_of
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
    others = "".join(f".BR {_text(f'nacre-{verb}')} (1)\n" for verb in verbs.TOP if verb != "help")
    yield (
        "nacre.1",
        _page(
            "nacre",
            "an agent in your terminal whose sessions survive every crash",
            f".SH SYNOPSIS\n.B nacre\n.I VERB\n\\&...\n{_verb_list(verbs.TOP)}{_SHARED_OPTIONS}",
            see_also=others,
        ),
    )
    for verb in (verb for verb in verbs.TOP if verb not in {*verbs.GROUPS, "help"}):
        yield f"nacre-{verb}.1", _verb_page(("nacre", verb), verb, verbs.TOP[verb])
    for verb, summary in verbs.NESTED.items():
        yield f"nacre-{verb.replace(' ', '-')}.1", _verb_page(("nacre", *verb.split()), verb, summary)
    for group, table in verbs.GROUPS.items():
        synopsis = f".SH SYNOPSIS\n.B nacre {group}\n.RI [ VERB ]\n\\&...\n"
        naming = f".SH NAMING A SESSION\n{_verbatim(verbs.REF)}"
        body = f"{synopsis}{_verb_list(table)}{naming}{_SHARED_OPTIONS}"
        yield f"nacre-{group}.1", _page(f"nacre-{group}", verbs.TOP[group], body)
        for verb, summary in table.items():
            yield f"nacre-{group}-{verb}.1", _verb_page(("nacre", group, verb), verb, summary)


def write(folder: Path) -> int:
    """Write every page into a folder; returns how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    found = list(pages())
    for name, text in found:
        (folder / name).write_text(text, encoding="utf-8")
    return len(found)


def _verb_page(words: tuple[str, ...], verb: str, summary: str) -> str:
    command = load(verb)
    parser = parser_of(" ".join(words), command)
    usage = parser.format_usage().removeprefix("usage: ")
    options = ""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        name = value if isinstance(value, str) else " ".join(value)
        if action.option_strings:
            value = "" if action.nargs == 0 else f" [{name}]" if action.nargs == "?" else f" {name}"
            name = f"{', '.join(action.option_strings)}{value}"
        options += _item(name, action.help or "")
    options = f".SH OPTIONS\n{options}" if options else ""
    examples = "".join(f".TP\n{_text(what)}\n.nf\n{_text(line)}\n.fi\n" for what, line in command.examples)
    body = f".SH SYNOPSIS\n{_verbatim(usage)}{options}{_SHARED_OPTIONS}.SH EXAMPLES\n{examples}"
    return _page("-".join(words), summary, body)


def _page(name: str, summary: str, body: str, *, see_also: str = ".BR nacre (1)\n") -> str:
    head = f'.TH {name.upper()} 1 "" "nacre {__version__}" "nacre"\n.SH NAME\n{_text(name)} \\- {_text(summary)}\n'
    codes = "".join(_item(str(code), meaning) for code, meaning in EXIT_CODES)
    return f"{head}{body}.SH EXIT STATUS\n{codes}.SH SEE ALSO\n{see_also}"


def _verb_list(table: dict[str, str]) -> str:
    return ".SH VERBS\n" + "".join(_item(verb, summary) for verb, summary in table.items())


def _item(name: str, text: str) -> str:
    return f".TP\n.B {_text(name)}\n{_text(text)}\n"


def _verbatim(text: str) -> str:
    return f".nf\n{''.join(f'{_text(line)}{chr(10)}' for line in text.splitlines())}.fi\n"


def _text(text: str) -> str:
    """Text as roff: no character of it is a command."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


_SHARED_OPTIONS = f".SH OPTIONS OF EVERY VERB\n{_verbatim(HELP.partition(chr(10))[2])}"

if __name__ == "__main__":
    made = write(Path(sys.argv[1] if len(sys.argv) > 1 else "build/man"))
    sys.stdout.write(f"{made} manual pages\n")
