"""Messages as HTML: what was said, runs of calls folded to one line, failures open, thinking hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from nacre.history.branches import Bar
from nacre.history.transcript import Chunk, Fork, Transcript
from nacre.messages import Message, Stored
from nacre.render.conversation import Call, Cut, Said, parts, text_in
from nacre.render.html import escaped, html
from nacre.render.html_page import facts, kind_of, who
from nacre.web import attachments
from nacre.web.pages import call_html, urls
from nacre.web.pages.call_html import FEWEST_IN_RUN, Made, cut
from nacre.web.pages.highlight import Marker


class Scene(Struct, frozen=True, kw_only=True):
    """What articles are drawn with: the messages as they are stored, by number, and what to mark in them.

    `newest` is the number of the last message of the branch on which the session goes on, if it is among them.
    """

    given: Mapping[str, Message]
    mark: Marker
    transcript: Transcript
    newest: str = ""


def section(transcript: Transcript, chunk: Chunk, mark: Marker) -> str:
    """A chunk of messages, with the bars and switchers that stand among them."""
    given = {str(one.n): one.message for one in chunk.stored}
    is_end = bool(chunk.places) and chunk.places[-1] == transcript.high and not transcript.tip
    newest = str(chunk.stored[-1].n) if is_end else ""
    scene = Scene(given=given, mark=mark, transcript=transcript, newest=newest)
    drawn = "".join(_drawn(scene, chunk))
    told = {"chunk": chunk.number, "high": transcript.high, "n": transcript.n, "live": transcript.live}
    data = " ".join(f'data-{name}="{value}"' for name, value in told.items())
    return f"<section {data}>{drawn}</section>\n"


def _drawn(scene: Scene, chunk: Chunk) -> Iterator[str]:
    places = {one.n: place for place, one in enumerate(chunk.stored)}
    bars = _by_number(scene.transcript, chunk)
    forks = {fork.parent: fork for fork in scene.transcript.forks}
    if chunk.number == 0 and 0 in forks and scene.transcript.low == 1:
        yield _switcher(scene.transcript, forks[0])
    # What the model sees, or would see again if the session went on from the branch that is shown.
    live = frozenset(one.n for place, one in _placed(chunk) if place > scene.transcript.hidden)
    run: list[Said] = []
    for part in parts(chunk.stored, live=live, newest=scene.transcript.generation):
        if isinstance(part, Cut):
            continue
        before = [bars[n] for n in _numbers(part) if n in bars]
        after = [forks[n] for n in _numbers(part) if n in forks and n in places]
        if before or not _goes_on(run, part, scene):
            yield from _run(run, scene)
            run = []
        yield from (bar(one, is_in_force=one == scene.transcript.bars[0]) for one in before)
        run.append(part)
        if after:
            yield from _run(run, scene)
            run = []
        yield from (_switcher(scene.transcript, fork) for fork in after)
    yield from _run(run, scene)


def _goes_on(run: Sequence[Said], said: Said, scene: Scene) -> bool:
    """Tell whether a message goes on with a run: both do nothing but call."""
    return not run or (_is_quiet(run[-1], scene) and _is_quiet(said, scene) and run[-1].is_live == said.is_live)


def _is_quiet(said: Said, scene: Scene) -> bool:
    """Tell whether a message only calls, and what came of that is only text."""
    answers = [answer for call in said.calls if (answer := scene.given.get(_answer(call))) is not None]
    shows = said.text.strip() or said.attachments or any(map(attachments.parts, answers))
    return bool(said.calls) and said.role == "assistant" and not shows


def _run(run: Sequence[Said], scene: Scene) -> Iterator[str]:
    """Messages that do nothing but call, folded if they call often; one that says something stands alone."""
    many = [made for said in run if _is_quiet(said, scene) for made in _made(said, scene)]
    if len(many) < FEWEST_IN_RUN:
        yield from (_article(said, scene) for said in run)
    else:
        yield call_html.run(f"r{run[0].label}", many, "".join(_article(said, scene, is_compact=True) for said in run))


def _numbers(said: Said) -> list[int]:
    """A message's number, and those of its calls' results."""
    return [int(said.label), *(int(call.result.label) for call in said.calls if call.result is not None)]


def _by_number(transcript: Transcript, chunk: Chunk) -> dict[int, Bar]:
    """The bars of a chunk, each by the message that it stands before; only where what it covers is shown too."""
    bars = {bar.covers + 1: bar for bar in reversed(transcript.bars)}
    if not transcript.is_all:
        return {}
    return {one.n: bars[place] for place, one in _placed(chunk) if place in bars}


def _placed(chunk: Chunk) -> Iterator[tuple[int, Stored]]:
    return zip(chunk.places, chunk.stored, strict=True)


# ---- one message


def _article(said: Said, scene: Scene, *, is_compact: bool = False) -> str:
    look = f"{kind_of(said)}{' compact' if is_compact else ''}"
    label = escaped(said.label)
    link = f'<a href="#{label}" title="Link to this message">#{label}</a>'
    head = link if is_compact else f"<b>{who(said)}</b> {facts(said)} {link}"
    return "".join(
        (
            f'<article id="{label}" class="{look}" tabindex="-1"><h2>{head}</h2>',
            *(scene.mark(piece) for piece in _body(said, scene)),
            "</article>\n",
        )
    )


def _body(said: Said, scene: Scene) -> Iterator[str]:
    if said.reasoning:
        thought = escaped(cut(said.reasoning))
        yield f'<details class="thinking"><summary><i>thinking</i></summary><pre tabindex="0">{thought}</pre></details>'
    if said.role == "tool":
        has_failed = scene.given[said.label].extra.get("failed") is True
        yield call_html.alone(said.text, has_failed=has_failed)
        yield _attached(said.label, scene)
        return
    if text := _text(said, scene):
        yield f'<div class="said" dir="auto">{html(cut(text))}</div>'
    yield _attached(said.label, scene)
    many = _made(said, scene)
    # What a tool shows stands below its line, also while that is folded.
    shown = [_attached(_answer(made.call), scene) for made in many]
    if len(many) >= FEWEST_IN_RUN and not _is_quiet(said, scene):
        yield call_html.run(f"c{escaped(said.label)}", many, "".join(map(call_html.folded, many)))
        yield from shown
    else:
        yield from (call_html.folded(made) + attached for made, attached in zip(many, shown, strict=True))


def _text(said: Said, scene: Scene) -> str:
    """What was said, without the files that a person has attached to it."""
    content = scene.given[said.label].content
    if said.role != "user" or not isinstance(content, list):
        return said.text
    return "\n".join(text for text in map(text_in, content) if text and not attachments.is_file(text))


def _made(said: Said, scene: Scene) -> list[Made]:
    """The calls of a message; each begins when the one before has ended."""
    made: list[Made] = []
    since = said.ts
    # While calls run one after the other, the newest message is the result of one before.
    is_newest = scene.newest in {said.label, *(call.result.label for call in said.calls if call.result is not None)}
    for call, given in zip(said.calls, scene.given[said.label].tool_calls, strict=True):
        answer = scene.given.get(call.result.label) if call.result is not None else None
        made.append(Made(call=call, given=given, answer=answer, since=since, is_newest=is_newest))
        since = made[-1].ended
    return made


def _answer(call: Call) -> str:
    """The number of the message that answers a call; "" if none does."""
    return call.result.label if call.result is not None else ""


def _attached(label: str, scene: Scene) -> str:
    """Pictures and files of a message."""
    message, shown = scene.given.get(label), scene.transcript
    if message is None or not (message.media or isinstance(message.content, list)):
        return ""
    return "".join(attachments.html(message, label, key=shown.key, generation=shown.generation))


# ---- what stands between messages


def bar(one: Bar, *, is_in_force: bool, more: str = "") -> str:
    """Where a summary took the place of messages."""
    count = f"{one.covers:,} message{'s' * (one.covers != 1)}"
    title = f"{count} summarised" if one.text else f"{count} left out"
    state = " open" if is_in_force and more else ""
    text = f"<details{state}><summary>Summary</summary>{html(cut(one.text))}</details>" if one.text else ""
    head = f'<aside class="bar" id="s{one.n}" aria-label="Compaction">'
    return f"{head}<p><b>{title}</b>{more}</p>{text}</aside>\n"


def _switcher(transcript: Transcript, fork: Fork) -> str:
    """Where the history was rewound: one of several ways on."""
    at, count = fork.chosen, len(fork.tips)
    shown = f"{at + 1}/{count}" if at >= 0 else f"–/{count}"
    return (
        f'<nav class="branches" aria-label="Branches after message {fork.parent}">'
        f"{_way(transcript, fork, at - 1, '&lsaquo;', 'before')} <span>branch {shown}</span> "
        f"{_way(transcript, fork, at + 1 if at >= 0 else count, '&rsaquo;', 'after')}</nav>\n"
    )


def _way(transcript: Transcript, fork: Fork, at: int, sign: str, way: str) -> str:
    if not 0 <= at < len(fork.tips):
        return f'<span aria-hidden="true">{sign}</span>'
    address = urls.to("s", transcript.key, tip=fork.tips[at], at=fork.parent, g=transcript.generation)
    label = "Earlier branch (b)" if way == "before" else "Later branch (B)"
    return (
        f'<a href="{escaped(address)}#{fork.parent}" data-way="{way}" aria-label="{label}" title="{label}">{sign}</a>'
    )


def sections(transcript: Transcript, mark: Marker) -> str:
    """All chunks of a transcript that are at hand."""
    return "".join(section(transcript, chunk, mark) for chunk in transcript.chunks)
