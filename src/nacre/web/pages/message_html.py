"""Messages as HTML: what was said, runs of calls folded to one line, failures open, thinking hidden.

What was searched for is marked in HTML that is made already, never inside its tags.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile

from msgspec import Struct

from nacre.history.branches import Bar
from nacre.history.transcript import Chunk, Fork, Transcript
from nacre.index.query import parse
from nacre.messages import ERASED_TEXT, Message, Stored, is_erased
from nacre.render.conversation import Cut, MessageView, parts, text_in, text_of
from nacre.render.html import escape, html
from nacre.render.html_page import amount, facts, kind_of, who
from nacre.web.pages import message_parts, urls
from nacre.web.pages.message_parts import FILE, MIN_IN_RUN, CallView, cut

Marker = Callable[[str], str]

_TAG = re.compile(r"(<[^>]*>)")
_ENTITY = r"&(?:amp|lt|gt|quot|#39);"


class Scene(Struct, frozen=True, kw_only=True):
    """What articles are drawn with: the messages as they are stored, by number, and what to mark in them.

    `running` are the numbers of messages at the end of the branch on which the session goes on, whose calls may run.
    """

    given: Mapping[str, Message]
    mark: Marker
    transcript: Transcript
    running: frozenset[str] = frozenset()


def sections(transcript: Transcript, mark: Marker) -> str:
    """The chunks of a transcript that were read, with the bars and switchers that stand among their messages."""
    shown = ""
    for chunk in transcript.chunks:
        given = {str(one.n): one.message for one in chunk.stored}
        is_end = bool(chunk.places) and chunk.places[-1] == transcript.high and not transcript.tip
        running = _running(chunk.stored) if is_end else frozenset()
        scene = Scene(given=given, mark=mark, transcript=transcript, running=running)
        facts = {"chunk": chunk.number, "high": transcript.high, "n": transcript.n, "live": transcript.live}
        data = " ".join(f'data-{name}="{value}"' for name, value in facts.items())
        shown += f"<section {data}>{''.join(_pieces(scene, chunk))}</section>\n"
    return shown


def _pieces(scene: Scene, chunk: Chunk) -> Iterator[str]:
    """Runs of messages, and what stands between them."""
    shown = scene.transcript
    numbers = {place: one.n for place, one in zip(chunk.places, chunk.stored, strict=True)}
    # Bars stand before the first message that they do not cover, where what they cover is shown too.
    covers = {bar.covers + 1: bar for bar in reversed(shown.bars)} if shown.is_all else {}
    bars = {n: covers[place] for place, n in numbers.items() if place in covers}
    forks = {fork.parent: fork for fork in shown.forks}
    if chunk.number == 0 and 0 in forks and shown.low == 1:
        yield _switcher(shown, forks[0])
    # What the model sees, or would see again if the session went on from the branch that is shown.
    live = frozenset(n for place, n in numbers.items() if place > shown.hidden)
    run: list[MessageView] = []
    for part in parts(chunk.stored, live=live, newest=shown.generation):
        if isinstance(part, Cut):
            continue
        own = [int(part.label), *(int(call.result.label) for call in part.calls if call.result is not None)]
        before = [bars[n] for n in own if n in bars]
        after = [forks[n] for n in own if n in forks and n in numbers.values()]
        # A run goes on with messages that do nothing but call.
        is_quiet = bool(run) and _is_quiet(run[-1], scene) and _is_quiet(part, scene)
        if before or (run and not (is_quiet and run[-1].is_live == part.is_live)):
            yield from _run(run, scene)
            run = []
        yield from (bar(one, is_in_force=one == shown.bars[0]) for one in before)
        run.append(part)
        if after:
            yield from _run(run, scene)
            run = []
        yield from (_switcher(shown, fork) for fork in after)
    yield from _run(run, scene)


def _running(stored: Sequence[Stored]) -> frozenset[str]:
    """The messages at the end that may wait for results still: the last that call one after the other."""
    said = [one for one in stored if one.message.role]
    since = list(dropwhile(lambda one: one.message.role == "tool", reversed(said)))
    return frozenset(str(one.n) for one in takewhile(lambda one: one.message.tool_calls, since))


def _is_quiet(said: MessageView, scene: Scene) -> bool:
    """Tell whether a message only calls, and what came of that is only text."""
    results = [call.result.label for call in said.calls if call.result is not None]
    answers = [scene.given[label] for label in results if label in scene.given]
    shows = said.text.strip() or said.attachments or any(map(message_parts.attachments, answers))
    return bool(said.calls) and said.role == "assistant" and not shows


def _run(run: Sequence[MessageView], scene: Scene) -> Iterator[str]:
    """Messages that do nothing but call, folded if they call often; one that says something stands alone."""
    many = [made for said in run if _is_quiet(said, scene) for made in _calls_of(said, scene)]
    if len(many) < MIN_IN_RUN:
        yield from (_article(said, scene) for said in run)
    else:
        yield message_parts.calls_line(
            f"r{run[0].label}", many, "".join(_article(said, scene, is_compact=True) for said in run)
        )


# ---- one message


def _article(said: MessageView, scene: Scene, *, is_compact: bool = False) -> str:
    look = f"{kind_of(said)}{' compact' if is_compact else ''}"
    label = escape(said.label)
    link = f'<a href="#{label}" title="Link to this message">#{label}</a>'
    head = link if is_compact else f"<b>{who(said)}</b> {facts(said)} {link}"
    body = "".join(scene.mark(piece) for piece in _body(said, scene))
    return f'<article id="{label}" class="{look}" tabindex="-1"><h2>{head}</h2>{body}</article>\n'


def _body(said: MessageView, scene: Scene) -> Iterator[str]:
    if said.reasoning:
        thought = escape(cut(said.reasoning))
        yield f'<details class="thinking"><summary><i>thinking</i></summary><pre tabindex="0">{thought}</pre></details>'
    if said.role == "tool":
        # A result whose call is not next to it.
        state = ' class="failed" open' if scene.given[said.label].extra.get("failed") is True else ""
        line = f"<summary><i>→</i> {message_parts.short(said.text)} <i>{amount(said.text)}</i></summary>"
        yield f"<details{state}>{line}{message_parts.output(said.text)}</details>"
        yield _attachments(said.label, scene)
        return
    text, content = said.text, scene.given[said.label].content
    if said.role == "user" and isinstance(content, list):
        # Without the files that a person has attached.
        text = "\n".join(text for text in map(text_in, content) if text and not FILE.fullmatch(text))
    if text:
        yield f'<div class="said" dir="auto">{html(cut(text))}</div>'
    yield _attachments(said.label, scene)
    many = _calls_of(said, scene)
    # What a tool shows stands below its line, also while that is folded.
    shown = [_attachments(made.call.result.label if made.call.result is not None else "", scene) for made in many]
    if len(many) >= MIN_IN_RUN and not _is_quiet(said, scene):
        yield message_parts.calls_line(f"c{escape(said.label)}", many, "".join(map(message_parts.call_line, many)))
        yield from shown
    else:
        yield from (message_parts.call_line(made) + attached for made, attached in zip(many, shown, strict=True))


def _calls_of(said: MessageView, scene: Scene) -> list[CallView]:
    """The calls of a message; each begins when the one before has ended."""
    made: list[CallView] = []
    since = said.ts
    for call, given in zip(said.calls, scene.given[said.label].tool_calls, strict=True):
        result, answer = call.result, scene.given.get(call.result.label) if call.result is not None else None
        text = text_of(answer.content)[0] if answer is not None else ""
        if answer is not None and is_erased(answer):
            text = ERASED_TEXT
        made.append(
            CallView(
                call=call,
                given=given,
                text=text,
                since=since,
                end=result.ts if result is not None else since,
                has_failed=answer is not None and answer.extra.get("failed") is True,
                is_lost=result is None and said.label not in scene.running,
            )
        )
        since = made[-1].end
    return made


def _attachments(label: str, scene: Scene) -> str:
    """Pictures and files of a message."""
    message, shown = scene.given.get(label), scene.transcript
    if message is None or not (message.media or isinstance(message.content, list)):
        return ""
    return "".join(message_parts.attachments_html(message, label, key=shown.key, generation=shown.generation))


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

    def way(at: int, sign: str, name: str, label: str) -> str:
        if not 0 <= at < count:
            return f'<span aria-hidden="true">{sign}</span>'
        address = urls.to("s", transcript.key, tip=fork.tips[at], at=fork.parent, g=transcript.generation)
        look = f'data-way="{name}" aria-label="{label}" title="{label}"'
        return f'<a href="{escape(address)}#{fork.parent}" {look}>{sign}</a>'

    shown = f"{at + 1}/{count}" if at >= 0 else f"–/{count}"
    return (
        f'<nav class="branches" aria-label="Branches after message {fork.parent}">'
        f"{way(at - 1, '&lsaquo;', 'before', 'Earlier branch (b)')} <span>branch {shown}</span> "
        f"{way(at + 1 if at >= 0 else count, '&rsaquo;', 'after', 'Later branch (B)')}</nav>\n"
    )


# ---- what was searched for


def marker(query: str) -> Marker:
    """What marks every term of a query; nothing to mark for an empty one."""
    terms = sorted({escape(term.text) for term in parse(query, now=time.time()).wanted if term.text}, key=len)
    # An entity is passed over whole, so that a search for `amp` does not break one in two.
    wanted = re.compile(f"({'|'.join(map(re.escape, reversed(terms)))})|{_ENTITY}", re.IGNORECASE)

    def mark(html: str) -> str:
        pieces = _TAG.split(html)
        pieces[::2] = [
            wanted.sub(lambda match: f"<mark>{match[1]}</mark>" if match[1] else match[0], text) for text in pieces[::2]
        ]
        return "".join(pieces)

    return mark if terms else str


def snippet(text: str) -> str:
    """A search's snippet, in which matches stand between double asterisks."""
    pieces = escape(text).split("**")
    if len(pieces) % 2 == 0:
        # An asterisk pair of the message's own: what is a match cannot be known.
        return "".join(pieces)
    return "".join(f"<mark>{piece}</mark>" if at % 2 else piece for at, piece in enumerate(pieces))
