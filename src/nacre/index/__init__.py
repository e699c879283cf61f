"""List and search: derived from the logs, caught up when asked, safe to delete at any moment.

`Index` is loaded when it is first used: a listing that is up to date can do without.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacre.index.index import Index

__all__ = ["Index"]


def __getattr__(name: str) -> Any:
    if name != "Index":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nacre.index.index import Index  # noqa: PLC0415 - when it is first used

    globals()[name] = Index
    return Index
