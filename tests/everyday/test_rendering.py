"""What people read on narrow and wide terminals: tables, code, wide characters, colours."""

from __future__ import annotations

import re

import pytest
from wcwidth import wcswidth

from tests.everyday.conftest import Person

ANSWER = """\
Here is the 家族 👨\u200d👩\u200d👧 with a ❤\ufe0f and हिन्दी,
and a sentence that is long enough to be wrapped everywhere but on wide screens.

| name | what it does | since |
|---|---|---|
| write_file | writes a file in the workspace, after asking | 0.1 |
| 漢字 ❤\ufe0f | हिन्दी में एक वाक्य जो काफ़ी लंबा है | 0.1 |

```python
result = [function_with_a_long_name(argument_number_one, argument_number_two) for argument in arguments]  # whole
```
"""
CODE = (
    "result = [function_with_a_long_name(argument_number_one, argument_number_two) for argument in arguments]  # whole"
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def reader(person: Person) -> Person:
    with person.sessions() as sessions:
        sessions.add_message("cli:tables", "user", "show me a table")
        sessions.add_message("cli:tables", "assistant", ANSWER)
    return person


@pytest.mark.parametrize("columns", [40, 58, 80, 200])
def test_a_table_fits_every_terminal_and_code_is_printed_whole(reader: Person, columns: int) -> None:
    done = reader.nacre("sessions", "show", "cli:tables", COLUMNS=str(columns))
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert f"  {CODE}" in lines
    others = [line for line in lines if CODE not in line]
    assert max(map(wcswidth, others)) <= columns, done.out
    rows = [line.split("│") for line in lines if "│" in line]
    assert rows
    assert all(len(row) == 3 for row in rows)
    assert "write_file" in "".join(row[0].strip() for row in rows)


def test_the_list_of_sessions_fits_40_columns(reader: Person) -> None:
    with reader.sessions() as sessions:
        sessions.set_meta("cli:tables", title="👨\u200d👩\u200d👧 हिन्दी 漢字 a title that is longer than the screen")
    done = reader.nacre("sessions", "list", COLUMNS="40")
    assert done.code == 0, done
    assert max(map(wcswidth, done.out.splitlines())) <= 40, done.out


def test_code_is_coloured_for_the_chosen_theme_and_not_with_no_color(reader: Person) -> None:
    shown = {
        theme: reader.nacre("sessions", "show", "cli:tables", FORCE_COLOR="1", NACRE_CLI_THEME=theme).out
        for theme in ("dark", "light", "none")
    }
    assert "\x1b[35mfor\x1b[0m" in shown["dark"]
    assert "\x1b[38;5;90mfor\x1b[0m" in shown["light"]
    assert "\x1b" not in shown["none"]
    assert CODE in COLOURS.sub("", shown["dark"])
    assert "\x1b" not in reader.nacre("sessions", "show", "cli:tables", FORCE_COLOR="1", NO_COLOR="1").out
