"""Runs the checks on one store, and reports."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nacre.errors import InvalidArgument
from nacre.testing.conformance.checks import CHECKS, Broken, NotApplicable
from nacre.testing.conformance.process import CannotRun, Child, Setting, StoreFailed, Unusable

Status: TypeAlias = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one check ended, and a sentence why."""

    check: str
    status: Status
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a store did; `passed` if a check passed and none failed."""

    store: str
    outcomes: tuple[Outcome, ...]

    @property
    def checked(self) -> bool:
        """Whether anything was checked: not if every check is not applicable."""
        return any(outcome.status != "not applicable" for outcome in self.outcomes)

    @property
    def passed(self) -> bool:
        return self.checked and all(outcome.status != "failed" for outcome in self.outcomes)

    def to_mapping(self) -> dict[str, Any]:
        return {"store": self.store, "passed": self.passed, "outcomes": [asdict(one) for one in self.outcomes]}

    def __str__(self) -> str:
        lines = [f"{one.check:20} {one.status:15} {one.why}" for one in self.outcomes]
        if not self.checked:
            lines.append("nothing was checked: no check is applicable")
        return "\n".join([self.store, *lines])


def run(
    factory: str,
    *,
    only: Iterable[str] | None = None,
    python: str | None = None,
    kills: int = 10,
    timeout: float = 60.0,
) -> Report:
    """Try a store; each check has a fresh directory below the one for temporary files.

    `factory` is `module:function`, imported by child processes. `python` is the interpreter to run them with, for a
    store that lives in another environment, which needs no nacre. `kills` is how often a writer is killed in each
    check of crashes, `timeout` how many seconds one call may take before the store is said to hang; to start Python
    and to import the store is not counted.
    Raises InvalidArgument if the factory cannot be imported, names a check that there is not as not applicable, or
    gives what is no store: a method is missing, or has to be awaited.
    """
    wanted = list(CHECKS) if only is None else list(dict.fromkeys(only))
    if unknown := [name for name in wanted if name not in CHECKS]:
        raise InvalidArgument(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    if kills < 2:
        raise InvalidArgument(f"kills must be at least 2, not {kills!r}")
    if not (math.isfinite(timeout) and timeout > 0):
        raise InvalidArgument(f"timeout must be a number of seconds above 0, not {timeout!r}")
    setting = Setting(factory=factory, kills=kills, timeout=timeout)
    if python is not None:
        setting = setting._replace(python=python)
    with tempfile.TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as directory:
        room = Path(directory)
        try:
            with Child(setting, room / "none") as child:
                reasons = child.not_applicable
        except CannotRun as error:
            raise InvalidArgument(str(error)) from error
        if unknown := [name for name in reasons if name not in CHECKS]:
            raise InvalidArgument(
                f"{factory}: not_applicable names {unknown[0]!r}, which is no check; there are {', '.join(CHECKS)}"
            )
        try:
            outcomes = tuple(_try(name, setting, room / name, reasons) for name in wanted)
        except Unusable as error:
            raise InvalidArgument(str(error)) from error
    return Report(store=factory, outcomes=outcomes)


def _try(name: str, setting: Setting, room: Path, reasons: dict[str, str]) -> Outcome:
    if name in reasons:
        return Outcome(check=name, status="not applicable", why=reasons[name])
    try:
        return Outcome(check=name, status="passed", why=CHECKS[name](setting, room))
    except NotApplicable as error:
        return Outcome(check=name, status="not applicable", why=str(error))
    except (Broken, StoreFailed, CannotRun) as error:
        return Outcome(check=name, status="failed", why=str(error))
