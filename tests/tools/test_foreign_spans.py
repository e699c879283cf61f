"""Spans of other packages: off for what nacre does, as before for others, and an error where that cannot be had."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import anyio
import pytest

from nacre.errors import ConfigError
from nacre.tools.foreign_spans import ForeignSpans


def package(**functions: object) -> ModuleType:
    module = ModuleType("other.spans")
    vars(module).update(functions)
    return module


def test_what_makes_spans_is_replaced_only_where_it_is_off_and_in_tasks_that_begin_there() -> None:
    module = package(make=lambda name: f"a span of {name}")
    spans, said = ForeignSpans(module, make=lambda _: "none"), list[str]()

    async def note(name: str) -> None:
        said.append(module.make(name))

    async def work() -> None:
        with spans.off():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(note, "a")
            await note("b")
        await note("c")

    anyio.run(work)
    assert said == ["none", "none", "a span of c"]


def test_two_packages_are_off_each_for_itself() -> None:
    first, second = package(make=lambda: "a span"), package(make=lambda: "a span")
    ForeignSpans(second, make=lambda: "none")
    with ForeignSpans(first, make=lambda: "none").off():
        assert (first.make(), second.make()) == ("none", "a span")


@pytest.mark.parametrize("functions", [{}, {"make": "no function"}])
def test_a_package_that_makes_them_in_another_way_is_of_use_while_nobody_records(functions: dict[str, object]) -> None:
    program = (
        "from types import ModuleType\n"
        "from nacre.tools.foreign_spans import ForeignSpans\n"
        "module = ModuleType('other.spans')\n"
        f"vars(module).update({functions!r})\n"
        "spans = ForeignSpans(module, make=print)\n"
        "with spans.off():\n"
        "    from opentelemetry import trace\n"
        "with spans.off():\n"
        "    trace.set_tracer_provider(trace.NoOpTracerProvider())\n"
        "    print('used')\n"
        "with spans.off():\n"
        "    pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "used\n")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"{ConfigError.__module__}.{ConfigError.__qualname__}: spans are recorded in this process")
    assert "'other'" in last
    assert "other.spans.make" in last
