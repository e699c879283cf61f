"""Spans that other packages make by themselves: none where nacre uses them.

The packages of MCP and ACP describe requests as spans of OpenTelemetry, with the sentences of errors, and send the id
of the trace to servers; neither has a switch for it. So the functions that do it are replaced, for what nacre does and
for nothing else: the program in which it runs may use the same packages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any

from nacre.errors import ConfigError


class ForeignSpans:
    """The spans of a module of another package; `functions` are what to call instead of those that make them."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._is_off = ContextVar(f"no spans of {module.__name__}", default=False)
        self._problem = ""
        for name, instead in functions.items():
            if not callable(own := getattr(module, name, None)):
                # Another version of the package: nobody knows what makes its spans.
                self._problem = (
                    f"spans are recorded in this process, and this version of the package "
                    f"{module.__name__.partition('.')[0]!r} may put texts of conversations into them: "
                    f"it has no {module.__name__}.{name} that could be turned off; "
                    "install a version that this release of nacre was tested with, or record no spans"
                )
                continue
            setattr(module, name, self._choose(own, instead))

    def _choose(self, own: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(own)
        def call(*given: Any, **named: Any) -> Any:
            return (instead if self._is_off.get() else own)(*given, **named)

        return call

    @contextmanager
    def off(self) -> Iterator[None]:
        """Make none here, nor in tasks that are started here; raises ConfigError if it is not known how."""
        if self._problem and _are_recorded():
            raise ConfigError(self._problem)
        token = self._is_off.set(True)
        try:
            yield
        finally:
            self._is_off.reset(token)


def _are_recorded() -> bool:
    """Tell whether somebody has set up what records spans in this process."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
