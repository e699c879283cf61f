"""What servers say when they fail: read in every shape, with the reason in words."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from nacre.errors import ModelUnavailable, ProviderError, RateLimited, ServerFailed

TOO_LARGE = 413
TOO_MANY = 429
_LONGEST_PAGE = 10_000

# How servers say that they were shown too much; each has its own words.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large"  # OpenAI, llama.cpp, Anthropic: by name
    r"|maximum context length|maximum model length|too long to fit into the model"  # OpenAI, vLLM
    r"|exceeds the (available )?context (size|window|length)|context[ _]length[ _]exceeded"  # llama.cpp, OpenAI, Ollama
    r"|prompt (is )?too long|input is too long for|input token count.*exceeds the maximum"  # Anthropic, Bedrock, Gemini
    r"|maximum prompt length is|reduce the length of the messages|greater than the context length",  # xAI, Groq, …
    re.IGNORECASE,
)


class Failure(Exception):
    """What a server answered instead of a completion; `again`: the same request may succeed later."""

    def __init__(  # noqa: PLR0913 - each is one thing that servers say about a failure
        self,
        message: str,
        *,
        status: int = 0,
        kind: str = "",
        again: bool = False,
        wait: float | None = None,
        generation: str = "",
    ) -> None:
        """`generation` is what the model wrote, where the server refused to pass it on."""
        super().__init__(message)
        self.message, self.status, self.kind, self.again, self.wait = message, status, kind, again, wait
        self.generation = generation

    @property
    def overflow(self) -> bool:
        """Whether the server was shown more than its model can take."""
        return self.status == TOO_LARGE or bool(_OVERFLOW.search(f"{self.kind} {self.message}"))

    @property
    def unavailable(self) -> bool:
        """Whether no request would be answered now: server down or overloaded, key refused, model not there."""
        return not self.overflow and (self.again or self.status in {0, 401, 402, 403, 404})

    def error(self, sentence: str) -> ProviderError:
        """The error that it is for the caller, told in a sentence."""
        if not self.unavailable:
            return ProviderError(sentence)
        if self.status == TOO_MANY:
            return RateLimited(sentence, wait=self.wait)
        is_answer = self.kind != "unreachable" and self.status not in {401, 402, 403, 404}
        return ServerFailed(sentence) if is_answer else ModelUnavailable(sentence)


def refused(value: Any, *, status: int, again: bool = False, wait: float | None = None) -> Failure:
    """Read an error's JSON value, in any of the shapes that servers use."""
    kind, message = _reason(value)
    error = value.get("error") if isinstance(value, dict) else None
    generation = error.get("failed_generation") if isinstance(error, dict) else None
    said = generation if isinstance(generation, str) else ""
    return Failure(message, status=status, kind=kind, again=again, wait=wait, generation=said)


def not_json(body: bytes) -> Failure:
    """The failure of a server that sends words or a page instead of JSON; most often it is another server."""
    if not body.lstrip().startswith(b"<"):
        return Failure(f"sent something that is not JSON: {body[:80]!r}")
    said = " ".join(_page_text(body.decode(errors="replace")).split())
    return Failure(f"sent a page instead of an answer: {said[:200]!r}; check the address")


def _reason(value: Any) -> tuple[str, str]:
    """Find kind and words of an error: `error` or `detail` may hold text, an object, or JSON once more as text."""
    if isinstance(value, str):
        return _reason_in_text(value)
    if not isinstance(value, dict):
        return "", _json_text(value)
    for key in ("error", "detail"):
        if value.get(key):
            return _reason(value[key])
    kinds = (value.get(key) for key in ("code", "type"))
    kind = " ".join(text for text in kinds if isinstance(text, str))
    message = value.get("message") or value
    message = message if isinstance(message, str) else _json_text(message)
    # llama.cpp has the sizes of a context that is too long beside its message.
    sizes = ", ".join(f"{name}: {value[name]}" for name in ("n_prompt_tokens", "n_ctx") if name in value)
    return kind, f"{message} ({sizes})" if sizes else message + _cause(value.get("metadata"))


def _cause(metadata: Any) -> str:
    """What the server behind OpenRouter said, which its own message leaves out."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not raw:
        return ""
    said, name = _reason(raw)[1], metadata.get("provider_name")
    return f" ({name}: {said})" if isinstance(name, str) and name else f" ({said})"


def _reason_in_text(text: str) -> tuple[str, str]:
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return _reason(json.loads(text))
    return "", _page_text(text) if text.lstrip().startswith("<") else text


def _page_text(page: str) -> str:
    """The words at the beginning of a page, without its tags, scripts and styles."""
    tags = r"<(script|style)\b.*?</\1>|<[^>]*>"
    return re.sub(tags, " ", page[:_LONGEST_PAGE], flags=re.DOTALL | re.IGNORECASE)


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "an error that is nested too deep"
