"""What the daemon does, in numbers: Prometheus' text format, made of what the parts count for themselves."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

import nacre
from nacre.entries import Load
from nacre.runtime import App
from nacre.runtime.gateway.gateway import Gateway
from nacre.runtime.stats import SHORT, Spread, Traffic

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

K = TypeVar("K")
Labels = Mapping[str, str]
Sample = tuple[Labels, float]


class Parts(Struct, frozen=True, kw_only=True):
    """What is watched: the agents by their names, the gateways of their channels, and what came over HTTP.

    `missing` are the names of agents that are to run and do not.
    """

    agents: Mapping[str, App]
    missing: Collection[str] = ()
    gateways: Sequence[Gateway] = ()
    http: Traffic
    began: float

    def loads(self) -> Mapping[str, Load]:
        """What each agent's store has to write; one in memory has nothing to say."""
        found = {name: app.sessions.load() for name, app in self.agents.items()}
        return {name: load for name, load in found.items() if load is not None}


def rendered(parts: Parts) -> str:
    """Everything, as Prometheus reads it."""
    page = _Page()
    page.gauge("nacre_build_info", "Version of nacre and of Python.", [(_build(), 1)])
    page.gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", [({}, parts.began)])
    _messages(page, [*(gateway.traffic for gateway in parts.gateways), parts.http])
    _channels(page, parts.gateways)
    _agents(page, parts.agents)
    _stores(page, parts.loads())
    return page.text()


def channels(gateways: Sequence[Gateway]) -> Mapping[str, bool]:
    """Every channel and whether it is up; one that several agents have is up if it is for all of them."""
    found: dict[str, bool] = {}
    for gateway in gateways:
        for name, is_up in gateway.channels.items():
            found[name] = is_up and found.get(name, True)
    return found


def _build() -> Labels:
    return {"version": nacre.__version__, "python": platform.python_version()}


def _messages(page: _Page, traffic: Sequence[Traffic]) -> None:
    def by_channel(counters: Iterable[Counter[str]]) -> list[Sample]:
        return [({"channel": channel}, count) for channel, count in sorted(_sum(counters).items())]

    accepted, answered, failed = (
        by_channel(getattr(one, what) for one in traffic) for what in ("accepted", "answered", "failed")
    )
    refused = sorted(_sum(one.refused for one in traffic).items())
    page.counter("nacre_messages_accepted_total", "Messages that were accepted.", accepted)
    page.counter("nacre_messages_answered_total", "Messages whose answer was delivered.", answered)
    page.counter(
        "nacre_messages_failed_total",
        "Messages that could not be answered because the model or the store failed.",
        failed,
    )
    page.counter(
        "nacre_messages_refused_total",
        "Messages that were rejected: sender not allowed, rate limit, or full queue.",
        [({"channel": channel, "reason": reason}, count) for (channel, reason), count in refused],
    )
    durable = _joined([one.durable for one in traffic])
    page.histogram(
        "nacre_message_durable_seconds", "Time from the arrival of a message until it is on disk.", [({}, durable)]
    )


def _channels(page: _Page, gateways: Sequence[Gateway]) -> None:
    samples = [({"channel": name}, int(is_up)) for name, is_up in channels(gateways).items()]
    page.gauge("nacre_channel_up", "1 if a channel runs and accepted the last answer.", samples)
    waiting = sum(gateway.open for gateway in gateways)
    page.gauge("nacre_inbox_open", "Messages whose answer is not delivered yet.", [({}, waiting)])


def _agents(page: _Page, agents: Mapping[str, App]) -> None:
    named = [({"agent": name}, app) for name, app in agents.items()]
    page.gauge("nacre_actors", "Sessions that are loaded.", [(of, len(app.kernel)) for of, app in named])
    page.gauge("nacre_turns_running", "Turns that are running.", [(of, app.work.running) for of, app in named])
    page.histogram("nacre_turn_seconds", "Duration of turns.", [(of, app.work.turns) for of, app in named])
    requests = [({**of, "model": model}, n) for of, app in named for model, n in app.work.requests.items()]
    page.counter("nacre_model_requests_total", "Requests to a model.", requests)
    errors = [
        ({**of, "model": model, "error": error}, n)
        for of, app in named
        for (model, error), n in app.work.errors.items()
    ]
    page.counter("nacre_model_errors_total", "Requests that failed.", errors)
    tokens = [
        ({**of, "model": model, "direction": direction}, n)
        for of, app in named
        for direction, counted in (("in", app.work.tokens_in), ("out", app.work.tokens_out))
        for model, n in counted.items()
    ]
    page.counter("nacre_model_tokens_total", "Tokens sent to a model and received from it.", tokens)


def _stores(page: _Page, loads: Mapping[str, Load]) -> None:
    named = [({"agent": name}, load) for name, load in loads.items()]
    page.gauge("nacre_logs_open", "Logs of sessions that are open for writing.", [(of, one.open) for of, one in named])
    batches = [(of, one.batches) for of, one in named]
    page.counter("nacre_store_batches_total", "Batches written, each with one flush.", batches)
    unsound = [(of, one.unsound) for of, one in named]
    page.gauge("nacre_logs_unsound", "Logs whose last flush failed and that could not be moved to a new file.", unsound)


# ---- numbers together


def _sum(counters: Iterable[Counter[K]]) -> Counter[K]:
    found: Counter[K] = Counter()
    for counter in counters:
        found.update(counter)
    return found


def _joined(spreads: Sequence[Spread]) -> Spread:
    """Spreads over the same bounds, as one."""
    found = Spread(SHORT)
    found.counts = [sum(counts) for counts in zip(*(one.counts for one in spreads), strict=True)]
    found.sum = sum(one.sum for one in spreads)
    return found


# ---- the text format


class _Page:
    """Families of samples, one line each."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, help: str, samples: Iterable[Sample]) -> None:
        self._family(name, "gauge", help)
        self._lines += [_line(name, labels, value) for labels, value in samples]

    def counter(self, name: str, help: str, samples: Iterable[Sample]) -> None:
        self._family(name, "counter", help)
        self._lines += [_line(name, labels, value) for labels, value in samples]

    def histogram(self, name: str, help: str, samples: Iterable[tuple[Labels, Spread]]) -> None:
        self._family(name, "histogram", help)
        for labels, spread in samples:
            total = 0
            for bound, count in zip((*map(_number, spread.bounds), "+Inf"), spread.counts, strict=True):
                total += count
                self._lines.append(_line(f"{name}_bucket", {**labels, "le": bound}, total))
            self._lines += [_line(f"{name}_sum", labels, spread.sum), _line(f"{name}_count", labels, total)]

    def text(self) -> str:
        return "".join(self._lines)

    def _family(self, name: str, kind: str, help: str) -> None:
        self._lines.append(f"# HELP {name} {help}\n# TYPE {name} {kind}\n")


def _line(name: str, labels: Labels, value: float) -> str:
    written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{written}}} {_number(value)}\n" if written else f"{name} {_number(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else repr(float(value))
