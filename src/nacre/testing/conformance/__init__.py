"""A conformance suite for session stores: what survives a crash, a reopening, a second process, a retry, a torn tail.

It runs on any store, of any project, without a test runner. A store is described by a factory: a function that takes
a directory and gives an object with `append`, `read` and `close`.

    class Lines:
        def __init__(self, path): self.path = path
        def append(self, session, text, id): ...
        def read(self, session): ...
        def close(self): ...

It is named as `module:factory`:

    python -m nacre.testing.conformance my_module:Lines
    python -m nacre.testing.conformance nacre.testing.conformance:open_nacre --json

The suite never loads the store itself: every step runs in a child process that imports `module:factory`, because
what is tested is what a process leaves behind when it is killed. The child uses nothing but the standard library, so
that a store can be tried in an environment that has no nacre.
"""

from __future__ import annotations

from nacre.testing.conformance.checks import CHECKS
from nacre.testing.conformance.run import Outcome, Report, Status, run
from nacre.testing.conformance.store import Factory, NacreStore, Store, open_nacre

__all__ = ["CHECKS", "Factory", "NacreStore", "Outcome", "Report", "Status", "Store", "open_nacre", "run"]
