"""What is wrong is found before it hurts: `doctor`, `config check` and `serve --check` agree, and say what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.everyday.conftest import Done, Person

BROKEN = {
    "a channel without a token": '[channels.telegram]\nkind = "telegram"\n',
    "a schedule that is no time": '[schedule.morning]\nat = "often"\ntext = "hello"\nto = "x"\n',
    "a setting that does not exist": "[agent]\nmodle = 1\n",
    "two agents in one folder": '[agent]\nworkspace = "/tmp/x"\n[agents.clerk]\nworkspace = "/tmp/x"\n',
    "a server that is down": '[agent]\nprovider = "openai"\nmodel = "m"\n[openai]\nbase_url = "http://127.0.0.1:9/v1"\n',
    "no span of time": '[retention]\narchive_after = "soon"\n',
}


def failing(done: Done) -> set[tuple[str, str]]:
    assert done.json["ok"] is False, done
    assert all(check["hint"] for check in done.json["checks"] if check["status"] == "fail")
    return {(check["name"], check["detail"]) for check in done.json["checks"] if check["status"] == "fail"}


def check_of(done: Done, name: str) -> dict[str, Any]:
    return next(check for check in done.json["checks"] if check["name"] == name)


def test_an_ollama_that_was_configured_and_is_down_is_a_warning(person: Person) -> None:
    person.env |= {"OLLAMA_HOST": "http://127.0.0.1:9", "OPENAI_API_KEY": "k"}
    person.config(f'[openai]\nbase_url = "{person.model.host}/v1"\n')
    check = check_of(person.nacre("doctor", "--json"), "model")
    assert check["status"] == "warn", check
    assert check["detail"].startswith("Ollama is not used (Ollama at http://127.0.0.1:9 cannot be reached")


@pytest.mark.parametrize("config", BROKEN.values(), ids=BROKEN)
def test_what_serve_would_fail_for_is_found_by_check_and_doctor_too(person: Person, config: str) -> None:
    person.config(config)
    person.env |= {"OPENAI_API_KEY": "k", "NACRE_SERVE_TOKEN": "a-token-that-is-long-enough"}
    serve = person.nacre("serve", "--check", "--port", "0", "--json")
    check = person.nacre("config", "check", "--json")
    doctor = person.nacre("doctor", "--json")
    assert serve.code == check.code != 0
    assert doctor.code == 1
    assert failing(serve) == failing(check) == failing(doctor)


def test_a_machine_that_is_set_up_has_nothing_to_complain_of(person: Person) -> None:
    person.ask("hello")
    done = person.nacre("doctor", "--json")
    assert done.code == 0, done
    assert {check["status"] for check in done.json["checks"] if check["name"] != "sandbox"} == {"ok"}, done
    assert {"store", "permissions", "space", "index", "extras", "config", "sandbox", "model"} <= {
        check["name"] for check in done.json["checks"]
    }
    assert check_of(done, "model")["detail"] == "ollama/gemma4:e4b"


def test_doctor_says_which_model_of_the_fallback_answers_and_why(person: Person) -> None:
    person.config('[agent]\nmodel = "ollama/nope:1b"\nfallback = ["ollama/gemma4:e4b"]\n')
    found = check_of(person.nacre("doctor", "--json"), "model")
    assert found["status"] == "warn"
    assert "ollama/nope:1b cannot answer" in found["detail"]
    assert "ollama/gemma4:e4b answers instead" in found["detail"]


def test_doctor_names_a_model_that_is_not_installed_and_how_to_get_it(person: Person) -> None:
    person.config('[agent]\nmodel = "ollama/nope:1b"\n')
    found = check_of(person.nacre("doctor", "--json"), "model")
    assert found["status"] == "fail"
    assert "nope:1b" in found["detail"]
    assert "pull nope:1b" in found["hint"]


def test_doctor_names_a_missing_key(person: Person) -> None:
    person.config('[agent]\nmodel = "anthropic/claude-x"\n')
    found = check_of(person.nacre("doctor", "--json", ANTHROPIC_API_KEY=""), "model")
    assert found["status"] == "fail"
    assert "ANTHROPIC_API_KEY" in found["detail"] + found["hint"]


def test_doctor_names_an_extra_that_is_missing_and_the_command_that_installs_it(person: Person) -> None:
    # A module that cannot be found: the name is blocked for the child before nacre starts.
    blocked = person.folder("blocked") / "sitecustomize.py"
    blocked.write_text(
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('anyio', 'xllamacpp'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
    )
    done = person.nacre("doctor", "--json", PYTHONPATH=str(blocked.parent))
    found = check_of(done, "extras")
    assert found["status"] == "warn"
    assert "agent (without anyio)" in found["detail"]
    assert 'pip install "nacre-sessions[agent]"' in found["hint"].splitlines()
    assert check_of(done, "model")["hint"] == 'pip install "nacre-sessions[agent]"'


def test_doctor_says_why_there_is_no_sandbox(person: Person) -> None:
    person.config('[sandbox]\nkind = "bwrap"\n')
    found = check_of(person.nacre("doctor", "--json", PATH="/nonexistent"), "sandbox")
    assert found["status"] == "fail"
    assert "bwrap" in found["detail"]
    assert "install bubblewrap" in found["hint"]
    person.config('[sandbox]\nkind = "off"\n')
    assert check_of(person.nacre("doctor", "--json"), "sandbox")["status"] == "warn"


def test_doctor_names_a_trust_file_that_cannot_be_read(person: Person) -> None:
    state = person.folder(".local/state/nacre")
    (state / "trust.json").write_text("{")
    found = check_of(person.nacre("doctor", "--json"), "trust")
    assert (found["status"], str(state / "trust.json") in found["detail"]) == ("fail", True)
    (state / "trust.json").write_text(json.dumps({"schema_version": 1, "folders": {"/no/such": {"since": "x"}}}))
    (state / "trust.json").chmod(0o600)
    found = check_of(person.nacre("doctor", "--json"), "trust")
    assert (found["status"], found["hint"]) == ("warn", "nacre trust --revoke /no/such")


def test_a_file_that_is_not_toml_stops_neither_doctor_nor_edit(person: Person) -> None:
    person.config("[agent")
    assert check_of(person.nacre("doctor", "--json"), "config")["status"] == "fail"
    assert person.nacre("doctor", FORCE_COLOR="1").code == 1
    assert person.nacre("config", "edit", EDITOR="true").code == 2
    assert person.nacre("config", "edit", EDITOR="truncate -s 0").code == 0
