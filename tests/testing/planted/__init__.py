"""The planted bugs; loading this fills the table."""

from tests.testing.planted import (
    arguments,
    generations,
    histories,
    lists,
    messages,
    names,
    places,
    searches,
    writing,
)
from tests.testing.planted.table import BUGS, AnyCheck, Bug

__all__ = [
    "BUGS",
    "AnyCheck",
    "Bug",
    "arguments",
    "generations",
    "histories",
    "lists",
    "messages",
    "names",
    "places",
    "searches",
    "writing",
]
