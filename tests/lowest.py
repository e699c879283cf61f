"""Prints the lowest version of every dependency that pyproject.toml allows, as constraints for pip: `make lowest`.

With names of extras as arguments, of what they add only: `make adapters`. A framework may need newer versions of what
nacre itself depends on.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

EXTRAS = ("agent", "serve", "embeddings", "postgres")
"""The extras that are tested at the low end.

`embedded` is pinned to one version, and `all` only combines. `mcp` needs newer versions of what the others allow:
`make dist` uses its own lowest one in an environment of its own. `acp` and `otel` are installed and imported at their
low end by `make dist`: what their tests use besides is newer (the conventions of OpenTelemetry of which a test knows
the list).
"""


def constraints(extras: Sequence[str], *, with_own: bool = True) -> list[str]:
    """Each dependency of these extras, and nacre's own unless it is told not to, as `name==lowest`."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = [project["dependencies"]] if with_own else []
    groups = [*own, *(project["optional-dependencies"][extra] for extra in extras)]
    bounds = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)(,<[\w.]+)?(;.*)?")
    found = [bounds.fullmatch(one.replace(" ", "")) for group in groups for one in group]
    return [f"{one[1]}=={one[2]}" for one in found if one]


if __name__ == "__main__":
    named = sys.argv[1:]
    found = constraints(named, with_own=False) if named else constraints(EXTRAS)
    sys.stdout.write("".join(f"{line}\n" for line in found))
