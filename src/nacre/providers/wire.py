"""What goes over the wire to and from model servers, in whatever format: calls, content, answers, failures, streams."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Context, Emit, Reply, Spec, Text, Thought, Usage
from nacre.client_shapes import describe_bytes, image_url
from nacre.codec import plain_json
from nacre.errors import InvalidMessage, ModelUnavailable, ProviderError, RateLimited, ServerFailed
from nacre.messages import Message, ToolCall

_MAX_TOKENS = 2**53
_IMAGES_OF_RESULTS = {"type": "text", "text": "[images of the results above]"}
_NOT_FOR_CHAT = ("embed", "minilm", "bge-", "rerank", "whisper", "tts", "dall-e", "image", "moderation")
# First match wins; the name is what follows the last slash, as in `openai/gpt-4o`.
_WINDOWS = (
    (r"gpt-oss", 131_072),
    (r"gpt-5-chat", 128_000),
    (r"gpt-[5-9]", 400_000),
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-4\.5|gpt-4o|chatgpt-4o|gpt-4-turbo|gpt-4-\d{4}-preview", 128_000),
    (r"gpt-4-32k", 32_768),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5-turbo-instruct", 4_096),
    (r"gpt-3\.5", 16_385),
    (r"o1-(mini|preview)", 128_000),
    (r"o[1-9]", 200_000),
    (r"claude-(instant|2\.0)", 100_000),
    (r"claude", 200_000),
)


# ---- tool calls


def arguments_of(raw: Any) -> dict[str, Any] | str:
    """A model's arguments as an object; the text they came as, if they are no object that can be stored."""
    value = raw
    if isinstance(raw, str):
        try:
            value = json.loads(raw) if raw.strip() else {}
        except (ValueError, RecursionError):
            return raw
    try:
        stored = plain_json(value, "arguments") if isinstance(value, dict) else None
    except InvalidMessage:
        stored = None
    return stored if isinstance(stored, dict) else json_text(raw)


def object_of(arguments: Any) -> dict[str, Any]:
    """Arguments for a server that takes objects alone; text that is none is sent as what it was."""
    value = describe_bytes(arguments_of(arguments))
    return value if isinstance(value, dict) else {"unparsed": value}


def new_id() -> str:
    """An id for a call whose server gave none."""
    return f"call_{secrets.token_hex(6)}"


def function(spec: Spec) -> dict[str, Any]:
    """A tool as it is described to OpenAI and Ollama."""
    described = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": described}


def storable(value: dict[str, Any], what: str) -> dict[str, Any]:
    """What a server gave to be returned to it later, in a form that the log takes; empty if it takes none of it."""
    try:
        return dict(plain_json(value, what))
    except InvalidMessage:
        return {}


def json_text(value: Any) -> str:
    """A value as JSON, a text as it is."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(describe_bytes(value), ensure_ascii=False)
    except (ValueError, RecursionError):
        return "…"


# ---- content


def parts_of(message: Message) -> list[dict[str, Any]]:
    """The parts of a message's content; text alone is one part, and nothing is none."""
    if not message.content:
        return []
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}]
    return [part if isinstance(part, dict) else {"type": "text", "text": json_text(part)} for part in message.content]


def text_of(message: Message) -> str:
    """The text of a message; what is no text is named in brackets."""
    return "\n".join(part_text(part) for part in parts_of(message) if image_url(part) is None)


def with_result_images(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages, and after results with images a user's message that has them: results are text to most servers."""
    images: list[dict[str, Any]] = []
    for message in (*messages, None):
        if images and (message is None or message.role != "tool"):
            yield Message(role="user", content=[_IMAGES_OF_RESULTS, *images])
            images = []
        if message is not None:
            yield message
            images += [part for part in parts_of(message) if message.role == "tool" and image_url(part) is not None]


def part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'something')} that cannot be shown]"


# ---- answers


class FunctionPiece(Struct):
    """A call, or a piece of one, in the answers of OpenAI and Ollama."""

    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


def mapping_of(value: object) -> dict[str, Any]:
    """A JSON object of which nothing in an answer depends; empty if it is something else."""
    return value if isinstance(value, dict) else {}


def token_count(value: object) -> int:
    """A number of tokens that a server reported; 0 if it is not a number that makes sense."""
    return int(value) if isinstance(value, int | float) and 0 <= value < _MAX_TOKENS else 0


class Answer:
    """An answer as it is put together from the pieces of a stream; `complete` once all that must come has come.

    Text and thoughts are emitted as they come, and kept for the whole message.
    """

    def __init__(self, model: str, emit: Emit) -> None:
        self.complete = False
        self._model, self._emit = model, emit
        self._texts: dict[type[Text | Thought], list[str]] = {Text: [], Thought: []}
        self._halves: dict[type[Text | Thought], str] = {}

    def take(self, piece: dict[str, Any]) -> None:
        """Take what came next.

        Raises Failure if it says that the answer failed, and msgspec.ValidationError if it has a wrong type.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Hear that nothing more comes; an answer that only the server can declare complete does not change."""

    def result(self) -> Reply:
        """The whole answer; raises Failure if it cannot be stored."""
        raise NotImplementedError

    def say(self, piece: str | None, kind: type[Text | Thought] = Text) -> None:
        """Emit a piece of text, or of a thought; a surrogate pair that was cut in two becomes one character again."""
        text = self._halves.get(kind, "") + (piece or "")
        half = self._halves[kind] = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        text = without_halves(text.removesuffix(half))
        if text:
            self._texts[kind].append(text)
            self._emit(kind(text))

    def think(self, piece: str | None) -> None:
        self.say(piece, Thought)

    def reply(
        self, calls: Iterable[ToolCall], *, usage: Usage | None, is_cut: bool, extra: dict[str, Any] | None = None
    ) -> Reply:
        """What was said and thought, with these calls; `is_cut`: the model had more to say than it was allowed to."""
        # Each call with an id of its own: some servers give none, or the same to several.
        distinct: dict[str, ToolCall] = {}
        for call in calls:
            id = without_halves(call.id)
            id = new_id() if not id or id in distinct else id
            given = call.arguments
            arguments = without_halves(given) if isinstance(given, str) else given
            distinct[id] = replace(call, id=id, name=without_halves(call.name), arguments=arguments)
        message = Message(
            role="assistant",
            content="".join(self._texts[Text]),
            tool_calls=tuple(distinct.values()),
            reasoning="".join(self._texts[Thought]) or None,
            model=self._model,
            extra=extra or {},
        )
        return Reply(message=message, usage=usage, finish="length" if is_cut else "calls" if distinct else "stop")


def without_halves(text: str) -> str:
    """A text in which surrogate pairs are characters; half of one, which cannot be sent or shown, is replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def system_first(context: Context) -> list[dict[str, Any]]:
    """The system text as a message of its own, where a format has it so."""
    return [{"role": "system", "content": context.system}] if context.system else []


# ---- models


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model of a server: bytes on disk, context window in tokens, capabilities; None or () if not known."""

    name: str
    size: int | None = None
    context: int | None = None
    capabilities: tuple[str, ...] = ()

    @property
    def can_chat(self) -> bool:
        """Whether it answers messages; where the server does not say, its name decides."""
        if self.capabilities:
            return "completion" in self.capabilities or "tools" in self.capabilities
        return not any(word in self.name.lower() for word in _NOT_FOR_CHAT)


def entries_of(listed: Any, key: str, *, name: str) -> list[dict[str, Any]]:
    """The entries of a server's list that have a name; none if it is no list."""
    entries = listed.get(key) if isinstance(listed, dict) else None
    found = entries if isinstance(entries, list) else []
    return [entry for entry in found if isinstance(entry, dict) and isinstance(entry.get(name), str) and entry[name]]


def known_window(model: str) -> int | None:
    """The context window of a model of OpenAI or Anthropic in tokens; None for any other."""
    name = model.rpartition("/")[2].lower()
    return next((tokens for pattern, tokens in _WINDOWS if re.match(pattern, name)), None)


# ---- failures, with their reason

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
