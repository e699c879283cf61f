"""nacre sessions untag: take tags off a session."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from nacre.cli.output import Out
from nacre.cli.tagging import retag, wanted

EXAMPLES = (
    ("remove a tag from the newest session", "nacre sessions untag @last work"),
    ("see what would be done", "nacre sessions untag telegram:42 work taxes --dry-run"),
)


def add(parser: ArgumentParser) -> None:
    wanted(parser, "the tags to remove; commas also separate tags")


def run(args: Namespace, out: Out) -> int:
    return retag(args, out, "untag", _without)


def _without(before: list[str], given: list[str]) -> list[str]:
    return [tag for tag in before if tag not in given]
