"""nacre sessions tag: put tags on a session."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.failures import Failure
from nacre.cli.output import Out
from nacre.cli.tagging import retag, wanted
from nacre.history.labels import MOST_TAGS

EXAMPLES = (
    ("tag the newest session", "nacre sessions tag @last work taxes"),
    ("what has a tag", "nacre sessions list --tag work"),
)


def add(parser: ArgumentParser) -> None:
    wanted(parser, "what to put on it; a comma separates tags too")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def run(args: Namespace, out: Out) -> int:
    return retag(args, out, "tag", _with)


def _with(before: list[str], given: list[str]) -> list[str]:
    after = list(dict.fromkeys((*before, *given)))
    if len(after) > max(MOST_TAGS, len(before)):
        hint = "`nacre sessions untag` takes some away"
        raise Failure("conflict", f"that would be {len(after)} tags, and a session has {MOST_TAGS} at most", hint=hint)
    return after
