"""nacre serve: the agent as a daemon, with its channels, its HTTP interface and its page."""

from __future__ import annotations

import os
import secrets
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from nacre.cli.failures import OK, Failure
from nacre.cli.output import Out

if TYPE_CHECKING:
    from nacre.app import App

EXAMPLES = (
    ("on loopback, with a token of its own", "nacre serve"),
    ("where other programs find it", "NACRE_SERVE_TOKEN=$(cat token) nacre serve --port 8080"),
    ("for a network, behind a proxy that does TLS", "NACRE_SERVE_TOKEN=… nacre serve --host 10.0.0.5 --name nacre.lan"),
)

VARIABLE = "NACRE_SERVE_TOKEN"
_LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")


def add(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; loopback if nothing is said")
    parser.add_argument("--port", type=int, default=8080, metavar="N", help="which port; 0 for any that is free")
    parser.add_argument("--name", action="append", default=[], help="a further host name that requests may use")
    parser.add_argument("--model", help="who answers, as `provider/model`")


def run(args: Namespace, out: Out) -> int:
    try:
        import anyio  # noqa: PLC0415 - only the verbs that need it load it
        import uvicorn  # noqa: F401, PLC0415
    except ImportError as error:
        raise Failure("unavailable", f"`nacre serve` needs {error.name}", hint="pip install 'nacre[serve]'") from error
    token = os.environ.get(VARIABLE, "")
    if not token and args.host not in _LOOPBACK:
        hint = f"set {VARIABLE} to a long random text, and give it to those who may use it"
        raise Failure("usage", f"a daemon on {args.host} needs a token that you chose", hint=hint)
    anyio.run(_serve, args, out, token or secrets.token_urlsafe(24))
    return OK


async def _serve(args: Namespace, out: Out, token: str) -> None:
    from nacre.app import running  # noqa: PLC0415
    from nacre.config import load  # noqa: PLC0415

    async with running(load(), store=args.store, model=args.model) as app:
        for note in app.notes:
            out.note(note)
        await _until_told(args, out, app, token)


async def _until_told(args: Namespace, out: Out, app: App, token: str) -> None:
    """Serve until a signal comes; then everything is closed in order: channels, actors, model, store."""
    import anyio  # noqa: PLC0415

    from nacre.app.serving import serving  # noqa: PLC0415
    from nacre.web.server import application, serve  # noqa: PLC0415

    web = application(app, token=token, hosts=[args.host, *_LOOPBACK, *args.name])
    async with serving(app) as gateway, anyio.create_task_group() as tasks:
        tasks.start_soon(gateway.run)
        tasks.start_soon(lambda: serve(web, host=args.host, port=args.port, ready=_told(args, out, token)))
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                break
        out.note("shutting down")
        tasks.cancel_scope.cancel()


def _told(args: Namespace, out: Out, token: str) -> Callable[[int], None]:
    def ready(port: int) -> None:
        where = f"[{args.host}]" if ":" in args.host else args.host
        if out.json:
            out.document({"ok": True, "url": f"http://{where}:{port}/", "port": port, "pid": os.getpid()})
            # Whoever started it waits for this line, and it is the last for a long time.
            out.flush()
        elif os.environ.get(VARIABLE):
            out.note(f"serving on http://{where}:{port}/ with the token in {VARIABLE}; Ctrl-C ends it")
        else:
            out.note(f"serving on http://{where}:{port}/login#token={token}; Ctrl-C ends it")

    return ready
