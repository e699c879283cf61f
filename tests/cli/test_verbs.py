"""The contract that every verb keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import nacre as library
from nacre.cli import verbs
from nacre.cli.loading import load
from tests.cli.conftest import Nacre

SESSIONS = tuple(verbs.SESSIONS)
TOP = tuple(verb for verb in verbs.TOP if verb in {"doctor", "config", "completion"})
EVERY = [*(("sessions", verb) for verb in SESSIONS), *((verb,) for verb in TOP)]

# A line for each verb that does it, on a store with the sessions one, two (archived) and three (in the trash).
LINES: dict[str, tuple[str, ...]] = {
    "list": ("sessions", "list"),
    "backup": ("sessions", "backup", "copy"),
    "copy": ("sessions", "copy", "store", "copy"),
    "unseal": ("sessions", "unseal", "store"),
    "quarantine": ("sessions", "quarantine"),
    "show": ("sessions", "show", "one"),
    "search": ("sessions", "search", "hello"),
    "tail": ("sessions", "tail", "one"),
    "fork": ("sessions", "fork", "one", "four"),
    "rename": ("sessions", "rename", "one", "A title"),
    "tag": ("sessions", "tag", "one", "work"),
    "untag": ("sessions", "untag", "one", "work"),
    "pin": ("sessions", "pin", "one"),
    "unpin": ("sessions", "unpin", "one"),
    "archive": ("sessions", "archive", "one"),
    "unarchive": ("sessions", "unarchive", "two"),
    "move-folder": ("sessions", "move-folder", "/before", "/"),
    "rm": ("sessions", "rm", "one"),
    "redact": ("sessions", "redact", "one", "2", "--yes"),
    "trash": ("sessions", "trash", "list"),
    "restore": ("sessions", "restore", "three"),
    "export": ("sessions", "export", "one"),
    "stats": ("sessions", "stats"),
    "verify": ("sessions", "verify"),
    "repair": ("sessions", "repair", "one"),
    "compact": ("sessions", "compact", "one"),
    "migrate": ("sessions", "migrate", "."),
    "du": ("sessions", "du"),
    "gc": ("sessions", "gc"),
    "retain": ("sessions", "retain"),
    "doctor": ("doctor",),
    "config": ("config", "show"),
    "completion": ("completion", "bash"),
}
CHANGING = (
    "fork",
    "rename",
    "tag",
    "untag",
    "pin",
    "unpin",
    "archive",
    "unarchive",
    "move-folder",
    "rm",
    "redact",
    "restore",
    "repair",
    "compact",
    "migrate",
    "gc",
    "retain",
)
TAKES_REF = (
    "show",
    "tail",
    "fork",
    "rename",
    "tag",
    "untag",
    "pin",
    "unpin",
    "archive",
    "unarchive",
    "rm",
    "redact",
    "restore",
    "export",
    "stats",
    "verify",
    "repair",
    "compact",
    "du",
)


@pytest.fixture
def store(nacre: Nacre, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Nacre:
    nacre.fill("one", "two", "three")
    with nacre.sessions() as sessions:
        sessions.set_meta("one", cwd="/before")
    assert nacre("sessions", "archive", "two").code == 0
    assert nacre("sessions", "rm", "three").code == 0
    folder = tmp_path_factory.mktemp("earlier")
    (folder / "four.jsonl").write_text('{"role": "user", "content": "from before"}\n')
    with library.open(folder / "store") as sessions:
        sessions.add_message("five", "user", "from elsewhere")
    monkeypatch.chdir(folder)
    return nacre


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_has_a_usage_and_an_example_and_fits_80_columns(nacre: Nacre, words: tuple[str, ...]) -> None:
    result = nacre(*words, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: nacre {' '.join(words)}")
    assert max(map(len, result.out.splitlines())) <= 80
    assert "  nacre " in result.out.split("examples:")[1].split("options of every verb:")[0]
    assert result.err == ""


@pytest.mark.parametrize("verb", LINES)
def test_done_it_exits_0_and_json_is_one_document_and_nothing_else(store: Nacre, verb: str) -> None:
    result = store(*LINES[verb], "--json", "--quiet")
    assert result.code == 0
    assert json.loads(result.out)["schema_version"] == 1
    assert result.out.endswith("\n")
    assert result.err == ""


@pytest.mark.parametrize("verb", LINES)
def test_for_people_it_says_something_without_control_characters(store: Nacre, verb: str) -> None:
    result = store(*LINES[verb])
    assert result.code == 0
    assert result.out + result.err
    assert all(char.isprintable() or char in "\n\t" for char in result.out + result.err)


@pytest.mark.parametrize("verb", CHANGING)
def test_a_dry_run_changes_nothing(store: Nacre, verb: str) -> None:
    before = store.files()
    result = store(*LINES[verb], "--dry-run", "--json")
    assert result.code == 0
    assert result.json["dry_run"] is True
    assert store.files() == before


@pytest.mark.parametrize("verb", TAKES_REF)
def test_an_unknown_session_is_exit_3_and_an_error_in_json(store: Nacre, verb: str) -> None:
    line = ["nothing-here" if word in {"one", "two", "three"} else word for word in LINES[verb]]
    line += ["nothing-here"] if line[-1] == verb else []
    result = store(*line, "--json")
    assert result.code == 3
    assert result.json["ok"] is False
    assert result.json["error"]["type"] == "not_found"
    assert result.json["schema_version"] == 1
    assert result.err == ""


@pytest.mark.parametrize("verb", TAKES_REF)
def test_without_json_errors_go_to_stderr_alone(store: Nacre, verb: str) -> None:
    line = ["nothing-here" if word in {"one", "two", "three"} else word for word in LINES[verb]]
    line += ["nothing-here"] if line[-1] == verb else []
    result = store(*line)
    assert result.code == 3
    assert result.out == ""
    assert result.err.startswith("nacre: ")


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_an_unknown_option_is_exit_2(store: Nacre, words: tuple[str, ...]) -> None:
    result = store(*words, "--no-such-option", "--json")
    assert result.code == 2
    assert result.json["error"]["type"] == "usage"


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_a_module_has_the_shape_of_a_verb(words: tuple[str, ...]) -> None:
    module = load(words[-1])
    assert module.examples
    assert callable(module.add)
    assert callable(module.run)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_ends_it_quietly_with_141(nacre: Nacre, monkeypatch: pytest.MonkeyPatch, unbuffered: str) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    nacre.fill(*(f"session-{i}-{'x' * 500}" for i in range(200)))
    command = f"{sys.executable} -m nacre.cli sessions list | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


def test_every_verb_has_its_line() -> None:
    assert set(LINES) == {*SESSIONS, *TOP} - {"summarize"}  # which needs a model


@pytest.mark.parametrize("verb", LINES)
def test_whoever_reads_its_output_may_go_at_any_moment(store: Nacre, verb: str) -> None:
    gone, pipe = os.pipe()
    os.close(gone)
    with os.fdopen(pipe, "wb") as stdout:
        command = [sys.executable, "-m", "nacre.cli", *LINES[verb], "--json", "--quiet"]
        done = subprocess.run(command, check=False, stdout=stdout, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (141, b"")


def test_without_a_stdout_it_still_works(nacre: Nacre) -> None:
    nacre.fill("one")
    command = f"{sys.executable} -m nacre.cli sessions archive one >&-"
    assert subprocess.run(["bash", "-c", command], check=False, capture_output=True, timeout=60).returncode == 0


def test_only_the_verb_that_runs_is_loaded(nacre: Nacre) -> None:
    program = (
        "import sys; from nacre.cli import main; main(['--help']); "
        "print([name for name in sys.modules if name.startswith('nacre.cli.')], 'argparse' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = "['nacre.cli.failures', 'nacre.cli.verbs', 'nacre.cli.main'] False"
    assert sorted(done.stdout.splitlines()[-1].split("'")[1::2]) == sorted(loaded.split("'")[1::2])
    assert done.stdout.splitlines()[-1].endswith("False")
