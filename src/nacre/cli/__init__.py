"""The command line, `nacre`."""

from nacre.cli.command import main

__all__ = ["main"]
