"""The store that a command works on."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from typing import TYPE_CHECKING

from nacre.cli.failures import Failure
from nacre.cli.text import clean
from nacre.log.place import Place
from nacre.opening import default_place
from nacre.opening import open as open_sessions

if TYPE_CHECKING:
    from nacre.sessions import Sessions

_EXPECTED = frozenset(vars(logging.makeLogRecord({})))


def root_of(args: Namespace) -> str:
    """Where the store is: --store, else NACRE_HOME, else the user's data directory."""
    return os.path.abspath(os.path.expanduser(args.store or default_place()))


def opened(args: Namespace, *, create: bool = False) -> Sessions:
    """Open the store; one that was named and is not there is an error, the default one is then just empty."""
    _tell_warnings()
    root = root_of(args)
    if create or os.path.isdir(root):
        return open_sessions(root)
    if args.store:
        raise Failure(
            "not_found", f"there is no store at {root}", hint="the first message makes one; is --store right?"
        )
    return open_sessions(":memory:")


def is_active(sessions: Sessions, key: str) -> bool:
    """Tell whether a key has an active session; a write to any other would begin a new one."""
    return os.path.exists(Place.of(sessions.location, key).log)


class _Warnings(logging.Handler):
    """Prints what the library warns of, with what it is about."""

    def emit(self, record: logging.LogRecord) -> None:
        import sys  # noqa: PLC0415 - stderr as it is now, not as it was when this module was loaded

        extra = [str(value) for name, value in vars(record).items() if name not in _EXPECTED and name != "message"]
        sys.stderr.write(f"nacre: {clean(': '.join([record.getMessage(), *extra]))}\n")


def _tell_warnings() -> None:
    logger = logging.getLogger("nacre")
    if not any(isinstance(handler, _Warnings) for handler in logger.handlers):
        logger.addHandler(_Warnings(logging.WARNING))
