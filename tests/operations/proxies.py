"""nginx and Caddy with the configurations of docs/operations.md; only addresses and files are replaced."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOST = "nacre.example"
PATIENT = 30.0
_UNPACKED = ROOT / ".venv" / "proxies"


def program(name: str) -> str:
    """Where a proxy is: installed, or unpacked by `make tools`."""
    found = shutil.which(name) or next(map(str, _UNPACKED.glob(f"usr/*bin/{name}")), "")
    if not found:
        pytest.skip(f"{name} is not there: make tools")
    return found


def block(language: str) -> str:
    """The only block of a language in the page on operations."""
    page = (ROOT / "docs" / "operations.md").read_text()
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return str(found)


def replaced(text: str, **texts: str) -> str:
    """A configuration with other addresses and files; each of the old ones is in it exactly once."""
    for old, new in texts.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def certificate(room: Path) -> tuple[Path, Path]:
    """A certificate for the host that nobody has signed, and its key."""
    certificate, key = room / "tls.pem", room / "tls.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    more = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST},IP:127.0.0.1"]
    command = [*words, *more, "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def nginx(room: Path, daemon: int) -> Iterator[int]:
    """The port of nginx before a daemon."""
    certificate_, key = certificate(room)
    port = free_port()
    site = replaced(
        block("nginx"),
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/nacre.example.pem": str(certificate_),
            "/etc/ssl/nacre.example.key": str(key),
            "http://127.0.0.1:8080": f"http://127.0.0.1:{daemon}",
        },
    )
    folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{name}_temp_path {room}/{name};" for name in folders)
    head = f"daemon off;\nmaster_process off;\npid {room}/nginx.pid;\nerror_log {room}/nginx.log;\n"
    whole = f"{head}events {{}}\nhttp {{\naccess_log {room}/access.log;\n{temporary}\n{site}\n}}\n"
    (room / "nginx.conf").write_text(whole)
    with _running([program("nginx"), "-e", f"{room}/nginx.log", "-c", f"{room}/nginx.conf"], room, port):
        yield port


@contextmanager
def caddy(room: Path, daemon: int) -> Iterator[int]:
    """The port of Caddy before a daemon; it has no authority here to get a certificate from."""
    certificate_, key = certificate(room)
    port = free_port()
    site = replaced(
        block("caddy"),
        **{
            "nacre.example {": f"https://{HOST}:{port}, https://127.0.0.1:{port} {{\ntls {certificate_} {key}",
            "reverse_proxy 127.0.0.1:8080": f"reverse_proxy 127.0.0.1:{daemon}",
        },
    )
    file = room / "Caddyfile"
    file.write_text(f"{{\nadmin off\nauto_https disable_redirects\nstorage file_system {room}/caddy\n}}\n{site}")
    with _running([program("caddy"), "run", "--adapter", "caddyfile", "--config", str(file)], room, port):
        yield port


PROXIES = {"nginx": nginx, "caddy": caddy}


@contextmanager
def _running(command: list[str], room: Path, port: int) -> Iterator[None]:
    with (room / "proxy.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={"HOME": str(room), "PATH": "/usr/bin:/bin"}, cwd=room
        )
    try:
        _wait(process, room, port)
        yield
    finally:
        process.terminate()
        process.wait(PATIENT)


def _wait(process: subprocess.Popen[bytes], room: Path, port: int) -> None:
    """Wait until a proxy accepts connections."""
    until = time.monotonic() + PATIENT
    while True:
        assert process.poll() is None, (room / "proxy.log").read_text() + (room / "nginx.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            assert time.monotonic() < until, (room / "proxy.log").read_text()


def unchecked() -> ssl.SSLContext:
    """TLS without a look at who signed the certificate."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    return found
