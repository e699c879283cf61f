"""Context windows of known models, for servers that do not report them."""

from __future__ import annotations

import re

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


def known_window(model: str) -> int | None:
    """The context window of a model of OpenAI or Anthropic in tokens; None for any other."""
    name = model.rpartition("/")[2].lower()
    return next((tokens for pattern, tokens in _WINDOWS if re.match(pattern, name)), None)
