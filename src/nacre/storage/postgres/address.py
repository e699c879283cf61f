"""The address of a store in PostgreSQL: which database and schema, what is refused, and what may be shown of it."""

from __future__ import annotations

import ipaddress
import os
import re
from configparser import ConfigParser
from configparser import Error as ParserError
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from nacre.errors import ConfigError

SCHEMES = ("postgresql", "postgres")
MAIN_SCHEMA = "nacre"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_LOCAL_NAMES = ("localhost", "ip6-localhost")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})|%00")
_PORT = re.compile(r"(\[[^]]*\]|[^:]*)(:\d*)?\Z")
_FIELD = re.compile(r"[a-z_]+\Z")


class Address(NamedTuple):
    """Where a store is: what libpq connects to, and the schema that the tables are in.

    `shown` is the same for people: without the password, and as it can be given again.
    """

    conninfo: str
    schema: str
    shown: str


def is_address(text: str) -> bool:
    """Tell whether a text names a database, not a folder."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def parse(url: str) -> Address:
    """Read an address as libpq has it, with `schema=NAME` besides; raises ConfigError for one that cannot be used.

    A server that is not on this machine is reached over TLS, or not at all.
    """
    # No error quotes what cannot be read, which may be the password: of one with an @ libpq takes the rest for a host.
    unreadable = ConfigError(
        f"{hide_password(url)} cannot be read as the address of a database: write special characters of its parts as "
        "%XX, an @ as %40"
    )
    try:
        parts = urlsplit(url)
        fields = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise unreadable from None
    if _BAD_ESCAPE.search(url) or "@" in parts.netloc.rpartition("@")[0]:
        raise unreadable
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


def for_agent(url: str, name: str) -> str:
    """The address of another agent's store, in a schema of its own next to the main one's."""
    return _with_schema(url, agent_schema(parse(url).schema, name))


def with_password(url: str, known: str) -> str:
    """The address with the password of another one, if that is of the same database; else as it is."""
    schema = parse(url).schema
    is_same = is_address(known) and hide_password(_with_schema(known, schema)) == _with_schema(url, schema)
    return _with_schema(known, schema) if is_same else url


def has_password(url: str) -> bool:
    """Tell whether an address holds a password, which a command line or a configuration file would give away."""
    if not is_address(url):
        return False
    # One that is not escaped may have any character; the last @ is where the user's part ends.
    user, at, _ = url.partition("://")[2].partition("?")[0].rpartition("@")
    query = url.partition("?")[2]
    return bool(at and ":" in user) or "@" in query.partition("=")[0] or any("password" in one for one in _names(query))


def passwords_in(url: str) -> list[str]:
    """The passwords of an address, as they are written there and as they are sent."""
    user = url.partition("://")[2].partition("?")[0].rpartition("@")[0]
    written = [user.partition(":")[2]]
    query = url.partition("?")[2]
    written += [part.partition("=")[2] for part in query.split("&") if "password" in part.partition("=")[0]]
    return [text for one in written if one for text in dict.fromkeys((one, unquote(one)))]


def hide_password(url: str) -> str:
    """An address without its password, for people, logs and errors; what may be a part of it is left out too."""
    scheme, _, rest = url.partition("://")
    rest, question, query = rest.partition("?")
    user, at, server = rest.rpartition("@")
    user = user.partition(":")[0]
    host = server.partition("/")[0]
    if not all(_PORT.match(one) for one in host.split(",")) or not all(map(_FIELD.match, _names(query))):
        return f"{scheme}://…"
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if "password" not in name]
    query = f"{question}{urlencode(kept, quote_via=quote)}" if kept else ""
    return f"{scheme}://{user}{at}{server}{query}"


def _names(query: str) -> list[str]:
    return [name for name, _ in parse_qsl(query, keep_blank_values=True)]


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
    """Ask for TLS unless every host is this machine; raises ConfigError if less is asked for.

    What the address does not say, a service file or the environment may, as libpq reads them.
    """
    name = fields.get("service") or os.environ.get("PGSERVICE", "")
    service = _read_service(name) if name else {}
    is_known = bool(service) or not name or bool(fields.get("host") or server)
    hosts = fields.get("host") or server or service.get("host") or os.environ.get("PGHOST", "")
    addresses = fields.get("hostaddr") or service.get("hostaddr") or os.environ.get("PGHOSTADDR", "")
    if is_known and all(_is_local(host) for host in (*hosts.split(","), *addresses.split(","))):
        return
    mode = fields.get("sslmode") or service.get("sslmode") or os.environ.get("PGSSLMODE", "")
    if not mode:
        fields["sslmode"] = "require"
    elif mode not in _ENCRYPTED:
        raise ConfigError(
            f"sslmode={mode} would send conversations over the network without TLS: use {', '.join(_ENCRYPTED)}; "
            "only a database on this machine may do without"
        )


def _read_service(name: str) -> dict[str, str]:
    """What a service file says of a service; nothing if there is none that can be read."""
    folder = os.environ.get("PGSYSCONFDIR")
    own = os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf"
    for file in filter(None, (own, folder and f"{folder}/pg_service.conf")):
        parser = ConfigParser(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#",))
        try:
            parser.read(os.path.expanduser(file), encoding="utf-8")
        except (OSError, ValueError, ParserError):
            continue
        if parser.has_section(name):
            return dict(parser.items(name))
    return {}


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
