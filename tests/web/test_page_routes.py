"""The pages as a server draws them: their shape, their twins, what they cost, and that nothing hostile gets through."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import nacre
from nacre.history.transcript import CHUNK, Transcript, Wanted, part
from nacre.messages import Hit, Message
from nacre.records import AppendRecord, Record
from nacre.sessions import Sessions
from nacre.storage.view import LogView, Reading, reading
from nacre.web.api.queries import transcript
from nacre.web.pages import message_html, search_page, urls
from nacre.web.pages.message_html import marker, snippet
from tests.item_orders import ORDERS
from tests.web.browser.site import asked, called, fill, got, posted, returned, said

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) \u202e\x1b[31m \"' <img src=x onerror=alert(1)>"


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        yield found


def ids(html: str) -> list[int]:
    """The numbers of all messages on a page, results too, in their order."""
    return [int(n) for n in re.findall(r'<(?:article|details) id="(\d+)"', html)]


def chunk(sessions: Sessions, number: int, wanted: Wanted) -> Transcript:
    found = sessions.read("k", lambda view: part(view, wanted, number=number))
    assert found is not None
    return found


# ---- the list


def test_an_item_without_a_role_is_shown_by_its_type(sessions: Sessions) -> None:
    sessions.add_full_message("k", {"type": "reasoning", "summary": ["deep thoughts"]})
    html = got(sessions, "/s/k")
    assert "reasoning" in html
    assert "deep thoughts" in html
    assert "deep thoughts" in got(sessions, "/api/sessions/k")


def test_a_message_with_bytes_is_shown_on_the_page_and_over_the_api(sessions: Sessions) -> None:
    call = nacre.ToolCall(id="c", name="f", arguments={"raw": b"123"})
    sessions.add_full_message("k", Message(role="user", content=[{"type": "image", "data": b"12"}], tool_calls=(call,)))
    assert "2 bytes" in got(sessions, "/s/k")
    assert "MTI=" in got(sessions, "/api/sessions/k")


def test_the_list_shows_sessions_and_how_they_stand(sessions: Sessions) -> None:
    sessions.add_messages("web:a", [said("user", "hi"), said("assistant", "hello there")])
    sessions.add_messages("irc:b", [said("user", "anyone?")])
    sessions.add_messages("irc:c", [said("user", "run it"), called("x", "shell", command="ls")])
    html = got(sessions, "/")
    states = dict(re.findall(r'class="row (\w+)"><a href="/s/([^"]+)"', html))
    assert {key: state for state, key in states.items()} == {
        "web:a": "idle",
        "irc:b": "unanswered",
        "irc:c": "interrupted",
    }
    assert "hello there" in html


def test_filters_are_in_the_address(sessions: Sessions) -> None:
    for key in ("web:a", "irc:b", "irc:c"):
        sessions.add_message(key, "user", "hi")
    sessions.set_meta("irc:c", title="Weather")
    sessions.archive("web:a")
    for query in ("prefix=irc:&text=weather", "channel=irc&text=weather"):
        assert re.findall('row.*?href="/s/([^"]+)"', got(sessions, f"/?{query}")) == ["irc:c"]
    assert re.findall('row.*?href="/s/([^"]+)"', got(sessions, "/?archived=1")) == ["web:a"]


def test_a_long_list_has_pages(sessions: Sessions) -> None:
    for at in range(51):
        sessions.add_message(f"k{at}", "user", "hi")
    assert got(sessions, "/").count("<li ") == 50
    assert got(sessions, "/?page=2").count("<li ") == 1


def test_a_list_and_a_search_have_twins(sessions: Sessions) -> None:
    sessions.add_message("web:a", "user", "a needle here")
    listed = json.loads(got(sessions, "/index.json"))
    found = json.loads(got(sessions, "/search.json?q=needle"))
    assert (listed["total"], listed["items"][0]["key"], listed["items"][0]["last"]) == (1, "web:a", "a needle here")
    assert (found["items"][0]["key"], found["items"][0]["n"]) == ("web:a", 2)
    assert "- [web:a](/s/web:a) · 1 messages" in got(sessions, "/index.md")
    assert "a **needle** here" in got(sessions, "/search.md?q=needle")


@pytest.mark.parametrize("is_there", [True, False])
def test_other_words_are_searched_for_where_embeddings_are_installed(sessions: Sessions, is_there: bool) -> None:
    searched: list[object] = []

    class Searched(Sessions):
        def search(self, query: str, **given: Any) -> list[Hit]:
            searched.append((query, given["meaning"]))
            return []

    query, stored = "where did I park by:meaning", Searched(sessions._store)
    assert search_page.search(stored, query, is_installed=lambda: is_there) == []
    assert searched == [("where did I park", is_there)]
    html = search_page.html(query, [], {}, is_installed=lambda: is_there)
    assert ("in other words" in html) is is_there
    assert search_page.search(stored, "by:meaning", is_installed=lambda: is_there) == []
    assert len(searched) == 1
    assert got(sessions, "/search?q=by:meaning")


def test_search_marks_what_it_found_and_links_to_it(sessions: Sessions) -> None:
    sessions.add_message("web:a", "user", "a needle in <b>hay</b>")
    html = got(sessions, "/search?q=needle")
    assert "a <mark>needle</mark> in &lt;b&gt;hay&lt;/b&gt;" in html
    assert 'href="/s/web:a?at=2&amp;q=needle#2"' in html
    assert "<mark>needle</mark>" in got(sessions, "/s/web:a?at=2&q=needle")


# ---- a transcript


def test_a_call_is_one_line_with_its_result_and_a_failure_is_open(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "go"), called("a", "shell", command="tail app.log")])
    sessions.add_messages("k", [returned("a", "shell", "no such file", failed=True)])
    html = got(sessions, "/s/k")
    assert '<details id="4" class="failed" open><summary><b>$</b> tail app.log <i>→</i> <em>failed</em>' in html
    assert html.count("<article") == 2


def test_thinking_is_folded(sessions: Sessions) -> None:
    sessions.add_full_message("k", Message(role="assistant", content="yes", reasoning="because"))
    assert '<details class="thinking"><summary><i>thinking</i></summary><pre tabindex="0">because</pre>' in got(
        sessions, "/s/k"
    )


@pytest.mark.parametrize("path", ["/", "/s/k", "/search?q=alert", "/s/k?q=script", "/index.md", "/use/k"])
def test_nothing_hostile_gets_through(sessions: Sessions, path: str) -> None:
    sessions.add_messages("k", [said("user", HOSTILE), called("s", "shell", command=HOSTILE)])
    sessions.add_messages("k", [called("e", "edit_file", path=HOSTILE, old_text=HOSTILE, new_text=HOSTILE)])
    sessions.add_messages("k", [called("a", HOSTILE, command=HOSTILE)])
    sessions.add_messages("k", [returned("a", HOSTILE, HOSTILE), Message(role=HOSTILE, content=HOSTILE, name=HOSTILE)])
    sessions.set_meta("k", title=HOSTILE)
    html = got(sessions, path)
    assert "\u202e" not in html
    assert "\x1b" not in html
    if not path.endswith(".md"):
        assert "<script>" not in html
        assert "<img" not in html
        assert 'href="javascript' not in html


def test_a_policy_with_a_nonce_lets_only_our_files_load(sessions: Sessions) -> None:
    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get("/")

    answer = asked(sessions, ask)
    nonce = re.search("script-src 'nonce-([^']+)'", answer.headers["content-security-policy"])
    assert nonce is not None
    assert answer.text.count(f'nonce="{nonce[1]}"') == 2
    assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.text) == []
    assert " style=" not in answer.text


@pytest.mark.parametrize("key", ["a/b", "a%2Fb", "..", ".", "a.json", "?x#y", "ü:\u00a0", "/a", 'q"<'])
def test_every_key_has_its_page_and_its_twins(sessions: Sessions, key: str) -> None:
    sessions.add_message(key, "user", "hi")
    assert ids(got(sessions, urls.to("s", key))) == [2]
    assert json.loads(got(sessions, urls.to("s", key, ".json")))["key"] == key
    assert got(sessions, urls.to("s", key, ".md")).startswith("# ")


def test_the_script_stays_small(sessions: Sessions) -> None:
    assert len(got(sessions, "/static/nacre.js").encode()) < 50_000


def test_an_unknown_session_is_said_to_be_unknown(sessions: Sessions) -> None:
    assert "there is no session &#39;nobody&#39;" in got(sessions, "/s/nobody", status=404)
    assert json.loads(got(sessions, "/s/nobody", status=404, accept="*/*"))["code"] == "not_found"


def test_strangers_see_nothing_but_the_login(sessions: Sessions) -> None:
    async def ask(client: httpx.AsyncClient) -> list[int]:
        del client.headers["authorization"]
        paths = ("/login", "/static/nacre.css", "/", "/s/k", "/part/k", "/s/k.json")
        return [(await client.get(path)).status_code for path in paths]

    assert asked(sessions, ask) == [200, 200, 303, 303, 303, 303]


def test_a_summary_has_a_bar_and_what_it_covers_can_be_shown(sessions: Sessions) -> None:
    fill(sessions, "k", 120)
    sessions.set_summary("k", "Many **parts**.", upto=81)
    html = got(sessions, "/s/k")
    assert "<b>80 messages summarised</b>" in html
    assert "Many <strong>parts</strong>." in html
    assert min(ids(html)) == 82
    everything = got(sessions, "/s/k?all=1&place=80")
    assert 'data-anchor="81"' in everything
    assert sorted(ids(everything)) == list(range(2, 122))
    assert everything.index('id="s122"') < everything.index('<article id="82"')


def test_a_deep_link_finds_what_was_summarised_and_moved_out(sessions: Sessions) -> None:
    fill(sessions, "k", 4000)
    sessions.set_summary("k", "short", upto=3997)
    sessions.save("k")
    assert sessions.read("k", lambda view: next(view.back(3000)).n) == 1, "nothing was moved out"
    assert 6 in ids(got(sessions, "/s/k?at=6"))
    chunks = (chunk(sessions, number, Wanted(is_all=True)).chunks[0] for number in range(4000 // CHUNK))
    assert [one.n for found in chunks for one in found.stored] == list(range(2, 4002))
    where = json.loads(got(sessions, "/part/k?at=6"))
    assert where["page"] == "/s/k?at=6&all=1"


def test_a_rewound_history_can_be_switched_and_gone_on_from(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "one"), said("assistant", "two")])
    sessions.add_message("k", "user", "first way")
    sessions.rewind("k", 3)
    sessions.add_message("k", "user", "second way")
    html = got(sessions, "/s/k")
    assert "branch 2/2" in html
    assert "first way" not in html
    other = got(sessions, "/s/k?tip=4&at=3")
    assert "branch 1/2" in other
    assert "second way" not in other
    assert "not in the history" not in other
    assert "Continue from this branch" in other.partition('<footer class="writing')[2]
    assert posted(sessions, "/do/rewind/k", to="4").status_code == 303
    assert [message.content for message in sessions.get_history("k")] == ["one", "two", "first way"]


def test_one_request_is_one(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    sessions.append("k", "use", {"prompt": 1200, "completion": 80})
    html = got(sessions, "/s/k")
    assert "80 out in 1 request;" in html
    assert "Tokens of 1 request," in html


def test_tokens_are_drawn(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    sessions.append("k", "use", {"prompt": 1200, "completion": 80, "cached": 300})
    sessions.append("k", "use", {"input_tokens": 2000, "output_tokens": 5})
    html = got(sessions, "/s/k")
    assert re.search(r"3\.2k tokens in, 85 out in 2 requests; context now 2\.0k, \d+ % of", html)
    assert html.count("<rect") == 5
    assert '<a href="/s/k#3">' in got(sessions, "/use/k")


def test_earlier_lives_of_a_key_are_linked(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "old words")
    sessions.archive("k")
    sessions.add_message("k", "user", "new words")
    html = got(sessions, "/s/k")
    first = re.search(r'href="(/s/k\?g=[^"]+)">1<', html)
    assert first is not None
    assert "old words" in got(sessions, first[1])
    assert "old words" not in html


# ---- chunks


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_chunks_hold_every_message_once(sessions: Sessions, count: int) -> None:
    random_ = random.Random(count)
    messages = [said(random_.choice(("user", "tool", "assistant")), str(at)) for at in range(count)]
    sessions.add_messages("k", messages or [said("user", "only")])
    total = len(messages) or 1
    chunks = [chunk(sessions, number, Wanted()).chunks for number in range(total // CHUNK + 2)]
    assert [one.n for many in chunks for found in many for one in found.stored] == list(range(2, total + 2))


def test_a_result_is_never_in_another_chunk_than_its_call(sessions: Sessions) -> None:
    fill(sessions, "k", 400)
    for number in range(8):
        [found] = chunk(sessions, number, Wanted()).chunks
        assert found.stored[0].message.role != "tool"


def test_opening_a_long_session_reads_a_few_records_of_it(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(sessions, "long", 8000)
    read = []
    back = LogView.back

    def counted(self: LogView, n: int) -> Iterator[Record]:
        for record in back(self, n):
            read.append(record.n)
            yield record

    def never(self: LogView) -> Any:
        raise AssertionError("the whole session was read")

    monkeypatch.setattr(LogView, "back", counted)
    monkeypatch.setattr(LogView, "all", never)
    for wanted in (Wanted(), Wanted(at=4000), Wanted(place=17)):
        read.clear()
        assert transcript(sessions, "long", wanted).high == 8000
        assert len(read) < 1200


def test_a_page_opens_the_log_of_its_session_once(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.add_message("k", "user", "hi")
    got(sessions, "/s/k")
    opened: list[str] = []
    enter = reading.__enter__

    def counted(self: reading) -> Reading:
        found = enter(self)
        opened.append(self._place.key)
        return found

    monkeypatch.setattr(reading, "__enter__", counted)
    got(sessions, "/s/k")
    assert opened.count("k") == 1


# ---- what forms do


def test_words_from_the_form_are_answered(sessions: Sessions) -> None:
    answer = posted(sessions, "/say/web:x", ["hello"], content="hi\r\nthere", id="1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/s/web:x#4")
    assert [message.content for message in sessions.get_history("web:x")] == ["hi\nthere", "hello"]


def test_the_same_form_sent_twice_says_it_once(sessions: Sessions) -> None:
    posted(sessions, "/say/web:x", ["hello"], content="hi", id="1")
    posted(sessions, "/say/web:x", ["not this"], content="hi", id="1")
    assert [message.content for message in sessions.get_history("web:x")] == ["hi", "hello"]


def test_an_empty_message_and_a_model_that_fails_are_told(sessions: Sessions) -> None:
    assert posted(sessions, "/say/web:x", content=" ").status_code == 400
    answer = posted(sessions, "/say/web:x", content="hi")
    assert answer.status_code == 502
    assert "the script of &#39;scripted&#39; has ended" in answer.text


def test_a_page_by_another_name_is_of_the_session_itself(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    sessions.add_alias("k", "old")
    page = got(sessions, "/s/old")
    assert 'action="/do/delete/k"' in page
    assert "/old" not in page


@pytest.mark.parametrize(
    ("verb", "fields"), [("archive", {}), ("unarchive", {}), ("fork", {}), ("delete", {"sure": "1"})]
)
def test_a_form_erases_moves_and_forks_nothing_by_another_name(
    sessions: Sessions, verb: str, fields: dict[str, str]
) -> None:
    sessions.add_message("k", "user", "hi")
    sessions.add_alias("k", "old")
    answer = posted(sessions, f"/do/{verb}/old", **fields)
    assert answer.status_code == 409
    assert [info.key for info in sessions.list()] == ["k"]


def test_a_session_is_renamed_forked_archived_and_brought_back(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    assert posted(sessions, "/do/title/k", title="A title").headers["location"] == "/s/k"
    assert posted(sessions, "/do/fork/k", to="k/2").headers["location"] == "/s/k%2F2"
    assert posted(sessions, "/do/archive/k").headers["location"] == "/"
    assert "This session is archived." in got(sessions, "/s/k")
    assert posted(sessions, "/do/unarchive/k").headers["location"] == "/s/k"
    assert (sessions.get_meta("k")["title"], sessions.get_history("k/2")[0].content) == ("A title", "hi")


@pytest.mark.parametrize(
    ("verb", "fields"), [("archive", {}), ("unarchive", {}), ("rewind", {"to": "3"}), ("delete", {"sure": "1"})]
)
def test_a_session_in_which_somebody_else_is_at_work_is_left_alone(
    sessions: Sessions, verb: str, fields: dict[str, str]
) -> None:
    sessions.add_messages("k", [said("user", "hi"), said("assistant", "hello")])
    sessions.add_message("k", "user", "and then?")
    if verb == "unarchive":
        sessions.archive("k")
    before, hold = [entry.kind for entry in sessions.records("k")], sessions.hold("k")
    hold.take()
    refused = posted(sessions, f"/do/{verb}/k", **fields)
    assert (refused.status_code, [entry.kind for entry in sessions.records("k")]) == (409, before)
    assert "is in use by this process" in refused.text
    hold.close()


def test_what_leaves_a_turn_alone_is_done_while_one_runs(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    hold = sessions.hold("k")
    hold.take()
    assert posted(sessions, "/do/title/k", title="A title").status_code == 303
    hold.close()


def test_deleting_needs_to_be_sure(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "hi")
    assert posted(sessions, "/do/delete/k").status_code == 400
    assert sessions.exists("k")
    assert posted(sessions, "/do/delete/k", sure="1").status_code == 303
    assert not sessions.exists("k")


def test_there_is_nothing_else_to_do(sessions: Sessions) -> None:
    assert posted(sessions, "/do/format/k").status_code == 404


# ---- marking


def test_marks_never_touch_tags_or_entities() -> None:
    mark = marker('amp class "a b"')
    assert mark('<p class="amp">&amp; amp A  B a b</p>') == (
        '<p class="amp">&amp; <mark>amp</mark> A  B <mark>a b</mark></p>'
    )


def test_a_snippet_with_asterisks_of_its_own_is_not_marked_wrongly() -> None:
    assert snippet("a **needle** b") == "a <mark>needle</mark> b"
    assert "<mark>" not in snippet("2 ** 3")


@pytest.mark.parametrize("key", ["a\n", "\na", "a\nb", "\n", "a\r\n", "a\u2028b"])
def test_a_key_with_line_breaks_is_no_other(sessions: Sessions, key: str) -> None:
    sessions.add_message("a", "user", "the other")
    sessions.add_message(key, "user", "the one meant")
    html = got(sessions, urls.to("s", key))
    assert ("the one meant" in html, "the other" in html) == (True, False)
    assert posted(sessions, urls.to("do/delete", key), sure="1").status_code == 303
    assert [info.key for info in sessions.list()] == ["a"]


@pytest.mark.parametrize("number", ["9" * 5000, "x", "-1", "1.5"])
def test_a_record_has_a_number(sessions: Sessions, number: str) -> None:
    sessions.add_message("k", "user", "hi")
    assert posted(sessions, "/do/fork/k", at=number).status_code == 400
    assert posted(sessions, "/do/rewind/k", to=number).status_code == 400
    assert len(list(sessions.list())) == 1


@pytest.mark.parametrize("path", ["/s/k", "/part/k?chunk=0"])
def test_a_page_that_takes_long_to_draw_keeps_nobody_waiting(
    sessions: Sessions, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.add_message("k", "user", "hi")
    drawn: list[int] = []

    def draw(*_: object) -> str:
        drawn.append(threading.get_ident())
        return ""

    monkeypatch.setattr(message_html, "sections", draw)
    got(sessions, path)
    assert drawn != [threading.get_ident()]
    assert len(drawn) == 1


def test_what_a_session_used_that_is_not_there_is_not_found(sessions: Sessions) -> None:
    got(sessions, "/use/nobody", status=404)


def test_what_is_done_on_the_page_of_an_earlier_life_is_not_done_to_the_newest(sessions: Sessions) -> None:
    sessions.add_message("k", "user", "first life")
    sessions.set_meta("k", title="First")
    sessions.archive("k")
    sessions.add_message("k", "user", "second life")
    first, _ = sessions.read_generations("k", lambda view: view.uid)
    html = got(sessions, f"/s/k?g={first}")
    assert "first life" in html
    assert '"/do/' not in html
    assert '"/do/fork/k"' in got(sessions, "/s/k")


def answered(sessions: Sessions, *answers: str) -> list[int]:
    """Answers as a turn stores them, each together with what it cost; their numbers."""
    for text in answers:
        sessions.add_message("k", "user", "ask")
        sessions.submit("k", [Message(role="assistant", content=text), AppendRecord("use", {"prompt": 1})]).result()
    return [entry.n for entry in sessions.records("k", "msg")][1::2]


def test_a_session_is_forked_behind_an_answer_that_was_stored_with_its_cost(sessions: Sessions) -> None:
    first, _ = answered(sessions, "one", "two")
    answer = posted(sessions, "/do/fork/k", at=str(first), to="new")
    assert (answer.status_code, answer.headers.get("location")) == (303, "/s/new")
    assert [message.content for message in sessions.get_history("new")] == ["ask", "one"]


def test_a_branch_that_ends_with_such_an_answer_is_gone_on_from(sessions: Sessions) -> None:
    first, second = answered(sessions, "one", "two")
    assert posted(sessions, "/do/rewind/k", to=str(first)).status_code == 303
    sessions.add_message("k", "user", "otherwise")
    [tip] = re.findall(r'name="to" value="(\d+)"', got(sessions, f"/s/k?tip={second}").partition("</header>")[2])
    assert posted(sessions, "/do/rewind/k", to=tip).status_code == 303
    assert [message.content for message in sessions.get_history("k")] == ["ask", "one", "ask", "two"]


def test_what_was_stored_with_other_messages_is_not_forked_in_their_middle(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "a"), said("assistant", "b"), said("user", "c")])
    first = next(sessions.records("k", "msg")).n
    assert posted(sessions, "/do/fork/k", at=str(first)).status_code == 409


# ---- the order in which frameworks store calls and results


@pytest.mark.parametrize("before", [0, CHUNK - 2])
@pytest.mark.parametrize("order", ORDERS)
def test_every_call_is_on_the_page_with_its_result(sessions: Sessions, order: str, before: int) -> None:
    count = sum(len(message.tool_calls) for message in ORDERS[order])
    sessions.add_messages("k", [*[said("user", "x")] * before, *ORDERS[order]])
    for html in (got(sessions, "/s/k"), got(sessions, "/s/k.md")):
        assert "no result" not in html
        assert "without result" not in html
        assert len(re.findall("[AB]!", html)) >= count
    shown = "".join(message_html.sections(chunk(sessions, number, Wanted()), str) for number in (0, 1))
    assert "no result" not in shown
    assert shown.count('class="tool"') == 0


def test_calls_at_the_end_may_run_still_and_earlier_ones_do_not(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "x"), *(called(id, "f") for id in "ab"), returned("a", "f", "done")])
    html = got(sessions, "/s/k")
    assert html.count("no result yet") == 1
    assert "<em>no result</em>" not in html
    sessions.add_message("k", "assistant", "so")
    assert got(sessions, "/s/k").count("<em>no result</em>") == 1
