"""The composition root: the only part that knows every other, and puts them together."""

from nacre.runtime.assembly import App, run_agent
from nacre.runtime.options import Options

__all__ = ["App", "Options", "run_agent"]
