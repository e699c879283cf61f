"""Tool calls in what a model wrote: found, read, and distinguished from text that only mentions them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from nacre.agent.ports import Spec
from nacre.codec import plain_json
from nacre.errors import InvalidMessage
from nacre.providers.text_tools import call_shapes, lenient_json
from nacre.providers.text_tools.call_shapes import DSML, NAMESPACE, SEPARATOR, ParsedCall
from nacre.providers.wire import json_text

UNREADABLE = "tool_call"
"""The name of a call whose name could not be read; every provider takes it."""

_TAG = r"(?:(?:seed:|minimax:)?tool[_-]?calls?|tool_use|function[_-]?calls?|tools)"
_SECTION = r"<[\uff5c|]tool[\u2581_]calls(?:[\u2581_]section)?[\u2581_](?:begin|end)[\uff5c|]>"
_BEGIN = r"<[\uff5c|]tool[\u2581_]call[\u2581_]"
_HARMONY = (
    r"(?:(?:<\|start\|>assistant\s*)?<\|channel\|>\s*(?:commentary|analysis)\s+|<\|start\|>assistant\s+|(?<=\n)[ ]?)"
    r"to=(?=functions\.)"
)
# The marks of each family around one call or several; what is inside is read by `call_shapes`.
_OPENINGS = (
    rf"<{DSML}{_TAG}>",  # Hermes, Qwen, Granite, GLM, DeepSeek V3.2, MiniMax, Seed and many others
    r"<\|tool_call\|?>",  # Gemma 4, Phi-4
    rf"{_BEGIN}begin[\uff5c|]>\s*(?:function<[\uff5c|]tool[\u2581_]sep[\uff5c|]>)?",  # DeepSeek, Kimi
    _HARMONY,  # gpt-oss
    r"<\|START_ACTION\|>",  # Command R and A
    r"<\|tool_call_start\|>",  # LFM2
    r"<\|tools_prefix\|>",  # Apertus
    rf"{NAMESPACE}<tool_call>",  # MiniMax M3
    r"<\|open\|>tools<\|sep\|>",  # Kimi K3
)
_CLOSINGS = (
    rf"</{DSML}{_TAG}>",
    r"<tool_call\|>|<\|/tool_call\|>",
    rf"{_BEGIN}end[\uff5c|]>(?:\s*{_SECTION})?",
    r"<\|call\|>",
    r"<\|END_ACTION\|>",
    r"<\|python_end\|>",
    r"<\|tools_suffix\|>",
    rf"{NAMESPACE}</tool_call>",
    r"<\|close\|>tools<\|sep\|>(?:<\|close\|>message<\|sep\|>)?",
)
# Marks without an end, or with one that other marks have too: Mistral, Llama, GigaChat, Phi-4-mini and firefunction.
_STARTS = r"\[TOOL_CALLS\]|<\|python_tag\|>|<\|python_start\|>|<\|function_call\|>|(?<=\n)[ ]?functools(?=\[\s*\{)"
_OPEN = "|".join(_OPENINGS)
_CLOSED = "|".join(_CLOSINGS)
_CLOSE = re.compile(_CLOSED, re.IGNORECASE)
_THINK = (
    r"<(?:mm:)?(?:think|thinking|thought)>|<\|channel>thought\b|(?-i:\[THINK\])|<\|START_THINKING\|>"
    r"|<\|open\|>think<\|sep\|>|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>"
)
_THOUGHT = r"</(?:mm:)?(?:think|thinking|thought)>|(?-i:\[/THINK\])|<\|END_THINKING\|>|<\|close\|>think<\|sep\|>"
_ANSWER = (
    r"(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>|<\|(?:START|END)_RESPONSE\|>"
    r"|<\|(?:open|close)\|>(?:response|message)<\|sep\|>"
)
_ENDED = r"<\|(?:eom_id|eot_id|im_end|end|return)\|>|<[\uff5c|]end[\u2581_]of[\u2581_]sentence[\uff5c|]>"
# Where a line begins, also one right after the end of a thought.
_LINE = (
    r"(?:(?<=\n)|(?<=</think>)|(?<=</thinking>)|(?<=</thought>)|(?<=</mm:think>)|(?<=\[/THINK\])|(?<=<channel\|>)"
    r"|(?<=<\|END_THINKING\|>)|(?<=<\|end\|>))"
)
# Most characters begin no mark: the first test skips all the others for them.
_MARK = re.compile(
    rf"""
    (?=[<\[\]{{`~ft\ \t])
  (?: (?P<open>(?<!`)(?:{_OPEN}|{_STARTS}))
  | (?P<markup>(?<!`)<{DSML}(?:function=|function\ name=|invoke\ name=))
  | (?P<thought>{_THOUGHT})
  | (?P<token>(?<!`)(?:{_SECTION}|{_ANSWER}))
  | (?P<stray>{_CLOSED}|{_ENDED})
  | {_LINE}[ \t]*(?:
      (?P<think>{_THINK})
    | (?P<result><tool_response)
    | (?P<fence>```|~~~)
    | (?P<bare>\{{|\[(?=\s*(?:\{{|[A-Za-z_][\w.]{{0,63}}(?:\(|\Z)|\Z)))
    )
  )
    """,
    re.IGNORECASE | re.VERBOSE,
)
AFTER_THOUGHT = re.compile(rf"{_THOUGHT}|<channel\|>|<\|end\|>", re.IGNORECASE)
FENCE_END = re.compile(r"\n[ \t]*(?:```|~~~)[ \t]*(?=\n|\Z)|(?<=[}\]>])[ \t]*```[ \t]*(?=\n|\Z)")
_FENCE_BEFORE_MARK = re.compile(r"\n[ \t]*```(?=<)")
_LANGUAGE = re.compile(r"[ \t]*(?:```|~~~)`*~*[ \t]*([\w+.-]*)[^\S\n]*\s*")
_CALLING = frozenset(("tool_call", "tool_calls", "tool-call", "toolcall", "function_call", "tool", "tool_code"))
_NEUTRAL = frozenset(("", "json", "json5", "jsonc", "xml", "text", "plaintext", "plain"))
_BODY = re.compile(
    rf"\s*+(?:```[\w-]*\s*+)?(?:[{{\[]|<{DSML}function|<{DSML}invoke|call:|{NAMESPACE}<invoke|<\|open\|>call"
    rf"|(?:<name>\s*+)?[\w.:-]{{1,64}}\s*+(?:<arg_key>|{SEPARATOR}|\(\s*+(?:\)|[\w]{{1,64}}\s*+=)|\(?\s*+\{{))"
)
_PYTHON = re.compile(r"\[?\s*+[A-Za-z_][\w.]{0,63}\(")
_PYTHON_START = re.compile(r"\[\s*+(?:[A-Za-z_]\w{0,63}\.){0,3}+([A-Za-z_]\w{0,63})\Z")
_LIKE_CALL = re.compile(r"[{}:=(]")
_CALL_KEY = re.compile(
    r"""[\[{\s]{0,60}+["']?(?:name|tool|tool_name|tool_calls?|function|function_calls?|function_name|action|call|calls|type|id"""
    r"""|arguments|parameters|args|input|thought|recipient_name)["']?\s*:"""
)
_BETWEEN = re.compile(r"[\s,;]*")
_INNER_FENCE = re.compile(r"\s*```[\w-]*\s*")
_LEFTOVER = re.compile(
    rf"(?:[}}\]]*\s*(?:{_CLOSED}|</{DSML}(?:function|invoke)>"
    rf"|{_ENDED}|(?:{_OPEN})(?=\s*\Z)))+|\s*[}}\]]+(?=\s*(?:\Z|```))",
    re.IGNORECASE,
)
_TRAILING_TOKENS = re.compile(r"(?:\s|<\|[\w/]{1,20}\|>){1,40}\Z")
_MAX_PYTHON = 50_000
_NEVER = re.compile(r"(?!)")
_PEEK = 80
_MAX_UNLIKELY = 2_000
_MARK_COST, _FAIL_COST = 64, 256


class Answer(Struct, frozen=True, kw_only=True):
    """What a model wrote, taken apart: what it says, what it thought, what it calls."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ParsedCall, ...] = ()


class Prose(Struct, frozen=True):
    """Text for people, up to `end`."""

    end: int


class Thinking(Struct, frozen=True):
    """Thinking; the text of it, and where it ends."""

    text: str
    end: int


class Calls(Struct, frozen=True):
    """Calls, up to `end`."""

    calls: tuple[ParsedCall, ...]
    end: int


class ThoughtEnd(Struct, frozen=True):
    """The end of a thought that was opened in the prompt: all before it was thinking."""

    end: int


class Wait(Struct, frozen=True):
    """Nothing can be said yet; more may be when `until` comes. `kind` says what it is in the meantime."""

    until: re.Pattern[str]
    kind: str = "held"
    start: int = 0


Step = Prose | Thinking | Calls | ThoughtEnd | Wait


def read(text: str, tools: Sequence[Spec], *, cut: bool = False) -> Answer:
    """Take an answer apart; `cut` says that the model was stopped before its end.

    Never raises: a call that cannot be read is given with its raw text as arguments. A call that ends
    before it is complete is never completed.
    """
    return _take_apart(Scan("\n" + text, tools, cut=cut))[0]


def read_native(text: str, tools: Sequence[Spec], *, cut: bool = False) -> Answer:
    """Take an answer apart of a model that can call tools without writing them as text, and may have done so anyway.

    What is not clearly a call stays text, unchanged: all calls are of tools that there are, the answer ends with
    them, and a code block has none. JSON without marks is a call only if it is the whole answer. A thought is
    taken out only where the answer begins with it.
    """
    found, is_over = _take_apart(Scan("\n" + text, tools, cut=cut, native=True))
    names = {tool.name for tool in tools}
    if found.calls and is_over and all(call.name in names for call in found.calls):
        return found
    thoughts: list[str] = []
    scan, begin = Scan("\n" + text, tools, cut=cut, native=True), 1
    for at, step in scan.steps(1):
        if isinstance(step, Thinking):
            thoughts.append(step.text)
            begin = step.end
        elif not isinstance(step, Prose) or scan.text[at : step.end].strip():
            break
    return Answer(content=scan.text[begin:], reasoning="\n".join(filter(None, thoughts)))


def _take_apart(scan: Scan) -> tuple[Answer, bool]:
    """Go through a text that begins with a newline, to its end; and tell whether nothing was said after a call."""
    parts, thoughts, calls = [list[str]()], list[str](), list[ParsedCall]()
    for at, step in scan.steps(1):
        match step:
            case Prose(end):
                parts[-1].append(scan.text[at:end])
            case Thinking(thought, _):
                thoughts.append(thought)
            case Calls(found, _):
                calls += found
                parts.append([])
            case ThoughtEnd():
                parts, thoughts, calls = [[]], [scan.text[1:at].strip()], []
            case Wait():
                break
    said = ["".join(part).strip() for part in parts]
    content, reasoning = ("\n".join(filter(None, texts)) for texts in (said, thoughts))
    return Answer(content=content, reasoning=reasoning, calls=tuple(calls)), not any(said[1:])


def normalize_call(call: ParsedCall, tools: Container[str]) -> ParsedCall:
    """A call that the log can hold, under a name that every provider takes."""
    name = normalize_name(call.name, tools)
    try:
        return ParsedCall(name=name, arguments=plain_json(call.arguments, "arguments"))
    except (InvalidMessage, RecursionError):
        return ParsedCall(name=name, arguments=json_text(call.arguments))


def normalize_name(name: str, tools: Container[str]) -> str:
    """The tool's name that is meant, or one like it that every provider takes."""
    if name in tools:
        return name
    short = re.split(r"[.:/]", name)[-1]
    return short if short in tools else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or UNREADABLE


class Scan:
    """One pass over a text that begins with a newline; where it is not final, it may say that it must wait.

    Time is linear: what is looked for is found once, and failed attempts may cost a few times the
    length of the text in all, after which the rest is taken as text.
    """

    def __init__(
        self, text: str, tools: Sequence[Spec], *, cut: bool = False, final: bool = True, native: bool = False
    ) -> None:
        """`native`: the model has another way to call, so that text is a call only where it can be nothing else."""
        self.text, self._source = text, lenient_json.Source(text)
        self._tools = {tool.name: tool for tool in tools}
        self._cut, self._final, self._is_native = cut, final, native
        self.called = self.has_said = False
        self._thought_open = True
        self._next: dict[re.Pattern[str], tuple[int, re.Match[str] | None]] = {}
        self._left = 4 * len(text) + 65_536

    def steps(self, at: int) -> Iterator[tuple[int, Step]]:
        """Give what comes from `at` on, step by step, each with where it begins."""
        while at < len(self.text):
            found = self._search(_MARK, at)
            step: Step
            if found is None or self._left <= 0:
                step = Prose(len(self.text))
            elif found.start() > at:
                step = Prose(found.start())
            else:
                self._left -= _MARK_COST
                step = self._read_mark(found)
            yield at, step
            if isinstance(step, Wait):
                return
            self.called = self.called or isinstance(step, Calls)
            self.has_said = self.has_said or (isinstance(step, Prose) and not self.text[at : step.end].isspace())
            at = max(step.end, at + 1)

    def _search(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """Search, remembering the answer: it holds for every later place before the match."""
        since, found = self._next.get(pattern, (len(self.text) + 1, None))
        if since <= at and (found is None or found.start() >= at):
            return found
        found = pattern.search(self.text, at)
        self._next[pattern] = (at, found)
        return found

    def _read_mark(self, mark: re.Match[str]) -> Step:
        start, at = mark.span()
        match mark.lastgroup:
            case "open" | "markup":
                return self._read_marked(start, at if mark.lastgroup == "open" else start)
            case "think" if not (self._is_native and self.has_said):
                closing = self._search(AFTER_THOUGHT, at)
                self._thought_open = False
                if closing is None and not self._final:
                    return Wait(AFTER_THOUGHT, "thinking", at)
                begin, end = closing.span() if closing else (len(self.text), len(self.text))
                return Thinking(self.text[at:begin].strip(), end)
            case "thought" if self._thought_open:
                # A closing tag without an opening one; only the first means something.
                self._thought_open = self.called = False
                return ThoughtEnd(at)
            case "result" if self.called:
                # A result after a call is the model's imagination of what will come of it, and so is the rest.
                return Thinking("", len(self.text)) if self._final else Wait(_NEVER, "over")
            case "fence":
                return self._read_fence(start)
            case "bare":
                return self._read_bare(at - 1)
            case "token" | "thought":
                return Thinking("", at)
            case _:
                return Thinking("", at) if mark.lastgroup == "stray" and self.called else Prose(at)

    # ---- calls between marks that mean nothing else

    def _read_marked(self, start: int, at: int) -> Step:
        closing = self._search(_CLOSE, at)
        if not _BODY.match(self.text, at):
            return self._read_unlikely(start, at, closing)
        if self._final or closing is not None:
            found = self._read_body(self._skip(_BETWEEN, self._skip(_INNER_FENCE, at)), closing)
            if found is not None:
                return Calls(found.calls, self._skip_leftovers(found.end, closing))
        return self._unreadable(at, closing) if self._final else Wait(_CLOSE)

    def _skip(self, pattern: re.Pattern[str], at: int) -> int:
        found = pattern.match(self.text, at)
        return found.end() if found else at

    def _read_unlikely(self, start: int, at: int, closing: re.Match[str] | None) -> Step:
        """Meet a mark that no call follows: mostly somebody mentions it."""
        if closing is None or closing.end() - at > _MAX_UNLIKELY:
            if not self._final and len(self.text) - at <= _MAX_UNLIKELY:
                return Wait(_CLOSE)
            return Prose(at if at > start else at + 1)
        body = self.text[at : closing.start()]
        if _LIKE_CALL.search(body) or any(name in body for name in self._tools):
            return self._unreadable(at, closing) if self._final else Wait(_NEVER)
        return Prose(closing.end())

    def _read_body(self, at: int, closing: re.Match[str] | None) -> Calls | None:
        bound = closing.start() if closing else None
        is_whole = bound is not None or not self._cut
        if is_whole and _PYTHON.match(self.text, at):
            found = self._read_python(at, len(self.text) if bound is None else bound)
            if found is not None:
                return found
        if self.text[at : at + 1] in {"{", "["}:
            return self._read_values(at, closing, trusted=True)
        calls, end = call_shapes.read_markup(self._source, at, bound, self._tools, whole=is_whole)
        if calls is not None:
            return self._calls(calls, end)
        self._left -= end - at + _FAIL_COST
        return None

    def _calls(self, calls: Iterable[ParsedCall], end: int) -> Calls:
        return Calls(tuple(normalize_call(call, self._tools) for call in calls), end)

    def _read_python(self, at: int, end: int) -> Calls | None:
        """Calls as Python code that fills a stretch of the text; None if it is something else."""
        self._left -= min(end - at, _MAX_PYTHON) + _FAIL_COST
        text = _TRAILING_TOKENS.sub("", self.text[at:end]) if end - at < _MAX_PYTHON else ""
        found = call_shapes.read_python(text)
        return None if found is None else self._calls(found, end)

    def _unreadable(self, at: int, closing: re.Match[str] | None) -> Calls:
        """Keep a call that cannot be read as its raw text: what runs calls says what is wrong."""
        following = self._search(_MARK, at + 1) if closing is None else None
        end = closing.start() if closing else len(self.text)
        if following is not None and following.lastgroup == "open":
            end = following.start()
        raw = self.text[at:end].strip()
        name = call_shapes.name_in(raw)
        call = ParsedCall(name=normalize_name(name, self._tools) if name else UNREADABLE, arguments=raw)
        return Calls((call,), closing.end() if closing else end)

    def _skip_leftovers(self, at: int, closing: re.Match[str] | None) -> int:
        """Where a call's leftovers end: its closing mark, brackets too many, the mark of its fence."""
        fence = FENCE_END.match(self.text, at) or _FENCE_BEFORE_MARK.match(self.text, at)
        at = fence.end() if fence else at
        if closing is not None and closing.start() >= at:
            following = self._search(_MARK, at)
            if following is None or following.start() >= closing.start():
                at = closing.start()
        return self._skip(_LEFTOVER, at)

    # ---- calls in plain JSON

    def _read_values(self, at: int, closing: re.Match[str] | None, *, trusted: bool) -> Calls | None:
        """Read one value or several, one after the other, as calls; None if the first is none.

        Where only these marks say that it is a call, one that cannot be read after others is kept raw.
        """
        calls: list[ParsedCall] = []
        end = at
        while self.text[at : at + 1] in {"{", "["}:
            value, after = self._read_value(at, closing)
            found = call_shapes.calls_of(value, self._tools, trusted=trusted)
            if found is None:
                if calls and trusted and self._final:
                    half = self._unreadable(at, closing)
                    return Calls((*calls, *half.calls), half.end)
                break
            end = after
            calls += self._calls(found, end).calls
            at = self._skip(_BETWEEN, end)
        return Calls(tuple(calls), end) if calls else None

    def _read_value(self, at: int, closing: re.Match[str] | None) -> tuple[Any, int]:
        """A value and where it ends; None if it cannot be read."""
        try:
            return self._source.read_strict(at)
        except lenient_json.NotJson as error:
            self._left -= error.at - at + _FAIL_COST
        bound = closing.start() if closing is not None and closing.start() > at else None
        reader = lenient_json.Reader(self.text, at, bound)
        try:
            value = reader.value()
        except lenient_json.NotJson as error:
            self._left -= error.at - at
            return None, at
        # What was guessed counts only where the closing mark follows; what was not closed, where there is one.
        rest = "" if bound is None else self.text[reader.at : bound].strip(" \t\n}]`")
        is_doubtful = reader.guessed or bound is None
        if (reader.guessed and (bound is None or rest)) or (reader.unclosed and is_doubtful):
            self._left -= reader.at - at
            return None, at
        return value, reader.at

    # ---- calls in a code block, or with nothing around them: only of tools that there are

    def _read_fence(self, start: int) -> Step:
        found = _LANGUAGE.match(self.text, start)
        body, language = (found.end(), found[1].lower()) if found else (start, "")
        if not self._final and len(self.text) - body < 1:
            return Wait(_NEVER)
        is_trusted = language in _CALLING and not self._is_native
        if is_trusted or (not self._is_native and language in _NEUTRAL and self._may_call(body)):
            step = self._read_fenced_calls(body, trusted=is_trusted)
            if step is not None:
                return step
            if is_trusted:
                return self._unreadable(body, self._search(FENCE_END, body))
        # A code block is text to its end.
        closing = self._search(FENCE_END, max(body - 1, 1))
        if closing is None and not self._final:
            return Wait(FENCE_END, "block", body)
        return Prose(closing.end() if closing else len(self.text))

    def _may_call(self, at: int) -> bool:
        if self.text[at : at + 1] in {"{", "["}:
            return bool(_CALL_KEY.match(self.text, at)) or (not self._final and len(self.text) - at < _PEEK // 2)
        if not self._final and self.text[at] == "<" and len(self.text) - at < _PEEK // 4:
            return True
        found = self._search(_MARK, at)
        return found is not None and found.start() == at and found.lastgroup in {"open", "markup"}

    def _read_fenced_calls(self, body: int, *, trusted: bool) -> Step | None:
        """The calls of a code block that holds nothing else; None if it is one like any other."""
        closing = self._search(FENCE_END, body)
        if not self._final and closing is None:
            return Wait(FENCE_END)
        if trusted and _PYTHON.match(self.text, body):
            found = self._read_python(body, closing.start() if closing else len(self.text))
        elif self.text[body : body + 1] in {"{", "["}:
            found = self._read_values(body, closing, trusted=trusted)
        else:
            # Marked calls, one after the other.
            calls, at = list[ParsedCall](), body
            while (mark := self._search(_MARK, at)) is not None and mark.lastgroup in {"open", "markup"}:
                step = None if self.text[at : mark.start()].strip() else self._read_mark(mark)
                if not isinstance(step, Calls) or any(call.name not in self._tools for call in step.calls):
                    break
                calls += step.calls
                at = step.end
            found = Calls(tuple(calls), at) if calls else None
        if found is None:
            return self._read_half(body, closing)
        return Calls(found.calls, self._skip(FENCE_END, self._skip_leftovers(found.end, None)))

    def _read_bare(self, at: int) -> Step:
        if self._is_native and self.has_said:
            return Prose(at + 1)
        start = None if self._final else _PYTHON_START.match(self.text, at)
        if start is not None and any(name.startswith(start[1]) for name in self._tools):
            return Wait(_NEVER)
        step: Step | None = None
        if _PYTHON.match(self.text, at):
            # Python calls in a list that the answer ends with, of tools that there are; anything else is text.
            name = normalize_name(self.text[at : at + 80].lstrip("[ \t\n").partition("(")[0], self._tools)
            if name not in self._tools:
                return Prose(at + 1)
            found = self._read_python(at, len(self.text)) if self._final else None
            step = found if found is not None and all(call.name in self._tools for call in found.calls) else None
        elif self._may_call(at):
            found = self._read_values(at, None, trusted=False)
            if found is not None:
                return Calls(found.calls, self._skip_leftovers(found.end, None))
            step = self._read_half(at, None) if self._final else None
        else:
            return Prose(at + 1)
        return (step or Prose(at + 1)) if self._final else Wait(_NEVER)

    def _read_half(self, at: int, closing: re.Match[str] | None) -> Step | None:
        """The half of a call of a tool that there is, kept as its raw text; None if it is none."""
        end = closing.start() if closing else len(self.text)
        name = call_shapes.name_in(self.text[at : min(end, at + 4096)]) if _CALL_KEY.match(self.text, at) else ""
        name = normalize_name(name, self._tools)
        if name not in self._tools:
            return None
        try:
            self._source.read_strict(at)
        except lenient_json.NotJson as error:
            self._left -= error.at - at
            call = ParsedCall(name=name, arguments=self.text[at:end].strip())
            return Calls((call,), closing.end() if closing else end)
        return None
