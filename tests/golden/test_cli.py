"""What every command prints over the golden store: help, text for people, JSON for programs, errors."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping

import pytest

from nacre.cli import main
from nacre.cli.verbs import NESTED
from tests.everyday.model import Call, Model, Reply, Request
from tests.golden.conftest import Golden, Room

TAX = "chat-20240501-0900-a1b2"
ODD = "'irc:#boats & <b>/ü'"

BOTH: Mapping[str, str] = {
    "list": "sessions list",
    "list-all": "sessions list --all --iso",
    "list-archived": "sessions list --archived",
    "list-internal": "sessions list --internal",
    "list-prefix": "sessions list --prefix telegram:",
    "list-tag": "sessions list --tag boats --sort key",
    "list-pinned": "sessions list --pinned",
    "list-folder": "sessions list --folder /home/ada",
    "list-largest": "sessions list --sort size -n 2",
    "list-nothing": "sessions list --tag nothing",
    "show-tools": f"sessions show {TAX}",
    "show-tools-full": f"sessions show {TAX} --full --iso",
    "show-summary": "sessions show telegram:42",
    "show-summary-all": "sessions show telegram:42 --all",
    "show-alias": "sessions show telegram:ada --last 1",
    "show-branch": "sessions show telegram:43",
    "show-branch-all": "sessions show telegram:43 --all",
    "show-around": "sessions show telegram:43@5",
    "show-entry": f"sessions show {TAX} --entry 5",
    "show-fork": "sessions show cli:fork --all",
    "show-generations": "sessions show weekly --all",
    "show-archived": "sessions show 'Done long ago'",
    "show-damaged": "sessions show damaged --all",
    "show-interrupted": "sessions show chat-20240505-2010-c3d4",
    "show-last": "sessions show @last",
    "show-compacted": "sessions show compacted",
    "search": "sessions search boat",
    "search-phrase": "sessions search '\"blue boat\"'",
    "search-chinese": "sessions search 里斯本",
    "search-narrowed": "sessions search boat --role assistant --session telegram:42 --since 2024-05-01",
    "search-tool": "sessions search --tool shell rent",
    "search-limit": "sessions search boat -n 1 --iso",
    "search-nothing": "sessions search submarine",
    "tail": "sessions tail telegram:43",
    "tail-full": f"sessions tail {TAX} -n 5 --full --iso",
    "stats": "sessions stats",
    "stats-days": "sessions stats --by day --since 2024-05-02 --ascii",
    "stats-models": "sessions stats --by model",
    "stats-sessions": "sessions stats --by session",
    "stats-roles": "sessions stats --by role",
    "stats-tools": f"sessions stats {TAX} --by tool",
    "du": "sessions du",
    "du-some": "sessions du telegram:42 compacted",
    "verify": "sessions verify",
    "verify-deep": "sessions verify --deep",
    "verify-one": "sessions verify telegram:42",
    "quarantine": "sessions quarantine",
    "quarantine-show": "sessions quarantine show damaged#1",
    "quarantine-restore": "sessions quarantine restore damaged --yes",
    "quarantine-discard": "sessions quarantine discard damaged --yes --dry-run",
    "trash": "sessions trash",
    "trash-restore": "sessions restore unwanted",
    "trash-empty": "sessions trash empty --dry-run",
    "fork": "sessions fork telegram:42 telegram:99 --name 'A copy'",
    "rename": "sessions rename telegram:42 Lisbon",
    "tag": "sessions tag telegram:42 travel work",
    "untag": f"sessions untag {TAX} tax",
    "pin": "sessions pin telegram:42 telegram:43",
    "unpin": f"sessions unpin {TAX}",
    "archive": "sessions archive telegram:43 missing",
    "unarchive": "sessions unarchive closed",
    "rm": f"sessions rm {ODD} open",
    "move-folder": "sessions move-folder /home/ada . --dry-run",
    "repair": "sessions repair telegram:42",
    "compact": "sessions compact --all --dry-run",
    "gc": "sessions gc --dry-run",
    "retain": "sessions retain --archive-after 1d --dry-run",
    "backup": "sessions backup copy",
    "copy": "sessions copy ../store copy",
    "copy-finish": "sessions copy ../store copy --finish",
    "unseal": "sessions unseal ../store",
    "memory": "memory list",
    "memory-days": "memory list --days",
    "memory-search": "memory search boat",
    "memory-why": "memory why 'lives in Lisbon'",
    "memory-history": "memory history",
    "memory-history-of-one": "memory history 'lives in Lisbon'",
    "memory-confirm": "memory confirm a000000004 --dry-run",
    "memory-forget": "memory forget --session telegram:42 --dry-run",
    "memory-edit": "memory edit a000000003 'The boat is in Porto.' --dry-run",
    "config": "config show",
    "config-get": "config get agent.model",
    "config-set": "config set agent.max_steps 20",
    "config-path": "config path",
    "skills": "skills list",
    "mcp": "mcp list",
    "trust": "trust --list",
    "permissions": "permissions list --all",
    "tokens": "serve tokens list",
    "wrong-verb": "sessions lst",
    "wrong-option": "sessions list --al",
    "wrong-session": "sessions show nowhere",
    "wrong-sessions": "sessions show chat-",
    "wrong-setting": "config get agent.modle",
    "wrong-store": "sessions list --store ./nothing",
    "wrong-archived": "sessions rename closed 'New title'",
}
"""Commands that are run twice: as they are and with --json."""

TEXT: Mapping[str, str] = {
    "version": "--version",
    "list-format": r"sessions list --all --format '{key}\t{title}\t{messages}\t{updated}\t{tags}\t{cwd}\t{model}'",
    "list-jsonl": "sessions list --jsonl",
    "show-jsonl": "sessions show telegram:43 --jsonl",
    "show-odd": f"sessions show {ODD} --full",
    "show-raw": "sessions show telegram:42 --raw",
    "show-raw-generations": "sessions show weekly --raw --all",
    "show-colours": f"sessions show {TAX} --full --color always",
    "list-colours": "sessions list --color always",
    "search-jsonl": "sessions search boat --jsonl",
    "tail-jsonl": "sessions tail telegram:42 -n 100 --jsonl",
    "stats-jsonl": "sessions stats --by model --jsonl",
    "du-jsonl": "sessions du --jsonl",
    "verify-jsonl": "sessions verify --jsonl",
    "quarantine-jsonl": "sessions quarantine --jsonl",
    "memory-jsonl": "memory list --jsonl",
    "list-quiet": "sessions list --quiet",
    "completion-bash": "completion bash",
    "completion-zsh": "completion zsh",
    "completion-fish": "completion fish",
    "complete-verbs": "__complete -- sessions ''",
    "complete-keys": "__complete -- sessions show t",
}
"""Commands that are run once."""

NARROW = ("list", "show-tools", "show-summary", "search", "quarantine", "memory", "stats")
"""Commands that are also run in a terminal of 40 columns."""

DAEMON = {"unit": "serve --unit", "check": "serve --check --port 0", "doctor": "doctor", "config-check": "config check"}
"""Commands whose output is about the machine too."""

CHATS = {"chat": "", "chat-json": "--trust --json", "chat-jsonl": "--trust --jsonl"}
_SKILLS = re.compile(r'"path":"[^"]*/packaged(?=/)')
Run = Callable[[str], str]


@pytest.fixture
def run(at_home: Room, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; gives what it printed on stdout, its exit code, and what it printed on stderr."""

    def run(line: str) -> str:
        capsys.readouterr()
        code = main(shlex.split(line))
        out, err = capsys.readouterr()
        told = f"$ nacre {line}\n{out}[exit code {code}]\n{err}"
        return _SKILLS.sub('"path":"(packaged)', at_home.without_path(told))

    return run


@pytest.mark.parametrize("name", [*BOTH, *TEXT])
def test_a_command_prints_what_it_did(run: Run, golden: Golden, name: str) -> None:
    golden.check(f"cli/{name}.txt", run({**BOTH, **TEXT}[name]))


@pytest.mark.parametrize("name", BOTH)
def test_a_command_prints_the_json_that_it_did(run: Run, golden: Golden, name: str) -> None:
    golden.check(f"cli/{name}-json.txt", run(f"{BOTH[name]} --json"))


@pytest.mark.parametrize("name", NARROW)
def test_a_command_fits_in_a_narrow_terminal(
    run: Run, golden: Golden, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    golden.check(f"cli/{name}-narrow.txt", run(BOTH[name]))


@pytest.mark.parametrize("name", DAEMON)
@pytest.mark.parametrize("form", ["", " --json"], ids=["text", "json"])
def test_the_machine_is_checked_as_it_was(
    run: Run, golden: Golden, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a width, every check is one line.
    monkeypatch.delenv("COLUMNS")
    found = run(DAEMON[name] + form).replace(sys.executable, "/usr/bin/python")
    for check in ("space", "index", "extras", "sandbox"):
        found = re.sub(
            rf'\{{"name":"{check}",[^{{}}]*\}},?|^\w+ +{check} .*\n( +→.*\n)*', "", found, flags=re.MULTILINE
        )
    golden.check(f"cli/{name}{'-json' * bool(form)}.txt", found)


def test_the_models_are_listed_as_they_were(run: Run, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(models={"gemma4:e4b": 131_072, "qwen3:8b": 40_960}) as model:
        monkeypatch.setenv("OLLAMA_HOST", model.host)
        for form in ("", " --json"):
            # The embedded model is listed where it is installed, and then the columns are wider.
            found = re.sub(
                r'^embedded/.*\n|,\{"model":"embedded/[^{}]*\}', "", run(f"models{form}"), flags=re.MULTILINE
            )
            found = re.sub(r" {2,}", "  ", re.sub(r'"count":\d', '"count":0', found))
            golden.check(f"cli/models{'-json' * bool(form)}.txt", found)


def test_a_chat_asks_and_answers_as_it_did(
    run: Run, golden: Golden, at_home: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Model(_use_a_tool) as model:
        monkeypatch.setenv("OLLAMA_HOST", model.host)
        found = {name: run(f"chat -r telegram:42 'What is here?' {options}".strip()) for name, options in CHATS.items()}
        asked = max(model.chats, key=lambda request: len(request.tools)).body
    found["chat-request"] = at_home.without_path(json.dumps(asked, indent=1, ensure_ascii=False) + "\n")
    for name, text in found.items():
        without_tokens = re.sub(r'"prompt":\d+', '"prompt":0', text)
        golden.check(f"cli/{name}.txt", re.sub(r"call_[0-9a-f]{12}", "call_id", without_tokens))


def _use_a_tool(request: Request) -> Reply:
    return "The folder is empty." if request.last["role"] == "tool" else [Call("list_files", {"path": "."})]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse formats options in another way since then")
def test_every_help_is_what_it_was(run: Run, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    verbs = _verbs(run("--help"))
    inside = [f"sessions {verb}" for verb in _verbs(run("sessions --help"))]
    commands = ["", *verbs, *inside, *NESTED]
    for command in commands:
        golden.check(f"help/{_file(command)}", run(f"{command} --help".strip()))
    golden.check_names("help", map(_file, commands))


def _file(command: str) -> str:
    return f"{command.replace(' ', '-') or 'nacre'}.txt"


def _verbs(help: str) -> list[str]:
    """The verbs that an overview lists."""
    table = help.partition("verbs:\n")[2].partition("\n\n")[0]
    return [line.split()[0] for line in table.splitlines() if line.split()[0] != "help"]


def test_every_golden_file_of_a_command_is_compared(golden: Golden) -> None:
    twice = [*BOTH, *DAEMON, "models"]
    names = [
        *twice,
        *TEXT,
        *CHATS,
        "chat-request",
        *(f"{name}-json" for name in twice),
        *(f"{name}-narrow" for name in NARROW),
    ]
    golden.check_names("cli", (f"{name}.txt" for name in names))
