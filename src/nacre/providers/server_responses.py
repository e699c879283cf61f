"""What the servers of models send: streams, cut into the pieces of an answer, and failures, with their reason."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

from nacre.errors import ModelUnavailable, ProviderError, RateLimited, ServerFailed

TOO_LARGE = 413
TOO_MANY = 429
_MAX_PAGE = 10_000
MAX_LINE = 64 * 1024 * 1024
DONE: dict[str, Any] = {}
"""What OpenAI's `[DONE]` is taken as."""
_BOM = b"\xef\xbb\xbf"
_EVENT_FIELD = re.compile(rb"\s*+(?:data|event|id|retry|error)?(?::|\Z)")

# How servers say that a request is too long; each has its own words.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large"  # OpenAI, llama.cpp, Anthropic: by name
    r"|maximum context length|maximum model length|too long to fit into the model"  # OpenAI, vLLM
    r"|exceeds the (available )?context (size|window|length)|context[ _]length[ _]exceeded"  # llama.cpp, OpenAI, Ollama
    r"|prompt (is )?too long|input is too long for|input token count.*exceeds the maximum"  # Anthropic, Bedrock, Gemini
    r"|maximum prompt length is|reduce the length of the messages|greater than the context length",  # xAI, Groq, …
    re.IGNORECASE,
)


class Failure(Exception):
    """What a server answered instead of a completion; `can_retry`: the same request may succeed later."""

    def __init__(  # noqa: PLR0913 - each is one thing that servers say about a failure
        self,
        message: str,
        *,
        status: int = 0,
        kind: str = "",
        can_retry: bool = False,
        wait: float | None = None,
        generation: str = "",
    ) -> None:
        """`generation` is what the model wrote, where the server refused to pass it on."""
        super().__init__(message)
        self.message, self.status, self.kind, self.can_retry, self.wait = message, status, kind, can_retry, wait
        self.generation = generation

    @property
    def overflow(self) -> bool:
        """Whether the request had more than the model can take."""
        return self.status == TOO_LARGE or bool(_OVERFLOW.search(f"{self.kind} {self.message}"))

    def error(self, sentence: str) -> ProviderError:
        """The error that it is for the caller, with a sentence about it."""
        # Would any request be answered now? Server down or overloaded, key refused, model not there.
        is_unavailable = self.can_retry or self.status in {0, 401, 402, 403, 404}
        if self.overflow or not is_unavailable:
            return ProviderError(sentence)
        if self.status == TOO_MANY:
            return RateLimited(sentence, wait=self.wait)
        is_answer = self.kind != "unreachable" and self.status not in {401, 402, 403, 404}
        return ServerFailed(sentence) if is_answer else ModelUnavailable(sentence)


def read_failure(value: Any, *, status: int, can_retry: bool = False, wait: float | None = None) -> Failure:
    """Read an error's JSON value, in any of the shapes that servers use."""
    kind, message = _reason(value)
    error = value.get("error") if isinstance(value, dict) else None
    generation = error.get("failed_generation") if isinstance(error, dict) else None
    text = generation if isinstance(generation, str) else ""
    return Failure(message, status=status, kind=kind, can_retry=can_retry, wait=wait, generation=text)


def not_json(body: bytes) -> Failure:
    """The failure of a server that sends words or a page instead of JSON; most often it is another server."""
    if not body.lstrip().startswith(b"<"):
        return Failure(f"sent something that is not JSON: {body[:80]!r}")
    text = " ".join(_page_text(body.decode(errors="replace")).split())
    return Failure(f"sent a page instead of an answer: {text[:200]!r}; check the address")


def _reason(value: Any) -> tuple[str, str]:
    """Find kind and words of an error: `error` or `detail` may hold text, an object, or JSON once more as text."""
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            with suppress(ValueError, RecursionError):
                return _reason(json.loads(value))
        return "", _page_text(value) if value.lstrip().startswith("<") else value
    if not isinstance(value, dict):
        return "", _json_text(value)
    for key in ("error", "detail"):
        if value.get(key):
            return _reason(value[key])
    kinds = (value.get(key) for key in ("code", "type"))
    kind = " ".join(text for text in kinds if isinstance(text, str))
    message = value.get("message") or value
    message = message if isinstance(message, str) else _json_text(message)
    # llama.cpp has the sizes of a context that is too long next to its message.
    detail = ", ".join(f"{name}: {value[name]}" for name in ("n_prompt_tokens", "n_ctx") if name in value)
    # OpenRouter's own message leaves out what the server said that it passed the request to.
    metadata = value.get("metadata")
    if not detail and isinstance(metadata, dict) and metadata.get("raw"):
        detail, name = _reason(metadata["raw"])[1], metadata.get("provider_name")
        detail = f"{name}: {detail}" if isinstance(name, str) and name else detail
    return kind, f"{message} ({detail})" if detail else message


def _page_text(page: str) -> str:
    """The words at the beginning of a page, without its tags, scripts and styles."""
    tags = r"<(script|style)\b.*?</\1>|<[^>]*>"
    return re.sub(tags, " ", page[:_MAX_PAGE], flags=re.DOTALL | re.IGNORECASE)


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "an error that is nested too deep"


# ---- streams: lines of JSON, server-sent events, or neither


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Cut bytes into lines at LF, CR or both; a byte order mark in front is left out.

    A character may be split between chunks, and U+2028 ends no line of JSON: nothing is decoded here.
    """
    rest, is_first, is_after_cr = b"", True, False
    async for chunk in chunks:
        # A line feed after a carriage return of the chunk before is the rest of one line end.
        new = chunk.removeprefix(b"\n") if is_after_cr else chunk
        is_after_cr = chunk.endswith(b"\r") if chunk else is_after_cr
        if not new:
            continue
        *whole, rest = (rest + new).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield line.removeprefix(_BOM) if is_first else line
            is_first = False
        if len(rest) > MAX_LINE:
            raise Failure(f"sent a line of more than {MAX_LINE} bytes")
    if rest:
        yield rest.removeprefix(_BOM) if is_first else rest


async def documents(whole: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """NDJSON: each line that is not empty is a document; what does not begin with one is given whole."""
    has_begun = False
    async for line in whole:
        if not line.strip():
            continue
        if not has_begun:
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                yield await _gather(line, whole)
                return
        has_begun = True
        yield line


async def events(whole: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Server-sent events: the data of each, and what llama.cpp sends as a field `error`.

    A body that begins with something else is not a stream of events, and is given whole: it is the answer in
    one piece, an error, or a page of some server in between.
    """
    data: list[bytes] = []
    has_begun = False
    async for line in whole:
        if not has_begun and line.strip():
            has_begun = True
            if not _EVENT_FIELD.match(line):
                yield await _gather(line, whole)
                return
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"error":
            yield b'{"error":%b}' % value
        elif not line and data:
            yield b"\n".join(data)
            data = []
    if data:
        yield b"\n".join(data)


async def _gather(first: bytes, rest: AsyncIterator[bytes]) -> bytes:
    """The lines of a body in one piece."""
    found, size = [first], len(first)
    async for line in rest:
        found.append(line)
        size += len(line)
        if size > MAX_LINE:
            raise Failure(f"sent more than {MAX_LINE} bytes that are not a stream")
    return b"\n".join(found).strip()


def parse_piece(piece: bytes) -> dict[str, Any]:
    """Read one piece; raises Failure if it is not a JSON object."""
    if piece.strip() == b"[DONE]":
        return DONE
    try:
        value = json.loads(piece)
    except (ValueError, RecursionError) as error:
        raise not_json(piece) from error
    if not isinstance(value, dict):
        raise Failure(f"sent {piece[:80]!r} where an object was expected")
    return value
