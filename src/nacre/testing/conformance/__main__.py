"""The command line of the suite: `python -m nacre.testing.conformance module:factory`."""

from __future__ import annotations

import argparse
import json
import sys

from nacre.errors import InvalidArgument
from nacre.testing.conformance.checks import CHECKS
from nacre.testing.conformance.run import run


def main() -> int:
    """Run the suite; the exit code is 0 if no check failed, 1 if one did, 2 if the store cannot be tried."""
    parser = argparse.ArgumentParser(
        prog="python -m nacre.testing.conformance",
        description="Try what a session store promises: crash, reopen, two processes, retry, torn tail.",
    )
    parser.add_argument("factory", metavar="MODULE:FUNCTION", help="what opens the store in a directory")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="run this check; may be repeated")
    parser.add_argument("--python", help="the interpreter that has the store installed; it needs no nacre")
    parser.add_argument("--kills", type=int, default=10, help="how often to kill a writer in each check (default 10)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that one call may take (default 60)")
    given = parser.parse_args()
    try:
        report = run(given.factory, only=given.only, python=given.python, kills=given.kills, timeout=given.timeout)
    except InvalidArgument as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{json.dumps(report.to_mapping(), indent=2) if given.json else report}\n")
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
