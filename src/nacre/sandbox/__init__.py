"""Where tool processes run: confined to the workspace, without the network, gone when the call is over."""

from nacre.sandbox.policy import Limits
from nacre.sandbox.sandboxes import Found, Kind, find

__all__ = ["Found", "Kind", "Limits", "find"]
