"""Settings: the environment before the file before the default, and clear words about what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import nacre
from nacre import config
from nacre.config import Settings, to_toml


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nacre").mkdir()
    return tmp_path / "nacre" / "config.toml"


def test_without_a_file_everything_is_as_it_is_by_default(file: Path) -> None:
    settings = config.load()
    assert settings.number("agent.max_context_tokens") == 32_000
    assert settings.number("agent.max_history_messages") == 50
    assert settings.flag("channels.session_persistence") is True
    assert settings.text("agent.provider") == "auto"


def test_the_environment_comes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[agent]\nmodel = "a"\nmax_history_messages = 10\n')
    monkeypatch.setenv("NACRE_AGENT_MODEL", "b")
    monkeypatch.setenv("NACRE_CHANNELS_SESSION_PERSISTENCE", "no")
    settings = config.load()
    assert (settings.text("agent.model"), settings.number("agent.max_history_messages")) == ("b", 10)
    assert settings.flag("channels.session_persistence") is False


def test_tables_of_names_that_users_choose_are_kept(file: Path) -> None:
    file.write_text('[approvals]\nshell = "allow"\n[mcp.files]\ncommand = "serve"\n')
    settings = config.load()
    assert (settings.table("approvals"), settings.table("mcp")) == ({"shell": "allow"}, {"files": {"command": "serve"}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agent]\nmodle = "x"', r"agent.modle is not a setting; did you mean agent.model\?"),
        ("[zzz]\nqqq = 1", "zzz.qqq is not a setting; `nacre config show` lists all settings"),
        ("top = 1", "top is not a setting"),
        ('[agent]\nmax_steps = "many"', r"agent.max_steps is a whole number, not 'many' \(.*config.toml:2\)"),
        ("[sandbox]\nnetwork = 1", r"sandbox.network is true or false, not 1 \(.*config.toml:2\)"),
        ('[sandbox]\nkind = "jail"', r"sandbox.kind is auto, bwrap, landlock or off, not 'jail' \(.*config.toml:2\)"),
        ('[approvals]\nshell = "maybe"', "approvals.shell is ask, allow or deny, not 'maybe'"),
        ('[mcp]\nfiles = "serve"', "mcp.files is a table: a server, with a command or a url, not 'serve'"),
        ("[agent", "cannot be read: .*; correct it, or move it away"),
    ],
)
def test_what_cannot_work_is_said(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(nacre.ConfigError, match=said):
        config.load()


@pytest.mark.parametrize(("variable", "value"), [("NACRE_AGENT_MAX_STEPS", "lots"), ("NACRE_SANDBOX_NETWORK", "maybe")])
def test_a_variable_that_means_nothing_is_said(variable: str, value: str) -> None:
    with pytest.raises(nacre.ConfigError, match=rf"not {value!r} \({variable}\)"):
        Settings({}, {variable: value})


def test_a_problem_names_the_line_that_it_is_in(file: Path) -> None:
    file.write_text('# mine\n\n[agents.clerk]\nmodel = "x"\nmax_steps = "y"\n[agents.clerk.cli]\ncolor = "never"\n')
    with pytest.raises(nacre.ConfigError) as error:
        config.load()
    assert f"[agents.clerk] agent.max_steps is a whole number, not 'y' ({file}:5)" in str(error.value)
    assert f"[agents.clerk] cli cannot be set for one agent ({file}:6)" in str(error.value)


def test_a_problem_in_a_variable_names_the_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[agent]\nmax_steps = 5\n")
    monkeypatch.setenv("NACRE_AGENT_MAX_STEPS", "x")
    with pytest.raises(
        nacre.ConfigError, match=r"agent.max_steps is a whole number, not 'x' \(NACRE_AGENT_MAX_STEPS\)$"
    ):
        config.load()


# ---- lists


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ('["read_file", "a tool"]', ("read_file", "a tool")),
        ("[\n  'read_file', # why\n  'shell',\n]", ("read_file", "shell")),
        ('"read_file  shell"', ("read_file", "shell")),
        ("[]", ()),
        ('""', ()),
    ],
)
def test_a_list_is_an_array_or_a_text_separated_by_spaces(file: Path, text: str, tools: tuple[str, ...]) -> None:
    file.write_text(f"[agent]\nonly = {text}\n")
    assert config.load().texts("agent.only") == tools


@pytest.mark.parametrize("text", ['["a", "b"]', " ['a','b'] ", "a b", " a\tb "])
def test_a_list_in_a_variable_is_an_array_or_separated_by_spaces(text: str) -> None:
    assert Settings({}, {"NACRE_AGENT_ONLY": text}).texts("agent.only") == ("a", "b")


@pytest.mark.parametrize("text", ["[1]", '["a"', "shell(git status)", "'a b' c", '["a"]\nx = 1'])
def test_a_list_that_is_not_one_is_reported(text: str) -> None:
    with pytest.raises(
        nacre.ConfigError, match=r"agent.only is an array of texts, as \[\"a\", \"b\"\], not .*NACRE_AGENT_ONLY"
    ):
        Settings({}, {"NACRE_AGENT_ONLY": text})


def test_a_table_is_written_as_toml_whatever_its_names_are() -> None:
    table = {"gpt-4.1": {"input": 2.0}, "a_b-1": "x", "": 1}
    assert tomllib.loads(f"value = {to_toml(table)}") == {"value": table}


def test_a_number_in_a_variable_may_be_negative() -> None:
    assert Settings({}, {"NACRE_EMBEDDED_THREADS": "-1"}).number("embedded.threads") == -1


def test_an_array_of_numbers_in_the_file_is_reported() -> None:
    with pytest.raises(nacre.ConfigError, match=r"web.allow is an array of texts.*not \[1, 2\] \(file\)"):
        Settings({"web": {"allow": [1, 2]}}, {})


# ---- several agents


def agents(**sections: Any) -> Settings:
    clerk = {"model": "b", "approvals": {"shell": "allow"}, "mcp": {"desk": {"command": "x"}}}
    return Settings({"agents": {"clerk": clerk}, **sections}, {"NACRE_AGENT_MODEL": "c", "NACRE_AGENT_MAX_STEPS": "7"})


def test_an_agent_has_what_its_table_says_over_what_the_main_one_has() -> None:
    settings = agents(
        agent={"model": "a", "provider": "ollama", "workspace": "/w", "persona": "P", "only": "read_file"},
        approvals={"write_file": "deny"},
        mcp={"files": {"command": "y"}},
    )
    assert settings.agents == ["main", "clerk"]
    main, clerk = settings.for_agent("main"), settings.for_agent("clerk")
    assert [one.text("agent.model") for one in (main, clerk)] == ["c", "b"]
    assert [one.text("agent.workspace") for one in (main, clerk)] == ["/w", ""]
    assert [one.text("agent.persona") for one in (main, clerk)] == ["P", ""]
    assert (clerk.text("agent.provider"), clerk.number("agent.max_steps")) == ("ollama", 7)
    assert clerk.texts("agent.only") == ("read_file",)
    assert clerk.table("approvals") == {"write_file": "deny", "shell": "allow"}
    assert [list(one.table("mcp")) for one in (main, clerk)] == [["files"], ["files", "desk"]]


def test_an_agent_has_the_channels_and_schedules_that_name_it() -> None:
    settings = agents(
        channels={"irc": {"host": "h"}, "den": {"kind": "irc", "agent": "clerk"}, "session_persistence": False},
        schedule={"morning": {"agent": "clerk"}, "evening": {"agent": "main"}},
    )
    main, clerk = settings.for_agent("main"), settings.for_agent("clerk")
    assert main.table("channels") == {"irc": {"host": "h"}, "session_persistence": False}
    assert clerk.table("channels") == {"den": {"kind": "irc"}, "session_persistence": False}
    assert (list(main.table("schedule")), list(clerk.table("schedule"))) == (["evening"], ["morning"])


def test_settings_are_the_same_if_all_they_say_is() -> None:
    assert agents() == agents()
    assert agents() != agents(agent={"model": "z"})
    assert agents().for_agent("clerk") == agents(channels={"irc": {}}).for_agent("clerk") != agents().for_agent("main")
    with pytest.raises(nacre.ConfigError, match="there is no agent 'nobody'; there are main, clerk"):
        agents().for_agent("nobody")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"agents": {"Clerk": {}}}, "agents.Clerk: the name of an agent has lower-case letters, digits and dashes"),
        ({"agents": {"../x": {}}}, "agents.../x: the name of an agent has"),
        ({"agents": {"main": {}}}, "agents.main: the name of an agent has"),
        ({"agents": {"c": 1}}, "agents.c is a table: an agent, with the settings that differ from the main one, not 1"),
        ({"agents": 1}, "agents is a table"),
        ({"agents": {"c": {"modle": "x"}}}, r"\[agents.c\] agent.modle is not a setting; did you mean agent.model"),
        ({"agents": {"c": {"max_steps": "x"}}}, r"\[agents.c\] agent.max_steps is a whole number, not 'x'"),
        ({"agents": {"c": {"cli": {"color": "never"}}}}, r"\[agents.c\] cli cannot be set for one agent"),
        ({"agents": {"c": {"approvals": {"shell": "yes"}}}}, r"\[agents.c\] approvals.shell is ask, allow or deny"),
        (
            {"channels": {"irc": {"agent": "c"}}},
            "channels.irc names the agent 'c', which does not exist; there are main",
        ),
        (
            {"schedule": {"x": {"agent": ["c"]}}},
            r"schedule.x names the agent \['c'\], which does not exist; there are main",
        ),
        ({"channels": "x"}, "channels is a table"),
    ],
)
def test_agents_that_cannot_work_are_said(tables: Any, said: str) -> None:
    with pytest.raises(nacre.ConfigError, match=said):
        Settings(tables, {})


# ---- settings of one model


def models(table: str, name: str = "openai/gpt-4.1") -> dict[str, Any]:
    return tomllib.loads(f'[models."{name}"]\n{table}')


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("ollama/qwen3:8b", "temperature = 0.2\nthink = false\noptions = {top_k = 40}\nmax_tokens = 100"),
        ("ollama/gpt-oss:20b", 'think = "high"'),
        ("openai/gpt-4.1", 'top_p = 1\nreasoning_effort = "low"\nprompt_cache_key = "k"\nreturn_reasoning = true'),
        ("anthropic/claude-sonnet-4-5", "thinking_budget = 2048\nread_timeout = 30\nbody = {service_tier = 'auto'}"),
    ],
)
def test_a_model_may_have_settings_of_its_own(name: str, table: str) -> None:
    found = models(table, name)
    assert config.complaints(found, {}) == []
    assert Settings(found, {}).table("models")[name] == found["models"][name]


@pytest.mark.parametrize(
    ("name", "table", "problem"),
    [
        ("openai/m", "temperature = 3", "models.openai/m.temperature is a number from 0 to 2, not 3"),
        ("openai/m", 'temperature = "hot"', "models.openai/m.temperature is a number from 0 to 2, not 'hot'"),
        ("openai/m", "temperature = true", "models.openai/m.temperature is a number from 0 to 2, not True"),
        ("openai/m", "temperature = nan", "models.openai/m.temperature is a number from 0 to 2, not nan"),
        ("openai/m", "max_tokens = 0", "models.openai/m.max_tokens is a whole number above 0, not 0"),
        (
            "openai/m",
            'reasoning_effort = "huge"',
            "models.openai/m.reasoning_effort is none, minimal, low, medium, high or xhigh, not 'huge'",
        ),
        ("openai/m", "read_timeout = 0", "models.openai/m.read_timeout is a number of seconds above 0, not 0"),
        (
            "ollama/m",
            "options = {num_ctx = 5}",
            "models.ollama/m.options is a table without num_ctx, which follows agent.max_context_tokens, not {",
        ),
        (
            "openai/m",
            "body = {messages = []}",
            "models.openai/m.body is a table without model, messages, tools, system and stream, not {'messages': []}",
        ),
        ("anthropic/m", "thinking_budget = 5", "models.anthropic/m.thinking_budget is a whole number of at least 1024"),
        (
            "openai/m",
            "think = true",
            "models.openai/m.think is not a setting of models of openai; there are temp",
        ),
        ("gpt-5", "temperature = 1", 'models.gpt-5: a model is named by its provider, as [models."ollama/qwen3:8b"]'),
        ("openai/", "temperature = 1", "models.openai/: a model is named by its provider"),
        ("embedded/x", "temperature = 1", "models.embedded/x: a model is named by its provider"),
    ],
)
def test_a_wrong_setting_of_a_model_is_said(name: str, table: str, problem: str) -> None:
    (text,) = config.complaints(models(table, name), {})
    assert text.startswith(problem)


def test_a_wrong_setting_of_a_model_names_its_line_and_its_agent(file: Path) -> None:
    text = '[agents.clerk.models."openai/gpt-4.1"]\ntop_p = 0.5\ntemperature = 3\n'
    (problem,) = config.complaints(tomllib.loads(text), {}, text=text)
    assert problem.startswith("[agents.clerk] models.openai/gpt-4.1.temperature is a number from 0 to 2, not 3")
    assert problem.endswith(f"({file}:3)")


def test_settings_of_models_are_tables(file: Path) -> None:
    (problem,) = config.complaints({"models": {"temperature": 1}}, {})
    assert "models.temperature is a table: settings of one model" in problem
    assert config.complaints({"models": 5}, {}) != []
