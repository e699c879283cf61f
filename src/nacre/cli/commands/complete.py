"""The hidden verb that shells call to complete a command line."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator

from nacre.cli import verbs
from nacre.cli.failures import OK
from nacre.cli.flags import NAMES, Flags
from nacre.cli.loading import load, parser_of
from nacre.cli.one_line import clean, cut, several
from nacre.cli.output import Out
from nacre.cli.store_choice import opened

EXAMPLES = ()
_REFS = ("ref", "refs", "session")
_TAGS = ("tag", "tags")
_MOST = 500


def add(parser: ArgumentParser) -> None:
    """Its arguments are another command line, and are not parsed."""


def run(args: Namespace, out: Out) -> int:
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    for value, description in completions(words or [""]):
        if value.isprintable():
            out.say(f"{value}\t{_short(description)}" if description else value)
    return OK


def completions(words: list[str]) -> Iterator[tuple[str, str]]:
    """Completions of the last word, each with a description."""
    flags = Flags()
    *before, last = words
    given = flags.take(before)
    while given[:1] == ["help"]:
        given = given[1:]
    verb, rest = _verb(given)
    if verb is None:
        table = verbs.GROUPS.get(_full(given[0]), {}) if given else verbs.TOP
        yield from ((name, summary) for name, summary in table.items() if name.startswith(last))
        return
    if not rest:
        nested = {name.removeprefix(f"{verb} "): summary for name, summary in verbs.NESTED.items() if name != verb}
        yield from ((name, nested[name]) for name in nested if " " not in name and name.startswith(last))
    parser = parser_of("nacre", load(verb))
    if last.startswith("-"):
        yield from _options(parser, last)
    else:
        yield from _values(parser, rest, last, flags, verb)


def _full(word: str) -> str:
    return verbs.ALIASES.get(word, word)


def _verb(given: list[str]) -> tuple[str | None, list[str]]:
    """The verb in the words so far, and its arguments."""
    if not given:
        return None, []
    first = _full(given[0])
    if (nested := " ".join((first, *given[1:2]))) in verbs.NESTED:
        return nested, given[2:]
    if first not in verbs.GROUPS:
        return (first, given[1:]) if first in verbs.TOP else (None, [])
    if len(given) == 1:
        return None, []
    second = _full(given[1])
    return (second, given[2:]) if second in verbs.GROUPS[first] else (None, [])


def _options(parser: ArgumentParser, last: str) -> Iterator[tuple[str, str]]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way
        for option in action.option_strings:
            if option.startswith(last) and option.startswith("--"):
                yield option, action.help or ""
    yield from ((flag, "") for flag in NAMES if flag.startswith(last) and flag.startswith("--"))


def _values(parser: ArgumentParser, rest: list[str], last: str, flags: Flags, verb: str) -> Iterator[tuple[str, str]]:
    action = _action(parser, rest)
    if action is None:
        return
    if action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices if str(choice).startswith(last))
    elif action.dest in _REFS and verb in {"restore", "trash"}:
        yield from _in_trash(flags, last)
    elif action.dest in _REFS and verb == "quarantine":
        yield from _in_quarantine(flags, last)
    elif action.dest in _REFS:
        yield from _sessions(flags, last)
    elif action.dest in _TAGS:
        yield from _tags(flags, last)


def _action(parser: ArgumentParser, rest: list[str]) -> Action | None:
    """The argument that the next word is a value of."""
    actions = parser._actions  # noqa: SLF001 - argparse has no public way
    by_option = {option: action for action in actions for option in action.option_strings}
    positionals = [action for action in actions if not action.option_strings]
    waiting: Action | None = None
    for word in rest:
        if waiting is not None:
            waiting = None
        elif word in by_option:
            waiting = by_option[word] if by_option[word].nargs != 0 else None
        elif positionals and positionals[0].nargs not in {"+", "*"}:
            positionals.pop(0)
    return waiting or (positionals[0] if positionals else None)


def _sessions(flags: Flags, last: str) -> Iterator[tuple[str, str]]:
    yield from ((name, "the newest session") for name in ("@last",) if name.startswith(last) and last)
    with opened(Namespace(store=flags.store)) as sessions:
        found = sessions.page(which="all", prefix=last, limit=_MOST).items
    yield from ((info.key, info.title or several(info.messages, "message")) for info in found)


def _tags(flags: Flags, last: str) -> Iterator[tuple[str, str]]:
    """The tags that the newest sessions have."""
    with opened(Namespace(store=flags.store)) as sessions:
        found = {tag for info in sessions.list(limit=_MOST) for tag in info.tags}
    yield from ((tag, "") for tag in sorted(found) if tag.startswith(last))


def _in_trash(flags: Flags, last: str) -> Iterator[tuple[str, str]]:
    with opened(Namespace(store=flags.store)) as sessions:
        found = sessions.list_trash()
    yield from ((item.key, "in the trash") for item in found if item.key.startswith(last))


def _in_quarantine(flags: Flags, last: str) -> Iterator[tuple[str, str]]:
    with opened(Namespace(store=flags.store)) as sessions:
        found = sessions.quarantine()
    keys = dict.fromkeys(entry.key for entry in found)
    yield from ((key, "all entries of this session") for key in keys if key.startswith(last))
    yield from ((entry.ref, entry.reason) for entry in found if entry.ref.startswith(last))


def _short(description: str) -> str:
    return cut(clean(description), 60)
