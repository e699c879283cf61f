# mypy: ignore-errors
"""What the scripts share: where the server is, what is asked for, and how a result is told."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pydantic import BaseModel

URL = os.environ.get("CLIENT_URL", "")
TOKEN = os.environ.get("CLIENT_TOKEN", "")
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class City(BaseModel):
    """A city."""

    city: str
    people: int


def tell(**found: Any) -> None:
    """Print what was found."""
    sys.stdout.write(json.dumps(found, default=lambda value: value.model_dump()))
