"""Setting damage aside."""

from __future__ import annotations

import json

from nacre.testing import Disk
from tests.simulated import LOG, ROOT, opened, say


def test_a_note_behind_a_torn_one_has_a_line_of_its_own() -> None:
    disk = Disk()
    sessions = opened(disk)
    say(sessions, "a")
    path = f"{ROOT}/quarantine/k.{sessions.transcript('k')[0].generation}.jsonl"
    disk.write_durable(path, b'{"kind":"torn or rot')
    disk.write_durable(LOG, disk.read(LOG) + b"torn")
    say(opened(disk), "b")
    torn, note = disk.read(path).splitlines()
    assert torn == b'{"kind":"torn or rot'
    assert json.loads(note)["raw"] == "torn"
