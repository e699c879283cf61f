"""A migration that is killed, loses power or fails at any call loses nothing and brings nothing twice."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator

import pytest

from nacre.legacy import merge, migration
from nacre.testing import Fault
from nacre.testing.disk import Mode
from tests.legacy import earlier

CHUNKS = 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log lines: every migration would write some."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_or_without_power_at_any_call_and_run_again(chunk: int, *, campaign: bool) -> None:
    tried, seed = 0, chunk
    while tried < (100_000 if campaign else 2_000) // CHUNKS:
        tried += earlier.interrupted(seed, nested=0.05 if campaign else 0)
        seed += CHUNKS


def test_killed_again_at_any_call_of_the_second_run() -> None:
    assert earlier.interrupted(6, nested=0.005) > 200


@pytest.mark.parametrize("seed", range(2))
def test_what_the_fallback_wrote_is_appended_once_wherever_it_is_interrupted(seed: int) -> None:
    assert earlier.continued(seed) > 50


@pytest.mark.parametrize(("mode", "code"), [("error", errno.EIO), ("error", errno.ENOSPC), ("kill", 0)])
def test_any_failing_call_is_put_right_by_the_next_start(mode: Mode, code: int) -> None:
    assert earlier.failing(1, lambda nth: Fault(call="*", nth=nth, errno=code, mode=mode)) > 20


def _unsettled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(migration._Walk, "_settle", lambda walk: None)


def _taken_for_damage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(migration._Walk, "_clear_names", lambda walk, found: found)
    patch.setattr(migration._Walk, "_refuse_other_file", lambda walk, key: None)


def _forgetful(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merge, "knows", lambda view, src: False)
    patch.setattr(merge, "is_contained", lambda view, legacy: False)


def _renamed_first(patch: pytest.MonkeyPatch) -> None:
    write = migration._Walk._write

    def finish_and_write(walk: migration._Walk, plan: merge.Plan, legacy: object, src: dict[str, str]) -> None:
        folder, _, name = f"{earlier.ROOT}/{src['file']}".rpartition("/")
        walk._finish(folder, name, name)
        write(walk, plan, legacy, src)  # type: ignore[arg-type]

    patch.setattr(migration._Walk, "_write", finish_and_write)


@pytest.mark.parametrize(
    ("plant", "seed"), [(_unsettled, 0), (_taken_for_damage, 1), (_forgetful, 0), (_renamed_first, 0)]
)
def test_planted_bugs_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(earlier.Violation):
        earlier.interrupted(seed, nested=0)
