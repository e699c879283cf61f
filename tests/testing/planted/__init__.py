"""The planted bugs; loading this fills the table."""

from tests.testing.planted import (
    arguments,
    binary,
    conditions,
    generations,
    handles,
    histories,
    kept_ids,
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
    "binary",
    "conditions",
    "generations",
    "handles",
    "histories",
    "kept_ids",
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
