"""What a model may call: typed functions, the built-in ones, and those that users bring."""

from nacre.tools.functions import Function, tool

__all__ = ["Function", "tool"]
