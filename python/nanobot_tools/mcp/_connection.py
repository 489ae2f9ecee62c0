"""MCP servers: connecting to them and registering their tools."""

from __future__ import annotations

import asyncio
import atexit
import logging
import weakref
from collections.abc import Mapping
from typing import Any

from .. import _native
from .._native import NativeConnection, NativeTool
from ..errors import ConfigError, NanobotToolsError
from ..registry import ToolRegistry
from .wrappers import MCPToolWrapper

__all__ = ["MCPConnection", "connect_mcp_servers"]

_log = logging.getLogger("nanobot_tools.mcp")

# What an entry may hold, for entries that are objects. Dicts are passed on as they are.
_FIELDS = (
    "type", "command", "args", "env", "cwd", "url", "headers", "auth", "tool_timeout", "enabled_tools",
    "disabled", "disabled_tools", "connect_timeout", "startup_wait", "retry", "lazy", "idle_timeout",
    "trust_read_only", "allow_private", "ssrf_whitelist", "tool_timeouts", "progress_cap", "resources",
    "artifacts", "max_result_bytes",
)  # fmt: skip

_open: weakref.WeakSet[MCPConnection] = weakref.WeakSet()


class MCPConnection:
    """A connection to one MCP server.

    Attributes of the server are read-only. :meth:`aclose` may be called from any task, and more than once.
    """

    def __init__(self, native: NativeConnection, registry: ToolRegistry | None = None) -> None:
        self._native = native
        self._registry = registry
        self._wrappers: list[MCPToolWrapper] = []
        _open.add(self)

    def _offer(self, registry: ToolRegistry) -> None:
        """Register the tools, under names that are free."""
        taken = {name for name in registry.tool_names if not isinstance(registry.get(name), MCPToolWrapper)}
        taken |= {
            w.name
            for other in _open
            if other.name != self.name
            for w in other._wrappers
            if w.name in registry
        }
        for note in self._native.claim_names(taken):
            _log.warning("MCP server %r: %s", self.name, note)
        self._registry = registry
        self._wrappers = [
            MCPToolWrapper._of_native(self, tool, self.name, _original_name=raw, _tool_timeout=tool.timeout)
            for raw, tool in self._native.tools
        ]
        registry.apply([], list(self._wrappers))

    def _find_native(self, raw_name: str) -> NativeTool | None:
        """The native tool of that raw name, for wrappers made by hand."""
        return next((tool for raw, tool in self._native.tools if raw == raw_name), None)

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self._native.name

    @property
    def state(self) -> str:
        """``"recipe"``, ``"connecting"``, ``"ready"``, ``"lost"`` or ``"closed"``."""
        return self._native.state

    @property
    def pid(self) -> int | None:
        """Id of the server's process, which leads its process group."""
        return self._native.pid

    @property
    def instructions(self) -> str | None:
        """What the server tells the model about itself."""
        return self._native.instructions

    @property
    def server_info(self) -> tuple[str, str]:
        """Name and version that the server gave of itself (``serverInfo`` of ``initialize``)."""
        return self._native.server_info

    @property
    def protocol_version(self) -> str:
        """The protocol version that was agreed on."""
        return self._native.protocol_version

    @property
    def stderr_tail(self) -> str:
        """The last lines that the server wrote to stderr."""
        return self._native.stderr_tail

    @property
    def tools(self) -> list[MCPToolWrapper]:
        """The server's tools as they are registered."""
        return list(self._wrappers)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Call a tool by its raw name and return the server's whole result.

        Args:
            name: The name on the server.
            arguments: The arguments, sent as they are.
            timeout: Seconds; the entry's ``toolTimeout`` by default.

        Raises:
            MCPError: The server answered with an error, or with what cannot be understood.
            MCPConnectionError: The connection is or was lost.
            ToolTimeoutError: There was no answer in time.
        """
        result: dict[str, Any] = await self._native.call_tool(name, dict(arguments or {}), timeout)
        return result

    async def aclose(self) -> None:
        """Unregister the tools, close the connection and end the server with all its children."""
        _open.discard(self)
        if self._registry is not None:
            registry, self._registry = self._registry, None
            registry.apply([w.name for w in self._wrappers if registry.get(w.name) is w], [])
        await asyncio.shield(self._native.close())

    async def __aenter__(self) -> MCPConnection:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<MCPConnection {self.name!r} {self.state}, {len(self._wrappers)} tools>"


@atexit.register
def _kill_all() -> None:
    for connection in list(_open):
        connection._native.kill()


def _plain(entry: Any) -> dict[str, Any]:
    """An entry as a dict with JSON values."""
    if isinstance(entry, Mapping):
        return dict(entry)
    found = {field: getattr(entry, field, None) for field in _FIELDS}
    plain = (str, int, float, bool, list, tuple, dict)
    return {
        field: value for field, value in found.items() if isinstance(value, plain) and value not in ("", None)
    }


async def connect_mcp_servers(servers: Mapping[str, Any], registry: ToolRegistry) -> dict[str, MCPConnection]:
    """Connect to MCP servers, all at once, and register their tools.

    Args:
        servers: Name -> entry. An entry is a dict with camelCase or snake_case keys, or an object with the
            attributes of nanobot's ``MCPServerConfig``: ``type``, ``command``, ``args``, ``env``, ``cwd``,
            ``toolTimeout`` (seconds, default 30), ``enabledTools`` (default ``["*"]``), ``disabledTools``,
            ``disabled``, ``connectTimeout`` (default 120), ``trustReadOnly`` (default true),
            ``toolTimeouts``. Unknown fields are warned about.
        registry: Where the tools go, as ``mcp_<server>_<tool>``.

    Returns:
        Name -> connection of each server that is connected. A server that cannot be connected is logged
        with the reason and left out; the others are not affected.

    Raises:
        asyncio.CancelledError: The caller was cancelled; whatever was connected is closed again.
    """

    async def one(name: str, entry: Any) -> None:
        try:
            config = _plain(entry)
            disabled, _ = _native.check_server(name, config)
            if disabled:
                return
            native = await _native.connect_server(name, config)
        except (ConfigError, TypeError, ValueError) as exc:
            _log.warning("MCP server %r: faulty entry: %s", name, exc)
            return
        except NanobotToolsError as exc:
            _log.warning("MCP server %r: %s", name, exc)
            return
        for warning in native.warnings:
            _log.warning("MCP server %r: %s", name, warning)
        connected[name] = MCPConnection(native)
        return

    connected: dict[str, MCPConnection] = {}
    tasks = [asyncio.create_task(one(name, entry), name=f"mcp:{name}") for name, entry in servers.items()]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(c.aclose() for c in connected.values()), return_exceptions=True)
        raise
    ordered = {name: connected[name] for name in servers if name in connected}
    for name, connection in ordered.items():
        # In the order of the configuration, so that of two equal names always the same one is changed.
        connection._offer(registry)
        _log.info("MCP server %r: connected, %d tools registered", name, len(connection.tools))
    return ordered
