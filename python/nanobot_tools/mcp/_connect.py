"""Connecting to MCP servers by their entries in a configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from .. import _native
from ..errors import ConfigError, MCPConnectionError, NanobotToolsError
from ..registry import ToolRegistry
from ._callbacks import MCPCallbacks
from ._connection import MCPConnection
from ._host import Host

__all__ = ["connect_mcp_server", "connect_mcp_servers"]

_log = logging.getLogger("nanobot_tools.mcp")

_FOR_EVER = 86_400.0

# What an entry may hold, for entries that are objects. Dicts are passed on as they are.
_FIELDS = (
    "type", "command", "args", "env", "cwd", "url", "headers", "auth", "tool_timeout", "enabled_tools",
    "disabled", "disabled_tools", "connect_timeout", "startup_wait", "retry", "lazy", "idle_timeout",
    "trust_read_only", "allow_private", "ssrf_whitelist", "tool_timeouts", "progress_cap", "resources",
    "artifacts", "max_result_bytes", "protocol",
)  # fmt: skip


def _plain(entry: Any) -> dict[str, Any]:
    """An entry as a dict with JSON values."""
    if isinstance(entry, Mapping):
        return dict(entry)
    found = {field: getattr(entry, field, None) for field in _FIELDS}
    plain = (str, int, float, bool, list, tuple, dict)
    return {
        field: value for field, value in found.items() if isinstance(value, plain) and value not in ("", None)
    }


def open_connection(name: str, entry: Any, callbacks: MCPCallbacks | None) -> MCPConnection:
    """Keep a server connected from now on, in the background.

    Raises:
        ConfigError: The entry is faulty.
    """
    try:
        config = _plain(entry)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"MCP server {name!r}: {exc}") from exc
    callbacks = callbacks or MCPCallbacks()
    host = Host(name, callbacks)
    return MCPConnection(_native.open_server(name, config, host, callbacks._offers()), host)


async def _connect(name: str, entry: Any, callbacks: MCPCallbacks | None) -> MCPConnection:
    """Connect to a server; one that is not there is not waited for in the background."""
    connection = open_connection(name, entry, callbacks)
    try:
        # The attempt has its own limit, `connectTimeout`.
        state = await connection._native.settled(_FOR_EVER)
        if state == "disabled":
            raise ConfigError(f"MCP server {name!r} is disabled")
        failure = connection.failure
        if state != "ready" and not connection.status()["cached"]:
            raise failure or MCPConnectionError(f"MCP server {name!r}: it is {state}")
    except BaseException:
        await connection.aclose()
        raise
    for warning in connection.warnings:
        _log.warning("MCP server %r: %s", name, warning)
    return connection


async def connect_mcp_server(
    name: str,
    entry: Any,
    *,
    registry: ToolRegistry | None = None,
    callbacks: MCPCallbacks | None = None,
) -> MCPConnection:
    """Connect to one MCP server.

    Args:
        name: The server's name; its tools are called ``mcp_<name>_<tool>``.
        entry: As in :func:`connect_mcp_servers`.
        registry: Where the tools go; without one, they are only listed in ``connection.tools``.
        callbacks: What the host does for the server.

    Raises:
        ConfigError: The entry is faulty or disabled.
        MCPConnectionError: The server cannot be started or reached, or does not speak the protocol.
    """
    connection = await _connect(name, entry, callbacks)
    try:
        connection._offer(registry)
    except BaseException:
        await connection.aclose()
        raise
    return connection


async def connect_mcp_servers(
    servers: Mapping[str, Any], registry: ToolRegistry, *, callbacks: MCPCallbacks | None = None
) -> dict[str, MCPConnection]:
    """Connect to MCP servers, all at once, and register their tools.

    Args:
        servers: Name -> entry. An entry is a dict with camelCase or snake_case keys, or an object with the
            attributes of nanobot's ``MCPServerConfig``: ``type``, ``command``, ``args``, ``env``, ``cwd``,
            ``url``, ``headers``, ``toolTimeout`` (seconds, default 30), ``enabledTools`` (default ``["*"]``),
            ``disabledTools``, ``disabled``, ``connectTimeout`` (seconds, default 120), ``trustReadOnly``
            (default true), ``toolTimeouts``, ``allowPrivate`` and ``ssrfWhitelist`` (for servers in private
            networks), ``resources`` (``"each"`` or ``"one"``: a tool for each resource, or one for all),
            ``artifacts``, ``maxResultBytes`` (bytes). Unknown fields are warned about.
        registry: Where the tools go, as ``mcp_<server>_<tool>``. If an entry admits all tools, resources and
            prompts are tools as well. When a server changes its lists, the registry follows.
        callbacks: What the host does for these servers.

    Returns:
        Name -> connection of each server that is connected. A server that cannot be connected is logged
        with the reason and left out; the others are not affected.

    Raises:
        asyncio.CancelledError: The caller was cancelled; whatever was connected is closed again.
    """

    async def one(name: str, entry: Any) -> None:
        try:
            disabled, _ = _native.check_server(name, _plain(entry))
            if not disabled:
                connected[name] = await _connect(name, entry, callbacks)
        except (ConfigError, TypeError, ValueError) as exc:
            _log.warning("MCP server %r: faulty entry: %s", name, exc)
        except NanobotToolsError as exc:
            _log.warning("MCP server %r: %s", name, exc)

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
