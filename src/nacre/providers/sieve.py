"""What may be shown of an answer while it comes: its text and its thinking, never the raw text of a call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nacre.agent.ports import Spec, Text, Thought
from nacre.providers.calls import AFTER_THOUGHT, FENCE_END, Calls, Closed, Mused, Said, Scan, Wait

_TAGS = (
    *("tool_call", "tool_calls", "toolcall", "toolcalls", "tool-call", "tool-calls", "tools"),
    *("function_call", "function_calls", "function-call", "function-calls", "functioncall", "functioncalls"),
    *("think", "thinking", "thought"),
)
_MARKS = (
    *(f"<{tag}>" for tag in _TAGS),
    *(f"</{tag}>" for tag in _TAGS),
    *("<|tool_call|>", "<|tool_call>", "<tool_call|>", "<|/tool_call|>", "[tool_calls]", "<|python_tag|>"),
    *("<function=", "<function name=", "<invoke name=", "<tool_response", "<|channel>thought", "```", "~~~"),
    *("<|eom_id|>", "<|eot_id|>", "<|im_end|>"),
)
_BEGINNINGS = frozenset(mark[:length] for mark in _MARKS for length in range(1, len(mark) + 1))
_LONGEST = max(map(len, _MARKS))
_ENDINGS = ("</thinking>", "</thought>", "<channel|>")
_ENDINGS_BEGUN = frozenset(mark[:length] for mark in _ENDINGS for length in range(1, len(mark)))
_MAYBE_FENCE = re.compile(r"\n[ \t]*[`~]{0,3}[ \t]*\Z|(?<=[}\]>])[ \t]*`{1,3}[ \t]*\Z")
_TRIM = 4096


class Sieve:
    """Takes pieces of an answer and gives what of them may be shown.

    Shown text is always a beginning of the content that `calls.read` finds in the whole answer, but for
    answers that close a thought that they never opened.
    """

    def __init__(self, tools: Sequence[Spec]) -> None:
        self._tools = tools
        self._text = "\n"
        self._at = 1
        self._mode = "text"
        self._called = False
        self._until = FENCE_END
        self._waiting: list[str] = []
        self._grown = 0
        self._shown: list[str] = []
        self._space = ""
        self._is_behind_calls = False

    @property
    def shown(self) -> str:
        """All the text that was given so far."""
        return "".join(self._shown)

    def feed(self, piece: str) -> list[Text | Thought]:
        """Take the next piece; gives what may be shown now."""
        if self._mode == "over" or (self._mode == "held" and not self._is_ripe(piece)):
            return []
        self._text = f"{self._text}{''.join(self._waiting)}{piece}"
        self._waiting.clear()
        self._grown = 0
        given: list[Text | Thought] = []
        while self._advance(given):
            pass
        if self._at > _TRIM:
            self._text, self._at = self._text[self._at - 1 :], 1
        return given

    def _is_ripe(self, piece: str) -> bool:
        """Whether enough has come to look again; looking at every piece would cost too much in long calls."""
        before = self._waiting[-1][-16:] if self._waiting else self._text[-16:]
        self._waiting.append(piece)
        self._grown += len(piece)
        if self._grown * 2 > len(self._text) or (
            self._grown * 8 > len(self._text) - 512 and self._until.search(before + piece)
        ):
            self._waiting.pop()
            return True
        return False

    def _advance(self, given: list[Text | Thought]) -> bool:
        """Go one stretch on; says whether there may be more."""
        match self._mode:
            case "thinking":
                return self._think(given)
            case "block":
                return self._pass_block(given)
            case _:
                return self._scan(given)

    def _scan(self, given: list[Text | Thought]) -> bool:
        self._mode = "text"
        scan = Scan(self._text, self._tools, final=False)
        scan.called = self._called
        for at, step in scan.steps(self._at):
            match step:
                case Said(end):
                    self._say(self._text[at : self._safe(end)], given)
                    self._at = self._safe(end)
                    if self._at < end:
                        return False
                case Wait(until, kind, start):
                    return self._wait(until, kind, start, given)
                case Mused(thought, end):
                    self._at = end
                    given += [Thought(thought)] if thought else []
                case Closed(end):
                    self._at = end
                case Calls(_, end):
                    self._at = end
                    self._called = True
                    self._is_behind_calls, self._space = True, ""
        return False

    def _wait(self, until: re.Pattern[str], kind: str, start: int, given: list[Text | Thought]) -> bool:
        self._mode, self._until = kind, until
        if kind == "block":
            self._say(self._text[self._at : start], given)
        is_passing = kind in {"block", "thinking"}
        self._at = start if is_passing else self._at
        return is_passing

    def _safe(self, end: int) -> int:
        """How far text may be shown: not what may yet become a mark, nor the space before it."""
        if end < len(self._text):
            return end
        if self._is_behind_calls and not self._text[self._at : end].strip(" \n\t}]"):
            return self._at
        tail = self._text[max(self._at, end - _LONGEST) : end].lower()
        partial = next((len(tail) - i for i in range(len(tail)) if tail[i:] in _BEGINNINGS), 0)
        shown = len(self._text[self._at : end - partial].rstrip())
        return max(self._at + shown, end - partial - _TRIM)

    def _say(self, text: str, given: list[Text | Thought]) -> None:
        """Show text, with the space before it; at the end of an answer or before a call there is none."""
        body = text.rstrip()
        if body:
            start = f"{self._space}{body}"
            if not self._shown:
                start = start.lstrip()
            elif self._is_behind_calls:
                start = f"\n{start.lstrip()}"
            self._shown.append(start)
            given.append(Text(start))
            self._is_behind_calls, self._space = False, ""
        self._space += text[len(body) :]

    def _think(self, given: list[Text | Thought]) -> bool:
        closing = AFTER_THOUGHT.search(self._text, self._at)
        end = closing.start() if closing else len(self._text)
        tail = self._text[max(self._at, end - _LONGEST) : end].lower()
        end -= 0 if closing else next((len(tail) - i for i in range(len(tail)) if tail[i:] in _ENDINGS_BEGUN), 0)
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
