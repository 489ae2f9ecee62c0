"""What a host does for MCP servers that ask it something."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MCPCallbacks"]

_Result = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MCPCallbacks:
    """What answers the requests of MCP servers, and hears of their news.

    Each may be a plain function or a coroutine function. Plain functions run in the default executor of the
    loop on which the connection was made, coroutines on that loop; so neither may hold it up. What is left
    out is not announced to servers, and declined if one asks all the same. An exception is logged, and the
    server gets a JSON-RPC error with its text (code -32603, or that of an :class:`~nanobot_tools.MCPError`).
    When the server takes a request back or the connection ends, the coroutine is cancelled. The time that a
    request takes to be answered does not count against the time limits of calls.

    Attributes:
        sampling: Asks a model, for ``sampling/createMessage``. Gets the server's name and the request's
            params (``messages``, ``maxTokens``, ``systemPrompt``, ...); returns the result: ``role``,
            ``content``, ``model`` and perhaps ``stopReason``. Specification: "Client Features / Sampling".
        elicitation: Asks the user, for ``elicitation/create``. Gets the server's name and the request's
            params: with ``mode`` "form" (which is the default) a ``message`` and a ``requestedSchema``, with
            "url" a ``message`` and a ``url`` to open. Returns ``{"action": "accept", "content": {...}}``, or
            just ``"accept"``, ``"decline"`` or ``"cancel"``. Fields of an accepted form that are left out get
            the schema's defaults (SEP-1034); the content is cast and validated. Specification: "Client
            Features / Elicitation".
        roots: The folders that servers may work in, for ``roots/list``: paths, ``file://`` addresses, or
            dicts with ``uri`` and ``name``; or a callback that gets the server's name and returns such a
            list. Specification: "Client Features / Roots".
        resource_updated: Hears that a resource has changed that was subscribed to; gets the server's name and
            the resource's URI. What changes several times before the callback is done is told once.
        list_changed: Hears that a server has changed a list, after the registry was refreshed; gets the
            server's name and ``"tools"``, ``"resources"`` or ``"prompts"``.
        elicitation_complete: Hears that what a URL was opened for is done
            (``notifications/elicitation/complete``); gets the server's name and the ``elicitationId`` of the
            request.
    """

    sampling: Callable[[str, dict[str, Any]], _Result | Awaitable[_Result]] | None = None
    elicitation: Callable[[str, dict[str, Any]], _Result | str | Awaitable[_Result | str]] | None = None
    roots: (
        Sequence[str | Path | _Result]
        | Callable[[str], Sequence[str | Path | _Result] | Awaitable[Sequence[str | Path | _Result]]]
        | None
    ) = None
    resource_updated: Callable[[str, str], object] | None = None
    list_changed: Callable[[str, str], object] | None = None
    elicitation_complete: Callable[[str, str], object] | None = None

    def _offers(self) -> list[str]:
        """The names of the requests that are answered."""
        return [name for name in ("sampling", "elicitation", "roots") if getattr(self, name) is not None]


async def invoke(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a callback of either kind, without holding up the loop."""
    # Of an object that is called, the class says what kind of function it is.
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await function(*arguments)
    context = contextvars.copy_context()
    work = functools.partial(context.run, _guarded, function, arguments)
    result = await asyncio.get_running_loop().run_in_executor(None, work)
    return await result if inspect.isawaitable(result) else result


def _guarded(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except StopIteration as exc:
        # A future cannot carry this one, and would never be done.
        raise RuntimeError(f"the callback raised {exc!r}") from exc
