"""What may be shown of an answer while it comes: its text and its thinking, never the raw text of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nacre.agent.ports import Emit, Event, Spec, Text, Thought
from nacre.providers.text_tools.parser import AFTER_THOUGHT, FENCE_END, Calls, Prose, Scan, Thinking, ThoughtEnd, Wait

_TAGS = (
    *("tool_call", "tool_calls", "toolcall", "toolcalls", "tool-call", "tool-calls", "tools"),
    *("function_call", "function_calls", "function-call", "function-calls", "functioncall", "functioncalls"),
    *("think", "thinking", "thought", "seed:tool_call", "minimax:tool_call", "tool_use"),
)
_DSML_TAGS = ("function_calls>", "tool_calls>", "invoke name=")
_CHANNELS = ("commentary to=functions.", "analysis to=functions.", "analysis<|message|>", "final<|message|>")


# What may follow in the marks of DeepSeek and Kimi, whose words are joined by a line of either kind.
_SECTIONS = [f"{words}{end}" for words in ("{0}", "s{0}", "s{0}section{0}") for end in ("begin", "end")]
_MARKS = (
    *(f"<{tag}>" for tag in _TAGS),
    *(f"</{tag}>" for tag in _TAGS),
    *("<|tool_call|>", "<|tool_call>", "<tool_call|>", "<|/tool_call|>", "[tool_calls]", "<|python_tag|>"),
    *("<function=", "<function name=", "<invoke name=", "<tool_response", "<|channel>thought", "```", "~~~"),
    *("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "[think]", "[/think]"),
    *("<|start_action|>", "<|end_action|>", "<|start_thinking|>", "<|end_thinking|>", "<|start_response|>"),
    *("<|end_response|>", "<|tool_call_start|>", "<|python_start|>", "<|python_end|>", "<|call|>"),
    *(
        f"<{bar}tool{line}call{rest.format(line)}{bar}>"
        for bar in "\uff5c|"
        for line in "\u2581_"
        for rest in _SECTIONS
    ),
    *(f"<{slash}\uff5cdsml\uff5c{tag}" for slash in ("", "/") for tag in _DSML_TAGS),
    *(f"{start}<|channel|>{channel}" for start in ("", "<|start|>assistant") for channel in _CHANNELS),
    *("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>", "<mm:think>", "</mm:think>", "<|function_call|>"),
    *("<|tools_prefix|>", "<|tools_suffix|>", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    *("<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    *("<|close|>message<|sep|>", "<|open|>message<|sep|>"),
    *("<|start|>assistant to=functions.", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
)
_WORDS = ("functools[{", "to=functions.")
"""Marks that look like any word: only the first one of a line is held back."""
_WORD_START = re.compile(
    r"\n ?(?:" + "|".join(re.escape(word[:length]) for word in _WORDS for length in range(1, len(word))) + r")\Z"
)
_MARK_STARTS = frozenset(mark[:length] for mark in _MARKS for length in range(1, len(mark) + 1))
_MAX_MARK = max(map(len, _MARKS))
_ENDINGS = (
    *("</thinking>", "</thought>", "<channel|>", "[/think]", "<|end_thinking|>", "<|end|>", "</mm:think>"),
    "<|close|>think<|sep|>",
)
_ENDING_STARTS = frozenset(mark[:length] for mark in _ENDINGS for length in range(1, len(mark)))
_MAYBE_FENCE = re.compile(r"\n[ \t]*[`~]{0,3}[ \t]*\Z|(?<=[}\]>])[ \t]*`{1,3}[ \t]*\Z")
_TRIM = 4096
_LOOK_BACK = 32


def filter_text(feed: Callable[[str], Sequence[Event]], emit: Emit) -> Emit:
    """An `emit` that passes text through a filter, which gives what may be shown now, and everything else as it is."""

    def emit_filtered(event: Event) -> None:
        for piece in feed(event.text) if isinstance(event, Text) else (event,):
            emit(piece)

    return emit_filtered


class StreamFilter:
    """Takes pieces of an answer and gives what of them may be shown.

    Shown text is always a beginning of the content that `parser.read` finds in the whole answer, but for
    answers that close a thought that they never opened. Where it is `native`, `parser.read_native` reads the
    answer, and nothing is shown after what may be a call: it may turn out to be text.
    """

    def __init__(self, tools: Sequence[Spec], *, native: bool = False) -> None:
        self._tools, self._is_native = tools, native
        self._text, self._at, self._mode = "\n", 1, "text"
        self._called = self._is_after_calls = False
        # What came while a call is held back, until it may be complete.
        self._until, self._waiting, self._grown = FENCE_END, list[str](), 0
        self._shown: list[str] = []
        self._space = ""

    @property
    def shown(self) -> str:
        """All the text that was given so far."""
        return "".join(self._shown)

    @property
    def tail(self) -> str:
        """What was held back only because it could begin a mark; nothing where a call seems to have begun."""
        return self._text[self._at :] if self._mode in {"text", "block"} else ""

    def feed(self, piece: str) -> list[Text | Thought]:
        """Take the next piece; gives what may be shown now."""
        if self._mode == "over" or (self._mode == "held" and not self._is_ripe(piece)):
            return []
        self._text = f"{self._text}{''.join(self._waiting)}{piece}"
        self._waiting.clear()
        self._grown = 0
        given: list[Text | Thought] = []
        # Each goes one stretch on, and says whether there may be more.
        modes = {"thinking": self._think, "block": self._pass_block}
        while modes.get(self._mode, self._scan)(given):
            pass
        if self._at > _TRIM:
            # What stands before is looked back at: where a line begins, where a thought ends.
            self._text, self._at = self._text[self._at - _LOOK_BACK :], _LOOK_BACK
        return given

    def _is_ripe(self, piece: str) -> bool:
        """Whether enough has come to look again; looking at every piece would cost too much in long calls."""
        before = self._waiting[-1][-16:] if self._waiting else self._text[-16:]
        self._waiting.append(piece)
        self._grown += len(piece)
        is_ripe = self._grown * 8 > len(self._text) - 512 and bool(self._until.search(before + piece))
        is_ripe = is_ripe or self._grown * 2 > len(self._text)
        if is_ripe:
            self._waiting.pop()
        return is_ripe

    def _scan(self, given: list[Text | Thought]) -> bool:
        self._mode = "text"
        scan = Scan(self._text, self._tools, final=False, native=self._is_native)
        scan.called, scan.has_said = self._called, bool(self._shown)
        for at, step in scan.steps(self._at):
            # What follows these can be shown only when the whole answer is there.
            is_end = isinstance(step, Calls | ThoughtEnd) or (isinstance(step, Thinking) and bool(self._shown))
            if self._is_native and is_end:
                self._mode = "over"
                return False
            match step:
                case Prose(end):
                    self._say(self._text[at : self._safe(end)], given)
                    self._at = self._safe(end)
                    if self._at < end:
                        return False
                case Wait(until, kind, start):
                    self._mode, self._until = kind, until
                    if kind == "block":
                        self._say(self._text[self._at : start], given)
                    is_passing = kind in {"block", "thinking"}
                    self._at = start if is_passing else self._at
                    return is_passing
                case Thinking(thought, end):
                    self._at = end
                    given += [Thought(thought)] if thought else []
                case ThoughtEnd(end):
                    self._at = end
                case Calls(_, end):
                    self._at = end
                    self._called = True
                    self._is_after_calls, self._space = True, ""
        return False

    def _safe(self, end: int) -> int:
        """How far text may be shown: not what may yet become a mark, nor the space before it."""
        if end < len(self._text):
            return end
        if self._is_after_calls and not self._text[self._at : end].strip(" \n\t}]"):
            return self._at
        tail = self._text[max(self._at, end - _MAX_MARK) : end].lower()
        partial = _start_length(tail, _MARK_STARTS)
        word = _WORD_START.search(self._text, max(self._at - 1, end - _MAX_MARK), end)
        partial = max(partial, end - word.start() - 1) if word else partial
        if self._is_native:
            # Most answers are text: a line is whole when its end has come.
            return end - partial
        shown = len(self._text[self._at : end - partial].rstrip())
        return max(self._at + shown, end - partial - _TRIM)

    def _say(self, text: str, given: list[Text | Thought]) -> None:
        """Show text, with the space before it; at the end of an answer or before a call there is none."""
        body = text if self._is_native and (self._shown or not text.isspace()) else text.rstrip()
        if body:
            start = f"{self._space}{body}"
            if not self._shown:
                start = start.lstrip()
            elif self._is_after_calls:
                start = f"\n{start.lstrip()}"
            self._shown.append(start)
            given.append(Text(start))
            self._is_after_calls, self._space = False, ""
        self._space += text[len(body) :]

    def _think(self, given: list[Text | Thought]) -> bool:
        closing = AFTER_THOUGHT.search(self._text, self._at)
        end = closing.start() if closing else len(self._text)
        tail = self._text[max(self._at, end - _MAX_MARK) : end].lower()
        end -= 0 if closing else _start_length(tail, _ENDING_STARTS)
        thought = self._text[self._at : end]
        given += [Thought(thought)] if thought else []
        self._at = closing.end() if closing else end
        self._mode = "text" if closing else "thinking"
        return closing is not None

    def _pass_block(self, given: list[Text | Thought]) -> bool:
        closing = FENCE_END.search(self._text, max(self._at - 1, 1))
        is_over = closing is not None and closing.end() < len(self._text)
        maybe = None if is_over else _MAYBE_FENCE.search(self._text, max(self._at - 1, 1))
        end = closing.end() if closing and is_over else maybe.start() if maybe else len(self._text)
        end = max(end, self._at)
        self._say(self._text[self._at : end], given)
        self._at = end
        self._mode = "text" if is_over else "block"
        return is_over


def _start_length(text: str, starts: frozenset[str]) -> int:
    """How many characters at the end of a text may be the start of a mark."""
    return next((len(text) - i for i in range(len(text)) if text[i:] in starts), 0)
