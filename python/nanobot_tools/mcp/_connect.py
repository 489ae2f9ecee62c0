"""Connecting to MCP servers by their entries in a configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import ConfigError, MCPConnectionError, NanobotToolsError
from ..registry import ToolRegistry
from ._callbacks import MCPCallbacks
from ._connection import MCPConnection
from ._entry import plain_entry
from ._host import Host

__all__ = ["connect_mcp_server", "connect_mcp_servers"]

_log = logging.getLogger("nanobot_tools.mcp")

_FOR_EVER = 86_400.0


def open_connection(
    name: str,
    entry: Any,
    callbacks: MCPCallbacks | None,
    shelf: Path | None = None,
    *,
    wrappers: Mapping[str, Any] | None = None,
) -> MCPConnection:
    """Keep a server connected from now on, in the background.

    With a ``shelf``, a folder, what the server offered last is offered at once. ``wrappers`` are the classes
    of what is registered, by kind.

    Raises:
        ConfigError: The entry is faulty.
    """
    config = plain_entry(name, entry)
    callbacks = callbacks or MCPCallbacks()
    host = Host(name, callbacks)
    native = _native.open_server(name, config, host, callbacks._offers(), shelf)
    return MCPConnection(native, host, wrappers=wrappers)


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
    for warning in connection._new_warnings():
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
            disabled, _ = _native.check_server(name, plain_entry(name, entry))
            if not disabled:
                connected[name] = await _connect(name, entry, callbacks)
        except ConfigError as exc:
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
