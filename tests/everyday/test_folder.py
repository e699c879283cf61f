"""The folder that chat works in, and the agent's own files, which are never in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import Call, Model, Reply, Request

ALLOWED = '[approvals]\nshell = "allow"\n'


def calls(name: str, **arguments: Any) -> Callable[[Request], Reply]:
    """A model that calls one tool and answers with what that gave."""
    return lambda request: f"It says: {request.said}" if request.last["role"] == "tool" else [Call(name, arguments)]


def turns(model: Model) -> list[Request]:
    """The requests of conversations, without those that memory made."""
    return [request for request in model.chats if request.tools]


def test_what_is_in_this_folder_is_asked_of_the_current_one(person: Person, model: Model) -> None:
    model.answer = calls("list_files")
    for name in ("one", "two", "three"):
        folder = person.folder(name, **{f"{name}.txt": "text"})
        answer = person.ask("what is in this folder?", at=folder)["answer"]
        assert f"{name}.txt" in answer
        assert f"You work in the folder {folder}; paths are relative to it." in turns(model)[-1].system


def test_another_folder_is_named_with_a_flag(person: Person, model: Model) -> None:
    model.answer = calls("read_file", path="pearl.txt")
    person.folder("project", **{"pearl.txt": "a pearl"})
    assert "a pearl" in person.ask("-C", "project", "read it")["answer"]
    assert "a pearl" in person.ask("--directory", "~/project", "read it", at=person.folder("elsewhere"))["answer"]
    missing = person.nacre("chat", "-C", "nowhere", "read it")
    assert (missing.code, "there is no folder 'nowhere'" in missing.err) == (3, True)


def test_a_project_gets_no_file_of_ours(person: Person, model: Model) -> None:
    person.config(ALLOWED)
    project = person.trust(person.folder("project", **{"a.txt": "text"}))
    model.answer = calls("shell", command="ls -a; touch b.txt")
    person.ask("hello, remember that I like tea", at=project)
    assert sorted(path.name for path in project.iterdir()) == ["a.txt", "b.txt"]
    assert (person.store / "home").is_dir()
    assert not (person.store / "workspace").exists()


def test_a_configured_workspace_is_the_daemons_and_that_is_said_once(person: Person, model: Model) -> None:
    workspace = person.folder("configured", **{"theirs.txt": "text"})
    person.config(f'[agent]\nworkspace = "{workspace}"\n')
    model.answer = calls("list_files")
    first, second = (person.nacre("chat", "list", at=person.folder("here", **{"mine.txt": ""})) for _ in range(2))
    assert "mine.txt" in first.out
    assert "agent.workspace" in first.err
    assert "agent.workspace" not in second.err


def test_a_folder_that_holds_the_store_works_and_does_not_show_it(person: Person, model: Model) -> None:
    person.config(ALLOWED)
    person.ask("a secret word")
    person.trust(person.home)
    log = next((person.store / "sessions").glob("*.jsonl")).relative_to(person.home)
    model.answer = calls("read_file", path=str(log))
    assert "cannot be used by tools" in person.ask("read it")["answer"]
    model.answer = calls("shell", command="grep -rs 'a secret' . ; echo '{}' >.local/state/nacre/trust.json; echo end")
    answer = person.ask("search")["answer"]
    assert ("secret" in answer, "end" in answer) == (False, True)
    assert str(person.home) in person.nacre("trust", "--list").out


def old_store(person: Person) -> Path:
    """A store as version 0.1.0 left it: the agent's own files are in the workspace."""
    person.ask("hello")
    shutil.rmtree(person.store / "home")
    workspace = person.store / "workspace"
    fill(workspace)
    (workspace / "work.txt").write_text("the user's own work")
    return workspace


def fill(workspace: Path) -> None:
    for name in ("memory", "skills/greet", "tools"):
        (workspace / name).mkdir(parents=True, exist_ok=True)
    (workspace / "PERSONA.md").write_text("You are Perla.")
    (workspace / "MEMORY.md").write_text("- The user's cat is called Ginger.\n")
    (workspace / "skills/greet/SKILL.md").write_text("---\nname: greet\ndescription: How to greet.\n---\nSay ahoy.\n")
    (workspace / "tools/dice.py").write_text('def dice() -> int:\n    """Throw a die."""\n    return 4\n')


def test_the_agents_files_of_an_earlier_version_move_to_its_home(person: Person, model: Model) -> None:
    workspace = old_store(person)
    first = person.nacre("chat", "--trust", "hello", at=person.folder("here"))
    home = person.store / "home"
    assert f"the agent's own files are now in {home}" in first.err
    assert [path.name for path in workspace.iterdir()] == ["work.txt"]
    request = turns(model)[-1]
    assert request.system.startswith("You are Perla.")
    assert "greet" in request.system
    assert "dice" in request.tools
    assert "Ginger" in person.nacre("memory", "list").out
    assert "own files" not in person.nacre("chat", "hello", at=person.folder("here")).err


STEP = """
import os, sys
left = int(sys.argv.pop(1))
def trace(event, args):
    global left
    if event in {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "open"} and "/home" in str(args):
        left -= 1
        if left < 0:
            os._exit(137)
sys.addaudithook(trace)
from nacre.memory.home import open_home
open_home(sys.argv[1], configured=sys.argv[2])
"""


@pytest.mark.parametrize("is_configured", [False, True])
def test_an_upgrade_that_is_killed_at_any_step_is_completed_later(person: Person, is_configured: bool) -> None:
    store, configured = person.store, person.home / "configured"
    seen = 0
    for step in range(60):
        for place in (store, configured):
            shutil.rmtree(place, ignore_errors=True)
        (store / "sessions").mkdir(parents=True)
        fill(configured if is_configured else store / "workspace")
        command = [*person.command()[:1], "-c", STEP, str(step), str(store), str(configured) if is_configured else ""]
        killed = subprocess.run(command, check=False, env=person.env, cwd=person.home).returncode == 137
        if killed:
            seen += 1
            subprocess.run([*command[:3], "1000", *command[4:]], check=True, env=person.env, cwd=person.home)
        home = store / "home"
        assert (home / "PERSONA.md").read_text() == "You are Perla."
        assert "Ginger" in (home / "MEMORY.md").read_text()
        assert "ahoy" in (home / "skills/greet/SKILL.md").read_text()
        assert (home / "tools/dice.py").exists() is not is_configured
        if not killed:
            break
    assert seen >= 5


def test_from_a_configured_workspace_the_agents_files_are_copied_but_no_tools(person: Person, model: Model) -> None:
    workspace = person.folder("project")
    person.ask("hello")
    shutil.rmtree(person.store / "home")
    fill(workspace)
    person.config(f'[agent]\nworkspace = "{workspace}"\n')
    done = person.nacre("chat", "--trust", "hello", at=person.folder("here"))
    assert f"were copied from {workspace}" in done.err
    assert "are no longer loaded; copy those that are yours to" in done.err
    assert (workspace / "PERSONA.md").read_text() == (person.store / "home/PERSONA.md").read_text()
    assert "dice" not in turns(model)[-1].tools
    assert "You are Perla." in turns(model)[-1].system
