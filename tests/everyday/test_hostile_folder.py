"""A folder that somebody else prepared: nothing of it runs or is followed before trust, nothing is ever imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.everyday.conftest import PATIENCE, Done, Person
from tests.everyday.model import Model
from tests.everyday.test_folder import calls, turns

EVIL = "EVIL INSTRUCTIONS"


@pytest.fixture
def hostile(person: Person) -> Path:
    """A folder with everything in it that a careless agent would run or follow; what runs leaves a mark."""
    folder = person.folder("hostile", **{"AGENTS.md": EVIL, "CLAUDE.md": EVIL, "PERSONA.md": EVIL, "MEMORY.md": EVIL})
    mark = person.home / "ran"
    python, shell = f"open({str(mark)!r}, 'a').write(__file__)\n", f"#!/bin/sh\necho $0 >>{mark}\n"
    modules = ("sitecustomize", "usercustomize", "anyio", "tomllib", "msgspec", "conftest", "tools/evil", "nacre/evil")
    for name in (*modules, ".venv/lib/python3.11/site-packages/sitecustomize", ".nacre/tools/evil"):
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(python)
    for place in (".nacre", ".agents", ".claude", "."):
        skill = folder / place / "skills" / "evil" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: evil\ndescription: {EVIL}\n---\n{EVIL}\n")
    (folder / ".nacre/config.toml").write_text(f'[agent]\npersona = "{EVIL}"\n[mcp.x]\ncommand = "./mcp.sh"\n')
    (folder / ".env").write_text(f"NACRE_AGENT_PERSONA='{EVIL}'\n")
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (folder / ".git/config").write_text("[core]\nfsmonitor = ./mcp.sh\nhooksPath = .git/hooks\npager = ./mcp.sh\n")
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for script in (hooks / "post-checkout", hooks / "fsmonitor", folder / "mcp.sh", folder / "git", folder / "bash"):
        script.write_text(shell)
        script.chmod(0o755)
    (folder / "secrets").symlink_to(person.home / "private.txt")
    (person.home / "private.txt").write_text("the user's secret")
    (person.home / "bin").mkdir()
    git = person.home / "bin" / "git"
    git.write_text(shell)
    git.chmod(0o755)
    return folder


def chat(person: Person, folder: Path, *words: str) -> Done:
    """Run the installed command, as people do, with a `git` in the path that leaves a mark."""
    command = str(Path(sys.executable).with_name("nacre"))
    env = {**person.env, "PATH": f"{person.home}/bin:{person.env['PATH']}"}
    return Done(
        subprocess.run(
            [command, "chat", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
        )
    )


def test_nothing_is_run_or_followed_before_trust(person: Person, model: Model, hostile: Path) -> None:
    done = chat(person, hostile, "hello")
    assert (done.code, "not trusted" in done.err) == (0, True)
    assert not (person.home / "ran").exists()
    for request in model.chats:
        assert EVIL not in str(request.body)
        assert "evil" not in request.tools
    assert person.nacre("memory", "list").out.find(EVIL) == -1


def test_nothing_is_imported_or_run_after_trust_either(person: Person, model: Model, hostile: Path) -> None:
    person.trust(hostile)
    person.config('[approvals]\nshell = "allow"\n')
    model.answer = calls("shell", command="echo ran")
    done = chat(person, hostile, "hello")
    assert done.code == 0, done
    assert not (person.home / "ran").exists()
    assert "evil" not in turns(model)[-1].tools
    assert EVIL in turns(model)[0].system
    assert not turns(model)[0].system.startswith(EVIL)
    assert [line for line in done.err.splitlines() if "is not followed" in line] != []


def test_a_link_does_not_lead_out_of_the_folder(person: Person, model: Model, hostile: Path) -> None:
    (hostile / "AGENTS.md").unlink()
    (hostile / "AGENTS.md").symlink_to("../private.txt")
    model.answer = calls("read_file", path="secrets")
    done = chat(person, hostile, "--trust", "read it")
    assert "AGENTS.md is not followed: it is a link that leads out of the folder" in done.err
    assert all("the user's secret" not in str(request.body) for request in model.chats)


def test_the_daemon_imports_and_follows_nothing_of_a_configured_workspace(person: Person, hostile: Path) -> None:
    person.config(f'[agent]\nworkspace = "{hostile}"\n')
    process = person.start("serve", "--port", "0", "--json", at=hostile, PYTHONSAFEPATH="1")
    try:
        assert process.stdout is not None
        assert "url" in json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert not (person.home / "ran").exists()
    assert [path.name for path in (person.store / "home").iterdir()] == [".moved"]


@pytest.mark.parametrize("module", ["nacre", "nacre.cli"])
def test_python_m_imports_nothing_of_the_current_folder(person: Person, module: str) -> None:
    names = ("argparse", "json", "typing", "asyncio", "msgspec", "encodings/idna", "dataclasses", "zlib", "gettext")
    folder = person.folder("modules", **{f"{name}.py": "raise SystemExit('imported')\n" for name in names})
    command = [sys.executable, "-m", module, "sessions", "list", "--json"]
    done = subprocess.run(command, cwd=folder, env=person.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["schema_version"] == 1


def test_a_library_user_keeps_their_own_search_path(person: Person) -> None:
    folder = person.folder(
        "library", **{"program/__main__.py": "import nacre, beside\n", "beside.py": "print('here')\n"}
    )
    command = [sys.executable, "-m", "program", "nacre"]
    done = subprocess.run(command, cwd=folder, env=person.env, capture_output=True, text=True, check=False)
    assert done.stdout == "here\n", done


def test_a_rule_of_the_folder_that_cannot_be_read_is_refused_with_a_line(person: Person) -> None:
    folder = person.folder("rules", **{".nacre/config.toml": '[permissions]\ndeny = ["shell(", "shell(rm *)"]\n'})
    done = person.nacre("chat", "--trust", "hello", at=folder)
    assert done.code == 0, done
    assert ".nacre/config.toml: permissions.deny: the rule 'shell(' cannot be read" in done.err
