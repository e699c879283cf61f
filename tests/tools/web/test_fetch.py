"""web_fetch, against a server on loopback."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address

import pytest

from nacre.errors import ToolError
from nacre.tools.web.fetch import Gate, web_tool
from nacre.tools.web.page_text import readable
from tests.tools.scenes import output, text

PAGE = (
    "<html><head><title>A &amp; B</title><script>x()</script></head>"
    "<body><h1>Hi</h1><p>See <a href='/x'>this</a>.</body>"
)
LOOPBACK = ("127.0.0.0/8", "localhost")


class Answers(BaseHTTPRequestHandler):
    """What the server answers, by path."""

    release = threading.Event()

    def do_GET(self) -> None:
        match self.path:
            case "/page":
                self._send(PAGE.encode(), "text/html; charset=utf-8")
            case "/latin":
                self._send("<meta charset='latin-1'>é".encode("latin-1"), "text/html")
            case "/json":
                self._send(b'{"a": 1}', "application/json")
            case "/png":
                self._send(b"\x89PNG", "image/png")
            case "/missing":
                self._send(b"not here", "text/plain", status=404)
            case "/big":
                self._send(b"x" * 5_000_000, "text/plain")
            case "/bomb":
                self._send(gzip.compress(b"\0" * 50_000_000), "text/plain", ("content-encoding", "gzip"))
            case "/brotli":
                self._send(b"x", "text/plain", ("content-encoding", "br"))
            case "/host":
                self._send(self.headers["host"].encode(), "text/plain")
            case "/slow":
                self.release.wait(20)
            case _:
                self._send(b"", "text/plain", ("location", self.path.removeprefix("/to/")), status=302)

    def _send(self, body: bytes, kind: str, header: tuple[str, str] = ("x-a", "b"), *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header(*header)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        Answers.release.set()
        listening.shutdown()
        thread.join()


def test_a_page_comes_as_text_with_title_links_and_type(server: str) -> None:
    said = text(web_tool(allow=LOOPBACK), url=f"{server}/page")
    assert said == f"{server}/page\ntext/html, status 200\nA & B\n\n# Hi\n\nSee [this]({server}/x)."


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/json", 'application/json, status 200\n\n{"a": 1}'),
        ("/latin", "text/html, status 200\n\né"),
        ("/png", "image/png, status 200\n\n[4 bytes that are not text: not shown]"),
        ("/to//json", '/json\napplication/json, status 200\n\n{"a": 1}'),
    ],
)
def test_other_content_is_shown_or_described(server: str, path: str, end: str) -> None:
    assert text(web_tool(allow=LOOPBACK), url=server + path).endswith(end)


def test_an_error_of_the_server_is_a_failed_result(server: str) -> None:
    found = output(web_tool(allow=LOOPBACK), url=f"{server}/missing")
    assert found.failed
    assert found.text.endswith("status 404\n\nnot here")


@pytest.mark.parametrize("path", ["/big", "/bomb"])
def test_no_more_is_read_than_wanted_however_it_is_packed(server: str, path: str) -> None:
    found = output(web_tool(allow=LOOPBACK, max_bytes=100_000), url=server + path)
    assert "[only the first part was read]" in found.text
    assert found.whole is not None
    assert len(found.whole) < 500_000


def test_the_host_is_named_though_its_address_is_connected_to(server: str) -> None:
    port = server.rpartition(":")[2]
    assert text(web_tool(allow=LOOPBACK), url=f"http://localhost:{port}/host").endswith(f"\n\nlocalhost:{port}")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("{server}/page", "is not a public address"),
        ("http://localhost/", "is not a public address"),
        ("http://[::1]/", "is not a public address"),
        ("http://0x7f000001/", "is not a public address|not known"),
        ("http://2130706433/", "is not a public address|not known"),
        ("http://[::ffff:127.0.0.1]/", "is not a public address"),
        ("http://169.254.169.254/latest/meta-data", "is not a public address"),
        ("http://10.0.0.1/", "is not a public address"),
        ("http://0.0.0.0/", "is not a public address"),
        ("file:///etc/passwd", "begins with http"),
        ("ftp://example.com/", "begins with http"),
        ("nothing", "begins with http"),
        ("http://user:pw@example.com/", "password"),
    ],
)
def test_what_is_not_public_or_not_the_web_is_refused(server: str, url: str, complaint: str) -> None:
    with pytest.raises(ToolError, match=complaint):
        output(web_tool(), url=url.format(server=server))


@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/", "http://[::1]/", "http://169.254.169.254/", "file:///etc/passwd"]
)
def test_a_redirect_is_checked_like_the_first_address(server: str, target: str) -> None:
    with pytest.raises(ToolError, match=r"not a public address|begins with http"):
        output(web_tool(allow=["127.0.0.0/8"]), url=f"{server}/to/{target}")


def test_redirects_without_end_and_strange_packing_are_refused(server: str) -> None:
    with pytest.raises(ToolError, match="redirects more than 5 times"):
        output(web_tool(allow=LOOPBACK), url=f"{server}" + "/to/" * 9 + "/page")
    with pytest.raises(ToolError, match="compressed its answer as 'br'"):
        output(web_tool(allow=LOOPBACK), url=f"{server}/brotli")


def test_a_server_that_does_not_answer_is_given_up(server: str) -> None:
    with pytest.raises(ToolError, match=r"did not answer within 0\.2 s"):
        output(web_tool(allow=LOOPBACK, seconds=0.2), url=f"{server}/slow")


def test_nobody_there_is_said_in_words() -> None:
    with pytest.raises(ToolError, match="could not be connected to"):
        output(web_tool(allow=LOOPBACK), url="http://127.0.0.1:1/")


@pytest.mark.parametrize(
    "address", ["64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "fd00::1", "100.64.0.1", "224.0.0.1", "::"]
)
def test_addresses_that_hide_a_private_one_are_refused(address: str) -> None:
    with pytest.raises(ToolError):
        Gate().check(ip_address(address), "host")


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:4700::1111", "8.8.8.8"])
def test_public_addresses_pass(address: str) -> None:
    Gate().check(ip_address(address), "host")


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("a<br>b", "a\nb"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("<pre>  x\n   y</pre>", "```\n  x\n   y\n```"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a | b\nc"),
        ("<a href='#top'>up</a> <a href='javascript:x'>js</a>", "up js"),
        ("<img alt='a cat'><img>", "[image: a cat]"),
        ("<script>a<b</script>text<style>p{}</style>", "text"),
        ("<p>unclosed <b>bold <i>both", "unclosed bold both"),
        ("<svg><text>no</text></svg>yes", "yes"),
        ("&lt;b&gt; &nbsp; x", "<b> x"),
        ("<h2> Title </h2>text", "## Title\n\ntext"),
        ("</a></pre></div>ok", "ok"),
    ],
)
def test_html_becomes_readable(html: str, said: str) -> None:
    assert readable(html, url="http://h/")[1] == said


def test_style_sheets_without_an_end_and_with_the_same_rule_over_and_over_take_no_time() -> None:
    many = "<style>" + ",".join(["p.a"] * 60_000) + "{display:none}</style>" + "<p class=a>x</p>" * 2_000
    assert readable(many + "<p>seen</p>", url="https://a.example/")[1] == "seen"
    readable("<style>" * 30_000, url="https://a.example/")
