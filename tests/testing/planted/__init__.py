"""The planted bugs; loading this fills the table."""

from tests.testing.planted import (
    arguments,
    conditions,
    generations,
    handles,
    histories,
    leases,
    lists,
    messages,
    names,
    places,
    records,
    redactions,
    searches,
    writing,
)
from tests.testing.planted.table import BUGS, AnyCheck, Bug

__all__ = [
    "BUGS",
    "AnyCheck",
    "Bug",
    "arguments",
    "conditions",
    "generations",
    "handles",
    "histories",
    "leases",
    "lists",
    "messages",
    "names",
    "places",
    "records",
    "redactions",
    "searches",
    "writing",
]
