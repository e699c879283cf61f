"""Contents and calls in the shapes of OpenAI's and Anthropic's clients; plain values in, plain values out."""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from nacre.attachments import describe_file

EMPTY = "[empty message]"
_TEXTS = ("text", "input_text", "output_text", "refusal")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text")
_OF_OPENAI = ("input_audio", "file")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_DATA_URL = re.compile(r"data:(?P<media>[\w.+-]+/[\w.+-]+)(;[\w=.+-]+)*;base64,(?P<data>.*)", re.DOTALL)
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def describe_bytes(value: Any) -> Any:
    """A JSON value with `12,345 bytes` in the place of bytes, as people and models are shown it."""
    match value:
        case bytes():
            return f"{len(value):,} byte{'s' * (len(value) != 1)}"
        case list() | tuple():
            return [describe_bytes(item) for item in value]
        case dict():
            return {name: describe_bytes(item) for name, item in value.items()}
        case _:
            return value


# ---- contents


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


def image_part(part: Any) -> dict[str, Any] | None:
    """An image of any common shape in that of OpenAI's chat; None if it is none, or not known where it is.

    That is OpenAI's own, `input_image` of its Responses, Anthropic's `image` with a `source`, and MCP's with `data`;
    data may be bytes.
    """
    match part:
        case {"type": "image_url", "image_url": dict({"url": str(url)}) | str(url)}:
            detail = part["image_url"].get("detail") if isinstance(part["image_url"], dict) else None
            return _image(url, detail)
        case {"type": "input_image", "image_url": str(url)}:
            return _image(url, part.get("detail"))
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return _image(url)
        case {"type": "image", "source": dict(source)} | ({"type": "image"} as source):
            data = source.get("data")
            if isinstance(data, bytes):
                data = binascii.b2a_base64(data, newline=False).decode()
            named = (source[name] for name in ("media_type", "mimeType", "mime_type") if name in source)
            return _image(f"data:{next(named, 'image/png')};base64,{data}") if isinstance(data, str) else None
        case _:
            return None


def openai_content(content: str | list[Any] | None, *, has_images: bool = False) -> str | list[dict[str, Any]]:
    """A content for OpenAI's chat: text, or parts that it takes; what it does not take is named in brackets."""
    if not isinstance(content, list):
        return content or ""
    found: list[dict[str, Any]] = []
    for part in content:
        image = image_part(part)
        if image is not None:
            found.append(image if has_images else {"type": "text", "text": "[image]"})
        elif has_images and isinstance(part, dict) and _is_of_openai(part):
            found.append(describe_bytes(part))
        elif (text := part_text(part)).strip():
            found.append({"type": "text", "text": text})
    return found or ""


def anthropic_content(content: str | list[Any] | None, *, has_thoughts: bool = False) -> list[dict[str, Any]]:
    """A content as Anthropic's blocks; empty text is refused there. A model's signed thoughts are its own blocks."""
    found: list[dict[str, Any]] = []
    for part in content if isinstance(content, list) else [content or ""]:
        kind = part.get("type") if isinstance(part, dict) else ""
        if has_thoughts and (kind == "redacted_thinking" or (kind == "thinking" and "signature" in part)):
            found.append(describe_bytes(part))
        elif (image := image_part(part)) is not None:
            found.append(_anthropic_image(image["image_url"]["url"]))
        elif (text := part_text(part)).strip():
            found.append({"type": "text", "text": text})
    return found


def part_text(part: Any) -> str:
    """The text of a part; a thought is none, and anything else is named in brackets, a file with its size."""
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else "part"
    if kind in _THOUGHTS:
        return ""
    text = part.get("refusal" if kind == "refusal" else "text") if isinstance(part, dict) else None
    if isinstance(text, str):
        return text
    return f"[{describe_file(part) or (kind if isinstance(kind, str) and kind else 'part')}]"


def thought_text(part: Any) -> str | None:
    """The words of a model's thought, without what is signed or encrypted in it; None if a part is no thought."""
    if not isinstance(part, Mapping) or part.get("type") not in _THOUGHTS:
        return None
    pieces = [part.get(name) for name in ("thinking", "reasoning", "text")]
    for name in ("summary", "content"):
        inside = part.get(name)
        pieces += [one.get("text") for one in inside if isinstance(one, Mapping)] if isinstance(inside, list) else []
    return "\n".join(piece for piece in pieces if isinstance(piece, str))


def put_before(content: Any, words: str) -> Any:
    """A content with some words before it."""
    return [{"type": "text", "text": words}, *content] if isinstance(content, list) else f"{words} {content}".rstrip()


def _is_of_openai(part: dict[str, Any]) -> bool:
    """Tell whether a part is a file or a sound as OpenAI's chat has it: others have parts of the same type."""
    kind = part.get("type")
    return kind in _OF_OPENAI and isinstance(part.get(kind), dict)


def _image(url: str, detail: Any = None) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if isinstance(detail, str) else {})}}


def _anthropic_image(url: str) -> dict[str, Any]:
    data = image_data(url)
    if data is not None and data[0] in _IMAGES:
        return {"type": "image", "source": {"type": "base64", "media_type": data[0], "data": data[1]}}
    if url.startswith(("http://", "https://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "text", "text": "[image]"}


# ---- calls


def arguments_text(arguments: Any) -> str:
    """A call's arguments as JSON text; a text stays what it is."""
    if isinstance(arguments, str):
        return arguments or "{}"
    return msgspec.json.encode(describe_bytes(arguments)).decode()


def arguments_object(arguments: Any) -> dict[str, Any]:
    """A call's arguments as an object; what is none is put into one."""
    value = arguments
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else {}
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            value = {"unreadable": value}
    value = {} if value is None else describe_bytes(value)
    return value if isinstance(value, dict) else {"value": value}


def fitting_name(name: str) -> str:
    """The name of a tool in the letters that every provider takes."""
    return _NOT_IN_A_NAME.sub("_", name)[:64] or "unknown"


def fitting_id(id: str | None, pattern: re.Pattern[str]) -> str:
    """An id as another provider takes it: itself if it fits, else the same short one for the same id."""
    from hashlib import sha256  # noqa: PLC0415 - brings OpenSSL along

    id = id or ""
    return id if pattern.fullmatch(id) else f"call_{sha256(id.encode(errors='replace')).hexdigest()[:24]}"
