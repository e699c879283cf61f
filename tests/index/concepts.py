"""A model that knows a few words: vectors for the tests, without weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nacre.index.minilm import WIDTH

np = pytest.importorskip("numpy")

MEANINGS = (
    "dog puppy biscuit pup cat 狗 饼干",
    "car vehicle parked",
    "nuts allergic sick food",
    "invoice bill payment",
)


class Concepts:
    """A model that knows a few words and which of them mean the same."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None
        self.read: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.meanwhile()
        self.read += texts
        rows = np.zeros((len(texts), WIDTH), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            # Whatever it is, it means something: signs are dogs.
            for word in re.findall(r"\w+", text.lower()) or ["dog"]:
                place = next((at for at, some in enumerate(MEANINGS) if word in some.split()), None)
                row[place if place is not None else 50 + sum(map(ord, word)) % 300] += 4.0 if place is not None else 0.5
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
