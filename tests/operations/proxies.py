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
_ATTEMPTS = 5
_UNPACKED = ROOT / ".venv" / "proxies"


def program(name: str, *question: str) -> list[str]:
    """The command of a proxy that runs: installed, or unpacked by `make tools` with the libraries that it needs."""
    libraries = ":".join(sorted({str(path.parent) for path in _UNPACKED.rglob("*.so.*")}))
    beside = map(str, _UNPACKED.glob(f"usr/*bin/{name}"))
    for found in (shutil.which(name), shutil.which(name, path="/usr/sbin"), *beside):
        if found is not None:
            is_ours = found.startswith(str(_UNPACKED))
            command = ["env", f"LD_LIBRARY_PATH={libraries}", found] if is_ours and libraries else [found]
            if subprocess.run([*command, *question], capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip(f"{name} is not there, or does not run: make tools")


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


def nginx(room: Path, daemon: int, port: int) -> list[str]:
    """The command that starts nginx before a daemon."""
    command = program("nginx", "-v")
    certificate_, key = certificate(room)
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
    return [*command, "-c", f"{room}/nginx.conf"]


def caddy(room: Path, daemon: int, port: int) -> list[str]:
    """The command that starts Caddy before a daemon; it has no authority here to get a certificate from."""
    command = program("caddy", "version")
    certificate_, key = certificate(room)
    site = replaced(
        block("caddy"),
        **{
            "nacre.example {": f"https://{HOST}:{port}, https://127.0.0.1:{port} {{\ntls {certificate_} {key}",
            "reverse_proxy 127.0.0.1:8080": f"reverse_proxy 127.0.0.1:{daemon}",
        },
    )
    file = room / "Caddyfile"
    file.write_text(f"{{\nadmin off\nauto_https disable_redirects\nstorage file_system {room}/caddy\n}}\n{site}")
    return [*command, "run", "--adapter", "caddyfile", "--config", str(file)]


PROXIES = {"nginx": nginx, "caddy": caddy}


@contextmanager
def started(name: str, room: Path, daemon: int) -> Iterator[int]:
    """The port of a proxy before a daemon; another one is tried if somebody else took it meanwhile."""
    for _ in range(_ATTEMPTS):
        port = free_port()
        command = PROXIES[name](room, daemon, port)
        with (room / "proxy.log").open("wb") as log:
            environment = {"HOME": str(room), "PATH": "/usr/bin:/bin"}
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=room)
        try:
            if _accepts(process, port):
                yield port
                return
        finally:
            process.terminate()
            process.wait(PATIENT)
        if "in use" not in (said := _logs(room)):
            pytest.fail(f"{name} does not start: {said}")
    pytest.fail(f"{name} found every port taken, {_ATTEMPTS} times")


def _accepts(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a proxy accepts connections; False if it ends, or does not."""
    until = time.monotonic() + PATIENT
    while process.poll() is None and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return process.poll() is None
        except OSError:
            continue
    return False


def _logs(room: Path) -> str:
    return "".join(path.read_text() for path in sorted(room.glob("*.log")))


def unchecked() -> ssl.SSLContext:
    """TLS without a look at who signed the certificate."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname = False
    found.verify_mode = ssl.CERT_NONE
    return found
