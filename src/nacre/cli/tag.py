"""nacre sessions tag: put tags on a session."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.failures import Failure
from nacre.cli.output import Out
from nacre.cli.tagging import retag, wanted
from nacre.history.labels import MOST_TAGS

EXAMPLES = (
    ("tag the newest session", "nacre sessions tag @last work taxes"),
    ("list the sessions with a tag", "nacre sessions list --tag work"),
)


def add(parser: ArgumentParser) -> None:
    wanted(parser, "the tags to add; commas also separate tags")


def run(args: Namespace, out: Out) -> int:
    return retag(args, out, "tag", _with)


def _with(before: list[str], given: list[str]) -> list[str]:
    after = list(dict.fromkeys((*before, *given)))
    if len(after) > max(MOST_TAGS, len(before)):
        hint = "`nacre sessions untag` removes tags"
        raise Failure("conflict", f"the session would have {len(after)} tags; the limit is {MOST_TAGS}", hint=hint)
    return after
