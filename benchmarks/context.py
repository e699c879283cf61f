"""What a model is sent over a long conversation: how large the requests are, and how much of each is the one before.

    python -m benchmarks.context [--chat locomo10.json] [--traces DIR] [--windows 8000,16000,32000] [--messages 50,200]

Neither set of data is part of this project: `--chat` is LoCoMo (github.com/snap-research/locomo, CC BY-NC; with
observations for the rows with memory), `--traces` is a folder of recorded runs of mini-swe-agent (`*.traj.json`). The
agent is the real one with its summaries and memory; only the model is played: it gives the recorded answers and calls,
and summarises by repeating the first words of what it is given. Sizes are nacre's own estimate.

A request is over the window if it leaves less than an eighth for the reply. *Prefix kept* is the mean share of a
request that the next one begins with; *cacheable* the share of all tokens sent that the request before began with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from msgspec import Struct

import nacre
from nacre.agent.actor import UserMessage
from nacre.agent.ports import Context, Effect, Emit, Output, Reply, Scene, Spec, Tool, Usage
from nacre.config import Settings
from nacre.history.tokens import cost, estimate
from nacre.memory import Memory
from nacre.memory.agent_memory import HEADING
from nacre.messages import Message, ToolCall
from nacre.providers import anthropic, openai
from nacre.runtime import App
from nacre.runtime.agent_parts import AgentParts
from nacre.skills import Catalogue
from nacre.tools.builtin import search_tool
from nacre.tools.files.file_reader import reading_tools
from nacre.tools.files.file_writer import writing_tools
from nacre.tools.files.workspace import Workspace
from tests import provider_rules

_SYSTEM = "You are nacre, an assistant that works with its user's files. Be brief and exact.\n" * 4
_KEY = "bench"
_WORDS = 6
"""How many words of each line the played summary repeats."""


class Step(NamedTuple):
    """What the model answers at one point, and what its calls give."""

    message: Message
    outputs: Mapping[str, str] = {}


class Turn(NamedTuple):
    """What the user says, and the steps of the answer to it."""

    said: str
    steps: Sequence[Step]


class Recorded:
    """A model that gives recorded answers, summarises when it is asked to, and keeps every request."""

    def __init__(self) -> None:
        self.model = "recorded"
        self.contexts: list[Context] = []
        self.summaries = 0
        self.steps: Iterator[Step] = iter(())
        self.outputs: dict[str, str] = {}

    async def complete(self, context: Context, *, emit: Emit) -> Reply:  # noqa: ARG002 - a provider
        if not context.tools:
            self.summaries += 1
            return Reply(message=Message(role="assistant", content=_summary(str(context.messages[0].content))))
        self.contexts.append(context)
        step = next(self.steps)
        self.outputs.update(step.outputs)
        usage = Usage(prompt=cost(context))
        return Reply(message=step.message, usage=usage, finish="calls" if step.message.tool_calls else "stop")

    async def close(self) -> None:
        """Nothing is held."""


def _summary(asked: str) -> str:
    """The first words of the newest lines, without who spoke."""
    said = [re.sub(r"^[\w ]{1,30}: ", "", line).split() for line in asked.split("\n")[1:-1]]
    return "; ".join(" ".join(words[:_WORDS]) for words in said[-200:] if len(words) >= _WORDS)[-1000:]


class Bash:
    """A tool that gives what was recorded."""

    effect: Effect = "read"
    spec = Spec(
        name="bash",
        description="Execute a bash command.",
        parameters={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    )

    def __init__(self, model: Recorded) -> None:
        self._model = model

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:  # noqa: ARG002 - a tool
        return Output(text=self._model.outputs[scene.call.id])


class Figures(Struct, frozen=True, kw_only=True):
    """What came of one run."""

    requests: int
    fixed: int
    largest: int
    over: int
    summaries: int
    left_out: int
    kept: float
    cacheable: float
    recalled: float
    tokens: int


def measure_requests(contexts: Sequence[Context], *, window: int, summaries: int) -> Figures:
    """Work the figures of a run out of what was sent."""
    sizes = [cost(context) for context in contexts]
    shared = [0, *(_shared(one, other) for one, other in pairwise(contexts))]
    kept = [same / size for same, size in zip(shared[1:], sizes, strict=False)]
    said = [str(context.messages[0].content) for context in contexts]
    recalled = sum(_recalled(message) for context in contexts for message in context.messages)
    for context in contexts:
        provider_rules.openai(openai.body(context, openai.Settings(model="m")))
        provider_rules.anthropic(anthropic.body(context, anthropic.Settings(model="m")))
    return Figures(
        requests=len(contexts),
        fixed=_fixed(contexts[0]),
        largest=max(sizes),
        over=sum(size > window - window // 8 for size in sizes),
        summaries=summaries,
        left_out=sum("earlier message" in text or "earlier step" in text for text in said),
        kept=sum(kept) / max(len(kept), 1),
        cacheable=sum(shared) / sum(sizes),
        recalled=recalled / sum(sizes),
        tokens=sum(sizes),
    )


def _fixed(context: Context) -> int:
    return cost(Context(system=context.system, messages=(), tools=context.tools))


def _shared(before: Context, now: Context) -> int:
    """The tokens that two requests begin with alike, by whole messages."""
    if before.system != now.system or before.tools != now.tools:
        return 0
    same = 0
    for one, other in zip(before.messages, now.messages, strict=False):
        if one != other:
            break
        same += estimate(one)
    return _fixed(now) + same


def _recalled(message: Message) -> int:
    text = message.content if isinstance(message.content, str) else ""
    if message.role != "user" or not text.startswith(HEADING):
        return 0
    return estimate(Message(role="user", content=text.partition("\n\n")[0]))


# ---- the data


def read_chat(dialogue: Mapping[str, Any], turns: int) -> list[Turn]:
    """A dialogue as turns: one of the two asks, the other one answers."""
    said = [one for value in dialogue["conversation"].values() if isinstance(value, list) for one in value]
    texts = [f"{one['text']} [{one['blip_caption']}]" if one.get("blip_caption") else one["text"] for one in said]
    pairs = zip(texts[::2], texts[1::2], strict=False)
    return [Turn(asked, [Step(Message(role="assistant", content=answer))]) for asked, answer in pairs][:turns]


def read_facts(dialogue: Mapping[str, Any]) -> list[str]:
    observed = [facts for session in dialogue["observation"].values() for facts in session.values()]
    return [text for facts in observed for text, _ in facts]


def read_trace(path: Path) -> Turn:
    """A recorded run as one turn: the task, and a step for each answer with the outputs of its calls."""
    messages = json.loads(path.read_text())["messages"]
    outputs = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
    steps = []
    for message in messages:
        calls = [one for one in message.get("tool_calls") or () if one["id"] in outputs]
        if message["role"] == "assistant" and calls:
            made = tuple(ToolCall(id=one["id"], name="bash", arguments=_arguments(one)) for one in calls)
            said = Message(role="assistant", content=message["content"] or "", tool_calls=made)
            steps.append(Step(said, {one["id"]: outputs[one["id"]] for one in calls}))
    return Turn(messages[1]["content"], [*steps, Step(Message(role="assistant", content="It is done."))])


def _arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    found = json.loads(call["function"]["arguments"])
    return {"command": found.get("command", "")}


# ---- a run


async def play(turns: Iterable[Turn], *, window: int, messages: int, facts: Sequence[str], room: Path) -> Figures:
    """Let the agent answer all turns in one session, and measure what the model was sent."""
    own = {"max_context_tokens": window, "max_history_messages": messages, "max_steps": 10_000, "titles": False}
    model = Recorded()
    with nacre.open(room / "store") as sessions:
        app = App(Settings({"agent": own}, {}), sessions, model)
        files = Workspace(room)
        tools: list[Tool] = [*reading_tools(files), *writing_tools(files, lambda *_: None), search_tool(sessions)]
        tools.append(Bash(model))
        by_name = {tool.spec.name: tool for tool in tools}
        app.parts = AgentParts(by_name, Catalogue(()), _SYSTEM, [])
        if facts:
            app.memory = Memory(sessions, room / "home", embedding=lambda: None)
            for fact in facts:
                app.memory.remember(fact)
        app.after = [app.compactor.post]
        async with app.compactor, app.kernel:
            for turn in turns:
                model.steps = iter(turn.steps)
                await app.kernel.deliver(UserMessage(key=_KEY, content=turn.said))
                await app.compactor.finish(_KEY)
        summaries = len(list(sessions.records(_KEY, "sum")))
    return measure_requests(model.contexts, window=window, summaries=summaries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chat", type=Path, help="locomo10.json")
    parser.add_argument("--traces", type=Path, help="a folder with *.traj.json")
    parser.add_argument("--windows", default="8000,16000,32000")
    parser.add_argument("--messages", default="50,200")
    parser.add_argument("--dialogue", type=int, default=3, help="which dialogue of LoCoMo")
    parser.add_argument("--turns", type=int, default=160, help="turns of chat")
    parser.add_argument("--runs", type=int, default=5, help="recorded runs, one after the other in one session")
    args = parser.parse_args()
    runs: list[tuple[str, list[Turn], list[str]]] = []
    if args.chat:
        dialogue = json.loads(args.chat.read_text())[args.dialogue]
        chat = read_chat(dialogue, args.turns)
        runs += [("chat", chat, []), ("chat + memory", chat, read_facts(dialogue))]
    if args.traces:
        paths = sorted(args.traces.glob("*.traj.json"))[: args.runs]
        runs.append(("tool loop", [read_trace(path) for path in paths], []))
    names = ["requests", "system+tools", "largest", "over", "summaries", "left out", "prefix kept", "cacheable"]
    _print("run", *names, "recalled share", "tokens, M")
    _print(*["---"] * (len(names) + 3))
    for name, turns, facts in runs:
        for window in map(int, args.windows.split(",")):
            for most in map(int, args.messages.split(",")):
                with tempfile.TemporaryDirectory() as room:
                    os.environ.update(XDG_STATE_HOME=f"{room}/state", XDG_CACHE_HOME=f"{room}/cache")
                    went = partial(play, turns, window=window, messages=most, facts=facts, room=Path(room))
                    found = anyio.run(went)
                counts = (found.requests, found.fixed, found.largest, found.over, found.summaries, found.left_out)
                shares = (f"{share:.3f}" for share in (found.kept, found.cacheable, found.recalled))
                _print(f"{name} {window}/{most}", *counts, *shares, f"{found.tokens / 1e6:.2f}")


def _print(*cells: object) -> None:
    sys.stdout.write(f"| {' | '.join(map(str, cells))} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
