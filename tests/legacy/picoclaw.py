"""A small model of picoclaw's store of sessions, in its own words: what it writes, and how it reads and rewrites it.

It follows pkg/memory/jsonl.go: one message per line, appended; metadata beside it, which is read and replaced at every
call; `skip` lines that are no longer live, until `compact` rewrites the file without them. Nothing is kept in memory.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_TIME = "2026-03-01T00:00:00Z"
_TEXTS = ("role", "content", "model_name", "created_at", "reasoning_content", "tool_call_id")


class Picoclaw:
    """The agent's JSONL store in a folder; making one is a restart of the agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # At its start it takes in every JSON document but metadata; it must find none that is not its own.
        assert [path.name for path in folder.glob("*.json") if not path.name.endswith(".meta.json")] == []

    # ---- as its interface names them

    def add_message(self, key: str, text: str) -> None:
        line = json.dumps({"role": "user", "content": text, "created_at": _TIME}).encode() + b"\n"
        with self.lines_of(key).open("ab") as file:
            file.write(line)
            os.fsync(file.fileno())
        meta = self._meta(key)
        self._replace(self.meta_of(key), self._spelled({**meta, "count": meta["count"] + 1}))

    def get_history(self, key: str) -> list[str]:
        return [message["content"] for _, message in self._messages(key)]

    def get_summary(self, key: str) -> str:
        return str(self._meta(key)["summary"])

    def truncate_history(self, key: str, keep: int) -> None:
        numbers = [number for number, _ in self._messages(key)]
        count = sum(1 for line in self._raw(key) if line.strip())
        skip = count if keep <= 0 else numbers[-keep] if keep < len(numbers) else self._meta(key)["skip"]
        self._replace(self.meta_of(key), self._spelled({**self._meta(key), "skip": min(skip, count), "count": count}))

    def set_summary(self, key: str, summary: str) -> None:
        self._replace(self.meta_of(key), self._spelled({**self._meta(key), "summary": summary}))

    def compact(self, key: str) -> None:
        meta = self._meta(key)
        if not meta["skip"]:
            return
        kept = [self._typed(message) for _, message in self._messages(key)]
        self._replace(self.meta_of(key), self._spelled({**meta, "skip": 0, "count": len(kept)}))
        self._replace(self.lines_of(key), b"".join(json.dumps(message).encode() + b"\n" for message in kept))

    # ---- its files

    def lines_of(self, key: str) -> Path:
        return self.folder / f"{self._name(key)}.jsonl"

    def meta_of(self, key: str) -> Path:
        return self.folder / f"{self._name(key)}.meta.json"

    def files(self) -> dict[str, bytes]:
        """The files that are its own: it knows them by their metadata."""
        metas = list(self.folder.glob("*.meta.json"))
        lines = [path.with_name(path.name.replace(".meta.json", ".jsonl")) for path in metas]
        return {path.name: path.read_bytes() for path in (*metas, *lines) if path.exists()}

    def kept(self, key: str) -> list[str]:
        """The texts that are in the file of a session, skipped ones too."""
        return [json.loads(line)["content"] for line in self._raw(key) if line.strip()]

    @staticmethod
    def _name(key: str) -> str:
        return key.replace(":", "_").replace("/", "_").replace("\\", "_")

    def _raw(self, key: str) -> list[bytes]:
        path = self.lines_of(key)
        return path.read_bytes().split(b"\n") if path.exists() else []

    def _meta(self, key: str) -> dict[str, Any]:
        path = self.meta_of(key)
        if not path.exists():
            return {"key": key, "summary": "", "skip": 0, "count": 0, "created_at": _TIME, "updated_at": _TIME}
        return dict(json.loads(path.read_bytes()))

    def _messages(self, key: str) -> list[tuple[int, dict[str, Any]]]:
        """The live messages and the numbers of their lines; a message in which a type is wrong is passed over."""
        lines = [line for line in self._raw(key) if line.strip()]
        found = [(number, json.loads(line)) for number, line in enumerate(lines)][self._meta(key)["skip"] :]
        return [(number, message) for number, message in found if self._is_readable(message)]

    @staticmethod
    def _is_readable(message: dict[str, Any]) -> bool:
        return all(isinstance(message.get(name, ""), str) for name in _TEXTS)

    @staticmethod
    def _typed(message: dict[str, Any]) -> dict[str, Any]:
        """A message as it comes through its type: fields that this does not have are gone."""
        known = (*_TEXTS, "media", "attachments", "system_parts", "tool_calls")
        return {name: message[name] for name in known if name in message}

    @staticmethod
    def _spelled(meta: dict[str, Any]) -> bytes:
        return json.dumps(meta, indent=2).encode()

    def _replace(self, path: Path, data: bytes) -> None:
        scratch = path.with_name(f".tmp-{os.getpid()}-1")
        scratch.write_bytes(data)
        scratch.replace(path)
