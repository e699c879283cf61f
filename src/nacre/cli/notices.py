"""Warnings of the library, printed on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nacre.cli.one_line import clean

_EXPECTED = frozenset((*vars(logging.makeLogRecord({})), "message", "losses", "migrated"))
"""Fields that every record has, and what its sentence says already."""


class _Warnings(logging.Handler):
    """Prints what the library warns of, with what it is about."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "migrated"):
            # A verb may open the store more than once, and each time finds the same files.
            if record.getMessage() in self._printed:
                return
            self._printed.add(record.getMessage())
        extra = [str(value) for name, value in vars(record).items() if name not in _EXPECTED]
        sys.stderr.write(f"nacre: {clean(': '.join(filter(None, [record.getMessage(), *extra])))}\n")


def print_warnings(level: int = logging.WARNING) -> None:
    """Print what the library logs from now on, from a level up."""
    logger = logging.getLogger("nacre")
    if not any(isinstance(handler, _Warnings) for handler in logger.handlers):
        logger.addHandler(_Warnings(level))


@contextmanager
def silence_losses() -> Iterator[None]:
    """Print no warning about lost records: the verb itself reports what of a session cannot be read."""

    def is_other(record: logging.LogRecord) -> bool:
        return not hasattr(record, "losses")

    handlers = [handler for handler in logging.getLogger("nacre").handlers if isinstance(handler, _Warnings)]
    for handler in handlers:
        handler.addFilter(is_other)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_other)


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Print no warning: the verb itself reports what the library would warn of."""
    logger = logging.getLogger("nacre")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
