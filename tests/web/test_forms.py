"""Which model answers in a session, as the page offers it."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

import nacre
from nacre.config import Settings
from nacre.runtime import App
from nacre.runtime.model_chain import ModelChain
from nacre.runtime.models import make_named
from nacre.web.pages import forms, urls
from tests.everyday.model import Model

OWN, OTHER = "ollama/gemma4:e4b", "ollama/qwen3:8b"


@pytest.mark.parametrize(("current", "pressed"), [(OWN, [""]), (OTHER, [OTHER])])
def test_one_model_is_shown_as_chosen(tmp_path: Path, current: str, pressed: list[str]) -> None:
    async def offered() -> str:
        settings = Settings({"ollama": {"host": model.host}}, {})
        app = App(settings, sessions, ModelChain(make_named(settings, OWN), settings))
        urls.mount("", "")
        try:
            return await forms.model_form(app, "k", current)
        finally:
            await app.provider.close()

    models = {"gemma4:e4b": 8192, "qwen3:8b": 8192}
    with Model(models=models) as model, nacre.open(str(tmp_path / "store")) as sessions:
        html = anyio.run(offered)
    assert re.findall('name="model" value="([^"]*)"', html)[:3] == ["", OWN, OTHER]
    assert re.findall('value="([^"]*)" aria-pressed="true"', html) == pressed
