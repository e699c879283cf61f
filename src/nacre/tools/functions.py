"""A tool is a typed Python function with a docstring; its schema comes from its signature."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, overload

import msgspec
from anyio import to_thread

from nacre.agent.ports import Effect, Output, Scene, Spec
from nacre.errors import NacreError, ToolError
from nacre.tools.docstrings import read
from nacre.tools.schemas import Parameters, converted, names_of, parameters_of
from nacre.tools.tool_output import bounded

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Function:
    """A function as a tool; it can still be called as what it is.

    Raises TypeError if a model could not be told of it: no docstring, a parameter without a type,
    or of a type that JSON cannot represent.
    """

    def __init__(self, function: Callable[..., Any], *, effect: Effect = "run", name: str = "") -> None:
        self._function = function
        self._effect: Effect = effect
        found = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(found):
            raise TypeError(f"{found!r} cannot name a tool: use up to 64 letters, digits, _ and -")
        description, about = read(function.__doc__ or "", names_of(function))
        if not description:
            raise TypeError(f"tool {found!r} has no docstring: the model needs it as the description")
        self._parameters: Parameters = parameters_of(function, about, name=found)
        self._spec = Spec(name=found, description=description, parameters=self._parameters.schema)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def effect(self) -> Effect:
        return self._effect

    async def run(self, arguments: Mapping[str, Any], scene: Scene) -> Output:
        """Check and convert the arguments, and call the function, in a worker thread unless it is async.

        A cancelled call does not wait for the thread: what it still does is not known to anybody.
        Raises ToolError, whatever the function raised.
        """
        named = converted(self._parameters, arguments, name=self._spec.name)
        if self._parameters.scene:
            named[self._parameters.scene] = scene
        try:
            return _output(await self._called(named))
        except ToolError:
            raise
        except NacreError as error:
            raise ToolError(str(error)) from error
        except Exception as error:  # a tool is anybody's code: what it raises is what the model is told
            raise ToolError(f"{type(error).__name__}: {error}") from error

    async def _called(self, named: dict[str, Any]) -> Any:
        if iscoroutinefunction(self._function):
            return await self._function(**named)
        return await to_thread.run_sync(partial(self._function, **named), abandon_on_cancel=True)


@overload
def tool(function: Callable[..., Any], /) -> Function: ...


@overload
def tool(*, effect: Effect = ..., name: str = ...) -> Callable[[Callable[..., Any]], Function]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, effect: Effect = "run", name: str = ""
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Make a function a tool: `@tool` or `@tool(effect="read")`.

    Without an effect it counts as running a program, so that a person is asked before it runs.
    """
    if function is not None:
        return Function(function, effect=effect, name=name)
    return lambda given: Function(given, effect=effect, name=name)


def _output(value: Any) -> Output:
    """What a function returned, as the model sees it."""
    if isinstance(value, Output):
        return value
    return bounded(_text(value))


def _text(value: Any) -> str:
    if value is None:
        return "done"
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return str(value)
