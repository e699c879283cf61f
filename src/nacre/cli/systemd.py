"""systemd: notifications about the state of the daemon, and the unit that starts it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence

_UNIT = """\
# nacre serve --unit > ~/.config/systemd/user/nacre.service
# systemctl --user daemon-reload && systemctl --user enable --now nacre
[Unit]
Description=nacre, an agent with durable sessions

[Service]
Type=notify
NotifyAccess=main
EnvironmentFile=-%E/nacre/serve.env
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
# Turns have 8 seconds to finish; those that are cut off are resumed at the next start.
TimeoutStopSec=15
KillMode=mixed
UMask=0077

# The sandbox for programs that tools run needs user and mount namespaces, and a /proc that nothing is mounted over:
# RestrictNamespaces, ProtectProc, ProtectKernelTunables and system call filters would break it.
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


def unit(words: Sequence[str]) -> str:
    """A unit for the user's own systemd that runs a command."""
    return _UNIT.format(command=" ".join(_quoted(word) for word in words))


def notify(state: str) -> None:
    """Tell systemd the state of the daemon, if systemd started it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as wire:
        try:
            wire.sendto(state.encode(), f"\0{address[1:]}" if address[0] == "@" else address)
        except OSError:
            # The daemon works without it.
            return


def reloading() -> str:
    """The state to send before the configuration is read again; READY=1 follows."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def _quoted(word: str) -> str:
    """A word, quoted for a unit."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(char.isspace() or char in "\"'\\;" for char in word) or not word else escaped
