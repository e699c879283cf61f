"""What was learned of how models count outlives the process, and never does harm."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import anyio
import pytest

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.ports import Context, Emit, Reply, Usage, ignore
from nacre.config import Settings
from nacre.errors import ContextOverflow
from nacre.history.tokens import Calibration
from nacre.messages import Message
from nacre.runtime import App
from nacre.runtime.context_budget import Budget, Calibrations

THAI = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ " * 20


class Thorough:
    """A model with a vocabulary that has hardly any Thai."""

    model = "thorough"

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        if self.refusal:
            raise ContextOverflow(self.refusal)
        letters = sum(len(str(message.content)) for message in context.messages)
        return Reply(message=Message(role="assistant", content="ok"), usage=Usage(prompt=letters))

    async def close(self) -> None:
        pass


CONTEXT = Context(messages=[Message(role="user", content=THAI)])


def thai(calibration: Calibration) -> float:
    return calibration.ratio({"thai": 1})


def test_the_next_process_counts_as_this_one_has_learned(tmp_path: Path) -> None:
    file = tmp_path / "state/calibrations.json"
    budget = Budget(8000, calibrations=Calibrations(file))
    anyio.run(lambda: budget.watch(Thorough()).complete(CONTEXT, emit=ignore))
    later = Budget(8000, calibrations=Calibrations(file)).calibration(Thorough())
    assert thai(later) > 2
    assert later == budget.calibration(Thorough())


def test_a_refusal_teaches_the_next_process_too(tmp_path: Path) -> None:
    file = tmp_path / "calibrations.json"
    watched = Budget(8000, calibrations=Calibrations(file)).watch(Thorough("3000 tokens > 2048 maximum"))
    with pytest.raises(ContextOverflow):
        anyio.run(lambda: watched.complete(CONTEXT, emit=ignore))
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
        b'{"m": {"calibration": {}, "at": 1, "x": ' + b"[" * 100_000,
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


def test_a_session_is_given_room_by_what_is_written_in_it(tmp_path: Path) -> None:
    file, model = tmp_path / "calibrations.json", Thorough()
    first = Budget(8000, calibrations=Calibrations(file))
    anyio.run(lambda: first.watch(model, "thai").complete(CONTEXT, emit=ignore))
    assert first.room(model, "thai") < 4000
    assert first.room(model, "english") > 6000
    # The next process is told what is in a session before it has asked anything.
    scripts = {"thai": {"thai": 90, "latin": 10}, "english": {"latin": 100}}
    later = Budget(8000, calibrations=Calibrations(file), mix=lambda key: scripts[key])
    assert later.room(model, "thai") < 4000
    assert later.room(model, "english") > 6000
    assert later.tokens(model, 1000, "thai") > 2000


def test_a_new_process_knows_how_much_of_a_session_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(tmp_path / "store") as sessions:
        sessions.add_messages("thai", [Message(role="user", content=THAI), Message(role="assistant", content=THAI)])
        sessions.add_messages("english", [Message(role="user", content="What is new?")])

        async def rooms(*, ask: bool) -> list[int]:
            app = App(Settings({"agent": {"max_context_tokens": 8000}}, {}), sessions, Thorough())
            async with app.kernel:
                if ask:
                    await app.kernel.deliver(UserMessage(key="thai", content=THAI))
            return [app.agent_for(key).tokens() for key in ("thai", "english")]

        before, learned, later = (anyio.run(partial(rooms, ask=ask)) for ask in (False, True, False))
    assert before == [7000, 7000]
    assert learned[0] < 5000 < learned[1]
    assert later[0] < 5000 < later[1]


def test_other_requests_do_not_change_what_a_session_is_made_of() -> None:
    budget, model = Budget(8000), Thorough()
    anyio.run(lambda: budget.watch(model).complete(CONTEXT, emit=ignore))
    assert budget.room(model, "english") > 6000


def test_what_is_remembered_of_sessions_is_bounded() -> None:
    budget, model = Budget(8000), Thorough()
    reply = Reply(message=Message(role="assistant", content="ok"), usage=Usage(prompt=len(THAI)))
    for number in range(3000):
        budget.learn(model, CONTEXT, reply, f"k{number}")
    assert len(budget._mixes) <= 1024
