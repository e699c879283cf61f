"""The list and the search in their details: what is counted, pinned, tagged, narrowed, and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest

import nacre
from nacre.sessions import Sessions
from nacre.storage.view import LogView
from nacre.web.pages import session_list
from nacre.web.pages.session_list import Filters
from nacre.web.server import application
from tests.paths import log_of
from tests.web.browser.site import HEADERS, HOSTS, TOKEN, called, fill, got, made, posted, returned, said


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        yield found


def keys(html: str) -> list[str]:
    return re.findall(r'<li class="row \w+"><a href="/s/([^"]+)"', html)


def worked(sessions: Sessions, key: str, *, model: str = "m1") -> None:
    sessions.add_messages(
        key, [said("user", "go"), called("a", "shell", command="ls"), called("b", "shell", command="x")]
    )
    sessions.add_messages(key, [returned("a", "shell", "x"), returned("b", "shell", "no", failed=True)])
    sessions.add_messages(key, [said("assistant", "done", model=model)])
    sessions.append(key, "use", {"prompt": 1200, "completion": 300})


def test_a_row_counts_calls_failures_tokens_and_branches(sessions: Sessions) -> None:
    sessions.add_message("web:a", "user", "begin")
    worked(sessions, "web:a")
    sessions.rewind("web:a", 2)
    sessions.add_message("web:a", "user", "otherwise")
    html = got(sessions, "/")
    assert '2 tool calls, <em class="wrong">1 failed</em> · 1.5k tokens · 2 branches' in html
    [row] = json.loads(got(sessions, "/index.json"))["items"]
    assert (row["calls"], row["failed"], row["tokens"], row["branches"]) == (2, 1, 1500, 2)


def test_list_and_transcript_say_what_is_in_quarantine_until_it_is_settled(sessions: Sessions) -> None:
    for at in range(14):
        sessions.add_message(f"web:{at:02}", "user", "hello")
        sessions.add_messages(f"web:{at:02}", [said("user", "part 0"), said("user", "part 1")])
        log = log_of(sessions.location, f"web:{at:02}")
        log.write_bytes(log.read_bytes().replace(b"part 1", b"part l"))
        sessions.get_history(f"web:{at:02}")
    text = "1 record of this session is in quarantine"
    html = got(sessions, "/")
    assert (html.count(text), "and 2 more sessions" in html) == (12, True)
    assert json.loads(got(sessions, "/index.json"))["items"][0]["quarantine"]["text"] == text
    assert text in got(sessions, "/index.md")
    assert f"{text} <code>nacre sessions quarantine show web:00</code>" in got(sessions, "/s/web:00")
    for at in range(14):
        sessions.discard(f"web:{at:02}")
    assert "in quarantine" not in got(sessions, "/") + got(sessions, "/s/web:00")


def test_what_was_counted_goes_on_from_where_it_was(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    worked(sessions, "k")
    app = made(sessions)
    session_list.read_list(app, Filters())
    monkeypatch.setattr(LogView, "all", None)
    worked(sessions, "k")
    [row] = session_list.read_list(app, Filters()).rows
    assert row.tally is not None
    assert (row.tally.calls, row.tally.failed, row.tally.given) == (4, 2, 2400)


def test_pinned_sessions_come_first(sessions: Sessions) -> None:
    for key in ("a", "b", "c"):
        sessions.add_message(key, "user", "hi")
    assert posted(sessions, "/do/pin/a", pinned="1").headers["location"] == "/s/a"
    assert sessions.get_meta("a")["pinned"] is True
    assert keys(got(sessions, "/"))[0] == "a"
    assert keys(got(sessions, "/?pinned=1")) == ["a"]
    posted(sessions, "/do/pin/a")
    assert "pinned" not in sessions.get_meta("a")


def test_tags_are_set_and_filtered_by(sessions: Sessions) -> None:
    sessions.add_message("a", "user", "hi")
    sessions.add_message("b", "user", "hi")
    posted(sessions, "/do/tags/a", tags="work, <b>, work,")
    assert sessions.get_meta("a")["tags"] == ["work", "<b>"]
    assert keys(got(sessions, "/?tag=work")) == ["a"]
    assert '<a class="tag" href="/?tag=%3Cb%3E">&lt;b&gt;</a>' in got(sessions, "/s/a")
    posted(sessions, "/do/tags/a", tags="")
    assert "tags" not in sessions.get_meta("a")


def test_an_archived_session_is_not_begun_anew_by_a_tag(sessions: Sessions) -> None:
    sessions.add_message("a", "user", "hi")
    sessions.archive("a")
    assert posted(sessions, "/do/tags/a", tags="x").status_code == 409
    assert [info.key for info in sessions.list()] == []


def test_facets_count_what_the_other_filters_leave(sessions: Sessions) -> None:
    worked(sessions, "web:a", model="m1")
    worked(sessions, "web:b", model="m2")
    sessions.add_message("irc:c", "user", "hi")
    html = got(sessions, "/?model=m1&channel=web")
    assert keys(html) == ["web:a"]
    counts = {name: int(number) for name, number in re.findall(r">([^<>]+) <i>(\d+)</i></a>", html)}
    assert counts == {"web": 1, "idle": 1, "m1": 1, "m2": 1}
    assert '<a href="/?channel=web&amp;model=m1" aria-current="true">web' in html
    assert keys(got(sessions, "/?state=unanswered")) == ["irc:c"]


def test_the_chips_are_channels_and_not_keys(sessions: Sessions) -> None:
    for key in ("notes", "diary", "irc:a", "irc:b", ":odd"):
        sessions.add_message(key, "user", "hi")
    html = got(sessions, "/")
    assert re.findall(r'href="/\?channel=([^"&]+)"', html) == ["-", "irc"]
    assert '<a href="/?channel=-">other <i>3</i></a>' in html
    assert sorted(keys(got(sessions, "/?channel=-"))) == [":odd", "diary", "notes"]
    assert sorted(keys(got(sessions, "/?channel=irc"))) == ["irc:a", "irc:b"]


def test_the_list_is_narrowed_to_a_folder_and_what_is_below_it(sessions: Sessions) -> None:
    for key, folder in (("a", "/code/shop"), ("b", "/code/shop/src"), ("c", "/code/shopping"), ("d", "")):
        sessions.add_message(key, "user", "hi")
        sessions.set_meta(key, cwd=folder or None)
    html = got(sessions, "/?folder=/code/shop")
    assert sorted(keys(html)) == ["a", "b"]
    assert '<a href="/?folder=%2Fcode%2Fshop" aria-current="true" title="/code/shop">shop <i>1</i></a>' in html


def test_a_filter_keeps_the_others(sessions: Sessions) -> None:
    sessions.add_message("a", "user", "hi")
    html = got(sessions, "/?state=unanswered&text=a&tag=x")
    assert '<input type="hidden" name="state" value="unanswered"><input type="hidden" name="tag" value="x">' in html


def test_the_sessions_beside_one_are_those_of_the_filtered_list(sessions: Sessions) -> None:
    for key in ("irc:a", "web:b", "irc:c"):
        sessions.add_message(key, "user", "hi")
    app = made(sessions)
    first, second, third = keys(got(sessions, "/"))
    assert session_list.neighbour(app, Filters(), first, 1) == second
    assert session_list.neighbour(app, Filters(), third, -1) == second
    assert session_list.neighbour(app, Filters(), first, -1) == ""
    newest = next(key for key in (first, second) if key != "web:b")
    oldest = "irc:a" if newest == "irc:c" else "irc:c"
    assert session_list.neighbour(app, Filters(prefix="irc:"), newest, 1) == oldest
    assert got(sessions, f"/beside/{newest}?step=older&prefix=irc:", status=303) == ""


def test_a_list_of_many_is_not_kept_waiting_by_what_it_has_to_count(sessions: Sessions) -> None:
    for at in range(60):
        sessions.add_message(f"k{at}", "user", "hi")
    app = made(sessions)
    found = session_list.read_list(app, Filters(), hurry=-1.0)
    assert (found.is_pending, len(found.rows), {row.state for row in found.rows}) == (True, 50, {"unanswered"})
    assert 'data-full="/?page=1&amp;full=1"' in session_list.html(found)
    assert not session_list.read_list(app, Filters(is_full=True)).is_pending
    assert not session_list.read_list(app, Filters(), hurry=-1.0).is_pending


def test_what_is_pinned_or_asked_for_is_listed_however_old_it_is(sessions: Sessions) -> None:
    for at in range(60):
        sessions.add_message(f"k{at}", "user", "hi")
    sessions.set_meta("k0", pinned=True)
    sessions.set_meta("k1", tags=["work"])
    for at in range(60, 120):
        sessions.add_message(f"new{at}", "user", "hi")
    app = made(sessions)

    def list_of(filters: Filters) -> session_list.Listing:
        return session_list.read_list(app, filters, max_counted=50)

    assert list_of(Filters()).rows[0].info.key == "k0"
    assert [row.info.key for row in list_of(Filters(tag="work")).rows] == ["k1"]
    assert len(list_of(Filters(prefix="k", page=2)).rows) == 10
    assert list_of(Filters()).total == 120


def test_a_large_session_is_counted_only_where_there_is_time(sessions: Sessions) -> None:
    fill(sessions, "large", 2000)
    app = made(sessions)
    [row] = session_list.read_list(app, Filters()).rows
    assert row.tally is None
    [row] = session_list.read_list(app, Filters(is_full=True)).rows
    assert row.tally is not None
    assert row.tally.calls == 500


# ---- search


def test_calls_that_failed_are_found(sessions: Sessions) -> None:
    worked(sessions, "web:a")
    html = got(sessions, "/search?q=has:error")
    assert re.findall(r'href="(/s/web:a\?[^"]+)"', html) == ["/s/web:a?at=6#6"]
    assert got(sessions, "/search?q=has:error+nothing").count("<li ") == 0
    assert json.loads(got(sessions, "/search.json?q=no+has:error"))["items"][0]["n"] == 6


def test_a_result_leads_into_the_generation_that_it_is_in(sessions: Sessions) -> None:
    worked(sessions, "web:a")
    sessions.archive("web:a")
    sessions.add_messages("web:a", [{"role": "user", "content": f"nothing here {n}"} for n in range(9)])
    (uid,) = {one.generation for one in sessions.transcript("web:a")[:1]}
    html = got(sessions, "/search?q=has:error")
    (address,) = re.findall(r'href="(/s/web:a\?[^"]+)"', html)
    assert address == f"/s/web:a?at=6&amp;g={uid}#6"
    assert 'id="6"' in got(sessions, address.partition("#")[0].replace("&amp;", "&"))
    assert f"/s/web:a?at=6&g={uid}#6" in got(sessions, "/search.md?q=has:error")
    assert json.loads(got(sessions, "/search.json?q=has:error"))["items"][0]["generation"] == uid


def test_a_search_is_narrowed_and_widened_by_a_click(sessions: Sessions) -> None:
    sessions.add_message("a", "user", "needle")
    html = got(sessions, "/search?q=needle+since:7d")
    assert '<a href="/search?q=needle" aria-current="true">last week</a>' in html
    assert '<a href="/search?q=needle+since%3A1d">last day</a>' in html
    assert '<a href="/search?q=needle+since%3A7d+has%3Aerror">failed calls</a>' in html


# ---- below another address


def test_every_address_of_a_further_agent_is_below_it(sessions: Sessions) -> None:
    worked(sessions, "web:a")

    async def visited() -> list[str]:
        app = made(sessions)
        web = application(app, token=TOKEN, hosts=HOSTS, agents={"main": app, "ops": app})
        transport = httpx.ASGITransport(app=web)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as client:
            paths = ("/", "/s/web:a", "/search?q=go", "/new", "/use/web:a", "/login")
            return [(await client.get(f"/agents/ops{path}")).text for path in paths]

    for page in anyio.run(visited):
        html = re.sub('<nav class="agents".*?</nav>', "", page)
        assert 'data-base="/agents/ops"' in html
        found = re.findall(r'(?:href|src|action|data-(?:page|raw|part|turn|fork|beside|api))="(/[^"]*)"', html)
        assert [one for one in found if not one.startswith("/agents/ops/")] == []
        assert len(found) >= 3


# ---- lists that hold nothing


@pytest.mark.parametrize("query", ["pinned=1", "state=live&tag=gone", "archived=1&model=none", "text=nobody"])
def test_a_list_that_holds_nothing_leads_back_to_all(sessions: Sessions, query: str) -> None:
    sessions.add_message("a", "user", "hi")
    assert 'No session matches. <a href="/">All sessions</a>' in got(sessions, f"/?{query}")


def test_behind_the_last_page_is_the_last_page(sessions: Sessions) -> None:
    for at in range(51):
        sessions.add_message(f"k{at}", "user", "hi")
    html = got(sessions, "/?page=9")
    assert (html.count('<li class="row'), "2 of 2" in html) == (1, True)
