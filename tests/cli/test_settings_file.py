"""One key of a configuration file is changed, and nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nacre.cli.failures import Failure
from nacre.cli.settings_file import set_key, split_key, unset_key, write
from nacre.user_files import locked

FILE = """\
# mine
top = 1   # a comment

[agent]   # the agent
# which model
model = "a # b"   # why
persona = '''
model = "not this"
[cli]
'''
only = [
  "read_file", # one
  "shell",
]
# max_steps = 50

[channels.irc]
host = "h"

[cli]
color = "auto"
"""


@pytest.mark.parametrize(
    ("key", "value", "before", "after"),
    [
        ("agent.model", "qwen3:8b", 'model = "a # b"   # why\n', 'model = "qwen3:8b"   # why\n'),
        ("agent.only", ("a", "b c"), 'only = [\n  "read_file", # one\n  "shell",\n]\n', 'only = ["a", "b c"]\n'),
        ("agent.max_steps", 7, "# max_steps = 50\n", "# max_steps = 50\nmax_steps = 7\n"),
        ("agent.provider", "ollama", '  "shell",\n]\n', '  "shell",\n]\nprovider = "ollama"\n'),
        ("cli.color", "never", 'color = "auto"\n', 'color = "never"\n'),
        ("channels.irc.port", 6697, 'host = "h"\n', 'host = "h"\nport = 6697\n'),
        ("top", 2, "top = 1   #", "top = 2   #"),
        ("web.allow", ("h",), 'color = "auto"\n', 'color = "auto"\n\n[web]\nallow = ["h"]\n'),
        ("agents.clerk.model", "x", 'color = "auto"\n', 'color = "auto"\n\n[agents.clerk]\nmodel = "x"\n'),
        (
            "channels.session_persistence",
            False,
            'color = "auto"\n',
            'color = "auto"\n\n[channels]\nsession_persistence = false\n',
        ),
    ],
)
def test_only_this_key_is_changed(key: str, value: Any, before: str, after: str) -> None:
    assert set_key(FILE, key.split("."), value) == FILE.replace(before, after)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", '[agent]\nmodel = "x"\n'),
        ("agent.provider = 'ollama'\n[cli]\n", "agent.provider = 'ollama'\nagent.model = \"x\"\n[cli]\n"),
        ("[agent]", '[agent]\nmodel = "x"\n'),
        ('[agent]\r\nmodel="a"\r\n', '[agent]\r\nmodel="x"\r\n'),
        ('"agent".model = 1\n', '"agent".model = "x"\n'),
    ],
)
def test_files_of_many_shapes_can_be_changed(text: str, after: str) -> None:
    assert set_key(text, ["agent", "model"], "x") == after


def test_a_file_whose_shape_does_not_allow_it_is_refused() -> None:
    with pytest.raises(Failure, match=r"agent.model cannot be set: the layout of the file is not supported"):
        set_key('agent = { provider = "x" }\n', ["agent", "model"], "y")


def test_a_key_is_taken_out_with_all_of_its_lines() -> None:
    assert 'only = ["' not in unset_key(FILE, ["agent", "only"])
    assert tomllib.loads(unset_key(FILE, ["agent", "only"]))["agent"].keys() == {"model", "persona"}
    with pytest.raises(Failure, match=r"does not set cli.pager"):
        unset_key(FILE, ["cli", "pager"])


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_value_is_read_back_as_it_was_set(value: str | list[str]) -> None:
    assert tomllib.loads(set_key(FILE, ["agent", "model"], value))["agent"]["model"] == value


def test_the_file_is_private_and_a_link_to_it_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    real.write_text("old")
    real.chmod(0o644)
    link.symlink_to(real)
    with locked(link.parent):
        write(str(link), "new")
    assert (link.is_symlink(), real.read_text(), real.stat().st_mode & 0o777) == (True, "new", 0o600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.toml", "real.toml"]


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("agent.model", ["agent", "model"]),
        ('prices."gpt-4.1-mini".input', ["prices", "gpt-4.1-mini", "input"]),
        ("prices.'openai/gpt-4.1'", ["prices", "openai/gpt-4.1"]),
        ("prices.openai/gpt-5.input", ["prices", "openai/gpt-5", "input"]),
    ],
)
def test_a_dot_between_quotes_is_part_of_a_name(key: str, names: list[str]) -> None:
    assert split_key(key) == names
