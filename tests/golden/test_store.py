"""What is written and exported, byte for byte, and what the library reads of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre.cli import main
from tests.golden.conftest import FILES, STORE, Golden, Room, files_of, make_store

KEYS = (
    "chat-20240501-0900-a1b2",
    "chat-20240505-2010-c3d4",
    "cli:fork",
    "closed",
    "damaged",
    "open",
    "telegram:42",
    "telegram:43",
    "weekly",
)
EXPORTS = {
    "tools": ("chat-20240501-0900-a1b2", "md", "html", "json", "jsonl"),
    "summary": ("telegram:42", "md", "html", "json", "jsonl"),
    "branch": ("telegram:43", "md", "html", "json", "jsonl"),
    "generations": ("weekly", "md", "html", "json", "jsonl"),
    "interrupted": ("chat-20240505-2010-c3d4", "md", "html"),
    "odd": ("irc:#boats & <b>/ü", "md"),
}
CASES = [(name, key, format) for name, (key, *formats) in EXPORTS.items() for format in formats]


def test_the_same_store_is_written_byte_for_byte(golden: Golden, tmp_path: Path) -> None:
    written = make_store(tmp_path / "store")
    assert sorted(written) == sorted(files_of(STORE))
    for name, data in written.items():
        # How zstd packs what was moved out, and so how long that is, depends on its version.
        if "compacted" not in name:
            golden.check(f"store/{name}", data)


@pytest.mark.parametrize(("name", "key", "format"), CASES, ids=[f"{name}.{format}" for name, _, format in CASES])
def test_an_export_has_the_same_bytes(at_home: Room, golden: Golden, name: str, key: str, format: str) -> None:
    assert main(["sessions", "export", key, "--format", format, "-o", "exported"]) == 0
    golden.check(f"exports/{name}.{format}", Path("exported").read_bytes())
    if format in {"md", "html"}:
        assert main(["sessions", "export", key, "--format", format, "--all", "-o", "whole"]) == 0
        golden.check(f"exports/{name}-all.{format}", Path("whole").read_bytes())


def test_an_export_for_picoclaw_has_the_same_bytes(at_home: Room, golden: Golden) -> None:
    assert main(["sessions", "export", "telegram:42", "--format", "picoclaw", "-o", "exported"]) == 0
    found = {str(path.relative_to("exported")): path for path in Path("exported").rglob("*") if path.is_file()}
    lines = [line for name in sorted(found) for line in (f"--- {name}", found[name].read_text())]
    golden.check("exports/summary.picoclaw", "\n".join(lines))


def test_the_library_reads_what_it_did(at_home: Room, golden: Golden) -> None:
    with nacre.open(at_home.store) as sessions:
        found = {key: _read(sessions, key) for key in KEYS}
    golden.check("library.json", json.dumps(found, indent=1, ensure_ascii=False, default=str) + "\n")


def _read(sessions: nacre.Sessions, key: str) -> dict[str, Any]:
    return {
        "history": [message.to_mapping() for message in sessions.get_history(key)],
        "summary": sessions.get_summary(key),
        "meta": sessions.get_meta(key),
        "aliases": list(sessions.aliases(key)),
        "transcript": [[one.generation, one.n, one.ts, one.message.to_mapping()] for one in sessions.transcript(key)],
        "records": [[one.generation, one.n, one.ts, one.kind, one.data] for one in sessions.records(key)],
    }


def test_every_golden_file_of_an_export_is_compared(golden: Golden) -> None:
    names = [f"{name}{end}.{format}" for name, _, format in CASES for end in ("", "-all")]
    names = [name for name in names if "-all" not in name or name.endswith((".md", ".html"))]
    golden.check_names("exports", [*names, "summary.picoclaw"])
    assert sorted(path.name for path in FILES.iterdir()) == ["cli", "exports", "help", "library.json", "store", "web"]
