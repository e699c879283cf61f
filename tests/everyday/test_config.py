"""Settings as people change them: set, get, edit, check."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.everyday.conftest import Person

MINE = """\
# my settings

[agent]
model = "small"   # fast enough
# max_steps = 50

[cli]
color = "never"
"""


def file_of(person: Person) -> Path:
    return Path(person.nacre("config", "path").out.strip())


def test_set_keeps_comments_and_order_and_get_reads_it_back(person: Person) -> None:
    person.config(MINE)
    assert person.nacre("config", "set", "agent.model", "qwen3:8b").code == 0
    assert person.nacre("config", "set", "agent.max_steps", "7").code == 0
    assert person.nacre("config", "set", "agent.only", "read_file", "list_files").code == 0
    assert file_of(person).read_text() == MINE.replace('"small"', '"qwen3:8b"').replace(
        "# max_steps = 50\n", '# max_steps = 50\nmax_steps = 7\nonly = ["read_file", "list_files"]\n'
    )
    assert person.nacre("config", "get", "agent.model").out == "qwen3:8b\n"
    assert person.nacre("config", "get", "agent.only").out == "read_file\nlist_files\n"
    shown = person.nacre("config", "get", "agent.max_steps", "--json").json
    assert shown == {"schema_version": 1, "key": "agent.max_steps", "value": 7, "source": "file"}


def test_one_rule_is_a_list_of_one(person: Person) -> None:
    assert person.nacre("config", "set", "permissions.allow", "shell(git status)").code == 0
    assert person.nacre("config", "get", "permissions.allow").out == "shell(git status)\n"
    assert person.nacre("config", "set", "permissions.allow", "write_file(a) write_file(b)").code == 2
    assert person.nacre("config", "set", "permissions.allow", '["shell(git diff)"]').code == 0
    assert person.nacre("config", "get", "permissions.allow").out == "shell(git diff)\n"


def test_the_first_set_makes_a_private_file_that_the_next_command_uses(person: Person) -> None:
    person.model.models["other"] = person.model.models["gemma4:e4b"]
    assert person.nacre("config", "set", "agent.model", "other").code == 0
    assert stat.S_IMODE(file_of(person).stat().st_mode) == 0o600
    assert person.ask("hello")["model"].endswith("other")
    assert person.nacre("config", "unset", "agent.model").code == 0
    assert person.nacre("config", "get", "agent.model").out == "\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("agent.modle", "x"), "agent.modle is not a setting; did you mean agent.model?"),
        (("agent.max_steps", "many"), "agent.max_steps is a whole number, not 'many'"),
        (("sandbox.kind", "jail"), "sandbox.kind is auto, bwrap, landlock or off, not 'jail'"),
        (("agent.only", "[1]"), "agent.only is an array of texts"),
        (("agent.model", "two", "words"), "agent.model is text, one value"),
        (("agent.model",), "`config set` needs a value for agent.model"),
    ],
)
def test_what_is_not_valid_is_refused_and_nothing_is_written(person: Person, words: tuple[str, ...], said: str) -> None:
    person.config(MINE)
    done = person.nacre("config", "set", *words)
    assert (done.code, file_of(person).read_text()) == (2, MINE)
    assert said in done.err


def test_a_variable_that_overrides_the_file_is_said_when_it_is_set(person: Person) -> None:
    done = person.nacre("config", "set", "agent.model", "x", NACRE_AGENT_MODEL="y")
    assert "NACRE_AGENT_MODEL is set, and overrides the file" in done.err
    assert person.nacre("config", "get", "agent.model", NACRE_AGENT_MODEL="y").out == "y\n"


def test_many_programs_may_set_keys_at_once_and_none_is_lost(person: Person) -> None:
    keys = ("agent.max_steps", "agent.max_turns", "memory.tokens", "anthropic.max_tokens")
    running: list[subprocess.Popen[str]] = [person.start("config", "set", key, "77") for key in keys]
    for process in running:
        process.communicate(timeout=120)
    assert [process.returncode for process in running] == [0] * len(keys)
    shown = person.nacre("config", "show", "--json").json["settings"]
    assert {shown[key]["value"] for key in keys} == {77}


def test_edit_opens_the_editor_with_every_setting_and_checks_afterwards(person: Person) -> None:
    editor = person.home / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/^# max_steps = 50/max_step = 3/" "$1"\n')
    editor.chmod(0o700)
    done = person.nacre("config", "edit", EDITOR=str(editor))
    assert done.code == 2, done
    assert "agent.max_step is not a setting; did you mean agent.max_steps?" in done.out
    assert "# max_history_messages = 50\n" in file_of(person).read_text()
    assert person.nacre("config", "edit", VISUAL="sed -i s/^max_step/max_steps/", EDITOR="false").code == 0
    assert person.nacre("config", "get", "agent.max_steps").out == "3\n"


def test_a_problem_names_the_file_and_the_line(person: Person) -> None:
    person.config('# first\n[agent]\nmodel = "x"\nmax_step = 3\n')
    done = person.nacre("chat", "hello")
    assert done.code == 2
    assert f"agent.max_step is not a setting; did you mean agent.max_steps? ({file_of(person)}:4)" in done.err


def test_a_configuration_with_a_byte_order_mark_is_read_and_a_pipe_is_not(person: Person) -> None:
    person.config("\ufeff[agent]\nmax_steps = 7\n")
    assert person.nacre("config", "get", "agent.max_steps").out == "7\n"
    pipe = person.home / "pipe"
    os.mkfifo(pipe)
    done = person.nacre("config", "get", "agent.max_steps", NACRE_CONFIG=str(pipe))
    assert (done.code, "is a pipe" in done.err) == (2, True), done


def test_values_that_cannot_work_are_refused(person: Person) -> None:
    done = person.nacre("config", "set", "agent.max_steps", "9" * 20)
    assert (done.code, "a whole number of at most" in done.err) == (2, True), done
    done = person.nacre("config", "set", "agent.persona", os.fsdecode(b"a\xff"))
    assert (done.code, "is not UTF-8 text" in done.err) == (2, True), done


def test_a_folder_whose_name_is_not_text_is_refused_in_a_sentence(person: Person) -> None:
    folder = person.folder(os.fsdecode(b"caf\xe9"))
    done = person.nacre("chat", "hello", at=folder)
    assert (done.code, "is not UTF-8 text" in done.err) == (2, True), done


def test_a_rule_that_cannot_be_read_is_not_set(person: Person) -> None:
    done = person.nacre("config", "set", "permissions.allow", '["shell("]')
    assert (done.code, "cannot be read" in done.err) == (2, True), done
    assert person.nacre("config", "set", "permissions.allow", '["shell(ls)"]').code == 0
