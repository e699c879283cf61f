"""Where tool processes run: confined to the workspace, without the network, gone when the call is over."""

from nacre.sandbox.finding import Found, Kind, find
from nacre.sandbox.policy import Limits

__all__ = ["Found", "Kind", "Limits", "find"]
