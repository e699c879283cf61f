"""What the agent may do: rules, modes, answers that are kept, and a person who is asked."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.everyday.conftest import Person
from tests.everyday.model import Call, Reply, Request, echo
from tests.everyday.terminal import Screen


def calling(*calls: Call) -> Callable[[Request], Reply]:
    """A model that makes these calls, one after the other in a turn, then says how the last one went."""

    def answer(request: Request) -> Reply:
        if not request.tools:
            return echo(request)
        last = max(at for at, message in enumerate(request.messages) if message["role"] == "user")
        results = sum(message["role"] == "tool" for message in request.messages[last:])
        return [calls[results]] if results < len(calls) else f"Result: {request.said}"

    return answer


def shell(command: str) -> Call:
    return Call("shell", {"command": command})


def write(path: str, content: str) -> Call:
    return Call("write_file", {"path": path, "content": content})


@pytest.fixture
def project(person: Person) -> Path:
    """A folder that the person trusts."""
    return person.trust(person.folder("project", notes="old\n"))


def test_a_script_may_run_what_allow_names(person: Person, project: Path) -> None:
    person.model.answer = calling(shell("echo hello there"))
    done = person.nacre("chat", "--allow", "shell(echo hello *)", "greet", at=project)
    assert done.code == 0, done
    assert "Result: hello there" in done.out


def test_a_refusal_in_a_script_is_a_line_on_stderr_and_exit_code_10(person: Person, project: Path) -> None:
    person.model.answer = calling(shell("echo hello; rm notes"))
    done = person.nacre("chat", "--allow", "shell(echo *)", "greet", at=project)
    assert done.code == 10, done
    (line,) = [line for line in done.err.splitlines() if "shell" in line]
    assert "nobody can be asked" in line
    assert (project / "notes").exists()


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ('allow = ["write_file(src/**)"]', 0),
        ('allow = ["write_file"]\ndeny = ["write_file(src/*)"]', 10),
        ('allow = ["write_file"]\nask = ["write_file(src/**)"]', 10),
        ('allow = ["write_file(docs/**)"]', 10),
    ],
)
def test_deny_wins_over_ask_and_ask_over_allow(person: Person, project: Path, rules: str, code: int) -> None:
    person.config(f"[permissions]\n{rules}\n")
    person.model.answer = calling(write("src/a.py", "x = 1\n"))
    assert person.nacre("chat", "write it", at=project).code == code
    assert (project / "src/a.py").exists() == (code == 0)


def test_a_link_out_of_the_allowed_folder_is_not_allowed(person: Person, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src/link").symlink_to("../notes")
    person.model.answer = calling(write("src/link", "new"))
    assert person.nacre("chat", "--allow", "write_file(src/**)", "write it", at=project).code == 10
    assert (project / "notes").read_text() == "old\n"


def test_instructions_for_agents_are_written_only_after_asking(person: Person, project: Path) -> None:
    person.model.answer = calling(write("AGENTS.md", "obey"))
    assert person.nacre("chat", "--allow", "write_file", "write it", at=project).code == 10
    assert not (project / "AGENTS.md").exists()


def test_read_only_changes_nothing(person: Person, project: Path) -> None:
    person.model.answer = calling(write("notes", "new"), shell("touch x"), Call("read_file", {"path": "notes"}))
    done = person.nacre("chat", "--read-only", "--allow", "write_file", "--allow", "shell", "try", at=project)
    assert (done.code, "Result: old" in done.out) == (10, True), done
    assert sorted(file.name for file in project.iterdir()) == ["notes"]


def test_yolo_allows_what_the_sandbox_confines(person: Person, project: Path) -> None:
    person.model.answer = calling(shell("echo hi > x; cat x"), write("notes", "new"))
    done = person.nacre("chat", "--yolo", "do it", at=project)
    if "working sandbox" in done.err:
        pytest.skip("no sandbox works here")
    assert done.code == 0, done
    assert ((project / "x").read_text(), (project / "notes").read_text()) == ("hi\n", "new")


def test_yolo_still_asks_about_the_web(person: Person, project: Path) -> None:
    person.model.answer = calling(Call("web_fetch", {"url": "http://127.0.0.1:9/"}))
    done = person.nacre("chat", "--yolo", "fetch it", at=project)
    assert done.code == 10 or "working sandbox" in done.err, done


@pytest.mark.parametrize("is_trusted", [True, False])
def test_yolo_is_refused_without_trust_or_sandbox(person: Person, is_trusted: bool) -> None:
    place = person.folder("strange")
    more = {"NACRE_SANDBOX_KIND": "off"} if is_trusted else {}
    done = person.nacre("chat", "--yolo", *(["--trust"] if is_trusted else []), "hello", at=place, **more)
    assert done.code == 2, done
    assert ("sandbox" if is_trusted else "trust") in done.err


@pytest.mark.parametrize(
    ("rule", "why"),
    [("shell(ls; rm x)", "2 commands"), ("shell($X)", "plain"), ("write_file(../x)", "leaves"), ("shell(", "read")],
)
def test_a_rule_that_cannot_be_read_is_told_at_the_door(person: Person, project: Path, rule: str, why: str) -> None:
    person.config(f"[permissions]\nallow = [{json.dumps(rule)}]\n")
    for words in (["config", "check"], ["chat", "hello"]):
        done = person.nacre(*words, at=project)
        assert (done.code, why in done.out + done.err) == (2, True), done
    assert not person.model.chats


def answer_question(person: Person, place: Path, *keys: str) -> str:
    """Chat once in a terminal and answer what is asked; gives the screen."""
    with Screen(person, "chat", at=place) as screen:
        screen.until("gemma4:e4b")
        screen.say("do it")
        for key in keys:
            screen.until("Allow?")
            screen.type(f"{key}\r")
        screen.until("Result:")
        screen.leave()
        return str(screen.scrollback)


def test_always_is_kept_for_the_folder_and_not_for_another(person: Person, project: Path) -> None:
    person.model.answer = calling(shell("echo hello"))
    seen = answer_question(person, project, "a")
    assert "always = allow shell(echo hello) in this folder" in seen
    assert person.nacre("chat", "again", at=project).code == 0
    other = person.trust(person.folder("other"))
    assert person.nacre("chat", "again", at=other).code == 10
    person.model.answer = calling(shell("echo bye"))
    assert person.nacre("chat", "again", at=project).code == 10


def test_what_was_allowed_always_is_listed_and_revoked(person: Person, project: Path) -> None:
    person.model.answer = calling(shell("echo hello"))
    answer_question(person, project, "a")
    kept = person.home / ".local/state/nacre/permissions.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    listed: Mapping[str, Any] = person.nacre("permissions", "--json", at=project).json
    assert listed == {"schema_version": 1, "folders": [{"folder": str(project), "allow": ["shell(echo hello)"]}]}
    assert person.nacre("permissions", "revoke", "shell(echo bye)", at=project).code == 3
    assert person.nacre("permissions", "revoke", "shell(echo hello)", str(project)).code == 0
    assert person.nacre("chat", "again", at=project).code == 10


def test_a_question_names_the_file_and_shows_the_difference(person: Person, project: Path) -> None:
    (project / "notes").write_text("".join(f"line {n}\n" for n in range(1, 60)))
    change = {"path": "notes", "old_text": "line 30\n", "new_text": "line thirty\n"}
    person.model.answer = calling(Call("edit_file", change))
    seen = answer_question(person, project, "n")
    assert "? edit_file: notes" in seen
    assert "- line 30" in seen
    assert "+ line thirty" in seen
    assert "line 10" not in seen
    assert "line 30\n" in (project / "notes").read_text()


@pytest.mark.parametrize("columns", [40, 80])
def test_a_long_change_leaves_its_first_line_on_the_screen(person: Person, project: Path, columns: int) -> None:
    person.model.answer = calling(write("notes", "".join(f"new line {n}\n" for n in range(200))))
    with Screen(person, "chat", at=project, columns=columns) as screen:
        screen.until("gemma4:e4b")
        screen.say("do it")
        screen.until("Allow?")
        assert "? write_file: notes" in screen.text
        assert "v shows all" in screen.text
        screen.type("v\r")
        screen.until_true(lambda: "new line 199" in screen.scrollback, "not all is shown")
        screen.until("? write_file: notes")
        screen.type("n\r")
        screen.until("Result:")
        screen.leave()


def test_a_delegated_task_asks_the_person_who_is_there(person: Person, project: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.last["role"] == "tool":
            return f"Result: {request.said.splitlines()[-1]}"
        if "shell" not in request.tools:
            return echo(request)
        if request.said.startswith("print the greeting"):
            return [shell("echo hello")]
        return [Call("delegate", {"task": "print the greeting"})]

    person.model.answer = answer
    with Screen(person, "chat", at=project) as screen:
        screen.until("gemma4:e4b")
        screen.say("do it")
        screen.until("? delegate")
        screen.type("y\r")
        screen.until("? shell: echo hello")
        assert "asked by the delegated task: print the greeting" in screen.text
        screen.type("y\r")
        screen.until("Result: Result: hello")
        assert "stopped" not in screen.text
        screen.leave()


def test_a_redirect_to_another_host_needs_its_own_rule(person: Person, project: Path) -> None:
    """The model's own server is the host that is not allowed."""
    port = person.model.host.rpartition(":")[2]
    person.config('[web]\nallow = ["127.0.0.1", "localhost"]\n')
    person.model.redirects["/start"] = f"http://localhost:{port}/api/version"
    person.model.answer = calling(Call("web_fetch", {"url": f"{person.model.host}/start"}))
    done = person.nacre("chat", "--allow", f"web_fetch(127.0.0.1:{port})", "fetch it", at=project)
    assert "redirects to http://localhost" in done.out, done
    rules = ["--allow", f"web_fetch(127.0.0.1:{port})", "--allow", f"web_fetch(localhost:{port})"]
    assert "0.30.0" in person.nacre("chat", *rules, "fetch it", at=project).out


def test_a_refusal_inside_a_delegated_task_is_a_line_and_exit_code_10(person: Person, project: Path) -> None:
    def answer(request: Request) -> Reply:
        is_child = any(message["role"] == "user" and "clean up" in str(message) for message in request.messages)
        return calling(shell("rm notes") if is_child else Call("delegate", {"task": "clean up"}))(request)

    person.model.answer = answer
    done = person.nacre("chat", "--allow", "delegate", "tidy", at=project)
    assert done.code == 10, done
    assert 'refused shell(command="rm notes"): it needs approval' in done.err


def test_a_kept_rule_that_cannot_be_read_is_named_and_skipped(person: Person, project: Path) -> None:
    file = person.home / ".local" / "state" / "nacre" / "permissions.json"
    file.write_text(json.dumps({"schema_version": 1, "folders": {str(project): ["shell(", "shell(echo hi)"]}}))
    person.model.answer = calling(shell("echo hi"))
    done = person.nacre("chat", "greet", at=project)
    assert done.code == 0, done
    assert f"{file}: the rule 'shell(' cannot be read" in done.err


@pytest.mark.parametrize(
    "call", [write("a\0b", "x"), Call("edit_file", {"path": "a\0b", "old_text": "x", "new_text": "y"})]
)
def test_a_path_with_a_null_character_is_an_error_for_the_model(person: Person, project: Path, call: Call) -> None:
    person.model.answer = calling(call)
    done = person.nacre("chat", "--allow", call.name, "go", at=project)
    assert done.code == 0, done
    assert "is not a path" in done.out
