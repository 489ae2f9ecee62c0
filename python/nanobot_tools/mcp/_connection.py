"""A connection to one MCP server, and its tools in a registry."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .._native import NativeConnection, NativeTool, forked
from ..base import Tool
from ..registry import ToolRegistry
from ._entry import plain_entry
from ._host import Host
from .wrappers import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper

__all__ = ["MCPConnection"]

_log = logging.getLogger("nanobot_tools.mcp")

_Wrapper = MCPToolWrapper | MCPResourceWrapper | MCPPromptWrapper
_Progress = Callable[[float, float | None, str | None], object]

#: The class for each kind of thing that a server offers.
WRAPPERS: Mapping[str, type[_Wrapper]] = {
    "tool": MCPToolWrapper,
    "resource": MCPResourceWrapper,
    "prompt": MCPPromptWrapper,
}
#: What a wrapper of each kind is told: where its raw name goes, and its time limit.
_ATTRIBUTES = {
    "tool": ("_original_name", "_tool_timeout"),
    "resource": ("_uri", "_resource_timeout"),
    "prompt": ("_prompt_name", "_prompt_timeout"),
}

_open: weakref.WeakSet[MCPConnection] = weakref.WeakSet()


class MCPConnection:
    """One MCP server, kept connected; from :func:`connect_mcp_servers` or :func:`connect_mcp_server`.

    A server that is lost is reached again in the background, for ever; its tools stay registered meanwhile.
    A call to it joins an attempt that is under way for up to 5 s, and fails otherwise with a text that says
    when the next one is. What a connection could not carry to its end is sent again over the next if the
    server cannot have seen it, or if running it twice does no harm (see the entry's ``retry``).

    Attributes are read-only. Methods may be called from any task of any loop; a server of either era of the
    protocol is asked in its own way. What they raise beside what their descriptions name:

    - :class:`~nanobot_tools.MCPError`: the server answered with an error, or with what cannot be understood;
    - :class:`~nanobot_tools.MCPConnectionError`: the connection is or was lost;
    - :class:`~nanobot_tools.ToolTimeoutError`: there was no answer in time.

    Cancelling a call tells the server. As a context manager it is closed at the end.
    """

    def __init__(
        self,
        native: NativeConnection,
        host: Host | None = None,
        *,
        wrappers: Mapping[str, type[_Wrapper]] | None = None,
    ) -> None:
        self._native = native
        self._host = host
        self._classes = WRAPPERS if wrappers is None else wrappers
        self._registry: ToolRegistry | None = None
        self._wrappers: list[_Wrapper] = []
        self._offered = False
        self._refreshing = threading.Lock()
        self._warned: set[str] = set()
        self._on_state: Callable[[str, str | None], object] | None = None
        if host is not None:
            host.attach(self)
        _open.add(self)

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self._native.name

    @property
    def state(self) -> str:
        """Where the server is in its life.

        ``"recipe"`` (not started), ``"disabled"``, ``"cached"`` (the first call starts it), ``"connecting"``,
        ``"ready"``, ``"lost"``, ``"needs-authorisation"``, ``"reconnecting"`` or ``"closed"``.
        """
        return self._native.state

    @property
    def failure(self) -> Exception | None:
        """Why the last attempt or connection failed; ``None`` while the server is well."""
        failure: Exception | None = self._native.failure
        return failure

    def status(self) -> dict[str, Any]:
        """How the server is; a new dict each time.

        Returns:
            ``state``; ``since`` (Unix time in seconds); ``failure`` (text or ``None``); ``next_attempt``
            (seconds from now, or ``None``); ``attempts`` (that failed since the last success);
            ``reconnects``; ``cached`` (whether the tools come from the cache); ``tools`` (how many);
            ``protocol_version``; ``pid``; ``calls``; ``bytes_sent`` and ``bytes_received``.
        """
        status: dict[str, Any] = self._native.status()
        return status

    def stats(self) -> dict[str, Any]:
        """What came of requests to the server, as a new dict each time.

        Calls of its tools count, and requests made with the methods of this class, but for whole lists.

        Returns:
            ``calls``, ``errors`` (kind of error -> how many), ``running`` and ``latency``, as in
            :meth:`ToolRegistry.stats`. The time that a call waits for a lost server is part of its latency.
        """
        stats: dict[str, Any] = self._native.stats()
        return stats

    def reconnect(self) -> None:
        """Start the next attempt now; a server that is connected is asked whether it is well."""
        self._native.reconnect()

    @property
    def pid(self) -> int | None:
        """Id of the server's process, which leads its group; ``None`` for a server over HTTP."""
        return self._native.pid

    @property
    def instructions(self) -> str | None:
        """What the server tells the model about itself."""
        return self._native.instructions

    @property
    def server_info(self) -> tuple[str, str] | None:
        """Name and version that the server gave of itself (``serverInfo``); ``None`` before."""
        return self._native.server_info

    @property
    def protocol_version(self) -> str | None:
        """The protocol version that was agreed on, such as ``"2025-11-25"``; ``None`` before."""
        return self._native.protocol_version

    @property
    def _is_legacy(self) -> bool:
        """Whether the server is of the era that begins with ``initialize``."""
        return (self.protocol_version or "") < "2026-07-28"

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the server says it can do, in ``initialize`` or ``server/discover``; a new dict each time."""
        capabilities: dict[str, Any] = self._native.capabilities
        return capabilities

    @property
    def warnings(self) -> list[str]:
        """What was odd about the entry or the server without being fatal."""
        return self._native.warnings

    @property
    def stderr_tail(self) -> str:
        """The last lines that the server wrote to stderr."""
        return self._native.stderr_tail

    @property
    def tools(self) -> list[_Wrapper]:
        """What the server offers to a model, as it is registered: its tools, resources and prompts."""
        return list(self._wrappers)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        progress: _Progress | None = None,
    ) -> dict[str, Any]:
        """Call a tool by its raw name and return the server's whole result (``tools/call``).

        Args:
            name: The name on the server.
            arguments: The arguments, sent as they are.
            timeout: Seconds; the entry's ``toolTimeout`` by default.
            progress: Called with work done, all the work if known, and a line for people, each time that the
                server reports progress. A plain function is called on the loop and must be quick; a coroutine
                function is awaited, one report at a time and in order, before this returns. What it raises
                is logged.

        Returns:
            ``content``, and where there are any ``structuredContent`` and ``isError``, as objects.
        """
        reports = _Reports(self.name, progress) if progress is not None else None
        call = self._native.call_tool(name, dict(arguments or {}), timeout, reports)
        try:
            result: dict[str, Any] = await call
        except BaseException:
            if reports is not None:
                reports.cancel()
            raise
        if reports is not None:
            await reports.done()
        return result

    async def list_tools(self) -> list[dict[str, Any]]:
        """All tools, from all pages, each as the server lists it (``tools/list``)."""
        return await self._list("tools")

    async def list_resources(self) -> list[dict[str, Any]]:
        """All resources, from all pages, each as the server lists it (``resources/list``)."""
        return await self._list("resources")

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        """All templates of resources, from all pages (``resources/templates/list``)."""
        return await self._list("resource_templates")

    async def list_prompts(self) -> list[dict[str, Any]]:
        """All prompts, from all pages, each as the server lists it (``prompts/list``)."""
        return await self._list("prompts")

    async def _list(self, kind: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = await self._native.read_list(kind)
        return items

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Read a resource (``resources/read``).

        Args:
            uri: The resource's address, also one that a template makes.
            timeout: Seconds; the entry's ``toolTimeout`` by default.

        Returns:
            ``contents``: a list of items with ``uri`` and either ``text`` or ``blob`` (base64).
        """
        return await self.request("resources/read", {"uri": str(uri)}, timeout=timeout)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Get a prompt, filled in (``prompts/get``).

        Args:
            name: The prompt's name on the server.
            arguments: Texts for its arguments.
            timeout: Seconds; the entry's ``toolTimeout`` by default.

        Returns:
            ``messages``, and perhaps a ``description``.
        """
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self.request("prompts/get", params, timeout=timeout)

    async def complete(
        self, ref: Mapping[str, Any], argument: Mapping[str, Any], *, context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Ask how an argument may go on (``completion/complete``).

        Args:
            ref: What the argument belongs to: ``{"type": "ref/prompt", "name": ...}`` or
                ``{"type": "ref/resource", "uri": ...}`` with the URI of a template.
            argument: ``{"name": ..., "value": ...}`` with what was typed so far.
            context: ``{"arguments": {...}}`` with the arguments that are settled already.

        Returns:
            ``completion``: ``values``, and perhaps ``total`` and ``hasMore``.
        """
        params: dict[str, Any] = {"ref": dict(ref), "argument": dict(argument)}
        if context is not None:
            params["context"] = dict(context)
        return await self.request("completion/complete", params)

    async def subscribe_resource(self, uri: str) -> None:
        """Have ``MCPCallbacks.resource_updated`` called when a resource changes, until it is unsubscribed."""
        await self._native.subscribe(str(uri), True)

    async def unsubscribe_resource(self, uri: str) -> None:
        """Hear no more of a resource."""
        await self._native.subscribe(str(uri), False)

    async def set_logging_level(self, level: str) -> None:
        """Say what the server should log, to ``logging.getLogger("nanobot_tools.mcp.server.<name>")``.

        Args:
            level: The lowest that is wanted: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``,
                ``"error"``, ``"critical"``, ``"alert"`` or ``"emergency"``. In Python's terms ``notice`` is
                INFO, and the last three are CRITICAL; ``record.mcp_level`` has the server's own, and
                ``record.mcp_logger`` the part of the server that logs.
        """
        await self._native.set_logging_level(level)

    async def ping(self) -> None:
        """Wait for a sign of life from the server: ``ping``, or ``server/discover`` from 2026-07-28 on."""
        await self.request("ping" if self._is_legacy else "server/discover")

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Make any request.

        Args:
            method: The method's name in the protocol.
            params: Its parameters; what the protocol wants with every request is added.
            timeout: Seconds; the entry's ``toolTimeout`` by default.

        Returns:
            The result as the server sent it; input that it required on the way is given by the callbacks.
        """
        result: dict[str, Any] = await self._native.request(method, dict(params or {}), timeout)
        return result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification. It is on its way when this returns, which says nothing about its arrival."""
        self._native.notify(method, dict(params or {}))

    async def roots_changed(self) -> None:
        """Tell the server that it should ask for the roots again (``notifications/roots/list_changed``).

        Servers of 2026-07-28 ask each time that they need them, and are told nothing.
        """
        if self._is_legacy:
            await self.notify("notifications/roots/list_changed")

    async def aclose(self, *, drain: float = 0.0) -> None:
        """Unregister the tools, close the connection and end the server with all its children.

        Callbacks that still run are cancelled. May be called from any task, and more than once.

        Args:
            drain: Seconds that calls get which run now; others fail at once.
        """
        _open.discard(self)
        self._withdraw()
        closing = asyncio.ensure_future(self._native.close(drain))
        if drain:
            await asyncio.shield(closing)
        if self._host is not None:
            await self._host.aclose()
        await asyncio.shield(closing)

    async def __aenter__(self) -> MCPConnection:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<MCPConnection {self.name!r} {self.state}, {len(self._wrappers)} tools>"

    def _offer(self, registry: ToolRegistry | None) -> None:
        """Wrap what the server offers, and register it under names that are free."""
        self._registry = registry
        self._offered = True
        self._refresh()

    def _join(self, registry: ToolRegistry) -> None:
        """Register what the server offers, unless that was done."""
        if not self._offered:
            self._offer(registry)

    def _withdraw(self) -> int:
        """Register nothing any more, and unregister what nobody replaced; how many tools it had."""
        with self._refreshing:
            registry, self._registry = self._registry, None
            mine = {w.name: w for w in self._wrappers}
        if registry is not None:
            registry.apply([name for name, w in mine.items() if registry.get(name) is w], [])
        return len(mine)

    def _release(self) -> int:
        """Register nothing any more until it joins a registry again; how many tools it had."""
        dropped = self._withdraw()
        with self._refreshing:
            self._offered = False
            self._wrappers = []
        return dropped

    def _update(self, entry: Any) -> bool:
        """Take a changed entry without a restart; false if the server has to be opened anew.

        Raises:
            ConfigError: The entry is faulty.
        """
        taken = self._native.update(plain_entry(self.name, entry))
        if taken:
            self._refresh()
        return taken

    def _new_warnings(self) -> list[str]:
        """What was odd and was not asked for yet."""
        warnings = [text for text in self.warnings if text not in self._warned]
        self._warned.update(warnings)
        return warnings

    def _refresh(self) -> None:
        """Take what the server offers now; what is as before stays the same object under the same name."""
        if self._offered:
            with self._refreshing:
                self._take_offers()

    def _take_offers(self) -> None:
        for note in self._native.claim_names(self._taken()):
            _log.warning("MCP server %r: %s", self.name, note)
        before = {wrapper.name: wrapper for wrapper in self._wrappers}
        self._wrappers = [self._wrap(before, *offer) for offer in self._native.offers]
        registry = self._registry
        if registry is None:
            return
        names = {wrapper.name for wrapper in self._wrappers}
        gone = [name for name, old in before.items() if name not in names and registry.get(name) is old]
        fresh: list[Tool] = [w for w in self._wrappers if before.get(w.name) is not w]
        if gone or fresh:
            registry.apply(gone, fresh)

    def _taken(self) -> set[str]:
        """The names that others have in the registry; an earlier connection to this server is replaced."""
        registry = self._registry
        if registry is None:
            return set()
        tools = {name: registry.get(name) for name in registry.tool_names}
        return {
            name
            for name, tool in tools.items()
            if not (isinstance(tool, _Wrapper) and tool._server_name == self.name)
        }

    def _wrap(self, before: Mapping[str, _Wrapper], kind: str, raw: str, native: NativeTool) -> _Wrapper:
        """The wrapper of a native tool: the one from before, if the tool is the same."""
        old = before.get(native.name)
        if old is not None and old._native_tool is not None and old._native_tool.is_same(native):
            return old
        name, limit = _ATTRIBUTES[kind]
        return self._classes[kind]._of_native(self, native, self.name, **{name: raw, limit: native.timeout})

    def _find_native(self, raw_name: str) -> NativeTool | None:
        """The native tool of that raw name, for wrappers made by hand."""
        return next(
            (tool for kind, raw, tool in self._native.offers if kind == "tool" and raw == raw_name), None
        )


class _Reports:
    """The progress of one call on its way to a callback."""

    def __init__(self, server: str, callback: _Progress) -> None:
        self._server = server
        self._callback = callback
        self._waiting: deque[Awaitable[object]] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report; called on the loop."""
        try:
            done = self._callback(progress, total, message)
        except Exception:
            self._log_failure()
            return
        if inspect.isawaitable(done):
            self._waiting.append(done)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._await_all())

    async def done(self) -> None:
        """Wait for the reports that are still being taken."""
        while self._task is not None:
            await self._task

    def cancel(self) -> None:
        """Take no more: the call has failed."""
        if self._task is not None:
            self._task.cancel()
        while self._waiting:
            work = self._waiting.popleft()
            if inspect.iscoroutine(work):
                work.close()

    async def _await_all(self) -> None:
        while self._waiting:
            try:
                await self._waiting.popleft()
            except Exception:
                self._log_failure()
        self._task = None

    def _log_failure(self) -> None:
        _log.warning("MCP server %r: the callback for progress failed", self._server, exc_info=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)


@atexit.register
def _kill_all() -> None:
    for connection in list(_open):
        connection._native.kill()
