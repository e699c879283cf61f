"""What was learned of how models count outlives the process, and never does harm."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from nacre.agent.kernel import ignored
from nacre.agent.ports import Context, Emit, Reply, Usage
from nacre.app.budget import Budget
from nacre.app.calibrations import Calibrations
from nacre.entries import Message
from nacre.errors import ContextOverflow
from nacre.history.tokens import Calibration

THAI = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ " * 20


class Thorough:
    """A model with a vocabulary that has hardly any Thai."""

    model = "thorough"

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        if self.refusal:
            raise ContextOverflow(self.refusal)
        return Reply(message=Message(role="assistant", content="ok"), usage=Usage(prompt=len(THAI)))

    async def close(self) -> None:
        pass


CONTEXT = Context(messages=[Message(role="user", content=THAI)])


def thai(calibration: Calibration) -> float:
    return calibration.ratio({"thai": 1})


def test_the_next_process_counts_as_this_one_has_learned(tmp_path: Path) -> None:
    file = tmp_path / "state/calibrations.json"
    budget = Budget(8000, calibrations=Calibrations(file))
    anyio.run(lambda: budget.watch(Thorough()).complete(CONTEXT, emit=ignored))
    later = Budget(8000, calibrations=Calibrations(file)).calibration(Thorough())
    assert thai(later) > 2
    assert later == budget.calibration(Thorough())


def test_a_refusal_teaches_the_next_process_too(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"
    watched = Budget(8000, calibrations=Calibrations(file)).watch(Thorough("3000 tokens > 2048 maximum"))
    with pytest.raises(ContextOverflow):
        anyio.run(lambda: watched.complete(CONTEXT, emit=ignored))
    assert Calibrations(file).of("thorough").cost(CONTEXT) == pytest.approx(3000, rel=0.01)


def test_two_processes_keep_what_both_have_learned(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"
    one, other = Calibrations(file), Calibrations(file)
    one.learn("m", {"thai": 1000}, 3000)
    other.learn("m", {"greek": 1000}, 2000)
    other.learn("n", {"latin": 1000}, 1500)
    one.save()
    other.save()
    for found in (Calibrations(file), other):
        assert thai(found.of("m")) > 2
        assert found.of("m").ratio({"greek": 1}) > 1.5
    assert Calibrations(file).of("n").ratio({"latin": 1}) > 1.3


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"

    def learn(number: int) -> None:
        mine = Calibrations(file)
        mine.learn(f"m{number}", {"thai": 1000}, 3000)
        mine.save()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(learn, range(12)))
    assert all(thai(Calibrations(file).of(f"m{number}")) > 2 for number in range(12))


def test_it_keeps_the_models_that_were_used_last(tmp_path: Path) -> None:
    mine = Calibrations(tmp_path / "calibrations.json")
    for number in range(70):
        mine.learn(f"m{number}", {"thai": 1000}, 3000)
        mine.save()
    later = Calibrations(tmp_path / "calibrations.json")
    assert [thai(later.of(f"m{number}")) > 2 for number in range(70)] == 6 * [False] + 64 * [True]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"\xff\x00",
        b'{"m": 7}',
        b'{"m": {"calibration": {"ratios": {"thai": {"value": -1e9, "doubt": 1}}}, "at": 1}}',
        b'{"m": {"calibration": {"ratios": {"thai": {"value": 1e308, "doubt": 1}}}, "at": 1}}',
        b'{"m": {"calibration": {"ratios": {"thai": {"value": 1, "doubt": 1e308}}}, "at": 1}}',
    ],
)
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "calibrations.json"
    file.write_bytes(content)
    mine = Calibrations(file)
    assert mine.of("m") == Calibration()
    mine.learn("m", {"thai": 1000}, 3000)
    mine.save()
    assert thai(Calibrations(file).of("m")) > 2


def test_a_file_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    mine = Calibrations(tmp_path / "file" / "below-a-file")
    mine.learn("m", {"thai": 1000}, 3000)
    mine.save()
    assert thai(mine.of("m")) > 2
    assert not mine.has_news


def test_what_is_no_news_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"
    mine = Calibrations(file)
    for _ in range(200):
        mine.learn("m", {"latin": 1000}, 1000)
        if mine.has_news:
            mine.save()
    file.unlink()
    mine.learn("m", {"latin": 1000}, 1010)
    assert not mine.has_news
    assert not Calibrations(None).has_news
