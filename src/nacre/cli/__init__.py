"""The command line, `nacre`."""

from nacre.cli.main import main

__all__ = ["main"]
