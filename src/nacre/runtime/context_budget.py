"""How many tokens a request to a model may have: what is configured, what its server takes, and how it counts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from nacre.agent.ports import Context, Emit, Provider, Reply
from nacre.errors import ContextOverflow
from nacre.history.tokens import ByScript, Calibration, ContextSizes
from nacre.runtime.counters import ProviderWrapper
from nacre.user_files import locked, state_folder, write_whole

S = TypeVar("S", bound=Struct)

_REPLY_SHARE = 8
_MIN_TOKENS = 256
_MARGIN = 1.15
_MAX_MIXES = 1024
_USUAL_MIX: ByScript = {"latin": 1}
_MIN_WINDOW, _MAX_WINDOW = 128, 100_000_000
_MAX_AGE = 24 * 60 * 60
"""Seconds until a window is asked for again: somebody may have started the server with another one."""
_MAX_MODELS = _MAX_REPORTS = 64
_NEWS = 0.05
"""By how much a ratio must differ from the stored one to be worth a write."""

_NUMBER = r"(\d[\d,_]*)"
# How servers tell the tokens that they take at most; the first that matches counts.
_WINDOW = tuple(
    re.compile(pattern.replace("#", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"> # ?(?:tokens|maximum)?",  # Anthropic: 210000 tokens > 200000 maximum; 190000 + 20000 > 200000
        r"maximum context length (?:is|of) #",  # OpenAI, vLLM
        r"maximum model length (?:is|of) #",  # vLLM
        r"n_ctx\D{1,4}#",  # llama.cpp
        r"context (?:size|length|window) \(# tokens\)",  # llama.cpp
        r"context length (?:is|of)(?: only)? #",  # LM Studio, Ollama
        r"(?:configured )?limit of # tokens",  # OpenAI
        r"tokens allowed \(#\)",  # Gemini
        r"maximum prompt length is #",  # xAI
    )
)
# How they tell the tokens of the request.
_REQUEST = tuple(
    re.compile(pattern.replace("#", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"\(# in the messages",  # OpenAI, vLLM
        r"resulted in # tokens",  # OpenAI
        r"# \+ [\d,_]+ >",  # Anthropic, with the reply
        r"# (?:tokens )?>",  # Anthropic
        r"n_prompt_tokens\D{1,4}#",  # llama.cpp
        r"request \(# tokens\)",  # llama.cpp
        r"prompt \(length #\)",  # vLLM
        r"token count \(#\)",  # Gemini
        r"request contains # tokens",  # xAI
        r"requested # tokens",  # OpenAI, vLLM
    )
)


class Sizes(NamedTuple):
    """What a server says of a request that it refused: its tokens, and how many would be taken; 0 if it does not."""

    request: int = 0
    window: int = 0


def sizes_in(refusal: str) -> Sizes:
    """Read the sizes in a server's own words; see the patterns above for whose words are known."""
    window = _first(_WINDOW, refusal)
    return Sizes(_first(_REQUEST, refusal), window if _MIN_WINDOW <= window <= _MAX_WINDOW else 0)


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> int:
    found = next((match for pattern in patterns if (match := pattern.search(text))), None)
    return int(re.sub(r"\D", "", found[1])) if found else 0


# ---- what was found of models, kept between runs


class Known(Struct, frozen=True, kw_only=True):
    """The window of a model in its own tokens, and when that was found."""

    tokens: int
    at: float = 0.0


class Windows:
    """What servers were found to take, by the name of the model, so that the next process need not be refused.

    In a file that may be deleted at any time; without a path, only in RAM.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = _read(path, Known)

    @classmethod
    def usual(cls) -> Windows:
        """Those of this user."""
        return cls(Path(state_folder()) / "windows.json")

    def of(self, name: str) -> Known | None:
        """What was found of a model within the last day."""
        known = self._known.get(name)
        return known if known is not None and 0 <= time.time() - known.at < _MAX_AGE else None

    def remember(self, name: str, found: Known) -> None:
        """Keep what was found; a file that cannot be written costs a refusal in the next process, no more."""
        fresh = msgspec.structs.replace(found, at=time.time())
        self._known[name] = fresh
        if self._path is not None:
            with suppress(OSError), locked(self._path.parent):
                write_whole(self._path, msgspec.json.encode({**_read(self._path, Known), name: fresh}))


class _Stored(Struct, frozen=True, kw_only=True):
    calibration: Calibration
    at: float


class _Report(NamedTuple):
    model: str
    sizes: ByScript
    tokens: int
    is_exact: bool

    def apply(self, calibration: Calibration) -> Calibration:
        learn = calibration.correct if self.is_exact else calibration.learn
        return learn(self.sizes, self.tokens)


class Calibrations:
    """How models were found to count tokens, in a file that may be deleted or damaged at any time.

    Several processes may learn at once: what each has learned is applied to what is in the file by then. Without a
    path, only in RAM.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {model: stored.calibration for model, stored in _read(path, _Stored).items()}
        self._written = dict(self._known)
        self._reports: list[_Report] = []

    @classmethod
    def usual(cls) -> Calibrations:
        """Those of this user."""
        return cls(Path(state_folder()) / "calibrations.json")

    def of(self, model: str) -> Calibration:
        """What is known of a model."""
        return self._known.get(model, Calibration())

    def learn(self, model: str, sizes: ByScript, tokens: int, *, is_exact: bool = False) -> None:
        """Take in how many tokens a model reported for a request; `is_exact` for one that it refused as too long."""
        report = _Report(model, sizes, tokens, is_exact)
        before = self.of(model)
        after = report.apply(before)
        if after is not before:
            self._known[model] = after
            self._reports = [*self._reports[1 - _MAX_REPORTS :], report]

    @property
    def has_news(self) -> bool:
        """Tell whether something was learned that is worth a write: a script is counted noticeably otherwise."""
        for model in {report.model for report in self._reports}:
            now, written = self.of(model), self._written.get(model, Calibration())
            if any(abs(now.ratio({name: 1}) - written.ratio({name: 1})) > _NEWS for name in now.ratios):
                return True
        return False

    def save(self) -> None:
        """Store what was learned; a file that cannot be written costs the next process some accuracy, no more."""
        reports, self._reports = self._reports, []
        if self._path is not None:
            with suppress(OSError), locked(self._path.parent):
                stored, now = _read(self._path, _Stored), time.time()
                for report in reports:
                    before = stored[report.model].calibration if report.model in stored else Calibration()
                    stored[report.model] = _Stored(calibration=report.apply(before), at=now)
                newest = sorted(stored, key=lambda model: stored[model].at)[-_MAX_MODELS:]
                write_whole(self._path, msgspec.json.encode({model: stored[model] for model in newest}))
                self._known.update((report.model, stored[report.model].calibration) for report in reports)
        self._written = dict(self._known)


def _read(path: Path | None, kind: type[S]) -> dict[str, S]:
    """The values in a file by name; a damaged file is as none."""
    # A text that is not UTF-8 is a ValueError.
    with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, kind]) if path is not None else {}  # type: ignore[valid-type] # a type that is given
    return {}


# ---- the budget


class Budget:
    """The room that models have; what servers report and refuse makes it better known.

    `name` tells models apart, also where they have the same name on two servers. What was learned from a refusal is
    kept in `windows`, and how each model counts in `calibrations`, so that the next process need not learn it again.

    A model counts each script otherwise. So what a session's requests are estimated by is what its last one was made
    of, before the first one what `mix` tells of its key.
    """

    def __init__(
        self,
        tokens: int,
        *,
        windows: Windows | None = None,
        calibrations: Calibrations | None = None,
        name: Callable[[Provider], str] = lambda one: one.model,
        mix: Callable[[str], ByScript] = lambda _: _USUAL_MIX,
    ) -> None:
        self._tokens, self._name, self._first_mix = tokens, name, mix
        self._windows, self.calibrations = windows or Windows(None), calibrations or Calibrations(None)
        self._sizes = ContextSizes()
        self._mixes: dict[str, ByScript] = {}
        self._refused: dict[str, int] = {}
        self._accepted: dict[str, int] = {}

    def limit(self, provider: Provider) -> int:
        """The tokens that a request and its reply should have: what is configured, or less if the model takes less."""
        window = self.window(provider)
        return self._tokens if window is None else min(self._tokens, window)

    def window(self, provider: Provider) -> int | None:
        """The tokens that the model takes, its reply included; None if nobody said so far."""
        known = self._windows.of(self._name(provider))
        said = [getattr(provider, "context_size", None), known.tokens if known is not None else None]
        return min((size for size in said if size), default=None)

    def reply(self, provider: Provider) -> int:
        """The tokens that are kept free for the reply."""
        return self.limit(provider) // _REPLY_SHARE

    def room(self, provider: Provider, key: str = "") -> int:
        """The estimated tokens that a request of a session should have, without its reply."""
        return self._estimate(provider, self.limit(provider) - self.reply(provider), key)

    def capacity(self, provider: Provider, key: str = "") -> int | None:
        """The estimated tokens that a request of a session can have, without its reply; None if that is not known."""
        window, accepted = self.window(provider), self._accepted.get(self._name(provider))
        return accepted if window is None else self._estimate(provider, window - window // _REPLY_SHARE, key)

    def calibration(self, provider: Provider) -> Calibration:
        """How the model counts, by script: sizes in its own tokens."""
        return self.calibrations.of(self._name(provider))

    def _estimate(self, provider: Provider, tokens: int, key: str) -> int:
        found = int(tokens / self._ratio(provider, key))
        # A server that says no more than that it was too much: what it took is remembered while we run.
        return max(min(found, self._accepted.get(self._name(provider), found)), _MIN_TOKENS)

    def tokens(self, provider: Provider, estimated: int, key: str = "") -> int:
        """An estimate of a part of a session's request in the model's own tokens."""
        return round(estimated * self._ratio(provider, key))

    def _ratio(self, provider: Provider, key: str) -> float:
        calibration = self.calibration(provider)
        # A model that nothing is known of counts every mix alike.
        if not calibration.ratios:
            return 1.0
        if key not in self._mixes:
            # It reads a part of the session: once, not for each question about its room.
            self._remember(key, self._first_mix(key))
        return calibration.ratio(self._mixes[key])

    def watch(self, provider: Provider, key: str | None = None) -> Provider:
        """The same provider, from which the budget learns; for a session's own requests with its key."""
        return _Watched(provider, self, key)

    def learn(self, provider: Provider, context: Context, reply: Reply, key: str | None = "") -> None:
        """Take in what a provider reports of a request."""
        name, sizes = self._name(provider), self._sizes(context)
        size = sum(sizes.values())
        if size < self._refused.pop(name, 0):
            self._accepted[name] = size
        self._remember(key, sizes)
        if reply.usage is not None:
            self.calibrations.learn(name, sizes, reply.usage.prompt)

    def learn_refusal(self, provider: Provider, context: Context, refusal: str, key: str | None = "") -> None:
        """Take in what a server said when it refused a request as too long."""
        name, sizes, said = self._name(provider), self._sizes(context), sizes_in(refusal)
        self._remember(key, sizes)
        if not said.window:
            self._refused[name] = max(sum(sizes.values()), 1)
            return
        # How it counts: by its own number, else at least so much that this request did not fit.
        least = max(self.calibration(provider).tokens(sizes), round(_MARGIN * said.window))
        self.calibrations.learn(name, sizes, said.request or least, is_exact=True)
        self._windows.remember(name, Known(tokens=said.window))

    def _remember(self, key: str | None, sizes: ByScript) -> None:
        if key is not None:
            if len(self._mixes) >= _MAX_MIXES:
                self._mixes.clear()
            self._mixes[key] = sizes


class _Watched(ProviderWrapper):
    def __init__(self, inner: Provider, budget: Budget, key: str | None) -> None:
        super().__init__(inner)
        self._budget, self._key = budget, key

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        try:
            reply = await super().complete(context, emit=emit)
        except ContextOverflow as error:
            self._budget.learn_refusal(self._inner, context, str(error), self._key)
            await self._save()
            raise
        self._budget.learn(self._inner, context, reply, self._key)
        await self._save()
        return reply

    async def _save(self) -> None:
        """Store what was learned, if it is worth it; the reply is not lost if somebody cancels meanwhile."""
        if self._budget.calibrations.has_news:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._budget.calibrations.save)
