"""Messages from the page: edited, answered again, with files; and what is refused at the door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import nacre
from nacre.errors import ModelUnavailable
from nacre.providers.scripted import Step
from nacre.sessions import Sessions
from nacre.web.api.queries import hold
from tests.web.browser.site import asked, got, made, posted, said


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sessions]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with nacre.open(str(tmp_path / "store")) as found:
        found.add_message("k", "user", "one")
        found.add_message("k", "assistant", "first")
        yield found


def sent(sessions: Sessions, *steps: Step, **fields: Any) -> httpx.Response:
    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/turn/k", json=fields, headers={"accept": "*/*"})

    return asked(sessions, ask, steps)


def history(sessions: Sessions) -> list[Any]:
    return [one.content for one in sessions.get_history("k")]


def test_an_edited_message_takes_the_place_of_the_old_one_on_a_new_branch(sessions: Sessions) -> None:
    assert "event: answer" in sent(sessions, "second", content="uno", edit="2", id="1").text
    assert history(sessions) == ["uno", "second"]
    assert "branch 2/2" in got(sessions, "/s/k")
    assert "event: answer" in sent(sessions, content="uno", edit="2", id="1").text
    assert history(sessions) == ["uno", "second"], "sent again under its id, it is not edited again"


def test_a_message_is_answered_again_with_and_without_a_script(sessions: Sessions) -> None:
    assert "event: answer" in sent(sessions, "second", again="last").text
    assert history(sessions) == ["one", "second"]
    assert posted(sessions, "/say/k", ["third"], again="last").status_code == 303
    assert history(sessions) == ["one", "third"]
    sessions.add_message("k", "user", "two")
    assert "event: answer" in sent(sessions, "to two", again="last").text
    assert history(sessions) == ["one", "third", "two", "to two"]
    assert "event: answer" in sent(sessions, "fourth", again=str(numbers(sessions)[1])).text
    assert history(sessions) == ["one", "fourth"]


def numbers(sessions: Sessions) -> list[int]:
    return list(sessions.snapshot("k").numbers)


def test_a_message_that_was_stored_with_others_is_not_edited(sessions: Sessions) -> None:
    sessions.add_messages("k", [said("user", "a"), said("user", "b")])
    refused = sent(sessions, "never", content="c", edit=str(numbers(sessions)[-1]))
    assert "stored together with others" in refused.text
    assert history(sessions) == ["one", "first", "a", "b"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"content": " "}, "the message is empty"),
        ({"content": "x", "edit": "two"}, "named by its number"),
        ({"content": "x", "edit": "99"}, "there is no message 99"),
        ({"content": 7}, "the message cannot be read; reload the page and send it again"),
        ({"files": [{"name": "a.txt", "data": "not base64"}]}, "did not arrive whole"),
        ({"files": [{"name": "a.txt", "data": ""}] * 21}, "at most 20 files"),
        ({"files": [{"name": "a.txt", "data": "/w=="}]}, "neither text nor an image"),
    ],
)
def test_what_cannot_be_a_message_is_refused_and_nothing_is_stored(
    sessions: Sessions, fields: dict[str, Any], words: str
) -> None:
    refused = sent(sessions, "never", **fields)
    assert refused.status_code in {400, 404}
    assert words in refused.json()["detail"]
    assert history(sessions) == ["one", "first"]


def test_nothing_is_streamed_where_no_turn_runs(sessions: Sessions) -> None:
    async def ask(client: httpx.AsyncClient) -> int:
        return (await client.get("/turn/k")).status_code

    assert asked(sessions, ask) == 204


def test_a_chosen_model_that_is_not_known_is_never_replaced(sessions: Sessions) -> None:
    sessions.set_meta("k", chosen_model="nobody/large")
    app = made(sessions, ["never"])
    with pytest.raises(ModelUnavailable, match="there is no provider 'nobody'"):
        app.provider_of("k")
    assert app.provider_of("other") is app.provider
    sessions.set_meta("k", chosen_model=app.model)
    assert app.provider_of("k") is app.provider


def test_a_session_whose_chosen_model_is_gone_can_be_read_and_given_another(sessions: Sessions) -> None:
    sessions.set_meta("k", chosen_model="nobody/large")
    html = got(sessions, "/s/k")
    assert "first" in html
    assert ">nobody/large</a>" in html
    assert 'aria-pressed="true"' not in got(sessions, "/model/k?part=1")
    assert posted(sessions, "/do/model/k", model="").status_code == 303
    assert "nobody" not in got(sessions, "/s/k")


# ---- why there is no answer

WHY = "the server at http://127.0.0.1:1 is not reachable"
ALERT = f'<p class="doing wrong" role="alert">{WHY}</p>'


def test_why_a_message_has_no_answer_is_there_until_it_has_one(sessions: Sessions) -> None:
    assert ModelUnavailable(WHY).args[0] in sent(sessions, ModelUnavailable(WHY), content="two").json()["detail"]
    assert ALERT in got(sessions, "/s/k")
    assert ALERT not in got(sessions, "/s/k?tip=2")
    assert posted(sessions, "/say/k", ["second"], again="last").status_code == 303
    assert "alert" not in got(sessions, "/s/k")
    assert history(sessions) == ["one", "first", "two", "second"]


def test_without_a_script_it_is_kept_too(sessions: Sessions) -> None:
    assert posted(sessions, "/say/k", [ModelUnavailable(WHY)], content="two").status_code == 502
    assert ALERT in got(sessions, "/s/k")


def test_it_goes_with_the_message_that_it_is_about(sessions: Sessions) -> None:
    sent(sessions, ModelUnavailable(WHY), content="two")
    sessions.rewind("k", 3)
    assert "alert" not in got(sessions, "/s/k")


def test_a_stopped_or_refused_turn_leaves_no_reason(sessions: Sessions) -> None:
    assert sent(sessions, "never", content="two", edit="99").status_code == 404
    with hold(sessions, "k"):
        assert sent(sessions, "never", content="two").status_code == 409
    assert [entry for entry in sessions.records("k") if entry.kind.startswith("x.")] == []
