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
        code = _run_guarded(sys.argv[1:] if words is None else words, dispatch or _dispatch)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return PIPE_CLOSED
    except OSError as error:
        # Every other error is caught below: this is stdout, on a full disk for example.
        _drop_stdout()
        if sys.stderr is not None:
            sys.stderr.write(f"nacre: the output could not be written: {error.strerror or error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _run_guarded(words: Sequence[str], dispatch: Dispatch) -> int:
    """Run a command line; an error is printed as a sentence, or as JSON."""
    flags = Flags()
    try:
        _prepare_streams()
        try:
            rest = flags.take(words)
        except Failure:
            # The rest of the line was not read, and it may ask for errors as JSON.
            flags.json = flags.json or "--json" in words or "--jsonl" in words
            raise
        if flags.verbose:
            import logging  # noqa: PLC0415 - only with -v

            from nacre.cli.notices import print_warnings  # noqa: PLC0415 - the same

            level = logging.INFO if flags.verbose == 1 else logging.DEBUG
            logging.getLogger("nacre").setLevel(level)
            print_warnings(level)
        return dispatch(flags, rest)
    except BrokenPipeError:
        raise
    except Exception as error:  # the edge: what nobody foresaw is reported like any other failure
        if os.environ.get("NACRE_DEBUG"):
            raise
        return _report(error, flags)


def _report(error: Exception, flags: Flags) -> int:
    """Print an error, with -v its causes and with -vv where it happened; returns the exit code."""
    from nacre.cli.output import report  # noqa: PLC0415 - not needed for help

    failure = failure_of(error) or internal_failure(error)
    report(failure, flags)
    if flags.verbose and sys.stderr is not None:
        import traceback  # noqa: PLC0415 - only with -v

        from nacre.cli.one_line import clean  # noqa: PLC0415 - the same

        if flags.verbose > 1:
            sys.stderr.write("".join(traceback.format_exception(error)))
            return failure.code
        cause = error.__cause__ or error.__context__
        while cause is not None:
            if not isinstance(cause, BaseExceptionGroup):
                sys.stderr.write(f"  caused by {type(cause).__name__}: {clean(str(cause))}\n")
            cause = cause.__cause__ or cause.__context__
    return failure.code


def _dispatch(flags: Flags, words: list[str]) -> int:
    """Find the verb, load only that, and run it; overviews load none."""
    if words[:1] in (["--version"], ["-V"]):
        from nacre import __version__  # noqa: PLC0415 - needed only here

        sys.stdout.write(f"nacre {__version__}\n")
        return OK
    while words[:1] == ["help"]:
        flags.help, words = True, words[1:]
    if not words:
        sys.stdout.write(verbs.overview())
        return OK
    first, rest = verbs.ALIASES.get(words[0], words[0]), words[1:]
    program, verb = f"nacre {first}", first
    if first in verbs.GROUPS:
        is_named = bool(rest) and not rest[0].startswith("-")
        if flags.help and not is_named:
            sys.stdout.write(verbs.group_overview(first))
            return OK
        given = rest[0] if is_named else verbs.DEFAULT[first]
        verb, rest = verbs.ALIASES.get(given, given), rest[1:] if is_named else rest
        _check_verb(verb, verbs.GROUPS[first], program)
        program = f"{program} {verb}"
    elif (nested := " ".join((first, *rest[:1]))) in verbs.NESTED:
        program, verb, rest = f"nacre {nested}", nested, rest[1:]
    else:
        _check_verb(first, (*verbs.TOP, *verbs.HIDDEN), "nacre")
    from nacre.cli.loading import run  # noqa: PLC0415 - brings the parser of arguments along

    return run(program, verb, flags, rest)


def _check_verb(verb: str, among: Sequence[str] | dict[str, str], program: str) -> None:
    """Raise Failure for a verb that does not exist, with the one that was probably meant."""
    if verb in among:
        return
    from nacre.cli.loading import closest  # noqa: PLC0415 - only after a typing error

    is_option = verb.startswith("-")
    known = [*NAMES, "--version"] if is_option else [name for name in among if not name.startswith("_")]
    wanted = verbs.MEANT.get(verb, "")
    near = wanted if wanted in among else closest(verb, known)
    meant = f"did you mean `{program} {near}`? " if near else ""
    what = "option" if is_option else "verb"
    raise Failure("usage", f"`{program}` has no {what} {verb!r}", hint=f"{meant}`{program} --help` shows them all")


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
    """Print nothing more, not even at exit: the reader of the output is gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
