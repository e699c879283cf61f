"""The command `nacre`: find the verb, load only that, run it, and turn errors into exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence

from nacre.cli import verbs
from nacre.cli.failures import FAILED, INTERRUPTED, OK, PIPE_CLOSED, Failure, failure_of, internal_failure
from nacre.cli.verbs import NAMES, Flags

Dispatch = Callable[[Flags, list[str]], int]
"""Run a command line without its global options; returns the exit code."""


def main(words: Sequence[str] | None = None, *, dispatch: Dispatch | None = None) -> int:
    """Run a command line; returns its exit code."""
    try:
        code = _guarded(sys.argv[1:] if words is None else words, dispatch or _dispatch)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    except OSError as error:
        # Every other error is caught below: this is stdout, on a full disk for example.
        _drop_stdout()
        return _report_lost_output(error.strerror or str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _report_lost_output(reason: str) -> int:
    if sys.stderr is not None:
        sys.stderr.write(f"nacre: the output could not be written: {reason}\n")
    return FAILED


def _guarded(words: Sequence[str], dispatch: Dispatch) -> int:
    """Run a command line; an error is printed as a sentence, or as JSON."""
    flags = Flags()
    try:
        _prepare_streams()
        rest = _taken(flags, words)
        if flags.verbose:
            _log_to_stderr(flags.verbose)
        return dispatch(flags, rest)
    except BrokenPipeError:
        raise
    except Exception as error:  # the edge: what nobody foresaw is told like any other failure
        if os.environ.get("NACRE_DEBUG"):
            raise
        return _report(error, flags)


def _taken(flags: Flags, words: Sequence[str]) -> list[str]:
    try:
        return flags.take(words)
    except Failure:
        # The rest of the line was not read, and it may ask for errors as JSON.
        flags.json = flags.json or "--json" in words or "--jsonl" in words
        raise


def _report(error: Exception, flags: Flags) -> int:
    """Print an error, with -v its causes and with -vv where it happened; returns the exit code."""
    from nacre.cli.output import report  # noqa: PLC0415 - not needed for help

    failure = failure_of(error) or internal_failure(error)
    report(failure, flags)
    if flags.verbose and sys.stderr is not None:
        _explain(error, flags.verbose)
    return failure.code


def _explain(error: BaseException, verbose: int) -> None:
    import traceback  # noqa: PLC0415 - only with -v

    from nacre.cli.one_line import clean  # noqa: PLC0415 - the same

    if verbose > 1:
        sys.stderr.write("".join(traceback.format_exception(error)))
        return
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if not isinstance(cause, BaseExceptionGroup):
            sys.stderr.write(f"  caused by {type(cause).__name__}: {clean(str(cause))}\n")
        cause = cause.__cause__ or cause.__context__


def _log_to_stderr(verbose: int) -> None:
    import logging  # noqa: PLC0415 - only with -v

    from nacre.cli.notices import tell_warnings  # noqa: PLC0415 - the same

    logging.getLogger("nacre").setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    tell_warnings(logging.INFO if verbose == 1 else logging.DEBUG)


def _dispatch(flags: Flags, words: list[str]) -> int:
    if words[:1] in (["--version"], ["-V"]):
        return _version()
    while words[:1] == ["help"]:
        flags.help, words = True, words[1:]
    if not words:
        sys.stdout.write(verbs.overview())
        return OK
    first = verbs.ALIASES.get(words[0], words[0])
    if first in verbs.GROUPS:
        return _dispatch_in(first, flags, words[1:])
    if (nested := " ".join((first, *words[1:2]))) in verbs.NESTED:
        return _run(f"nacre {nested}", nested, flags, words[2:])
    _known(first, (*verbs.TOP, *verbs.HIDDEN), "nacre")
    return _run(f"nacre {first}", first, flags, words[1:])


def _dispatch_in(group: str, flags: Flags, words: list[str]) -> int:
    named = bool(words) and not words[0].startswith("-")
    if flags.help and not named:
        sys.stdout.write(verbs.group_overview(group))
        return OK
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
    from nacre.cli.loading import closest  # noqa: PLC0415 - only for who mistyped

    is_option = verb.startswith("-")
    near = closest(verb, [*NAMES, "--version"] if is_option else [name for name in among if not name.startswith("_")])
    meant = f"did you mean `{program} {near}`? " if near else ""
    what = "option" if is_option else "verb"
    raise Failure("usage", f"`{program}` has no {what} {verb!r}", hint=f"{meant}`{program} --help` shows them all")


def _version() -> int:
    from nacre import __version__  # noqa: PLC0415 - beside its only use

    sys.stdout.write(f"nacre {__version__}\n")
    return OK


def _prepare_streams() -> None:
    """Print any text whatever the locale, with line ends as they are; without stdout or stderr, print to nowhere."""
    if sys.stdout is None:
        sys.stdout = _Closed(open(os.devnull, "wb"), encoding="utf-8")  # noqa: SIM115 - it stays for as long as the process
    elif isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # Without a buffer (PYTHONUNBUFFERED) what a pipe does not take of a long text would go missing unseen.
        sys.stdout = open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115 - the same
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - the same
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace", newline="\n")


class _Closed(io.TextIOWrapper):
    """Stands for a stdout that is closed; a verb whose output is all that matters asks whether any was lost."""

    has_lost = False

    def write(self, text: str, /) -> int:
        self.has_lost = self.has_lost or bool(text)
        return super().write(text)


def _drop_stdout() -> None:
    """Whoever read our output has gone: nothing more is printed, not even at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
