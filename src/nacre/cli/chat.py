"""nacre chat: talk to the agent."""

from __future__ import annotations

import os
import stat
import sys
from argparse import ArgumentParser, Namespace
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING

from nacre.cli.failures import Failure, alone
from nacre.cli.output import Out

if TYPE_CHECKING:
    from nacre.channels.terminal.ports import App

EXAMPLES = (
    ("talk", "nacre chat"),
    ("one question, one answer", "nacre chat 'what is in this folder?'"),
    ("about what another program printed", "git diff | nacre chat 'what does this change?'"),
    ("one more question in the newest session", "nacre chat -c 'and why?'"),
    ("go on with a session", "nacre chat -r 'Tax return'"),
    ("for scripts", "nacre chat --json 'say hello' | jq -r .answer"),
    ("leave no trace", "nacre chat --incognito"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("words", metavar="PROMPT", nargs="*", help="answer this once; else what stdin has, else talk")
    parser.add_argument("-c", dest="newest", metavar="TEXT", nargs="?", const="", help="in the newest session")
    parser.add_argument("-r", "--resume", dest="ref", metavar="REF", help="in this session")
    parser.add_argument("--model", metavar="NAME", help="which model answers")
    parser.add_argument("--incognito", action="store_true", help="keep nothing: the session is in memory only")


def run(args: Namespace, out: Out) -> int:
    if args.newest is not None and args.ref:
        raise Failure("usage", "-c is the newest session and -r another one: leave one of them out")
    if args.incognito and (args.newest is not None or args.ref):
        raise Failure("usage", "--incognito begins with nothing: leave -c and -r out")
    prompt = _prompt(args)
    if prompt is None and out.json:
        raise Failure("usage", "--json answers once: say what to answer", hint="nacre chat --json 'say hello'")
    import anyio  # noqa: PLC0415 - not needed to be told how it is used

    try:
        return anyio.run(_chat, args, out, prompt)
    except BaseExceptionGroup as group:
        raise alone(group) from group


def _prompt(args: Namespace) -> str | None:
    """What to answer once: the words and what is piped in; None to talk."""
    words = " ".join([*([args.newest] if args.newest else []), *args.words]).strip()
    piped = _piped(has_words=bool(words))
    if piped is None:
        return words or None
    whole = "\n\n".join(text for text in (words, piped.strip()) if text)
    if not whole:
        raise Failure("usage", "there is nothing to answer: stdin is empty", hint="nacre chat 'a question'")
    return whole


def _piped(*, has_words: bool) -> str | None:
    """What stdin has for us; None if it is a terminal, or, with words to answer, nothing that surely ends."""
    if sys.stdin is None or sys.stdin.closed:
        return None if has_words else ""
    if sys.stdin.isatty() and (has_words or sys.stdout.isatty()):
        return None
    if has_words and not _surely_ends():
        return None
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _surely_ends() -> bool:
    """Tell whether stdin is a pipe or a file: whatever else a service starts us with may never end."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _running(args: Namespace) -> AbstractAsyncContextManager[App]:
    """The agent, as the settings say."""
    from nacre import app, config  # noqa: PLC0415 - everything that an agent is made of

    settings = config.load()
    chosen = app.Options(store=args.store, agent=args.agent, incognito=args.incognito, model=args.model)
    return app.running(settings, chosen)


async def _chat(args: Namespace, out: Out, prompt: str | None) -> int:
    from nacre.cli.interactive import converse  # noqa: PLC0415 - loads the agent, which help does not need
    from nacre.cli.notices import tell_warnings  # noqa: PLC0415 - the same
    from nacre.cli.oneshot import answer  # noqa: PLC0415 - the same
    from nacre.cli.resume import session_key  # noqa: PLC0415 - the same
    from nacre.errors import ProviderError  # noqa: PLC0415 - the same

    tell_warnings()
    async with AsyncExitStack() as stack:
        try:
            app = await stack.enter_async_context(_running(args))
        except ProviderError as error:
            first, _, rest = str(error).partition("\n")
            raise Failure("failed", first, hint=rest.strip()) from error
        key = session_key(app, args, out)
        if prompt is None:
            return await converse(app, args, out, key=key)
        return await answer(app, args, out, key=key, prompt=prompt)
