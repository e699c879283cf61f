"""nacre chat: talk to the agent."""

from __future__ import annotations

import os
import stat
import sys
from argparse import ArgumentParser, Namespace
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from nacre.cli.failures import OK, Failure
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.store_choice import store_of

if TYPE_CHECKING:
    from nacre.runtime.app import App

EXAMPLES = (
    ("talk", "nacre chat"),
    ("one question, one answer", "nacre chat 'what is in this folder?'"),
    ("about the output of another program", "git diff | nacre chat 'what does this change?'"),
    ("about files", "nacre chat --attach report.txt --attach chart.png 'do they agree?'"),
    ("one more question in the newest chat of this folder", "nacre chat -c 'and why?'"),
    ("choose a session to resume", "nacre chat -r"),
    ("one more question in a session", "nacre chat -r 'Tax return' 'and last year?'"),
    ("plain text, also on a terminal", "nacre chat -p 'three names for a boat'"),
    ("let it run the tests", "nacre chat --allow 'shell(npm test)' 'do the tests pass?'"),
    ("one JSON document", "nacre chat --json 'say hello' | jq -r .answer"),
    ("one JSON object per event, as it happens", "nacre chat --jsonl 'say hello' | jq -c .type"),
    ("store nothing", "nacre chat --incognito"),
)


def add(parser: ArgumentParser) -> None:
    parser.add_argument("words", metavar="PROMPT", nargs="*", help="answer this once; stdin is added if it is piped in")
    # The session.
    newest = "continue the newest chat of this folder"
    parser.add_argument("-c", "--continue", dest="newest", metavar="TEXT", nargs="?", const="", help=newest)
    ref = "resume this session; without REF, choose one"
    parser.add_argument("-r", "--resume", dest="ref", metavar="REF", nargs="?", const="", help=ref)
    parser.add_argument("--internal", action="store_true", help="allow -r to resume nacre's own sessions (nacre:…)")
    parser.add_argument("--incognito", action="store_true", help="store nothing: the session is in memory only")
    # The folder.
    parser.add_argument("-C", "--directory", metavar="DIR", help="work in this folder instead of the current one")
    parser.add_argument("--trust", action="store_true", help="trust the folder for this run")
    # The model and its instructions.
    parser.add_argument("-m", "--model", metavar="NAME", help="model that answers, as `nacre models` lists it")
    parser.add_argument("--allow-remote", action="store_true", help="let a remote model answer after a local one did")
    system = "replace the persona (agent.persona, PERSONA.md) in the system prompt, for this run"
    parser.add_argument("--system", metavar="TEXT", default="", help=system)
    attach = "add a file to the message, text or image; may be repeated"
    parser.add_argument("--attach", metavar="FILE", action="append", default=[], help=attach)
    # What it may do.
    allow = "let these tool calls run without asking, as 'shell(git status)'; may be repeated"
    parser.add_argument("--allow", metavar="RULE", action="append", default=[], help=allow)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--read-only", action="store_true", help="change nothing: tools that write or run are refused")
    mode.add_argument("--yolo", action="store_true", help="allow everything that runs inside the sandbox")
    # What is printed.
    parser.add_argument("-p", "--print", action="store_true", help="answer once in plain text, also on a terminal")


def run(args: Namespace, out: Out) -> int:
    from nacre.channels.file_parts import attach  # noqa: PLC0415 - help does not need it
    from nacre.cli.chat.questions import ask_for_trust, folder_of  # noqa: PLC0415 - the same
    from nacre.errors import NacreError, ungroup  # noqa: PLC0415 - the same

    if args.newest is not None and args.ref is not None:
        raise Failure("usage", "-c continues the newest chat of this folder and -r another one: use one of them")
    if args.incognito and (args.newest is not None or args.ref is not None):
        raise Failure("usage", "--incognito starts with nothing: leave out -c and -r")
    args.folder = folder_of(args)
    if args.ref == "":
        from nacre.cli.chat.resume import require_terminal  # noqa: PLC0415 - help does not need it

        require_terminal(args, out)
    try:
        attachments = [attach(path) for path in args.attach]
    except NacreError as error:
        raise Failure("usage", f"--attach: {error}") from error
    prompt, piped = _read_prompt(args)
    if prompt is None and (out.json or args.print):
        option = "--print" if args.print else "--jsonl" if out.jsonl else "--json"
        raise Failure("usage", f"{option} answers once and needs a prompt", hint=f"nacre chat {option} 'say hello'")
    import anyio  # noqa: PLC0415 - help does not need it

    if out.can_ask and not args.trust:
        ask_for_trust(args.folder, out)
    try:
        code = anyio.run(_chat, args, out, prompt, piped, attachments)
    except BaseExceptionGroup as group:
        raise ungroup(group) from group
    if code == OK and getattr(sys.stdout, "has_lost", False):
        raise Failure("failed", "the output could not be written: stdout is closed")
    return code


def _read_prompt(args: Namespace) -> tuple[str | None, str]:
    """The prompt of a one-shot run, and what of it was piped in besides words; None to talk."""
    words = " ".join([*([args.newest] if args.newest else []), *args.words]).strip()
    # Nothing is read from a terminal, nor, if there are words, from what may never end.
    if sys.stdin is None or sys.stdin.closed:
        piped = None if words else ""
    elif (sys.stdin.isatty() and (words or sys.stdout.isatty())) or (words and not _is_pipe_or_file()):
        piped = None
    else:
        piped = sys.stdin.buffer.read().decode("utf-8", "replace")
    if piped is None:
        return words or None, ""
    whole = "\n\n".join(text for text in (words, piped.strip()) if text)
    if not whole:
        raise Failure("usage", "there is no prompt, and stdin is empty", hint="nacre chat 'a question'")
    return whole, piped if words else ""


def _is_pipe_or_file() -> bool:
    """Tell whether stdin is a pipe or a file; what a service starts us with may stay open forever."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind)


def _running(args: Namespace) -> AbstractAsyncContextManager[App]:
    """The agent, with the settings and the choices of this run."""
    from nacre import config, runtime  # noqa: PLC0415 - loads the agent, which help does not need

    options = runtime.Options(
        store=store_of(args),
        agent=args.agent,
        incognito=args.incognito,
        model=args.model,
        allow_remote=args.allow_remote,
        folder=args.folder,
        is_trusted=args.trust,
        system=args.system,
        mode="read-only" if args.read_only else "yolo" if args.yolo else "ask",
        allow=tuple(args.allow),
    )
    return runtime.run_agent(config.load(), options)


async def _chat(args: Namespace, out: Out, prompt: str | None, piped: str, attachments: list[dict[str, Any]]) -> int:
    from nacre.agent.actor import UserMessage  # noqa: PLC0415 - loads the agent, which help does not need
    from nacre.channels.file_parts import content, mark_pasted  # noqa: PLC0415 - the same
    from nacre.cli.chat.oneshot import answer  # noqa: PLC0415 - the same
    from nacre.cli.chat.repl import converse  # noqa: PLC0415 - the same
    from nacre.cli.chat.resume import describe_origin, session_key  # noqa: PLC0415 - the same
    from nacre.cli.commands.init import mention, offer  # noqa: PLC0415 - the same
    from nacre.cli.notices import print_warnings  # noqa: PLC0415 - the same
    from nacre.errors import NoModel  # noqa: PLC0415 - the same
    from nacre.runtime.chat_start import opening_meta  # noqa: PLC0415 - the same

    print_warnings()
    async with AsyncExitStack() as stack:
        try:
            app = await stack.enter_async_context(_running(args))
        except NoModel as error:
            await offer(error, out)
            app = await stack.enter_async_context(_running(args))
        await app.check_model()
        mention(out)
        key = await session_key(app, args, out)
        if prompt is None:
            return await converse(app, args, out, key=key, attachments=attachments)
        before = "" if args.model or app.remote_question(key) else app.other_model_before(key)
        if before:
            keep = f"(-m {clean(before)} keeps it)"
            out.note(f"this chat was answered by {clean(before)}; {app.model} answers now {keep}")
        if app.sessions.exists(key) and (origin := describe_origin(app.sessions, key, args.folder)):
            out.note(origin)
        meta = opening_meta(app.sessions, key, cwd=str(args.folder), text=prompt)
        body, extra = content(prompt, attachments), mark_pasted(prompt, [piped])
        inbound = UserMessage(key=key, content=body, sender="terminal", meta=meta, extra=extra)
        return await answer(app, args, out, inbound)
