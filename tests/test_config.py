"""Settings: the environment before the file before the default, and clear words about what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import nacre
from nacre import config
from nacre.config import Settings


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
        ("[zzz]\nqqq = 1", "zzz.qqq is not a setting; `nacre config show` lists what there is"),
        ("top = 1", "top is not a setting"),
        ('[agent]\nmax_steps = "many"', r"agent.max_steps is a whole number, not 'many' \(file\)"),
        ("[sandbox]\nnetwork = 1", r"sandbox.network is true or false, not 1 \(file\)"),
        ('[sandbox]\nkind = "jail"', r"sandbox.kind is auto, bwrap, landlock or off, not 'jail' \(file\)"),
        ('[approvals]\nshell = "maybe"', "approvals.shell is ask, allow or deny, not 'maybe'"),
        ('[mcp]\nfiles = "serve"', "mcp.files is a table: a server, with a command or a url, not 'serve'"),
        ("[agent", "cannot be read: .*; mend it, or move it away"),
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
