"""Texts cut to a number of columns, as prompt_toolkit measures them."""

from __future__ import annotations

from prompt_toolkit.utils import get_cwidth


def clip(text: str, columns: int) -> str:
    """The text if it fits, else its beginning and a mark."""
    if get_cwidth(text) <= columns:
        return text
    while text and get_cwidth(text) >= columns:
        text = text[:-1]
    return f"{text}…" if columns > 0 else ""


def clip_start(text: str, columns: int) -> str:
    """The text if it fits, else a mark and its end."""
    if get_cwidth(text) <= columns:
        return text
    while text and get_cwidth(text) >= columns:
        text = text[1:]
    return f"…{text}" if columns > 0 else ""
