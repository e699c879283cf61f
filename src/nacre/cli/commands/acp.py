"""nacre acp: the agent inside an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace

from nacre.cli.failures import OK, Failure, require_extra
from nacre.cli.output import Out
from nacre.cli.store_choice import open_store, store_of
from nacre.errors import ungroup

EXAMPLES = (
    ("the command that an editor starts; docs/editors.md shows its settings", "nacre acp"),
    ("with another model, and without changing anything", "nacre acp -m ollama/qwen3 --read-only"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", metavar="NAME", help="model that answers, as `nacre models` lists it")
    parser.add_argument("--allow-remote", action="store_true", help="let a remote model answer after a local one did")
    parser.add_argument("--read-only", action="store_true", help="begin sessions in the mode that changes nothing")


def run(args: Namespace, out: Out) -> int:
    """Serve until the editor is gone."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        hint = "docs/editors.md shows how to set it up; `nacre chat` talks at a terminal"
        raise Failure("usage", "`nacre acp` is started by an editor, which talks to it over pipes", hint=hint)
    if out.json:
        raise Failure("usage", "`nacre acp` prints the messages of its protocol: leave out --json and --jsonl")
    with require_extra("acp", "`nacre acp` needs"):
        import anyio  # noqa: PLC0415 - not needed for help

        from nacre.servers.acp import serve_stdio  # noqa: PLC0415 - loads the package
    from nacre import config, runtime  # noqa: PLC0415 - not needed for help

    options = runtime.Options(
        store=store_of(args),
        agent=args.agent,
        model=args.model,
        allow_remote=args.allow_remote,
        mode="read-only" if args.read_only else "ask",
    )
    with open_store(args, create=True) as sessions:
        # Until it serves, and where a second one comes: nothing that was acknowledged is lost.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            anyio.run(serve_stdio, sessions, config.load(), options)
        except BaseExceptionGroup as group:
            raise ungroup(group) from group
    return OK
