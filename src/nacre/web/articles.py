"""Messages as HTML: what was said, calls folded to one line, failures open, thinking hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from nacre.entries import Message, Stored, ToolCall
from nacre.render.conversation import Call, Cut, Result, Said, parts
from nacre.render.html import escaped, html
from nacre.render.text import clip, one_line, size
from nacre.web import links
from nacre.web.branch import Bar
from nacre.web.highlight import Marker
from nacre.web.transcript import Chunk, Fork, Transcript

_LONGEST_LINE = 160
_LONGEST_TEXT = 200_000
_ROLES = frozenset(("user", "assistant", "tool", "system"))
_WORTH_TELLING = 0.1


class Scene(Struct, frozen=True, kw_only=True):
    """What articles are drawn with: the messages as they are stored, by number, and what to mark in them."""

    given: Mapping[str, Message]
    mark: Marker
    transcript: Transcript


def section(transcript: Transcript, chunk: Chunk, mark: Marker) -> str:
    """A chunk of messages, with the bars and switchers that stand among them."""
    given = {str(one.n): one.message for one in chunk.stored}
    scene = Scene(given=given, mark=mark, transcript=transcript)
    drawn = "".join(_drawn(scene, chunk))
    facts = {"chunk": chunk.number, "high": transcript.high, "n": transcript.n, "live": transcript.live}
    data = " ".join(f'data-{name}="{value}"' for name, value in facts.items())
    return f"<section {data}>{drawn}</section>\n"


def _drawn(scene: Scene, chunk: Chunk) -> Iterator[str]:
    places = {one.n: place for place, one in enumerate(chunk.stored)}
    bars = _by_number(scene.transcript, chunk)
    forks = {fork.parent: fork for fork in scene.transcript.forks}
    if chunk.number == 0 and 0 in forks and scene.transcript.low == 1:
        yield _switcher(scene.transcript, forks[0])
    live = frozenset(_live(scene.transcript, chunk))
    for part in parts(chunk.stored, live=live, newest=scene.transcript.generation):
        if isinstance(part, Cut):
            continue
        for n in _numbers(part):
            if n in bars:
                yield bar(bars[n], is_in_force=bars[n] == scene.transcript.bars[0])
        yield _article(part, scene)
        for n in _numbers(part):
            if n in forks and n in places:
                yield _switcher(scene.transcript, forks[n])


def _numbers(said: Said) -> list[int]:
    """A message's number, and those of its calls' results."""
    return [int(said.label), *(int(call.result.label) for call in said.calls if call.result is not None)]


def _live(transcript: Transcript, chunk: Chunk) -> Iterator[int]:
    if transcript.tip:
        return
    for place, one in _placed(chunk):
        if place > transcript.hidden:
            yield one.n


def _by_number(transcript: Transcript, chunk: Chunk) -> dict[int, Bar]:
    """The bars of a chunk, each by the message that it stands before; only where what it covers is shown too."""
    bars = {bar.covers + 1: bar for bar in reversed(transcript.bars)}
    if not transcript.is_all:
        return {}
    return {one.n: bars[place] for place, one in _placed(chunk) if place in bars}


def _placed(chunk: Chunk) -> Iterator[tuple[int, Stored]]:
    return zip(chunk.places, chunk.stored, strict=True)


# ---- one message


def _article(said: Said, scene: Scene) -> str:
    kind = said.role if said.role in _ROLES else "other"
    label = escaped(said.label)
    return "".join(
        (
            f'<article id="{label}" class="{kind}{"" if said.is_live else " gone"}" tabindex="-1">',
            f'<h2><b>{escaped(_who(said))}</b> <a href="#{label}" title="Link to this message">#{label}</a> ',
            f"{_facts(said)}</h2>",
            *(scene.mark(piece) for piece in _body(said, scene)),
            "</article>\n",
        )
    )


def _who(said: Said) -> str:
    return one_line(f"{said.role} {said.name}" if said.name else said.role)


def _facts(said: Said) -> str:
    facts = [time(said.ts), *([escaped(one_line(said.model))] if said.model else ())]
    return " · ".join(facts if said.is_live else [*facts, "not in the history"])


def _body(said: Said, scene: Scene) -> Iterator[str]:
    if said.reasoning:
        thought = escaped(_cut(said.reasoning))
        yield f'<details class="thinking"><summary><i>thinking</i></summary><pre>{thought}</pre></details>'
    if said.text:
        yield _lone_result(said, scene) if said.role == "tool" else html(_cut(said.text))
    for attachment in said.attachments:
        yield f'<p class="attachment">[{escaped(clip(one_line(attachment), _LONGEST_LINE))}]</p>'
    calls = scene.given[said.label].tool_calls
    since = said.ts
    for call, given in zip(said.calls, calls, strict=True):
        yield _call(call, given, since, scene)
        since = call.result.ts if call.result is not None else since


def _call(call: Call, given: ToolCall, since: datetime, scene: Scene) -> str:
    """A call folded to one line that says what it did, with its result's own anchor; open if it failed."""
    result = call.result
    answer = scene.given.get(result.label) if result is not None else None
    has_failed = answer is not None and answer.extra.get("failed") is True
    anchor = f' id="{escaped(result.label)}"' if result is not None else ""
    state = ' class="failed" open' if has_failed else ""
    line = f"{_doing(call, given)} <i>→</i> {_outcome(result, since, has_failed=has_failed)}"
    return f"<details{anchor}{state}><summary>{line}</summary>{_inside(call, given)}{_result(result)}</details>"


def _doing(call: Call, given: ToolCall) -> str:
    arguments = given.arguments if isinstance(given.arguments, Mapping) else {}
    match call.name, arguments:
        case "shell", {"command": str(command)}:
            return f"<b>$</b> {_short(command)}"
        case _, {"path": str(path)}:
            return f"<b>{escaped(one_line(call.name))}</b> {_short(path)}"
        case _:
            return f"<b>{escaped(one_line(call.name))}</b>({_short(call.arguments)})"


def _outcome(result: Result | None, since: datetime, *, has_failed: bool) -> str:
    if result is None:
        return "<em>no result</em>"
    facts = [size(len(result.text.encode(errors="replace")))]
    took = (result.ts - since).total_seconds()
    if took >= _WORTH_TELLING:
        facts.insert(0, f"{took:.1f} s")
    word = "<em>failed</em> " if has_failed else ""
    return f"{word}{_short(result.text)} <i>{', '.join(facts)}</i>"


def _inside(call: Call, given: ToolCall) -> str:
    """A call's arguments; an edit as what is taken away and what is put there."""
    match given.arguments:
        case {"old_text": str(old), "new_text": str(new)}:
            return f"<pre>{_lines(old, 'del', '-')}{_lines(new, 'ins', '+')}</pre>"
        case {"command": str(command)}:
            return f"<pre>$ {escaped(command)}</pre>"
        case _:
            return f"<pre>{escaped(_cut(call.arguments))}</pre>" if call.arguments else ""


def _lines(text: str, tag: str, sign: str) -> str:
    return "".join(f"<{tag}>{sign} {escaped(line)}</{tag}>\n" for line in _cut(text).split("\n"))


def _result(result: Result | None) -> str:
    return f"<pre>{escaped(_cut(result.text))}</pre>" if result is not None else ""


def _lone_result(said: Said, scene: Scene) -> str:
    """A result whose call is not beside it."""
    has_failed = scene.given[said.label].extra.get("failed") is True
    state = ' class="failed" open' if has_failed else ""
    amount = size(len(said.text.encode(errors="replace")))
    return (
        f"<details{state}><summary><i>→</i> {_short(said.text)} <i>{amount}</i></summary>"
        f"<pre>{escaped(_cut(said.text))}</pre></details>"
    )


def _cut(text: str) -> str:
    """A text that a browser can hold; what is left out is in the raw message."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}\n… {len(text) - _LONGEST_TEXT:,} more characters: the .json twin has them all"


def _short(text: str) -> str:
    return escaped(clip(one_line(text), _LONGEST_LINE))


# ---- what stands between messages


def bar(one: Bar, *, is_in_force: bool, more: str = "") -> str:
    """Where a summary took the place of messages."""
    count = f"{one.covers:,} message{'s' * (one.covers != 1)}"
    title = f"{count} summarised" if one.text else f"{count} left out"
    state = " open" if is_in_force and more else ""
    text = f"<details{state}><summary>Summary</summary>{html(_cut(one.text))}</details>" if one.text else ""
    head = f'<aside class="bar" id="s{one.n}" aria-label="Compaction">'
    return f"{head}<p><b>{title}</b>{more}</p>{text}</aside>\n"


def _switcher(transcript: Transcript, fork: Fork) -> str:
    """Where the history was rewound: one of several ways on."""
    at, count = fork.chosen, len(fork.tips)
    shown = f"{at + 1}/{count}" if at >= 0 else f"–/{count}"
    return (
        f'<nav class="branches" aria-label="Branches behind message {fork.parent}">'
        f"{_way(transcript, fork, at - 1, '&lsaquo;', 'Earlier branch')} <span>branch {shown}</span> "
        f"{_way(transcript, fork, at + 1 if at >= 0 else count, '&rsaquo;', 'Later branch')}</nav>\n"
    )


def _way(transcript: Transcript, fork: Fork, at: int, sign: str, label: str) -> str:
    if not 0 <= at < len(fork.tips):
        return f'<span aria-hidden="true">{sign}</span>'
    address = links.to("s", transcript.key, tip=fork.tips[at], at=fork.parent, g=transcript.generation)
    return f'<a href="{escaped(address)}#{fork.parent}" aria-label="{label}">{sign}</a>'


def time(moment: datetime) -> str:
    there = moment.astimezone(UTC)
    return f'<time datetime="{there:%Y-%m-%dT%H:%M:%SZ}">{there:%Y-%m-%d %H:%M} UTC</time>'


def sections(transcript: Transcript, mark: Marker) -> str:
    """All chunks of a transcript that are at hand."""
    return "".join(section(transcript, chunk, mark) for chunk in transcript.chunks)
