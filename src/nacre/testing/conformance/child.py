"""The process that has the store open, and dies where it should: this file, as a script.

It imports nothing of nacre, which need not be installed where the store is.
Each line of its input is a JSON list, a command and its arguments; each is answered by one line, `{"ok": …}` or
`{"error": …}`, or by `{"unusable": …}` if the suite cannot call the store. An append is answered after it has
returned, so that a line that was read is an acknowledgement.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacre.testing.conformance.store import Factory, Store

# Calls that change what is on disk. Before and after each of them the process may die: see `Steps`.
_CHANGES = frozenset(
    {
        "close",
        "commit",
        "execute",
        "executemany",
        "executescript",
        "fdatasync",
        "flush",
        "fsync",
        "ftruncate",
        "link",
        "mkdir",
        "open",
        "pwrite",
        "pwritev",
        "remove",
        "rename",
        "replace",
        "rmdir",
        "truncate",
        "unlink",
        "write",
        "writelines",
        "writev",
    }
)


class Unusable(Exception):
    """The suite cannot call what the factory gives, so that nothing can be said about it."""


class Steps:
    """Counts the steps of an append, and kills the process at one of them.

    A step is the moment before or after a call from Python into C that changes files. The profiler of the
    interpreter reports these calls, in threads that begin after `watch` too.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None

    def watch(self) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, _frame: FrameType, event: str, called: Any) -> None:
        if event in {"c_call", "c_return"} and called.__name__ in _CHANGES:
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)


def load_factory(name: str) -> Factory:
    """Import `module:factory`; raises an error that says what is missing."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise LookupError(f"a factory is named module:function, not {name!r}")
    found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise TypeError(f"{module!r} has no function {attribute!r} to open a store with")
    factory: Factory = found
    return factory


def open_store(factory: Factory, path: Path) -> Store:
    """Open the store; raises `Unusable` if it lacks a method."""
    store: Store = _call(factory, path)
    for name in ("append", "read", "close"):
        if not callable(getattr(store, name, None)):
            raise Unusable(f"a store needs append(session, text, id), read(session) and close(); it has no {name!r}")
    return store


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the store; raises `Unusable` if that has to be awaited."""
    returned = function(*arguments)
    if hasattr(returned, "__await__"):
        raise Unusable(
            "it is asynchronous, and the suite awaits nothing; name a class whose append, read and close are plain "
            "functions that await those of the store, as in asyncio.Runner().run(store.append(session, text, id))"
        )
    return returned


def serve(factory_name: str, path: Path) -> None:
    """Answer commands until the input ends."""
    # The answers have the output to themselves, whatever a library prints, and the commands the input, whatever a
    # program reads that the store starts.
    output, commands = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    warnings.simplefilter("ignore")  # what a library warns its users of is not what is tested
    logging.disable(logging.ERROR)

    def answer(**fields: Any) -> None:
        output.write(json.dumps(fields) + "\n")
        output.flush()

    # The module that the caller named may well be in the working directory; it comes last, so that no file in it
    # replaces another module.
    sys.path.append(str(Path.cwd()))
    try:
        factory = load_factory(factory_name)
        answer(ok=_not_applicable(factory))
    except Exception as error:  # noqa: BLE001 - anything can go wrong in what others wrote, and is the answer
        answer(error=_sentence(error))
        return
    steps = Steps()
    store: Store | None = None
    for line in commands:
        command, *arguments = json.loads(line)
        try:
            if command == "watch":  # before the store is opened, which may start threads
                steps.watch()
                answer(ok=None)
                continue
            store = store or open_store(factory, path)
            if command == "flood":
                session, label, past_refusals = arguments
                for number in itertools.count():
                    try:
                        store.append(session, f"{label} {number}", f"{label}-{number}")
                    except Exception as error:
                        if not past_refusals:
                            raise
                        answer(error=_sentence(error))
                    else:
                        answer(ok=number)
            answer(ok=_act(store, steps, command, arguments))
            if command == "close":
                store = None
        except Unusable as error:
            answer(unusable=str(error))
        except Exception as error:  # noqa: BLE001 - as above
            answer(error=_sentence(error))


def _not_applicable(factory: Factory) -> dict[str, str]:
    reasons = getattr(factory, "not_applicable", {})
    if not isinstance(reasons, dict) or not all(isinstance(text, str) for pair in reasons.items() for text in pair):
        raise TypeError(f"not_applicable must map names of checks to reasons, not be {reasons!r}")
    return reasons


def _act(store: Store, steps: Steps, command: str, arguments: list[Any]) -> Any:
    if command == "append":
        _call(store.append, *arguments)
    elif command == "count":
        steps.count = 0
        _call(store.append, *arguments)
        return steps.count
    elif command == "die":
        steps.count, steps.last = 0, arguments[0]
        _call(store.append, *arguments[1:])
        steps.last = None
    elif command == "read":
        found = _call(store.read, *arguments)
        if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise TypeError(f"read must return a list of texts, not {type(found).__name__}")
        texts = list(found)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"read must return texts, not {type(text).__name__}")
        return texts
    elif command == "close":
        _call(store.close)
    return None


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


if __name__ == "__main__":
    # What is next to this file, such as `process`, may be the name of a module that the store needs.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]
    serve(sys.argv[1], Path(sys.argv[2]))
