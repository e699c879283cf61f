"""The command line of the suite: `python -m nacre.testing.conformance module:factory`."""

from __future__ import annotations

import argparse
import json
import sys

from nacre.errors import InvalidArgument
from nacre.testing.conformance.checks import CHECKS
from nacre.testing.conformance.run import run


def main() -> int:
    """Run the suite.

    The exit code is 0 if a check passed and none failed, 1 if one failed, 2 if nothing was checked: the store cannot be
    tried, or every check is not applicable.
    """
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
    text = json.dumps(report.to_mapping(), indent=2) if given.json else str(report)
    # What a store says in an error may have characters that the output cannot show.
    sys.stdout.write(text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding) + "\n")
    if report.passed:
        return 0
    return 1 if report.checked else 2


if __name__ == "__main__":
    sys.exit(main())
