"""Serves one MCP server: its questions and its news, on the loop on which the connection was made."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._native import Answer
from ..errors import MCPError
from ._answers import elicitation_result, roots_result, sampling_result
from ._callbacks import MCPCallbacks, invoke

if TYPE_CHECKING:
    from ._connection import MCPConnection

_log = logging.getLogger("nanobot_tools.mcp")

_INTERNAL_ERROR = -32603

# News that waits for its callback: a server may make up as many addresses as it likes.
_MAX_NEWS = 1_000


class Host:
    """What the native connection calls, on the loop's thread; once the loop is gone, on another one.

    Callbacks see the context variables of whoever made the connection. News is told in order, one at a time.
    The connection is held weakly: it holds the native connection, and that one holds its host.
    """

    def __init__(self, server: str, callbacks: MCPCallbacks) -> None:
        self._server = server
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._connection: Callable[[], MCPConnection | None] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: dict[tuple[str, str], None] = {}
        self._teller: asyncio.Task[None] | None = None
        self._closed = False

    def attach(self, connection: MCPConnection) -> None:
        """Say whose host this is, as soon as there is a connection."""
        self._connection = weakref.ref(connection)

    def serve(self, method: str, params: dict[str, Any], answer: Answer) -> Callable[[], None]:
        """Answer a request of the server; what is returned is called when nobody wants that any more."""
        task = self._spawn(self._serve(method, params, answer), f"mcp:{self._server}:{method}")

        def withdraw() -> None:
            # After closing, what runs is the callback that closed the connection: it may end in its own way.
            if not self._closed:
                task.cancel()

        return withdraw

    def resource_updated(self, uri: str) -> None:
        """A resource that was subscribed to has changed."""
        if self._callbacks.resource_updated is not None:
            self._tell("resource", uri)

    def elicitation_complete(self, elicitation: str) -> None:
        """What a URL was opened for is done."""
        if self._callbacks.elicitation_complete is not None:
            self._tell("elicitation", elicitation)

    def offering_changed(self) -> None:
        """What the server offers is not what it was."""
        connection = self._connection()
        if connection is not None:
            try:
                connection._refresh()
            except Exception:
                _log.exception("MCP server %r: refreshing the registry failed", self._server)

    def state_changed(self, state: str, failure: str | None) -> None:
        """The server has entered another state."""
        connection = self._connection()
        if connection is not None and connection._on_state is not None:
            try:
                connection._on_state(state, failure)
            except Exception:
                _log.exception("MCP server %r: the callback for its state failed", self._server)

    def list_changed(self, kind: str) -> None:
        """A list was read again."""
        self.offering_changed()
        if self._callbacks.list_changed is not None:
            self._tell("list", kind)

    async def aclose(self) -> None:
        """Cancel what runs. From another loop than its own, this does not wait for it."""
        self._closed = True
        self._news.clear()
        if self._loop.is_closed():
            return
        if self._loop is not asyncio.get_running_loop():
            self._loop.call_soon_threadsafe(self._cancel)
            return
        await asyncio.gather(*self._cancel(), return_exceptions=True)

    def _cancel(self) -> list[asyncio.Task[None]]:
        # A callback may close the connection that it answers.
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        return tasks

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work, name=name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, method: str, params: dict[str, Any], answer: Answer) -> None:
        try:
            answer.result(await self._ask(method, params))
        except MCPError as exc:
            answer.error(exc.rpc_code, exc.message)
        except Exception as exc:
            _log.warning("MCP server %r: answering %s failed", self._server, method, exc_info=True)
            answer.error(_INTERNAL_ERROR, str(exc) or type(exc).__name__)
        except BaseException:
            answer.error(_INTERNAL_ERROR, "the client stopped before it had an answer")
            raise

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        callbacks = self._callbacks
        if method == "sampling/createMessage" and callbacks.sampling is not None:
            return sampling_result(await invoke(callbacks.sampling, self._server, params))
        if method == "elicitation/create" and callbacks.elicitation is not None:
            return elicitation_result(params, await invoke(callbacks.elicitation, self._server, params))
        if method == "roots/list" and callbacks.roots is not None:
            roots: Any = callbacks.roots
            return roots_result(await invoke(roots, self._server) if callable(roots) else roots)
        raise MCPError(-32601, f"Method not found: {method}")

    def _tell(self, kind: str, what: str) -> None:
        if self._closed or self._loop.is_closed():
            return
        if len(self._news) >= _MAX_NEWS and (kind, what) not in self._news:
            _log.warning("MCP server %r: its news comes too fast; some is lost", self._server)
            return
        self._news[kind, what] = None
        if self._teller is None or self._teller.done():
            self._teller = self._spawn(self._tell_all(), f"mcp:{self._server}:news")

    async def _tell_all(self) -> None:
        while self._news:
            kind, what = item = next(iter(self._news))
            # Before the callback: what changes while it runs is news again.
            del self._news[item]
            callbacks = self._callbacks
            callback = {
                "resource": callbacks.resource_updated,
                "list": callbacks.list_changed,
                "elicitation": callbacks.elicitation_complete,
            }[kind]
            if callback is None:
                continue
            try:
                await invoke(callback, self._server, what)
            except Exception:
                _log.warning("MCP server %r: the callback for %r failed", self._server, what, exc_info=True)
