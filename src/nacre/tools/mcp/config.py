"""The table of an MCP server in the configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from nacre.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: a program to start (`command`), or an address (`url`).

    `client_id`, `client_secret`, `scope` and `callback_port` are for a server that people log in to and that does not
    register clients by itself.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    timeout: float = 60
    start_timeout: float = 30
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    callback_port: int = 0

    def checked(self) -> Config:
        """The same with `${VARIABLE}` replaced from our environment; raises ConfigError for what cannot work."""
        where = f"the MCP server {self.name!r}"
        if bool(self.command) == bool(self.url):
            raise ConfigError(f"{where} needs a command or a url, and not both")
        if self.url and (urlsplit(self.url).scheme not in {"http", "https"} or not urlsplit(self.url).hostname):
            raise ConfigError(f"{where} needs a url that begins with http:// or https://, not {self.url!r}")
        if self.timeout <= 0 or self.start_timeout <= 0:
            raise ConfigError(f"{where} needs a timeout and a start_timeout of more than 0 seconds")
        return replace(
            self,
            env={name: self._expanded(value) for name, value in self.env.items()},
            headers={name: self._expanded(value) for name, value in self.headers.items()},
            client_secret=self._expanded(self.client_secret),
        )

    def _expanded(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            try:
                return os.environ[found[1]]
            except KeyError:
                raise ConfigError(
                    f"the MCP server {self.name!r} needs the variable {found[1]}: it is not set"
                ) from None

        return _VARIABLE.sub(value, text)
