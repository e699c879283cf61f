"""The composition root: the only part that knows every other, and puts them together."""

from nacre.runtime.app import App, Options
from nacre.runtime.assembly import run_agent

__all__ = ["App", "Options", "run_agent"]
