"""List and search: derived from the logs, caught up when asked, safe to delete at any moment."""

from nacre.index.index import Index

__all__ = ["Index"]
