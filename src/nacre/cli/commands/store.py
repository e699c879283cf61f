"""nacre store: where sessions are stored; store init and store upgrade prepare a database for them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from nacre import config
from nacre.cli.failures import OK, Failure
from nacre.cli.loading import Command
from nacre.cli.one_line import clean
from nacre.cli.output import Out
from nacre.cli.store_choice import given_url, is_url, root_of, show, shown_store, store_of
from nacre.config import MAIN
from nacre.errors import NacreError

EXAMPLES = (
    ("where the sessions are, and who says so", "nacre store"),
    ("prepare a database for sessions", "nacre store init postgresql://db.example/nacre"),
    ("after an upgrade of nacre", "nacre store upgrade"),
)


def add(parser: ArgumentParser) -> None:
    """It takes no arguments of its own."""


def run(args: Namespace, out: Out) -> int:
    from nacre.opening import sealed_to, unseal_command  # noqa: PLC0415 - help does not need it

    store, source, folder = shown_store(args), _source(args), root_of(args)
    document = {"store": store, "source": source, "folder": folder}
    text = f"store   {clean(store)}  ({clean(source)})"
    if is_url(store):
        # What is not in the database is only on this machine.
        text += f"\nfolder  {clean(folder)}"
    # It may be out of reach, and where it is should be said all the same.
    with suppress(NacreError):
        if moved := sealed_to(store_of(args)):
            document["sealed_to"] = moved
            text += f"\nsealed  its sessions were moved to {clean(moved)}; take that back with: {unseal_command(store)}"
    return out.receipt(document, text)


def _source(args: Namespace) -> str:
    """Which option, variable or file says where the store is."""
    if args.store:
        return "--store"
    if config.store_url():
        return "NACRE_STORE_URL" if os.environ.get("NACRE_STORE_URL") else f"store.url in {config.path()}"
    return "NACRE_HOME" if os.environ.get("NACRE_HOME") else "default"


# ---- init and upgrade


def _add_url(parser: ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="postgresql://HOST/NAME; default: the store")


def _url_of(args: Namespace) -> str:
    """The database that a verb is for; raises Failure if there is none."""
    if args.url is None:
        url = store_of(args)
        if not is_url(url):
            hint = "name a database: postgresql://HOST/NAME, or set NACRE_STORE_URL or store.url"
            raise Failure("usage", f"the store is a folder, {url}, which needs no tables", hint=hint)
        return url
    url = given_url(args.url)
    if args.agent == MAIN:
        return url
    from nacre.opening import store_of as store_of_agent  # noqa: PLC0415 - only for other agents

    return store_of_agent(url, args.agent)


def _init(args: Namespace, out: Out) -> int:
    from nacre.opening import create_tables  # noqa: PLC0415 - help does not need it

    url = _url_of(args)
    is_new = create_tables(url)
    document = {"operation": "init", "store": show(url), "created": is_new}
    if is_new:
        return out.receipt(document, f"{clean(show(url))}: ready for sessions")
    return out.receipt(document, f"{clean(show(url))}: was ready already; nothing was changed")


def _upgrade(args: Namespace, out: Out) -> int:
    from nacre.opening import upgrade_tables  # noqa: PLC0415 - help does not need it

    url = _url_of(args)
    before, now, added = upgrade_tables(url)
    document = {"operation": "upgrade", "store": show(url), "from_version": before, "to_version": now}
    document["indexed_parts"] = added
    text = f"tables upgraded from version {before} to {now}" if before != now else f"tables of version {now} already"
    if added:
        text += "; indexes for parts of words were added (pg_trgm)"
    elif before == now:
        text += "; nothing was changed"
    out.receipt(document, f"{clean(show(url))}: {text}")
    return OK


store_init = Command(
    _add_url,
    _init,
    ("create the tables in schema nacre", "nacre store init postgresql://db.example/nacre"),
    ("in a schema of another name", "nacre store init 'postgresql://db.example/tools?schema=chats'"),
    ("with a password", "PGPASSWORD=… nacre store init postgresql://owner@db.example/nacre"),
    ("the configured database, for another agent", "nacre --agent clerk store init"),
)

store_upgrade = Command(
    _add_url,
    _upgrade,
    ("the configured database", "nacre store upgrade"),
    ("another one", "nacre store upgrade postgresql://db.example/nacre"),
)
