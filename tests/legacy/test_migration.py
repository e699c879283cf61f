from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nacre
from nacre.history.session_state import RULES
from nacre.legacy import Migrated, Migration, migrate, migrate_at_start
from nacre.storage.file_store import FileStore
from nacre.testing import Disk, Fault
from tests.legacy import earlier
from tests.legacy.earlier import TORN, document, line, meta
from tests.paths import log_of


def files(root: Path) -> FileStore:
    return FileStore(str(root), rules=RULES)


def put(root: Path, **contents: bytes) -> None:
    """Write files; `__` in a name is a dot."""
    root.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (root / name.replace("__", ".")).write_bytes(data)


def started(root: Path) -> tuple[Migration, nacre.Sessions]:
    store = files(root)
    return migrate_at_start(store), nacre.Sessions(store)


def outcomes(found: Migration) -> list[tuple[str, str]]:
    return [(migrated.key, migrated.outcome) for migrated in found.report]


def said(sessions: nacre.Sessions, key: str) -> list[object]:
    return [message.content for message in sessions.get_history(key)]


def ever(sessions: nacre.Sessions, key: str) -> list[object]:
    return [stored.message.content for stored in sessions.transcript(key)]


def test_a_document_becomes_a_session_with_its_times(root: Path) -> None:
    put(root, telegram_1__json=document("telegram:1", "a", "b", summary="S"))
    found, sessions = started(root)
    assert found.report == (Migrated(file="telegram_1.json", key="telegram:1", outcome="migrated", messages=2),)
    assert (said(sessions, "telegram:1"), sessions.get_summary("telegram:1")) == (["a", "b"], "S")
    (info,) = sessions.list()
    assert [str(time)[:23] for time in (info.created, info.updated)] == [
        "2026-01-02 03:04:05.678",
        "2026-02-02 20:05:06+00:",
    ]


@pytest.mark.parametrize(
    ("fields", "texts", "times"),
    [
        ({}, [{}], ("2026-01-02T03:04:05", "2026-02-02T20:05:06")),
        ({}, [{"created_at": "2026-01-15T00:00:00Z"}], ("2026-01-02T03:04:05", "2026-02-02T20:05:06")),
        ({}, [{"created_at": "2025-01-01T00:00:00Z"}], ("2025-01-01T00:00:00", "2026-02-02T20:05:06")),
        ({}, [{"created_at": "2026-03-01T00:00:00Z"}], ("2026-01-02T03:04:05", "2026-03-01T00:00:00")),
        (
            {"created": None},
            [{"created_at": "2026-01-15T00:00:00Z"}, {}],
            ("2026-01-15T00:00:00", "2026-02-02T20:05:06"),
        ),
        ({"updated": ""}, [{}], ("2026-01-02T03:04:05", "2026-01-02T03:04:05")),
        ({"created": "", "updated": ""}, [{}], ("2026-05-01T00:00:00", "2026-05-01T00:00:00")),
    ],
)
@pytest.mark.parametrize("shape", ["document", "lines"])
def test_the_times_of_a_session_are_those_of_the_original(
    root: Path, shape: str, fields: dict[str, object], texts: list[dict[str, str]], times: tuple[str, str]
) -> None:
    told = {"created": "2026-01-02T03:04:05.678Z", "updated": "2026-02-02T20:05:06Z", **fields}
    messages = [{"role": "user", "content": "a", **text} for text in texts]
    if shape == "document":
        put(root, k__json=json.dumps({"key": "k", "messages": messages, **told}).encode())
    else:
        put(root, k__jsonl=b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        put(
            root, k__meta__json=json.dumps({"key": "k", **{f"{name}_at": time for name, time in told.items()}}).encode()
        )
    for file in root.iterdir():
        os.utime(file, (1777593600, 1777593600))
    (info,) = started(root)[1].list()
    assert tuple(time.isoformat()[:19] for time in (info.created, info.updated)) == times


def test_files_that_nobody_knows_are_named(root: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    put(old, k__json=document("k", "a"), notes__txt=b"x", __hidden=b"x", lone__meta__json=meta("k"), bad__json=b"{")
    put(old / "sessions", events__jsonl=b'{"event": 1}\n', x__checkpoint__json=b"{}")
    names = [f"{old}/lone.meta.json", f"{old}/notes.txt", f"{old}/sessions/events.jsonl"]
    for dry_run in (True, False):
        found = migrate(files(root), old, dry_run=dry_run)
        assert (list(found.unknown), found.is_known) == (names, True)
    (old / "bad.json").unlink()
    again = migrate(files(root), old)
    assert (again.report, list(again.unknown), again.is_known) == ((), names, True)


def test_a_folder_in_which_nothing_is_an_earlier_agents_is_said(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "old", notes__txt=b"x")
    assert not migrate(files(root), tmp_path / "old").is_known
    assert migrate(files(root), root).unknown == ()


def test_the_original_is_kept_and_the_session_names_it(root: Path) -> None:
    data = document("k", "a")
    put(root, x__json=data, x__json__migrated=b"older")
    _, sessions = started(root)
    assert (root / "x.json.migrated.2").read_bytes() == data
    assert (root / "x.json.migrated").read_bytes() == b"older"
    assert not (root / "x.json").exists()
    assert files(root).source_of("k")[0]["file"] == "x.json"
    assert sessions.verify().ok


def test_lines_become_a_session_and_bad_ones_are_set_aside(root: Path) -> None:
    put(root / "sessions", plain__jsonl=line("one") + TORN + b"\n" + line("two"))
    found, sessions = started(root)
    assert found.report[0].set_aside == 1
    assert said(sessions, "plain") == ["one", "two"]
    (path,) = (root / "quarantine").iterdir()
    assert json.loads(path.read_text())["raw"] == TORN.decode()


def test_archived_lines_become_an_archived_session(root: Path) -> None:
    put(root, gone__jsonl__archived=line("old"))
    _, sessions = started(root)
    assert ([info.key for info in sessions.list()], said(sessions, "gone")) == ([], ["old"])
    assert [info.key for info in sessions.list(archived=True)] == ["gone"]


def test_what_was_dropped_before_stays_in_the_transcript(root: Path) -> None:
    lines = line("a") + line("b") + line("c")
    put(root / "sessions", t_1__jsonl=lines, t_1__meta__json=meta("t:1", skip=2, summary="S", aliases=["x"]))
    _, sessions = started(root)
    assert (said(sessions, "t:1"), ever(sessions, "t:1")) == (["c"], ["a", "b", "c"])
    assert (sessions.get_summary("t:1"), sessions.get_meta("t:1")) == ("S", {"aliases": ["x"]})
    kept = sorted(path.name for path in (root / "sessions").iterdir() if path.name.endswith(".migrated"))
    assert kept == ["t_1.jsonl.migrated", "t_1.meta.json.migrated"]


def test_a_damaged_document_is_reported_and_the_others_go_on(root: Path) -> None:
    put(root, bad__json=b'{"key":', good__json=document("good", "a"))
    found, sessions = started(root)
    assert [(migrated.file, migrated.outcome) for migrated in found.report] == [
        ("bad.json", "unreadable"),
        ("good.json", "migrated"),
    ]
    assert ((root / "bad.json").read_bytes(), found.ok) == (b'{"key":', False)
    assert said(sessions, "good") == ["a"]


def test_files_of_other_shapes_are_never_touched(root: Path) -> None:
    (root / "sessions").mkdir(parents=True)
    for name, data in earlier.STRANGERS.items():
        (root / name).write_bytes(data)
    (root / "link.json").symlink_to(root / "elsewhere.json")
    found, _ = started(root)
    assert [migrated.outcome for migrated in found.report] == ["unreadable"]
    assert {name: (root / name).read_bytes() for name in earlier.STRANGERS} == earlier.STRANGERS


def test_a_log_of_ours_is_no_earlier_session(root: Path) -> None:
    with nacre.Sessions(files(root)) as sessions:
        sessions.add_message("k", "user", "a")
    before = log_of(root, "k").read_bytes()
    found, _ = started(root)
    assert (found.report, log_of(root, "k").read_bytes()) == ((), before)


def test_a_stranger_that_has_a_logs_name_is_left_and_said(root: Path) -> None:
    stranger = log_of(root, "notes")
    put(root / "sessions", **{stranger.name.replace(".", "__"): b'{"event":1}\n'})
    put(root, a__json=document("notes", "a"))
    found, _ = started(root)
    assert outcomes(found) == [("notes", "failed")]
    assert stranger.read_bytes() == b'{"event":1}\n'
    assert (root / "a.json").exists()


def test_a_stranger_that_has_a_plain_name_is_in_nobodys_way_and_is_said(root: Path) -> None:
    put(root / "sessions", notes__jsonl=b'{"event":1}\n')
    put(root, a__json=document("notes", "a"))
    found, sessions = started(root)
    sessions.add_message("notes", "user", "b")
    assert (outcomes(found), said(sessions, "notes")) == ([("notes", "migrated")], ["a", "b"])
    assert (root / "sessions" / "notes.jsonl").read_bytes() == b'{"event":1}\n'
    assert [finding.kind for finding in sessions.verify().findings] == ["stranger"]


def test_an_empty_document_leaves_nothing_to_migrate(root: Path) -> None:
    put(root, a__json=document("k"))
    found, sessions = started(root)
    assert (outcomes(found), sessions.exists("k")) == ([("k", "empty")], False)
    assert (root / "a.json.migrated").exists()


def test_what_an_earlier_agent_wrote_since_is_appended(root: Path) -> None:
    put(root, a__json=document("k", "a", "b"))
    started(root)
    put(root, a__json=document("k", "a", "b", "c"))
    found, sessions = started(root)
    assert (outcomes(found), found.report[0].messages) == ([("k", "appended")], 1)
    assert ever(sessions, "k") == ["a", "b", "c"]
    assert str(sessions.transcript("k")[-1].message.created)[:10] == "2026-02-02"


def test_both_went_on_and_neither_is_lost(root: Path) -> None:
    put(root, a__json=document("k", "a"))
    _, sessions = started(root)
    sessions.add_message("k", "user", "ours")
    put(root, a__json=document("k", "a", "theirs"))
    found, sessions = started(root)
    assert (outcomes(found), said(sessions, "k")) == ([("k", "appended")], ["a", "ours", "theirs"])


def test_what_was_appended_before_comes_only_once_wherever_it_stands(root: Path) -> None:
    for texts in ("12", "1234", "12345"):
        put(root, a__json=document("k", *texts))
        started(root)[1].add_message("k", "user", f"ours {len(texts)}")
    put(root, a__json=document("k", *"12345", other=1))
    found, sessions = started(root)
    assert outcomes(found) == [("k", "finished")]
    assert said(sessions, "k") == ["1", "2", "ours 2", "3", "4", "ours 4", "5", "ours 5"]


def test_what_came_from_another_file_meanwhile_is_passed_over(root: Path) -> None:
    for name, texts in (("a", "1"), ("b", "1b"), ("a", "1a")):
        put(root, **{f"{name}__json": document("k", *texts)})
        started(root)
    put(root, a__json=document("k", *"1a2"))
    _, sessions = started(root)
    assert said(sessions, "k") == ["1", "b", "a", "2"]


def test_a_summary_without_messages_is_not_lost_where_its_key_is_taken(root: Path, tmp_path: Path) -> None:
    with nacre.Sessions(files(root)) as sessions:
        sessions.add_message("k", "user", "hi")
    put(tmp_path, a__json=document("k", summary="ten years"), b__json=document("k", summary="ten years", other=1))
    found = migrate(files(root), tmp_path)
    assert outcomes(found) == [("k (2)", "separate"), ("k (2)", "finished")]
    with nacre.Sessions(files(root)) as sessions:
        assert (sessions.get_summary("k"), sessions.get_summary("k (2)")) == ("", "ten years")


def test_a_dry_run_says_so_of_a_summary_too(root: Path, tmp_path: Path) -> None:
    put(tmp_path, a__json=document("k", "a", summary="S"), b__json=document("k", summary="T"))
    put(tmp_path, c__json=document("k", summary="S"))
    store = files(root)
    found = migrate(store, tmp_path, dry_run=True)
    assert outcomes(found) == [("k", "migrated"), ("k (2)", "separate"), ("k", "finished")]
    assert outcomes(migrate(store, tmp_path)) == outcomes(found)


def test_another_session_under_the_same_key_gets_a_key_of_its_own(root: Path) -> None:
    put(root, a__json=document("k", "a"))
    started(root)
    put(root, a__json=document("k", "x"))
    found, _ = started(root)
    put(root, a__json=document("k", "x", "y"))
    again, sessions = started(root)
    assert (outcomes(found), outcomes(again)) == ([("k (2)", "separate")], [("k (2)", "appended")])
    assert (said(sessions, "k"), said(sessions, "k (2)")) == (["a"], ["x", "y"])


def test_a_copy_is_not_migrated_twice(root: Path) -> None:
    put(root, a__json=document("k", "a"))
    put(root / "sessions", a__json=document("k", "a"))
    found, sessions = started(root)
    assert (outcomes(found), ever(sessions, "k")) == ([("k", "migrated"), ("k", "finished")], ["a"])


def test_a_dry_run_says_what_would_be_done_and_does_nothing(root: Path, tmp_path: Path) -> None:
    put(tmp_path, a__json=document("k", "a"), b__json=document("k", "a", "b"), c__json=document("k", "x"))
    store = files(root)
    before = sorted(root.rglob("*"))
    found = migrate(store, tmp_path, dry_run=True)
    assert outcomes(found) == [("k", "migrated"), ("k", "appended"), ("k (2)", "separate")]
    assert sorted(root.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "c.json"]
    assert outcomes(migrate(store, tmp_path)) == outcomes(found)


def test_progress_counts_the_bytes(root: Path, tmp_path: Path) -> None:
    put(tmp_path, a__json=b"{}", b__json=document("k", "a"))
    seen: list[tuple[int, int]] = []
    migrate(files(root), tmp_path, progress=lambda done, total: seen.append((done, total)))
    size = len(document("k", "a"))
    assert seen == [(2, size + 2), (size + 2, size + 2)]


def test_a_directory_that_is_not_there_holds_nothing(root: Path) -> None:
    assert migrate(files(root), root / "nowhere").report == ()


def test_names_of_logs_are_looked_through_once(root: Path) -> None:
    put(root / "sessions", a__jsonl=line("a"))
    started(root)
    put(root / "sessions", **{log_of(root, "b").name.replace(".", "__"): line("b")})
    assert started(root)[0].report == ()
    assert outcomes(migrate(files(root), root)) == [(log_of(root, "b").stem, "migrated")]


def test_a_plain_name_that_comes_later_is_found_by_the_next_start(root: Path) -> None:
    put(root / "sessions", a__jsonl=line("a"))
    started(root)
    put(root / "sessions", b__jsonl=line("b"))
    assert outcomes(started(root)[0]) == [("b", "migrated")]


def test_a_full_disk_stops_it_and_leaves_what_is_not_migrated() -> None:
    world = earlier.World({"a.json": document("k", "a")}, {"k": earlier.Held(("a",), ("a",))})
    disk = earlier.planted(world, 0)
    store = earlier.store(disk.process())
    disk.fail(Fault(call="write", nth=1, errno=28, count=None))
    with pytest.raises(nacre.Refused):
        migrate_at_start(store)
    assert disk.read(f"{earlier.ROOT}/a.json") == world.files["a.json"]
    disk.heal()
    earlier.check(disk, world, "after a full disk")


def test_a_store_that_may_only_be_read_is_opened_if_nothing_waits_to_be_migrated() -> None:
    disk = Disk(0)
    nacre.Sessions(earlier.store(disk.process())).add_message("k", "user", "a")
    disk.fail(Fault(call="*", nth=1, errno=30, count=None))
    assert migrate_at_start(earlier.store(disk.process())).report == ()
    disk.write_durable(f"{earlier.ROOT}/a.json", document("k", "a"))
    with pytest.raises(nacre.Refused):
        migrate_at_start(earlier.store(disk.process()))


def test_what_cannot_be_renamed_is_migrated_all_the_same_and_only_once() -> None:
    disk = Disk(0)
    disk.write_durable("/old/a.json", document("k", "a"))
    store = earlier.store(disk.process())
    assert migrate(store, "/old").ok
    disk.process().rename("/old/a.json.migrated", "/old/a.json")
    found = migrate(store, "/old")
    assert (outcomes(found), ever(nacre.Sessions(store), "k")) == ([("k", "finished")], ["a"])


PROGRAM = """
import sys
from nacre.history.session_state import RULES
from nacre.legacy import migrate_at_start
from nacre.storage.file_store import FileStore
from tests.paths import log_of
from tests.paths import log_of
store = FileStore(sys.argv[1], rules=RULES)
print("ready", flush=True)
sys.stdin.readline()
print(sum(found.outcome == "migrated" for found in migrate_at_start(store).report))
"""


def test_two_processes_may_start_at_once(root: Path) -> None:
    for n in range(40):
        put(root, **{f"s{n}__json": document(f"key:{n}", "a", "b")})
        put(root / "sessions", **{f"p{n}__jsonl": line("c")})
    command = [sys.executable, "-c", PROGRAM, str(root)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    counts = [int(process.communicate("go\n")[0]) for process in both]
    sessions = nacre.Sessions(files(root))
    assert sum(counts) == 80
    assert all(ever(sessions, f"key:{n}") == ["a", "b"] and ever(sessions, f"p{n}") == ["c"] for n in range(40))
    assert (len(list(sessions.list())), sessions.verify().ok) == (80, True)
