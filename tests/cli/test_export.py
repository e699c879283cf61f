"""nacre sessions export."""

from __future__ import annotations

import json
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from nacre.cli.commands.transfer import write
from nacre.cli.failures import PARTIAL, Failure
from nacre.storage.format import unseal
from tests.cli.conftest import Nacre
from tests.item_orders import ORDERS
from tests.legacy.picoclaw import Picoclaw
from tests.paths import log_of


@pytest.fixture
def talk(nacre: Nacre) -> Nacre:
    """A store with one session, of which a summary covers the first message."""
    with nacre.sessions() as sessions:
        sessions.add_message("talk", "user", "first <b>words</b>")
        sessions.set_summary("talk", "We spoke.", upto=2)
        sessions.add_full_message("talk", {"role": "user", "content": "last *words*", "odd": [1]})
    return nacre


def test_markdown_goes_to_stdout(talk: Nacre) -> None:
    code, out, err = talk("sessions", "export", "talk")
    assert code == 0
    assert out.startswith("# talk\n\n`talk` · created ")
    assert out.endswith("\n\nlast *words*\n")
    assert "first" not in out
    assert err == "1 message before the summary or truncation left out; --all includes them\n"


def test_all_includes_what_is_no_longer_in_the_history(talk: Nacre) -> None:
    _, out, err = talk("sessions", "export", "talk", "--all")
    assert "not in the history\n\nfirst <b>words</b>\n" in out
    assert err == ""


def test_html_is_one_file(talk: Nacre, tmp_path: Path) -> None:
    path = tmp_path / "talk.html"
    code, out, _ = talk("sessions", "export", "talk", "--all", "--format", "html", "-o", str(path))
    text = path.read_text()
    assert code == 0
    assert text.startswith("<!doctype html>")
    assert "<p>first &lt;b&gt;words&lt;/b&gt;</p>" in text
    assert out.startswith(f"{path}: ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_jsonl_is_every_line_of_the_log(talk: Nacre) -> None:
    out = talk("sessions", "export", "talk", "--format", "jsonl").out
    assert out == log_of(talk.root, "talk").read_text()
    assert talk("sessions", "export", "talk", "--jsonl").out == out


def test_json_is_every_record_of_every_generation(talk: Nacre) -> None:
    lines = log_of(talk.root, "talk").read_text().splitlines()
    with talk.sessions() as sessions:
        sessions.archive("talk")
        sessions.add_message("talk", "user", "anew")
    found = talk("sessions", "export", "talk", "--format", "json").json
    assert (found["schema_version"], found["key"], len(found["generations"])) == (1, "talk", 2)
    assert found["generations"][0]["records"] == [json.loads(line) for line in lines]
    assert found["generations"][1]["records"][1]["m"]["content"] == "anew"
    assert talk("sessions", "export", "talk", "--json").json == found


def test_records_that_were_moved_out_are_exported_too(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        for n in range(200):
            sessions.add_message("k", "user", f"{n} " + "x" * 3000)
        sessions.truncate_history("k", 1)
        sessions.save("k")
    found = nacre("sessions", "export", "k", "--jsonl").out.splitlines()
    assert sum(json.loads(line)["t"] == "msg" for line in found) == 200


LONG = "needle " + "x" * 100_000 + " end"


@pytest.fixture
def large(nacre: Nacre) -> Nacre:
    """A store with a session that went back, and texts too long for its log."""
    with nacre.sessions() as sessions:
        number = sessions.add_message("k", "user", "short")
        sessions.add_message("k", "user", "other")
        sessions.rewind("k", number)
        sessions.add_full_message("k", {"role": "user", "content": [{"type": "text", "text": LONG}], "odd": [1]})
        sessions.append("k", "x.mine", {"note": LONG, "n": 1})
    return nacre


@pytest.mark.parametrize("chosen", ["json", "jsonl"])
def test_large_payloads_are_in_the_export(large: Nacre, chosen: str) -> None:
    result = large("sessions", "export", "k", "--format", chosen)
    assert result.code == 0
    lines = [line.lstrip(" ,").removesuffix("]}]}") for line in result.out.splitlines()]
    lines = [line for line in lines if line.startswith('{"v":1')]
    log = [json.loads(line) for line in log_of(large.root, "k").read_text().splitlines()]
    log[-2]["m"]["content"][0]["text"] = log[-1]["data"]["note"] = LONG
    for record in log[-2:]:
        del record["blobs"]
    assert [without_crc(json.loads(line)) for line in lines] == [without_crc(record) for record in log]
    assert all(unseal(line.encode()) is not None for line in lines)


def without_crc(record: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in record.items() if name != "crc"}


def test_a_lost_payload_is_told_and_the_rest_exported(large: Nacre, tmp_path: Path) -> None:
    with large.sessions() as sessions:
        sessions.append("k", "x.mine", {"note": LONG, "other": f"other {LONG}"})
    other = sha256(f"other {LONG}".encode()).hexdigest()
    for path in (large.root / "blobs").glob(f"*{other}"):
        path.unlink()
    path = tmp_path / "k.jsonl"
    result = large("sessions", "export", "k", "--format", "jsonl", "-o", str(path))
    assert result.code == 6
    assert "session 'k': 1 large payload cannot be read" in result.err
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["data"] == {"note": LONG, "other": f"blob:{other}"}
    assert last["blobs"] == ["/data/note", "/data/other"]
    receipt = large("sessions", "export", "k", "--format", "jsonl", "-o", str(path), "--force", "--json").json
    assert (receipt["ok"], receipt["error"]["type"]) == (False, "damaged")


def test_a_large_text_that_looks_like_a_reference_is_not_lost(nacre: Nacre) -> None:
    with nacre.sessions() as sessions:
        sessions.add_message("k", "user", f"blob:{LONG}")
    assert nacre("sessions", "export", "k", "--format", "jsonl").code == 0


def test_an_existing_file_is_kept(talk: Nacre, tmp_path: Path) -> None:
    path = tmp_path / "kept.md"
    path.write_text("mine")
    code, out, err = talk("sessions", "export", "talk", "-o", str(path))
    assert (code, out) == (1, "")
    assert "exists already" in err
    assert path.read_text() == "mine"
    assert talk("sessions", "export", "talk", "-o", str(path), "--force").code == 0
    assert path.read_text().startswith("# talk")


def test_a_file_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "late"

    def pieces() -> list[bytes]:
        path.write_text("theirs")
        return [b"ours"]

    with pytest.raises(Failure, match="exists already"):
        write(path, (piece for piece in pieces()), force=False)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "theirs"


def test_a_failed_write_leaves_nothing(talk: Nacre, tmp_path: Path) -> None:
    code, out, err = talk("sessions", "export", "talk", "-o", str(tmp_path / "no" / "where.md"))
    assert (code, out) == (1, "")
    assert "cannot be written: No such file or directory" in err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(talk: Nacre, tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    assert talk("sessions", "export", "talk", "-o", str(path), "--dry-run").out.endswith(" would be written\n")
    assert not path.exists()


def test_json_gives_a_receipt(talk: Nacre, tmp_path: Path) -> None:
    path = tmp_path / "talk.html"
    found = talk("sessions", "export", "talk", "--format", "html", "-o", str(path), "--json").json
    assert found == {
        "schema_version": 1,
        "ok": True,
        "operation": "export",
        "dry_run": False,
        "key": "talk",
        "format": "html",
        "path": str(path),
        "bytes": path.stat().st_size,
    }


def test_export_and_receipt_cannot_share_stdout(talk: Nacre) -> None:
    assert talk("sessions", "export", "talk", "--format", "md", "--json").code == 2


def test_an_unknown_session_is_not_found(nacre: Nacre) -> None:
    assert nacre("sessions", "export", "nobody").code == 3


# ---- for picoclaw


def test_picoclaw_gets_every_active_session(talk: Nacre, tmp_path: Path) -> None:
    with talk.sessions() as sessions:
        sessions.add_message("telegram:42", "user", "hello")
        sessions.add_message("old", "user", "hello")
        sessions.archive("old")
    folder = tmp_path / "picoclaw" / "sessions"
    code, out, _ = talk("sessions", "export", "--format", "picoclaw", "-o", str(folder))
    assert (code, out) == (0, "talk: 1 message to talk.jsonl\ntelegram:42: 1 message to telegram_42.jsonl\n")
    agent = Picoclaw(folder)
    assert (agent.get_history("talk"), agent.get_summary("talk")) == (["last *words*"], "We spoke.")
    assert agent.get_history("telegram:42") == ["hello"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "talk.jsonl",
        "talk.meta.json",
        "telegram_42.jsonl",
        "telegram_42.meta.json",
    ]


def test_picoclaw_gets_one_session_with_what_is_no_longer_live(talk: Nacre, tmp_path: Path) -> None:
    result = talk("sessions", "export", "talk", "--all", "--format", "picoclaw", "-o", str(tmp_path), "--json")
    assert result.json["results"] == [
        {
            "ref": "talk",
            "key": "talk",
            "ok": True,
            "status": "exported",
            "path": str(tmp_path / "talk.jsonl"),
            "messages": 2,
        }
    ]
    assert Picoclaw(tmp_path).kept("talk") == ["first <b>words</b>", "last *words*"]


def test_a_file_that_picoclaw_has_is_kept(talk: Nacre, tmp_path: Path) -> None:
    Picoclaw(tmp_path).add_message("talk", "mine")
    code, _, err = talk("sessions", "export", "--format", "picoclaw", "-o", str(tmp_path))
    assert (code, Picoclaw(tmp_path).get_history("talk")) == (1, ["mine"])
    assert "talk.meta.json exists already" in err
    assert talk("sessions", "export", "--format", "picoclaw", "-o", str(tmp_path), "--force").code == 0
    assert Picoclaw(tmp_path).get_history("talk") == ["last *words*"]


def test_two_sessions_that_are_one_file_to_picoclaw_are_not_mixed(talk: Nacre, tmp_path: Path) -> None:
    with talk.sessions() as sessions:
        sessions.add_message("a:b", "user", "one")
        sessions.add_message("a_b", "user", "two")
    code, _, err = talk("sessions", "export", "--format", "picoclaw", "-o", str(tmp_path))
    assert (code, Picoclaw(tmp_path).get_history("a:b")) == (PARTIAL, ["one"])
    assert "picoclaw has one file for sessions 'a:b' and 'a_b'" in err


def test_an_export_for_picoclaw_needs_a_folder(talk: Nacre, tmp_path: Path) -> None:
    assert talk("sessions", "export", "--format", "picoclaw").code == 2
    assert talk("sessions", "export", "nobody", "--format", "picoclaw", "-o", str(tmp_path)).code == 3
    (tmp_path / "file").touch()
    assert "cannot be made" in talk("sessions", "export", "--format", "picoclaw", "-o", str(tmp_path / "file")).err


def test_a_dry_run_for_picoclaw_writes_nothing(talk: Nacre, tmp_path: Path) -> None:
    goal = tmp_path / "new"
    assert talk("sessions", "export", "--format", "picoclaw", "-o", str(goal), "--dry-run").code == 0
    assert not goal.exists()


def test_other_formats_need_a_session(talk: Nacre) -> None:
    code, _, err = talk("sessions", "export")
    assert (code, "which session?" in err) == (2, True)


@pytest.mark.parametrize("form", ["md", "html"])
@pytest.mark.parametrize("order", ORDERS)
def test_every_call_is_exported_with_its_result_whichever_framework_stored_it(
    nacre: Nacre, order: str, form: str
) -> None:
    count = sum(len(message.tool_calls) for message in ORDERS[order])
    with nacre.sessions() as sessions:
        sessions.add_messages("k", ORDERS[order])
    _, out, _ = nacre("sessions", "export", "k", "--format", form)
    shown = out[out.index("hi") :]
    # In HTML each result is in the folded line, too.
    times = 2 if form == "html" else 1
    assert ("no result" in shown, shown.count("A!") + shown.count("B!")) == (False, times * count)
