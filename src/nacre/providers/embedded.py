"""A tiny model inside this process: llama.cpp, and weights that are installed as a package."""

from __future__ import annotations

import importlib.util
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec
from anyio.streams.memory import MemoryObjectSendStream
from msgspec import Struct

from nacre.agent.ports import Context, Emit, Reply, Spec, Text, Usage
from nacre.errors import ContextOverflow, ProviderError
from nacre.messages import Message
from nacre.providers import weights
from nacre.providers.text_tools.provider import TextToolProvider, call_schema
from nacre.providers.weights import MISSING, NAME, RUNTIME
from nacre.providers.wire import system_first

# Small batches, so that a cancelled request ends soon, also while a long prompt is still being read.
_BATCH = 64
_MAX_THREADS = 4
ALL_CORES, AUTOMATIC = 0, -1
"""Values of `threads`: one per core, or one per core that is idle when the model is loaded."""
_SAMPLE_SECONDS = 0.15
# Either one whole call or plain text; the first character decides. Text may end wherever the model wants it to.
_GRAMMAR = """\
%llguidance {{}}
start: call | text
call: "<tool_call>\\n" body "\\n</tool_call>"
body: %json {schema}
text: /[^<](.|\\n)*/ <|im_end|>
"""

Serve = Callable[[dict[str, Any], Callable[[dict[str, Any]], bool]], object]


class Settings(Struct, frozen=True, kw_only=True):
    """How the model runs: its context window and the longest answer, in tokens; `threads`, see AUTOMATIC."""

    context_size: int = 4096
    max_tokens: int = 512
    threads: int = AUTOMATIC
    temperature: float = 0.2
    path: str = ""


class Embedded:
    """llama.cpp in this process; the model is loaded by the first request.

    One request runs at a time; the others wait. A request that is cancelled ends the model's work on it.
    """

    model = NAME
    is_local = True

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        # The context window in tokens, which the answer is part of.
        self.context_size = self._settings.context_size
        self._turn = anyio.Lock()
        self._server: Any = None

    async def close(self) -> None:
        """Free the model's memory, once nobody uses it."""
        async with self._turn:
            # The thread drops the last reference, for freeing it takes a while.
            last, self._server = [self._server], None
            if last[0] is not None:
                await anyio.to_thread.run_sync(last.clear)

    async def complete(self, context: Context, *, emit: Emit) -> Reply:
        """Answer with text or a call; raises ContextOverflow where the context is too long for the model."""
        # The tools are in the text by then; a grammar lets the model call only these, and only rightly.
        inner: Any = SimpleNamespace(complete=partial(self._answer, tools=context.tools))
        return await TextToolProvider(inner, brief=True).complete(context, emit=emit)

    async def _answer(self, context: Context, *, emit: Emit, tools: Sequence[Spec]) -> Reply:
        async with self._turn:
            if self._server is None:
                self._server = await anyio.to_thread.run_sync(load, self._settings)
            request = body(context, tools, self._settings)
            return await run_request(self._server.handle_chat_completions, request, emit)


# ---- loading


def load(settings: Settings) -> Any:
    """Load the model, which takes about a second; raises ProviderError where something is missing."""
    if importlib.util.find_spec(RUNTIME) is None:
        raise ProviderError(MISSING.format(f"llama.cpp (package {RUNTIME!r})"))
    path = settings.path or weights.path()
    xllamacpp = importlib.import_module(RUNTIME)
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {NAME}
    params.n_ctx = settings.context_size
    params.n_batch = params.n_ubatch = _BATCH
    params.n_parallel = 1
    params.ctx_shift = False
    params.verbosity = -1
    # It listens on a loopback port whether one wants it or not; nobody else shall use it.
    params.api_keys = [secrets.token_hex(32)]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = count_threads(settings.threads)
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError, OSError) as error:
        problem = f"the embedded model cannot be loaded from {path!r}: {error}; run `nacre setup embedded` again"
        raise ProviderError(problem) from error


def count_threads(wanted: int) -> int:
    """How many threads to compute with.

    The threads of llama.cpp spin while they wait for each other, after every layer. On cores that others use too, each
    waits for one that is not running: one thread is then several times faster than two.
    """
    if wanted > 0:
        return wanted
    cores = min(_MAX_THREADS, os.cpu_count() or 1)
    if wanted == ALL_CORES or cores == 1:
        return cores
    before = _idle_seconds()
    time.sleep(_SAMPLE_SECONDS)
    idle = (_idle_seconds() - before) / _SAMPLE_SECONDS
    # The tenth: the sample is short, and a core that does nothing else is still woken now and then.
    return max(1, min(cores, int(idle + 0.1)))


def _idle_seconds() -> float:
    """The idle time of all cores together since the system started; where it is not known, none passes."""
    try:
        return float(Path("/proc/uptime").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0


def body(context: Context, tools: Sequence[Spec], settings: Settings) -> dict[str, Any]:
    """The request for a context; with tools, under the grammar of their calls."""
    messages = system_first(context)
    for message in context.messages:
        parts = message.content if isinstance(message.content, list) else [{"text": message.content or ""}]
        text = "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)
        messages.append({"role": message.role, "content": text})
    found: dict[str, Any] = {
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": 0.9,
        # Without it so small a model says the same sentence to the end of its answer.
        "repeat_penalty": 1.2,
    }
    if tools:
        schema = {"anyOf": [call_schema(tool) for tool in tools]}
        found["grammar"] = _GRAMMAR.format(schema=msgspec.json.encode(schema).decode())
    return found


# ---- one request


async def run_request(serve: Serve, request: dict[str, Any], emit: Emit) -> Reply:
    """Run a request in a thread and take its pieces here; where this is cancelled, the thread is stopped too."""
    stop = threading.Event()
    send, receive = anyio.create_memory_object_stream[dict[str, Any]](float("inf"))
    texts: list[str] = []
    counts: dict[str, Any] = {}
    problem: dict[str, Any] | None = None
    is_cut, id = False, ""
    async with anyio.create_task_group() as group:
        group.start_soon(_serve, serve, request, send, stop)
        try:
            async for piece in receive:
                problem = piece.get("error", problem)
                counts, id = (piece["usage"], piece.get("id", "")) if piece.get("usage") else (counts, id)
                for choice in piece.get("choices", ()):
                    if text := choice["delta"].get("content"):
                        texts.append(text)
                        emit(Text(text))
                    is_cut = is_cut or choice.get("finish_reason") == "length"
        finally:
            stop.set()
            receive.close()
    if problem is not None:
        reason = problem.get("message") or str(problem)
        if problem.get("type") == "exceed_context_size_error":
            raise ContextOverflow(f"the context is too long for {NAME}: {reason}")
        raise ProviderError(f"the embedded model failed: {reason}")
    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    prompt, completion = counts.get("prompt_tokens", 0), counts.get("completion_tokens", 0)
    usage = Usage(prompt=prompt, completion=completion, cached=cached, request=id) if counts else None
    message = Message(role="assistant", content="".join(texts), model=NAME)
    return Reply(message=message, usage=usage, finish="length" if is_cut else "stop")


async def _serve(
    serve: Serve, request: dict[str, Any], send: MemoryObjectSendStream[dict[str, Any]], stop: threading.Event
) -> None:
    def put(piece: dict[str, Any]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            send.send_nowait(piece)

    def pass_on(piece: dict[str, Any]) -> bool:
        """Pass on a piece; what it returns says whether to stop."""
        if not stop.is_set():
            anyio.from_thread.run_sync(put, piece)
        return stop.is_set()

    try:
        # Not abandoned when cancelled: the next request finds the model free.
        await anyio.to_thread.run_sync(serve, request, pass_on)
    except (RuntimeError, ValueError) as error:
        put({"error": {"message": str(error)}})
    finally:
        send.close()
