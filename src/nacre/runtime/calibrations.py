"""How models were found to count tokens, kept between runs: a new process need not learn it again."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from nacre.history.tokens import ByScript, Calibration
from nacre.user_files import locked, state_folder, write_whole

_MOST_MODELS = 64
_NEWS = 0.05
"""By how much a ratio must differ from the stored one to be worth a write."""
_MOST_REPORTS = 64


class _Stored(Struct, frozen=True, kw_only=True):
    calibration: Calibration
    at: float


class _Report(NamedTuple):
    model: str
    sizes: ByScript
    tokens: int
    is_exact: bool

    def applied(self, calibration: Calibration) -> Calibration:
        learn = calibration.corrected if self.is_exact else calibration.learned
        return learn(self.sizes, self.tokens)


class Calibrations:
    """Calibrations by model, in a file that may be deleted or damaged at any time; without a path, only in RAM.

    Several processes may learn at once: what each was told is applied to what is in the file by then.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {model: stored.calibration for model, stored in _read(path).items()}
        self._written = dict(self._known)
        self._reports: list[_Report] = []

    def of(self, model: str) -> Calibration:
        """What is known of a model."""
        return self._known.get(model, Calibration())

    def learn(self, model: str, sizes: ByScript, tokens: int) -> None:
        """Take in how many tokens a model reported for a request."""
        self._take(_Report(model, sizes, tokens, is_exact=False))

    def correct(self, model: str, sizes: ByScript, tokens: int) -> None:
        """Take in what a request was that a server refused as too long."""
        self._take(_Report(model, sizes, tokens, is_exact=True))

    @property
    def has_news(self) -> bool:
        """Tell whether something was learned that is worth a write."""
        models = {report.model for report in self._reports}
        return any(_differs(self.of(model), self._written.get(model, Calibration())) for model in models)

    def save(self) -> None:
        """Store what was learned; a file that cannot be written costs the next process some accuracy, no more."""
        reports, self._reports = self._reports, []
        if self._path is not None:
            with suppress(OSError), locked(self._path.parent):
                stored, now = _read(self._path), time.time()
                for report in reports:
                    before = stored[report.model].calibration if report.model in stored else Calibration()
                    stored[report.model] = _Stored(calibration=report.applied(before), at=now)
                newest = sorted(stored, key=lambda model: stored[model].at)[-_MOST_MODELS:]
                write_whole(self._path, msgspec.json.encode({model: stored[model] for model in newest}))
                self._known.update((report.model, stored[report.model].calibration) for report in reports)
        self._written = dict(self._known)

    def _take(self, report: _Report) -> None:
        before = self.of(report.model)
        after = report.applied(before)
        if after is not before:
            self._known[report.model] = after
            self._reports = [*self._reports[1 - _MOST_REPORTS :], report]


def usual_path() -> Path:
    """Where calibrations are kept."""
    return Path(state_folder()) / "calibrations.json"


def _differs(one: Calibration, other: Calibration) -> bool:
    """Tell whether any script is counted noticeably otherwise."""
    return any(abs(one.ratio({name: 1}) - other.ratio({name: 1})) > _NEWS for name in one.ratios)


def _read(path: Path | None) -> dict[str, _Stored]:
    # A text that is not UTF-8 is a ValueError.
    with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _Stored]) if path is not None else {}
    return {}
