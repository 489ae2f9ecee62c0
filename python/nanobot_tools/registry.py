"""The tool registry: names, definitions, and single calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from . import _dispatch
from ._native import (
    CURRENT_CALL,
    NativeRegistry,
    RegistrySnapshot,
    Subscription,
)
from .base import ToolResult

__all__ = ["RegistrySnapshot", "Subscription", "ToolRegistry"]

_log = logging.getLogger("nanobot_tools.registry")


class ToolRegistry(NativeRegistry):
    """Tools by name, what a model sees of them, and how one is called.

    Everything but :meth:`execute`, :meth:`open` and :meth:`aclose` may be used from any thread. Names,
    results and texts are those of nanobot-ai 0.3.5; what is new is ``definitions_json``,
    ``fingerprint``, ``generation``, ``subscribe``, ``snapshot``, ``refresh`` and ``apply``.

    Example:
        >>> registry = ToolRegistry()
        >>> registry.register(my_tool)
        >>> await registry.execute("my_tool", {"text": "hi"})
    """

    def __init__(self) -> None:
        super().__init__()

    async def execute(self, name: str, params: Any) -> Any:
        """Call one tool.

        Args:
            name: The tool's name.
            params: The arguments: a dict, JSON text, ``None``, or either one wrapped in
                ``{"arguments": ...}``.

        Returns:
            What the tool returned, unchanged; or an error :class:`ToolResult` whose text ends with the
            retry hint. No ``Exception`` of a tool gets out.

        Raises:
            asyncio.CancelledError: The caller was cancelled; the call is cancelled with it.
        """
        step = self._start(name, params)
        if type(step) is not tuple:
            if isinstance(step, ToolResult):
                return step
            return await step
        tool, arguments, how, call = step
        # The name stands for a call that nobody asks for; `current_call` makes one of it.
        token = CURRENT_CALL.set(name)
        try:
            if how == 0:
                result = await tool.execute(**arguments)
            else:
                result = await _dispatch.run_tool(tool, arguments, how)
        except Exception as exc:
            return call.raised(exc)
        except BaseException as exc:
            kept = _dispatch.contained(exc)
            if kept is exc:
                call.cancelled()
                raise
            return call.raised(kept)
        finally:
            CURRENT_CALL.reset(token)
        if type(result) is str:
            call.succeeded()
            return result
        return call.returned(result)

    def execute_sync(self, name: str, params: Any = None, *, timeout: float | None = None) -> Any:
        """:meth:`execute` for threads without an event loop, such as those of a script.

        Python tools run on the loop of a background thread that all synchronous calls of the process share.
        The caller's context variables are kept; ``KeyboardInterrupt`` cancels the call.

        Args:
            name: The tool's name.
            params: The arguments, as for :meth:`execute`.
            timeout: Seconds that the call may take; then the result is an error.

        Returns:
            What :meth:`execute` returns.

        Raises:
            LoopRunningError: An event loop runs in this thread; await :meth:`execute` there.
            ToolCancelledError: The call was cancelled, as it is at the end of the process.
        """
        from ._sync import run

        async def call() -> Any:
            if timeout is None:
                return await self.execute(name, params)
            from .executor import ToolCall, ToolExecutor

            [outcome] = await ToolExecutor(self).run([ToolCall(name, params)], timeout=timeout)
            return outcome.result

        return run(call, "execute_sync()", "await execute()")

    def get_runtime_context_providers(self) -> list[Any]:
        """The context providers that tools own, in the order of tool names."""
        providers = []
        for _, tool in sorted(self._tools.items()):
            provide: Callable[[], Any] | None = getattr(tool, "runtime_context_provider", None)
            provider = provide() if provide is not None else None
            if provider is not None:
                providers.append(provider)
        return providers

    def stats(self) -> dict[str, Any]:
        """What came of calls so far; new objects each time.

        Calls of executors count, and those of :meth:`execute`, :meth:`execute_sync` and
        :meth:`call_blocking`. A tool's numbers stay when it is registered anew.

        Returns:
            ``tools``: for each tool that was called, by name, a dict with ``calls``, ``errors`` (kind of
            error, as in :attr:`ToolOutcome.error_kind`, -> how many), ``running`` (calls under way) and
            ``latency``: ``count``, ``sum``, ``p50``, ``p95`` and ``max`` of calls that began and have ended,
            in seconds. Percentiles are right to a sixteenth; without a call they and ``max`` are ``None``.
            ``unknown``: how many calls named no tool that there was.
        """
        tools, unknown = self._stats()
        return {"tools": dict(sorted(tools.items())), "unknown": unknown}

    async def open(self) -> None:
        """Run ``open()`` of every tool that has one; a tool that fails is logged and stays registered."""
        await self._each("open")

    async def aclose(self) -> None:
        """Run ``aclose()`` of every tool that has one, in reverse order; failures are logged."""
        await self._each("aclose", backwards=True)

    async def _each(self, method: str, *, backwards: bool = False) -> None:
        tools = list(self._tools.items())
        for name, tool in reversed(tools) if backwards else tools:
            hook = getattr(tool, method, None)
            if hook is None:
                continue
            try:
                done = hook()
                if hasattr(done, "__await__"):
                    await done
            except Exception:
                _log.exception("tool %r: %s() failed", name, method)

    async def __aenter__(self) -> ToolRegistry:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
