"""Whether turns are traced for OpenTelemetry: nothing of it is imported unless somebody asks for spans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context
from importlib.util import find_spec
from typing import Protocol

from nacre.agent.ports import Provider, Tool
from nacre.config import Settings
from nacre.errors import ConfigError, install_command

logger = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"


class Tracing(Protocol):
    """What makes spans, if there are any."""

    def trace_turn(
        self, key: str, caller: Context, *, agent: str, model: Callable[[], tuple[str, str]]
    ) -> AbstractContextManager[object]:
        """The span of a turn while it is entered; a child of what is current where the turn was asked for.

        `model` gives the provider and the model that will answer, if it can.
        """

    def trace_model(self, kind: str, provider: Provider) -> Provider:
        """A model of a provider, with a span for each call."""

    def trace_tools(self, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """Tools, with a span for each run; those that are added later have them too."""

    def name_session(self, key: str, provider: Provider) -> Provider:
        """A provider whose calls are for a session, "" for none.

        Each begins a trace, except those that a turn waits for.
        """


class _Off:
    """Traces nothing: everything is passed on as it is."""

    def trace_turn(self, *_: object, **__: object) -> AbstractContextManager[object]:
        return nullcontext()

    def trace_model(self, _: str, provider: Provider) -> Provider:
        return provider

    def trace_tools(self, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
        return tools

    def name_session(self, _: str, provider: Provider) -> Provider:
        return provider


OFF: Tracing = _Off()
"""What there is where nobody asked for spans."""


def tracing_for(settings: Settings) -> Tracing:
    """What traces the turns of an agent; raises ConfigError if spans are demanded and the package is missing."""
    wanted = settings.text("telemetry.spans")
    if wanted == "off" or (wanted == "auto" and not is_asked_for(settings.environ)):
        return OFF
    if not _is_installed():
        if wanted == "on":
            raise ConfigError(
                "telemetry.spans is on, and the package opentelemetry-api is missing: "
                f"{install_command('otel')}, or set telemetry.spans to off"
            )
        logger.info("variables of OpenTelemetry are set, and its package is missing: there are no spans")
        return OFF
    from nacre.runtime.spans import Spans  # noqa: PLC0415 - nothing of it unless there are spans

    return Spans(models=settings.table("models"), has_content=settings.flag("telemetry.content"))


def is_asked_for(environ: Mapping[str, str]) -> bool:
    """Tell whether the standard variables of OpenTelemetry ask for spans: they name an exporter, or where to send."""
    if environ.get(_DISABLED, "").strip().lower() == "true":
        return False
    if exporters := environ.get(_EXPORTERS, "").strip().lower():
        return exporters != "none"
    return any(environ.get(variable, "").strip() for variable in _ENDPOINTS)


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.trace") is not None
    except ModuleNotFoundError:
        return False
