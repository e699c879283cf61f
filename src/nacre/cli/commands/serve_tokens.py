"""nacre serve tokens: who may use the HTTP interface besides the owner, and with which rights."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nacre.cli import table
from nacre.cli.failures import OK, Failure, require_extra
from nacre.cli.output import Out
from nacre.cli.store_choice import main_root
from nacre.cli.table import Column
from nacre.cli.verbs import MAIN
from nacre.errors import Conflict, InvalidArgument

if TYPE_CHECKING:
    from nacre.runtime.access_tokens import Tokens

EXAMPLES = (
    ("a token for somebody else: their own sessions, no files, no memory", "nacre serve tokens add bob --role guest"),
    ("a guest of the agent `clerk`", "nacre serve tokens add shop --role guest --agent clerk"),
    ("another token with all rights, for one of your programs", "nacre serve tokens add phone --role owner"),
    ("keep it in a file that only you can read", "(umask 077; nacre serve tokens add ci --role guest > ci.token)"),
    ("list the tokens", "nacre serve tokens list"),
    ("end a token, with what was begun with it", "nacre serve tokens revoke bob"),
)

VARIABLE = "NACRE_SERVE_TOKEN"
TOKEN_HINT = f"set {VARIABLE} to a long random text, and give it to your users"
LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")


def needs_token(args: Namespace) -> bool:
    """Whether a token of the owner is required and missing: on any address but loopback."""
    return not os.environ.get(VARIABLE) and args.host not in LOOPBACK


def add(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "list", "revoke"), nargs="?", default="list", help="default: list")
    parser.add_argument("name", metavar="NAME", nargs="?", help="add, revoke: the name of the token")
    parser.add_argument(
        "--role", choices=("guest", "owner"), help="add: whose rights it has; a guest has sessions of their own"
    )


def run(args: Namespace, out: Out) -> int:
    _check(args)
    with require_extra("serve", "tokens need"):
        from nacre.runtime.access_tokens import Tokens  # noqa: PLC0415 - loads the agent, which help does not need
    if args.agent != MAIN:
        from nacre.config import load  # noqa: PLC0415 - only with --agent

        agents = load().agents
        if args.agent not in agents:
            raise Failure("not_found", f"there is no agent {args.agent!r}", hint=f"there are {', '.join(agents)}")
    # The main agent's store has the tokens of all.
    tokens = Tokens(main_root(args))
    if args.action == "add":
        return _add(tokens, args, out)
    if args.action == "list":
        return _list(tokens, out)
    try:
        token = tokens.revoke(args.name)
    except InvalidArgument as error:
        raise Failure("not_found", str(error), hint="`nacre serve tokens list` shows which there are") from error
    text = f"revoked {token.name}: its cookies, streams and turns end; its sessions stay"
    return out.receipt({"operation": "revoke", "name": token.name, "revoked": token.revoked}, text)


def _check(args: Namespace) -> None:
    if args.action == "list":
        if args.name or args.role:
            raise Failure("usage", f"`list` takes no {args.name or '--role'!r}", hint="it lists all of them")
        return
    if not args.name:
        raise Failure("usage", f"`{args.action}` needs the name of the token", hint=_example(args.action))
    if args.action == "add" and not args.role:
        raise Failure("usage", "say whose rights the token has: --role guest or --role owner", hint=_example("add"))
    if args.action == "revoke" and args.role:
        raise Failure("usage", "`revoke` takes no --role", hint=_example("revoke"))
    if args.role == "owner" and args.agent != MAIN:
        raise Failure("usage", "an owner's token opens every agent: remove --agent", hint=EXAMPLES[2][1])


def _example(action: str) -> str:
    return next(command for _, command in EXAMPLES if command.startswith(f"nacre serve tokens {action} "))


def _add(tokens: Tokens, args: Namespace, out: Out) -> int:
    had_one = any(token.name == args.name for token in tokens.all())
    try:
        secret = tokens.add(args.name, args.role, agent=args.agent)
    except Conflict as error:
        raise Failure("conflict", str(error), hint="`nacre serve tokens list` shows which names are taken") from error
    except InvalidArgument as error:
        raise Failure("usage", str(error)) from error
    document = {"operation": "add", "name": args.name, "role": args.role, "agent": args.agent, "token": secret}
    note = "This token is shown once. It works at once, also with a daemon that is running."
    if had_one:
        note += f"\nThere was a token {args.name!r} before: this one opens the same sessions."
    return out.receipt(document, secret, note=note)


def _list(tokens: Tokens, out: Out) -> int:
    items: list[dict[str, object]] = []
    rows: list[tuple[str, ...]] = []
    for token in tokens.all():
        agent = token.agent if token.role == "guest" else None
        times = {"created": token.created, "revoked": token.revoked or None}
        items.append({"name": token.name, "role": token.role, "agent": agent, **times})
        rows.append((token.name, token.role, agent or "all", token.created, token.revoked))
    if out.json:
        return out.listing(items)
    columns = [Column("NAME", style=out.bold), Column("ROLE"), Column("AGENT"), Column("CREATED"), Column("REVOKED")]
    table.show(out, columns, rows)
    if not rows:
        out.note("no tokens yet; NACRE_SERVE_TOKEN is the owner's")
    return OK
