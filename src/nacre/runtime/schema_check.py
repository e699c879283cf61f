"""A program that checks a JSON text against a JSON schema; it is run by its path, and loads nothing of nacre.

A schema comes from a client, and checking a small one may take forever: so this is a process that can be ended.
It reads `{"schema": …, "text": …}` from its input, without `text` to check the schema alone, and writes
`{"wrong": "schema" | "text" | "", "why": …}`.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, NoReturn

MISSING = 3
"""The exit code if the package that checks is not installed."""
MAX_SECONDS = 2
"""CPU time that a check may take; by then the system ends it."""
MAX_MEMORY = 1 << 29
"""Bytes that a check may have: by a small schema, a small answer may be wrong in millions of ways."""
_MAX_ERRORS = 5
_MAX_TEXT = 200


def check(schema: dict[str, Any], text: str | None) -> dict[str, str]:
    """Tell which of the two is wrong, and why."""
    import jsonschema_rs  # noqa: PLC0415 - main says what to do if it is not there

    try:
        # Neither fetches what a schema refers to, nor uses patterns whose time is not linear.
        validator = jsonschema_rs.validator_for(
            schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=True
        )
    except ValueError as error:
        return {"wrong": "schema", "why": str(error).partition("\n")[0][:_MAX_TEXT]}
    if text is None:
        return {"wrong": "", "why": ""}
    try:
        value = json.loads(text, parse_constant=_not_json)
        errors = [f"at {_path(one.instance_path)}: {one.message[:_MAX_TEXT]}" for one in validator.iter_errors(value)]
    except RecursionError:
        return {"wrong": "text", "why": "it is nested too deep"}
    except ValueError as error:
        return {"wrong": "text", "why": f"it is not JSON: {str(error)[:_MAX_TEXT]}"}
    return {"wrong": "text" if errors else "", "why": "; ".join(errors[:_MAX_ERRORS])}


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"a schema may refer to its own parts only, not to {uri[:_MAX_TEXT]}")


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _path(steps: list[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def main() -> int:
    """Read what is to be checked, and write what is wrong with it."""
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    given = json.load(sys.stdin.buffer)
    try:
        found = check(given["schema"], given.get("text"))
    except ImportError:
        return MISSING
    except (MemoryError, RuntimeError):  # the latter if the package had no memory left
        found = {"wrong": "schema", "why": "a check takes too much memory; use a simpler schema"}
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
