"""A registry, an executor and single calls for tests: tools are opened when they are needed."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from .._native import to_json
from ..base import Tool
from ..decorator import tool
from ..executor import ToolCall, ToolEvent, ToolExecutor, ToolOutcome
from ..registry import ToolRegistry

__all__ = ["CallOutcome", "CallTool", "OpeningExecutor", "OpeningRegistry", "closing"]

_T = TypeVar("_T")
_NOTHING: Any = object()


class OpeningRegistry(ToolRegistry):
    """A registry that opens each tool before its first call, and closes what it opened.

    Unlike a host's, it lets out what ``open()`` and ``aclose()`` of a tool raise.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened: list[Any] = []
        self._made: dict[Any, Tool] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._opener: asyncio.Task[Any] | None = None

    def register(self, tool: Any) -> Any:
        """Register a tool, or a plain function as ``@tool`` makes one of it; the tool.

        Raises:
            TypeError: It is neither, or no tool can be made of the function.
        """
        made = self.tool(tool)
        super().register(made)
        return made

    def tool(self, tool_or_function: Any) -> Any:
        """The tool itself, or the one that is made of a function; always the same one for a function."""
        if not inspect.isroutine(tool_or_function):
            return tool_or_function
        made = self._made.get(tool_or_function)
        if made is None:
            made = self._made[tool_or_function] = tool(tool_or_function)
        return made

    async def execute(self, name: str, params: Any) -> Any:
        """Call one tool, which is opened first; see :meth:`ToolRegistry.execute`."""
        await self.open()
        return await super().execute(name, params)

    async def open(self) -> None:
        """Run ``open()`` of every tool that was not opened yet; calls that come meanwhile wait for it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if all(self._is_open(self.get(name)) for name in self.tool_names) and self._opener is None:
            return
        if self._opener is task and task is not None:
            return  # The tool that is being opened makes a call.
        if self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            self._opener = task
            try:
                for name in self.tool_names:
                    item = self.get(name)
                    if item is not None and not self._is_open(item):
                        await _run(item, "open")
                        self._opened.append(item)
            finally:
                self._opener = None

    def _is_open(self, item: Any) -> bool:
        return any(item is one for one in self._opened)

    async def aclose(self) -> None:
        """Run ``aclose()`` of every tool that was opened, in reverse order.

        Raises:
            ExceptionGroup: Some failed; the others were closed all the same.
        """
        failures = []
        while self._opened:
            item = self._opened.pop()
            try:
                await _run(item, "aclose")
            except Exception as exc:
                exc.add_note(f"in aclose() of the tool {getattr(item, 'name', item)!r}")
                failures.append(exc)
        if failures:
            raise ExceptionGroup("tools could not be closed", failures)

    def finish(self) -> None:
        """Close what is still open once the test is over: on the loop that it was opened on, if it lives."""
        if not self._opened:
            return
        loop = self._loop
        if loop is not None and not loop.is_closed() and not loop.is_running():
            loop.run_until_complete(self.aclose())
        else:
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(self.aclose())


async def _run(item: Any, method: str) -> None:
    hook = getattr(item, method, None)
    if hook is None:
        return
    done = hook()
    if inspect.isawaitable(done):
        await done


class OpeningExecutor(ToolExecutor):
    """An executor that opens the tools of its registry before it runs calls."""

    def __init__(self, registry: OpeningRegistry, **options: Any) -> None:
        super().__init__(registry, **options)
        self._registry = registry

    async def run(self, calls: Iterable[Any], *, timeout: float | None = None) -> list[ToolOutcome]:
        """Run all calls; see :meth:`ToolExecutor.run`."""
        await self._registry.open()
        return await super().run(calls, timeout=timeout)

    async def stream(self, calls: Iterable[Any], *, timeout: float | None = None) -> AsyncIterator[ToolEvent]:
        """Run all calls and yield what happens; see :meth:`ToolExecutor.stream`."""
        await self._registry.open()
        events = super().stream(calls, timeout=timeout)
        try:
            async for event in events:
                yield event
        finally:
            # Leaving early cancels what runs, at once.
            await events.aclose()  # type: ignore[attr-defined]


@dataclass(frozen=True)
class CallOutcome:
    """What became of a call that a test made.

    Attributes:
        tool: The tool's name.
        arguments: The arguments as they were given, before they were cast.
        outcome: The executor's own account of the call.
    """

    tool: str
    arguments: Any
    outcome: ToolOutcome

    @property
    def result(self) -> Any:
        """What the tool returned; or for an error, the text that the model is shown."""
        return self.outcome.result

    @property
    def text(self) -> str:
        """The result as text: content that is none is written as JSON."""
        return text_of(self.result)

    @property
    def is_error(self) -> bool:
        """Whether the call failed, for whatever reason."""
        return self.outcome.is_error

    @property
    def error_kind(self) -> str | None:
        """``None``, or the kind of error, such as ``"invalid_arguments"`` or ``"tool_error"``."""
        return self.outcome.error_kind

    @property
    def exception(self) -> BaseException | None:
        """The exception that the tool raised, itself."""
        exception: BaseException | None = self.outcome.exception
        return exception

    @property
    def structured(self) -> Any:
        """The ``structuredContent`` of an MCP server's result, or ``None``."""
        return self.outcome.structured


def text_of(result: Any) -> str:
    """The result of a tool as text."""
    if result is None:
        return ""
    return str(result) if isinstance(result, str) else to_json(result).decode()


class CallTool:
    """Makes single calls the way those of a model are made; from the fixture ``call_tool``.

    The first argument is a tool, a function (of which ``@tool`` makes one) or the name of a tool in
    ``tool_registry``; a tool that is not there yet is registered. The arguments follow by name, or as one
    object or JSON text for what names cannot say. They are cast and validated, the tool is opened if it was
    not, and the :class:`CallOutcome` tells what the model would have been shown. No ``Exception`` of the tool
    gets out.

    Example:
        >>> outcome = await call_tool(weather, city="Rome", days="2")
        >>> outcome = call_tool.sync("weather", '{"city": "Rome"}')
    """

    def __init__(self, registry: OpeningRegistry, executor: OpeningExecutor) -> None:
        self._registry = registry
        self._executor = executor
        self._runner: asyncio.Runner | None = None

    async def __call__(self, tool: Any, raw: Any = _NOTHING, /, **arguments: Any) -> CallOutcome:
        """Make one call; its outcome."""
        name, given = self._name(tool), _given(raw, arguments)
        [outcome] = await self._executor.run([ToolCall(name, given)])
        return CallOutcome(str(name), given, outcome)

    def sync(self, tool: Any, raw: Any = _NOTHING, /, **arguments: Any) -> CallOutcome:
        """Make one call from a test that is no coroutine, on a loop of its own.

        Raises:
            RuntimeError: A loop runs in this thread; await the call there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(self(tool, raw, **arguments))
        raise RuntimeError("a loop runs in this thread: write `await call_tool(...)`, without `.sync`")

    def finish(self) -> None:
        """Close what was opened, and the loop of :meth:`sync`."""
        if self._runner is None:
            return
        try:
            self._runner.run(self._registry.aclose())
        finally:
            self._runner.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._runner is None:
            # A factory: the thread's own loop stays what it is.
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        return self._runner.run(work)

    def _name(self, tool: Any) -> Any:
        if isinstance(tool, str):
            return tool
        made = self._registry.tool(tool)
        name = made.name
        if self._registry.get(name) is not made:
            self._registry.register(made)
        return name


def _given(raw: Any, arguments: dict[str, Any]) -> Any:
    if raw is _NOTHING:
        return arguments
    if arguments:
        raise TypeError("arguments are given by name, or as one object or text, not both")
    return raw


def closing(test: Callable[..., Any], registry: OpeningRegistry) -> Callable[..., Any]:
    """A coroutine function that is a test, so that it closes the registry's tools at its end, on its loop."""

    @functools.wraps(test)
    async def with_closing(*args: Any, **named: Any) -> Any:
        try:
            result = await test(*args, **named)
        except BaseException as failure:
            try:
                await registry.aclose()
            except ExceptionGroup as exc:
                # The test's own failure comes first.
                failure.add_note(f"{exc}: {'; '.join(map(repr, exc.exceptions))}")
            raise
        await registry.aclose()
        return result

    return with_closing
