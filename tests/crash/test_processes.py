"""Many processes and threads on one store: nothing lost, nothing interleaved, nobody waits for the dead."""

from __future__ import annotations

from pathlib import Path

import nacre
from tests.crash.processes import KEY
from tests.crash.warm import Job, Warm


def texts(root: Path) -> list[str]:
    with nacre.open(root) as sessions:
        assert sessions.verify().ok
        return [str(entry.message.content) for entry in sessions.transcript(KEY)]


def test_four_processes_of_four_threads_lose_and_interleave_nothing(warm: Warm, root: Path) -> None:
    jobs = [
        Job(
            task="processes:write_with_threads",
            arguments={"root": str(root), "name": name, "threads": 4, "messages": 25},
        )
        for name in "abcd"
    ]
    assert [outcome.status for outcome in warm.race(jobs)] == [0, 0, 0, 0]
    found = texts(root)
    for writer in (f"{name}.{thread}." for name in "abcd" for thread in range(4)):
        assert [text for text in found if text.startswith(writer)] == [f"{writer}{number}" for number in range(25)]
    assert len(found) == 400


def test_numbers_have_no_gap_when_four_processes_write(warm: Warm, root: Path) -> None:
    arguments = {"root": str(root), "threads": 1, "messages": 20}
    warm.race([Job(task="processes:write_with_threads", arguments={**arguments, "name": name}) for name in "abcd"])
    with nacre.open(root) as sessions:
        assert [entry.n for entry in sessions.transcript(KEY)] == list(range(2, 82))


def test_fork_while_a_thread_writes_leaves_both_able_to_write(warm: Warm, root: Path) -> None:
    outcome = warm.run("processes:fork_while_a_thread_writes", root=str(root))
    (parent,) = outcome.said("parent")
    (child,) = outcome.said("child")
    found = texts(root)
    assert [text for text in found if text.startswith("parent")] == parent
    assert [text for text in found if text.startswith("child")] == child
    assert {"beside the living child", "from a fresh handle"} <= set(found)
    assert outcome.said("status") == [0]


def test_a_forked_child_that_closes_the_store_does_not_disturb_its_parent(warm: Warm, root: Path) -> None:
    outcome = warm.run("processes:fork_and_close_in_the_child", root=str(root))
    assert outcome.said("status") == [0]
    assert texts(root) == ["before", "after"]


def test_three_thousand_sessions_work_with_256_descriptors(warm: Warm, root: Path) -> None:
    task = "processes:write_many_sessions_with_few_descriptors"
    outcome = warm.run(task, root=str(root), sessions=3_000, descriptors=256)
    assert outcome.said("wrong") == [[]]
    assert outcome.said("listed") == [3_000]


def test_deleting_what_another_process_writes_is_a_conflict_and_final(warm: Warm, root: Path) -> None:
    outcome = warm.run("processes:delete_while_another_writes", root=str(root))
    assert outcome.said("ended") == ["Conflict"]
    with nacre.open(root) as sessions:
        assert not sessions.exists(KEY)
    assert not any(b"old " in file.read_bytes() for file in root.rglob("*") if file.is_file())


def test_archiving_what_another_process_writes_starts_a_generation_and_loses_nothing(warm: Warm, root: Path) -> None:
    outcome = warm.run("processes:archive_while_another_writes", root=str(root))
    (written,) = outcome.said("written")
    assert texts(root) == [str(number) for number in range(written)]
    with nacre.open(root) as sessions:
        assert len({entry.generation for entry in sessions.transcript(KEY)}) == 2


def test_a_reader_beside_a_writer_sees_whole_groups_and_no_damage(warm: Warm, root: Path) -> None:
    outcome = warm.run("processes:read_while_another_writes", root=str(root), messages=120)
    assert outcome.said("wrong") == []
    assert outcome.said("findings") == [[]]
    assert not list(root.glob("quarantine/*"))
