"""The provider: MCP servers of a configuration, with their tools in a registry."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from .. import _native
from ..registry import ToolRegistry
from ._callbacks import MCPCallbacks
from ._connection import MCPConnection
from ._fleet import CLOSING, Fleet

__all__ = ["MCPProvider", "MCPRuntimeStatus"]

_log = logging.getLogger("nanobot_tools.mcp")

MCPRuntimeStatus = Literal["connected", "connecting", "failed"]
ServerLoader = Callable[[], Mapping[str, Any]]
StateCallback = Callable[[str, str, str | None], object | Awaitable[object]]

#: What nanobot calls each state of a server; of a disabled one, or one that wants to know who asks, nothing.
RUNTIME: dict[str, MCPRuntimeStatus] = {
    "ready": "connected",
    "cached": "connected",
    "recipe": "connecting",
    "connecting": "connecting",
    "reconnecting": "connecting",
    "lost": "failed",
    "closed": "failed",
}


def _no_stats() -> dict[str, Any]:
    """The statistics of a server that was not opened."""
    latency = {"count": 0, "sum": 0.0, "p50": None, "p95": None, "max": None}
    counts = {"reconnects": 0, "bytes_sent": 0, "bytes_received": 0}
    return {"calls": 0, "errors": {}, "running": 0, "latency": latency, **counts}


class MCPProvider:
    """Keeps the MCP servers of a configuration connected, and their tools registered.

    May be used from any task of any loop and from several threads. Names, results and texts are those of
    nanobot-ai 0.3.5; unlike there, servers heal by themselves, connect at the same time, and are never waited
    for on behalf of another. As a context manager it connects at the start and closes at the end.

    Args:
        servers: Name -> entry, as in :func:`connect_mcp_servers`.
        registry: Where the tools go.
        server_loader: Gives the servers for :meth:`reload`. By default they are read from nanobot's
            configuration where nanobot is installed; without it they stay what they are.
        callbacks: What the host does for the servers.
        cache_dir: The folder where what servers offer is kept, so that their tools are there before the
            servers are; by default in the user's folder for caches (``NBTOOLS_CACHE_DIR`` says otherwise).
            ``None`` keeps nothing.
        on_state_change: Called with a server's name, its new state (as in :attr:`MCPConnection.state`) and
            why it is not well, or ``None``; on the loop on which the server was opened. A coroutine is
            awaited in a task of its own. What it raises is logged.
    """

    def __init__(
        self,
        servers: Mapping[str, Any],
        registry: ToolRegistry,
        *,
        server_loader: ServerLoader | None = None,
        callbacks: MCPCallbacks | None = None,
        cache_dir: str | Path | None = "default",
        on_state_change: StateCallback | None = None,
    ) -> None:
        self._servers = dict(servers)
        self._server_loader = server_loader
        self._on_state_change = on_state_change
        self._tasks: set[asyncio.Future[object]] = set()
        if cache_dir == "default":
            shelf = _native.default_shelf()
        else:
            shelf = None if cache_dir is None else Path(cache_dir)
        self._fleet = Fleet(
            registry,
            callbacks=callbacks,
            shelf=shelf,
            on_state=self._state_changed if on_state_change is not None else None,
        )

    @classmethod
    def from_config(
        cls, config: Any, registry: ToolRegistry, *, server_loader: ServerLoader | None = None, **more: Any
    ) -> MCPProvider:
        """A provider for the servers of nanobot's configuration (``config.tools.mcp_servers``).

        Those of the agent plugins that are enabled come with them, where nanobot has such. ``more`` goes to
        the constructor.
        """
        return cls(configured_servers(config), registry, server_loader=server_loader, **more)

    @property
    def configured_server_names(self) -> set[str]:
        """The servers that there should be."""
        return set(self._servers)

    @property
    def connected_server_names(self) -> set[str]:
        """The servers whose tools can be called now, perhaps after a start."""
        return set(self._fleet.live())

    def runtime_status(self) -> dict[str, MCPRuntimeStatus]:
        """Name -> ``"connected"``, ``"connecting"`` or ``"failed"``, of each server that was to be connected.

        Servers that are disabled, or want to know who asks, are left out.
        """
        statuses: dict[str, MCPRuntimeStatus] = {}
        for name in self._servers:
            one = self._fleet.get(name)
            if one is not None:
                status = RUNTIME.get(one.state)
                if status is not None:
                    statuses[name] = status
            elif self._fleet.fault(name) is not None:
                statuses[name] = "failed"
        return statuses

    def status(self) -> dict[str, dict[str, Any]]:
        """Name -> how the server is, as in :meth:`MCPConnection.status`, of each that is configured.

        One that was not opened yet has the state ``"recipe"``; one with a faulty entry has ``"faulty"``, and
        the ``failure`` says what is wrong with it.
        """
        statuses = {}
        for name in self._servers:
            one, fault = self._fleet.get(name), self._fleet.fault(name)
            if one is not None:
                statuses[name] = one.status()
            elif fault is not None:
                statuses[name] = {"state": "faulty", "failure": str(fault), "tools": 0}
            else:
                statuses[name] = {"state": "recipe", "failure": None, "tools": 0}
        return statuses

    def stats(self) -> dict[str, dict[str, Any]]:
        """Name -> how the server is (:meth:`status`) and what came of requests to it; new objects each time.

        To each dict of :meth:`status` come ``calls``, ``errors`` (kind of error -> how many), ``running``
        (requests under way) and ``latency``, all as in :meth:`ToolRegistry.stats`; ``reconnects``,
        ``bytes_sent`` and ``bytes_received`` are there for servers that were not opened, too. All of it
        counts from when the server was opened, which is anew when a changed entry wants that.
        """
        stats = {}
        for name, status in self.status().items():
            one = self._fleet.get(name)
            stats[name] = {**_no_stats(), **status, **(one.stats() if one is not None else {})}
        return stats

    def connection(self, name: str) -> MCPConnection:
        """The server of that name, for its resources, prompts and whatever else it has.

        Raises:
            KeyError: It is not configured, not opened yet, or its entry is faulty.
        """
        one = self._fleet.get(name)
        if one is None:
            raise KeyError(name)
        return one

    def stderr(self, name: str) -> str:
        """The last 64 KiB that the server wrote to stderr; empty for one that was never reached.

        Raises:
            KeyError: As :meth:`connection`.
        """
        text: str = self.connection(name)._native.stderr
        return text

    async def connect(self) -> None:
        """Connect the servers that are not connected.

        Ends when each is there or has failed, at the latest after its ``startupWait``; those that take longer
        go on in the background, as do those that failed. What goes wrong is logged, never raised.
        """
        if self._fleet.closing:
            return
        live = self._fleet.live()
        if live.keys() >= self._servers.keys():
            return
        connected = await self._fleet.connect(self._missing)
        if connected:
            _log.info("MCP connected servers: %s", sorted(connected))
        elif self.runtime_status():
            _log.warning("No MCP servers connected successfully (they are tried again in the background)")

    async def reload(self) -> dict[str, Any]:
        """Make the servers those of the current configuration.

        Servers that are gone from it are closed, new ones opened, and changed ones changed: in place if they
        need no restart (time limits, allow-lists and the like), otherwise they are opened anew; calls that
        run end over the old connection. Servers that are not there get another try. It takes 4 s at most:
        what takes longer goes on in the background.

        Returns:
            ``ok``, ``message``, ``added``, ``changed``, ``removed``, ``retried``, ``connected``,
            ``configured``, ``failed`` (sorted names), ``tools_removed`` (how many) and ``requires_restart``,
            as in nanobot-ai 0.3.5; besides ``pending``: names of servers that are still connecting.
        """
        if self._fleet.closing:
            return dict(CLOSING)
        try:
            loaded = (self._server_loader or self._load)()
            if inspect.isawaitable(loaded):
                loaded = await loaded
            servers = dict(loaded)
        except Exception as exc:
            return unreadable(exc)

        def swap() -> dict[str, Any]:
            before, self._servers = self._servers, servers
            return before

        done = await self._fleet.reconcile(swap, servers)
        if self._fleet.closing:
            return dict(CLOSING)
        return summary(done, servers)

    async def aclose(self) -> None:
        """Close all servers and unregister their tools, for ever; also while they are being connected."""
        await self._fleet.aclose()

    def connect_sync(self) -> None:
        """:meth:`connect` for threads without an event loop.

        The servers are served by the loop of a background thread, which runs until the process ends: so do
        they, unless :meth:`close_sync` is called. The :class:`MCPCallbacks` are called there.

        Raises:
            LoopRunningError: An event loop runs in this thread; await :meth:`connect` there.
        """
        from .._sync import run

        run(self.connect, "connect_sync()", "await connect()")

    def call_sync(self, name: str, arguments: Any = None, timeout: float | None = None) -> Any:
        """Call a tool by the name under which it is registered, from a thread without an event loop.

        Args:
            name: The tool's name, such as ``"mcp_files_read"``.
            arguments: A dict, or what else :meth:`ToolRegistry.execute` takes.
            timeout: Seconds that the call may take; the entry's ``toolTimeout`` holds as well.

        Returns:
            The text of the result, or an error result, as :meth:`ToolRegistry.execute` returns it.

        Raises:
            LoopRunningError: An event loop runs in this thread; await ``registry.execute()`` there.
            ToolCancelledError: The call was cancelled, as it is at the end of the process.
        """
        return self._fleet.registry.execute_sync(name, arguments, timeout=timeout)

    def close_sync(self) -> None:
        """:meth:`aclose` for threads without an event loop.

        Raises:
            LoopRunningError: An event loop runs in this thread; await :meth:`aclose` there.
        """
        from .._sync import run

        run(self.aclose, "close_sync()", "await aclose()")

    async def __aenter__(self) -> MCPProvider:
        await self.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<MCPProvider {len(self._servers)} servers, {len(self.connected_server_names)} connected>"

    def _missing(self) -> dict[str, Any]:
        live = self._fleet.live()
        return {name: entry for name, entry in self._servers.items() if name not in live}

    def _load(self) -> Mapping[str, Any]:
        return load_nanobot_servers() if importlib.util.find_spec("nanobot") else self._servers

    def _state_changed(self, name: str, state: str, failure: str | None) -> None:
        assert self._on_state_change is not None
        result = self._on_state_change(name, state, failure)
        if not inspect.isawaitable(result):
            return
        try:
            task = asyncio.ensure_future(result, loop=asyncio.get_running_loop())
        except RuntimeError:
            # The loop is gone, and nothing could await it.
            if inspect.iscoroutine(result):
                result.close()
            return
        self._tasks.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("the callback for the states of MCP servers failed", exc_info=task.exception())


def load_nanobot_servers() -> dict[str, Any]:
    """The servers of nanobot's configuration as it is now."""
    from nanobot.config.loader import (  # type: ignore[import-not-found, unused-ignore]
        load_config,
        resolve_config_env_vars,
    )

    return configured_servers(resolve_config_env_vars(load_config()))


def configured_servers(config: Any) -> dict[str, Any]:
    """The servers of a configuration of nanobot, with those of its plugins since it has them (0.3.5)."""
    servers = dict(config.tools.mcp_servers)
    if not importlib.util.find_spec("nanobot") or not importlib.util.find_spec("nanobot.agent.plugins"):
        return servers
    from nanobot.agent.plugins import (  # type: ignore[import-not-found, unused-ignore]
        agent_plugin_mcp_servers,
    )

    return dict(agent_plugin_mcp_servers(config.workspace_path, servers))


def unreadable(exc: Exception) -> dict[str, Any]:
    """The result of a reload whose configuration cannot be read."""
    _log.warning("MCP hot reload could not read config: %s", exc)
    return {
        "ok": False,
        "message": "Could not reload MCP config. Restart nanobot to pick up changes.",
        "requires_restart": True,
        "error": str(exc),
    }


def summary(done: dict[str, Any], servers: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a reload, from what was done."""
    failed = done["failed"]
    news = done["added"] or done["changed"] or done["removed"]
    if failed:
        message = "MCP config reloaded, but some servers did not connect: " + ", ".join(failed)
    elif not news and not done["retried"]:
        message = "MCP config is already live."
    elif not news:
        message = "MCP connections refreshed without restarting nanobot."
    else:
        message = "MCP config reloaded without restarting nanobot."
    _log.info("MCP hot reload: %s", done)
    return {
        "ok": not failed,
        "message": message,
        **done,
        "configured": sorted(servers),
        "requires_restart": False,
    }
