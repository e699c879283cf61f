"""The composition root: the only part that knows every other, and puts them together."""

from nacre.app.options import Options
from nacre.app.running import App, running

__all__ = ["App", "Options", "running"]
