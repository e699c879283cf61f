"""The address of a store in PostgreSQL: which database and schema, what is refused, and what may be shown of it."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from nacre.errors import ConfigError

SCHEMES = ("postgresql", "postgres")
MAIN_SCHEMA = "nacre"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_LOCAL_NAMES = ("localhost", "ip6-localhost")


class Address(NamedTuple):
    """Where a store is: what libpq connects to, and the schema that the tables are in.

    `shown` is the same for people: without the password, and as it can be given again.
    """

    conninfo: str
    schema: str
    shown: str

    def for_agent(self, name: str) -> Address:
        """The store of another agent, in a schema of its own next to this one."""
        schema = agent_schema(self.schema, name)
        return self._replace(schema=schema, shown=_with_schema(self.shown, schema))


def is_address(text: str) -> bool:
    """Tell whether a text names a database, not a folder."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def parse(url: str) -> Address:
    """Read an address as libpq has it, with `schema=NAME` besides; raises ConfigError for one that cannot be used.

    Whoever is not on this machine is reached over TLS, or not at all.
    """
    try:
        parts = urlsplit(url)
        fields = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"{hide_password(url)} cannot be read as the address of a database: {error}") from None
    if parts.scheme not in SCHEMES:
        raise ConfigError(f"a database is addressed as postgresql://HOST/NAME, not as {parts.scheme}://")
    known = dict(fields)
    schema = known.pop("schema", MAIN_SCHEMA)
    if not _SCHEMA.match(schema):
        raise ConfigError(f"schema must be a name of small letters, digits and _ such as nacre, not {schema!r}")
    if parts.fragment or (parts.path.count("/") > 1):
        raise ConfigError(f"{hide_password(url)} has more after its database than an address has")
    _check_encryption(parts.netloc.rpartition("@")[2], known)
    known.setdefault("target_session_attrs", "read-write")
    conninfo = f"postgresql://{parts.netloc}{parts.path}?{urlencode(known, quote_via=quote)}"
    return Address(conninfo, schema, hide_password(url))


def has_password(url: str) -> bool:
    """Tell whether an address holds a password, which a command line or a configuration file would give away."""
    if not is_address(url):
        return False
    user, at, _ = url.partition("://")[2].partition("/")[0].rpartition("@")
    query = url.partition("?")[2]
    return bool(at and ":" in user) or any(name in ("password", "sslpassword") for name, _ in parse_qsl(query))


def hide_password(url: str) -> str:
    """An address without its password, for people, logs and errors."""
    scheme, _, rest = url.partition("://")
    rest, question, query = rest.partition("?")
    server, slash, path = rest.partition("/")
    user, at, host = server.rpartition("@")
    user = user.partition(":")[0]
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if "password" not in name]
    query = f"{question}{urlencode(kept, quote_via=quote)}" if kept else ""
    return f"{scheme}://{user}{at}{host}{slash}{path}{query}"


def agent_schema(schema: str, name: str) -> str:
    """The schema of another agent's store; agents have names of small letters, digits, `_` and `-`."""
    found = f"{schema}_{name.replace('-', '_')}"
    if not _SCHEMA.match(found):
        raise ConfigError(f"the agent's name {name!r} is too long for a schema of its own in the database")
    return found


def _with_schema(url: str, schema: str) -> str:
    base, _, query = url.partition("?")
    fields = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != "schema"]
    return f"{base}?{urlencode([*fields, ('schema', schema)], quote_via=quote)}"


def _check_encryption(server: str, fields: dict[str, Any]) -> None:
    """Ask for TLS unless every host is this machine; raises ConfigError if the address asks for less."""
    hosts = fields.get("host") or server or os.environ.get("PGHOST", "")
    if "service" in fields and not hosts:
        # The service file says where; what it says of TLS counts, and nothing weaker than this.
        fields.setdefault("sslmode", "require")
        return
    if all(_is_local(host) for host in hosts.split(",")):
        return
    mode = fields.setdefault("sslmode", "require")
    if mode not in _ENCRYPTED:
        raise ConfigError(
            f"sslmode={mode} would send conversations over the network without TLS: use {', '.join(_ENCRYPTED)}; "
            "only a database on this machine may do without"
        )


def _is_local(host: str) -> bool:
    """Tell whether a host is this machine: a socket, its loopback address or the usual name for that."""
    name = unquote(host)
    if not name or name.startswith(("/", "@")):
        return True
    bracket = re.match(r"\[([^]]*)\]", name)
    name = bracket[1] if bracket else name.partition(":")[0]
    if name in _LOCAL_NAMES or not name:
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
