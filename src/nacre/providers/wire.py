"""What the formats of servers share: tool calls, parts of a message, answers in pieces, and lists of models."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from nacre.agent.ports import Context, Emit, Reply, Spec, Text, Thought, Usage
from nacre.codec import plain_json
from nacre.errors import InvalidMessage
from nacre.messages import Message, ToolCall

_DATA_URL = re.compile(r"data:(?P<media>[\w.+-]+/[\w.+-]+)(;[\w=.+-]+)*;base64,(?P<data>.*)", re.DOTALL)

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
    value = arguments_of(arguments)
    return value if isinstance(value, dict) else {"unparsed": value}


def new_id() -> str:
    """An id for a call whose server gave none."""
    return f"call_{secrets.token_hex(6)}"


def fitting_id(id: str | None, pattern: re.Pattern[str]) -> str:
    """An id as another provider takes it: itself if it fits, else the same short one for the same id."""
    id = id or ""
    return id if pattern.fullmatch(id) else f"call_{sha256(id.encode()).hexdigest()[:24]}"


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
        return json.dumps(value, ensure_ascii=False)
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
    for message in messages:
        if images and message.role != "tool":
            yield Message(role="user", content=[_IMAGES_OF_RESULTS, *images])
            images = []
        yield message
        if message.role == "tool":
            images += [part for part in parts_of(message) if image_url(part) is not None]
    if images:
        yield Message(role="user", content=[_IMAGES_OF_RESULTS, *images])


def part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else f"[{part.get('type', 'something')} that cannot be shown]"


def image_url(part: Mapping[str, Any]) -> str | None:
    """The address of an image in OpenAI's shape, or None if the part is something else."""
    if part.get("type") != "image_url":
        return None
    image = part.get("image_url")
    return str(image.get("url", "")) if isinstance(image, dict) else str(image)


def image_data(url: str) -> tuple[str, str] | None:
    """Media type and base64 text of a data URL, or None if the image is somewhere else."""
    found = _DATA_URL.fullmatch(url)
    return (found["media"], found["data"]) if found else None


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

    def message(self, calls: Iterable[ToolCall], extra: dict[str, Any] | None = None) -> Message:
        """What was said and thought so far, with these calls."""
        # Each call with an id of its own: some servers give none, or the same to several.
        distinct: dict[str, ToolCall] = {}
        for call in calls:
            id = without_halves(call.id)
            id = new_id() if not id or id in distinct else id
            given = call.arguments
            arguments = without_halves(given) if isinstance(given, str) else given
            distinct[id] = replace(call, id=id, name=without_halves(call.name), arguments=arguments)
        return Message(
            role="assistant",
            content="".join(self._texts[Text]),
            tool_calls=tuple(distinct.values()),
            reasoning="".join(self._texts[Thought]) or None,
            model=self._model,
            extra=extra or {},
        )


def without_halves(text: str) -> str:
    """A text in which surrogate pairs are characters; half of one, which cannot be sent or shown, is replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def make_reply(message: Message, *, usage: Usage | None, cut: bool) -> Reply:
    """A whole answer; `cut`: the model had more to say than it was allowed to."""
    finish: Literal["stop", "calls", "length"] = "length" if cut else "calls" if message.tool_calls else "stop"
    return Reply(message=message, usage=usage, finish=finish)


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
        name = self.name.lower()
        return not any(word in name for word in _NOT_FOR_CHAT)


def entries_of(listed: Any, key: str, *, name: str) -> list[dict[str, Any]]:
    """The entries of a server's list that have a name; none if it is no list."""
    entries = listed.get(key) if isinstance(listed, dict) else None
    found = entries if isinstance(entries, list) else []
    return [entry for entry in found if isinstance(entry, dict) and isinstance(entry.get(name), str) and entry[name]]


def known_window(model: str) -> int | None:
    """The context window of a model of OpenAI or Anthropic in tokens; None for any other."""
    name = model.rpartition("/")[2].lower()
    return next((tokens for pattern, tokens in _WINDOWS if re.match(pattern, name)), None)
