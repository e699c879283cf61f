"""The command `nacre`: finds the verb, loads it alone, runs it, and turns errors into exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from nacre.cli import verbs
from nacre.cli.failures import INTERRUPTED, OK, PIPE_CLOSED, USAGE, Failure, failure_of
from nacre.cli.flags import Flags


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    try:
        code = _guarded(sys.argv[1:] if words is None else words)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _guarded(words: Sequence[str]) -> int:
    """Run a command line; every error is told, in one sentence, where it belongs."""
    flags = Flags()
    try:
        _prepare_streams()
        return _dispatch(flags, _taken(flags, words))
    except BrokenPipeError:
        raise
    except Exception as error:  # the edge: what nobody foresaw is told like any other failure
        if os.environ.get("NACRE_DEBUG"):
            raise
        return _told(error, flags)


def _taken(flags: Flags, words: Sequence[str]) -> list[str]:
    try:
        return flags.take(words)
    except Failure:
        # It did not come to the end of the line, where it may say how errors are to be told.
        flags.json = flags.json or "--json" in words or "--jsonl" in words
        raise


def _told(error: Exception, flags: Flags) -> int:
    from nacre.cli.output import report  # noqa: PLC0415 - not needed for help

    failure = failure_of(error) or Failure(
        "internal", f"{type(error).__name__}: {error}", hint="a mistake in nacre; NACRE_DEBUG=1 shows where"
    )
    report(failure, flags)
    return failure.code


def _dispatch(flags: Flags, words: list[str]) -> int:
    if words[:1] == ["--version"]:
        return _version()
    if not words:
        return _overview(verbs.overview(), asked=flags.help)
    first = verbs.ALIASES.get(words[0], words[0])
    if first in verbs.GROUPS:
        return _dispatch_in(first, flags, words[1:])
    _known(first, (*verbs.TOP, *verbs.HIDDEN), "nacre")
    return _run(f"nacre {first}", first, flags, words[1:])


def _dispatch_in(group: str, flags: Flags, words: list[str]) -> int:
    named = bool(words) and not words[0].startswith("-")
    if flags.help and not named:
        return _overview(verbs.group_overview(group), asked=True)
    given = words[0] if named else verbs.DEFAULT[group]
    verb = verbs.ALIASES.get(given, given)
    _known(verb, verbs.GROUPS[group], f"nacre {group}")
    return _run(f"nacre {group} {verb}", verb, flags, words[1:] if named else words)


def _run(program: str, verb: str, flags: Flags, words: list[str]) -> int:
    from nacre.cli.loading import run  # noqa: PLC0415 - brings the parser of arguments along

    return run(program, verb, flags, words)


def _known(verb: str, among: Sequence[str] | dict[str, str], program: str) -> None:
    if verb in among:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - only for who mistyped

    near = get_close_matches(verb, [name for name in among if not name.startswith("_")], n=1)
    meant = f"did you mean `{program} {near[0]}`? " if near else ""
    raise Failure("usage", f"`{program}` has no verb {verb!r}", hint=f"{meant}`{program} --help` shows them all")


def _overview(text: str, *, asked: bool) -> int:
    (sys.stdout if asked else sys.stderr).write(text)
    return OK if asked else USAGE


def _version() -> int:
    from nacre import __version__  # noqa: PLC0415 - beside its only use

    sys.stdout.write(f"nacre {__version__}\n")
    return OK


def _prepare_streams() -> None:
    """Print any text whatever the locale, with line ends as they are; without a stdout, print to nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays for as long as the process
    elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # Without a buffer (PYTHONUNBUFFERED) what a pipe does not take of a long text would go missing unseen.
        sys.stdout = open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115 - the same
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace", newline="\n")


def _drop_stdout() -> None:
    """Whoever read our output has gone: nothing more is printed, not even at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
