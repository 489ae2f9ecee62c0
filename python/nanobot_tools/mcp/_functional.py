"""The functions with which nanobot-ai 0.3.0 keeps the MCP servers of an agent.

A ``state`` is the agent, or anything with ``_mcp_servers`` (name -> entry), ``_mcp_stacks`` (name ->
connection), ``_mcp_connecting`` and, once it ends, ``_mcp_closing``; or it is an :class:`MCPProvider`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .. import _native
from ..base import Tool
from ..registry import ToolRegistry
from ._fleet import CLOSING, Fleet, is_same
from ._provider import MCPProvider, load_nanobot_servers, summary, unreadable

__all__ = [
    "close_mcp_servers",
    "connect_missing_servers",
    "handle_runtime_control",
    "reload_servers",
    "request_mcp_reload",
]

_log = logging.getLogger("nanobot_tools.mcp")

INBOUND_META_RUNTIME_CONTROL = "_runtime_control"
RUNTIME_CONTROL_ACK = "_ack"
RUNTIME_CONTROL_MCP_RELOAD = "mcp_reload"

#: The attribute of a state that has its servers.
_FLEET = "_nbtools_mcp_fleet"


@dataclass
class InboundMessage:
    """What nanobot's class of this name is, where nanobot is not there."""

    channel: str
    sender_id: str
    chat_id: str
    content: str
    timestamp: datetime = field(default_factory=datetime.now)
    media: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    session_key_override: str | None = None

    @property
    def session_key(self) -> str:
        """What a session is known by."""
        return self.session_key_override or f"{self.channel}:{self.chat_id}"


def _message_class() -> Callable[..., Any]:
    """nanobot's class if nanobot is running here; it is not imported for this."""
    events = sys.modules.get("nanobot.bus.events")
    if events is None and "nanobot" in sys.modules:
        from nanobot.bus import events  # type: ignore[import-not-found, no-redef, unused-ignore]
    found: Callable[..., Any] = getattr(events, "InboundMessage", InboundMessage)
    return found


def _fleet(state: Any, registry: ToolRegistry) -> Fleet:
    fleet: Fleet | None = getattr(state, _FLEET, None)
    if fleet is None or fleet.registry is not registry:
        shelf = _native.default_shelf()
        fleet = Fleet(registry, shelf=shelf, on_state=_Stacks(state))
        setattr(state, _FLEET, fleet)
    return fleet


class _Stacks:
    """Keeps ``state._mcp_stacks`` true for servers that join late."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __call__(self, name: str, now: str, failure: str | None) -> None:
        state = self._state
        fleet: Fleet | None = getattr(state, _FLEET, None)
        if fleet is not None and now == "ready" and not getattr(state, "_mcp_closing", False):
            one = fleet.get(name)
            if one is not None and name in state._mcp_servers:
                state._mcp_stacks[name] = one


async def connect_missing_servers(state: Any, registry: ToolRegistry) -> None:
    """Connect the servers of ``state._mcp_servers`` that ``state._mcp_stacks`` does not have.

    Ends as :meth:`MCPProvider.connect` does; a second caller waits for the same servers. What goes wrong is
    logged, never raised. If ``state._mcp_connecting`` was set by others, nothing is done.
    """
    if isinstance(state, MCPProvider):
        await state.connect()
        return
    if getattr(state, "_mcp_closing", False):
        return
    known: Fleet | None = getattr(state, _FLEET, None)
    if state._mcp_connecting and (known is None or not known.connecting):
        return
    missing = {name: entry for name, entry in state._mcp_servers.items() if name not in state._mcp_stacks}
    if not missing:
        return
    fleet = _fleet(state, registry)
    fleet.connecting += 1
    state._mcp_connecting = True
    try:
        connected = await fleet.connect(lambda: missing)
        if getattr(state, "_mcp_closing", False):
            await fleet.aclose()
            return
        state._mcp_stacks.update(connected)
        if connected:
            _log.info("MCP connected servers: %s", sorted(connected))
        else:
            _log.warning("No MCP servers connected successfully (they are tried again in the background)")
    finally:
        fleet.connecting -= 1
        if not fleet.connecting:
            state._mcp_connecting = False


async def reload_servers(
    state: Any,
    registry: ToolRegistry,
    *,
    server_loader: Callable[[], Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Make the servers of ``state`` those of the current configuration.

    Args:
        state: Whose servers.
        registry: Where their tools are.
        server_loader: Gives the servers; by default they are read from nanobot's configuration.

    Returns:
        As :meth:`MCPProvider.reload`.
    """
    if isinstance(state, MCPProvider):
        return await state.reload()
    if getattr(state, "_mcp_closing", False):
        return dict(CLOSING)
    try:
        servers = dict((server_loader or load_nanobot_servers)())
    except Exception as exc:
        return unreadable(exc)
    fleet = _fleet(state, registry)
    before, state._mcp_servers = dict(state._mcp_servers), servers
    stacks = dict(state._mcp_stacks)
    # What was connected by other means is left alone while it is wanted as it is.
    foreign = {name: stack for name, stack in stacks.items() if fleet.get(name) is not stack}
    kept = {name for name in foreign if is_same(name, before, servers)}
    unwanted = {name: stack for name, stack in foreign.items() if name not in kept}
    dropped = sum(_unregister(registry, name) for name in unwanted)
    done = await fleet.reconcile(lambda: _without(before, kept), _without(servers, kept))
    for name, stack in stacks.items():
        stale = name in unwanted or (name not in kept and fleet.get(name) is not stack)
        if stale and state._mcp_stacks.get(name) is stack:
            del state._mcp_stacks[name]
    for name, stack in unwanted.items():
        await _close_stack(name, stack)
    if getattr(state, "_mcp_closing", False):
        await fleet.aclose()
        return dict(CLOSING)
    live = fleet.live()
    state._mcp_stacks.update({name: one for name, one in live.items() if name not in kept})
    done["connected"] = sorted(live.keys() | kept)
    done["tools_removed"] += dropped
    return summary(done, servers)


def _without(servers: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: entry for name, entry in servers.items() if name not in names}


def _unregister(registry: ToolRegistry, server: str) -> int:
    """Unregister the tools of a server that was connected by other means; how many there were."""
    prefix = re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_-]", "_", f"mcp_{server}_"))
    gone = [name for name in registry.tool_names if _belongs(registry.get(name), name, server, prefix)]
    registry.apply(gone, [])
    return len(gone)


def _belongs(tool: Tool | None, name: str, server: str, prefix: str) -> bool:
    owner = getattr(tool, "_server_name", None)
    return owner == server if isinstance(owner, str) else name.startswith(prefix)


async def _close_stack(name: str, stack: Any) -> None:
    """Close a connection in this task, as its kind may need; what it raises is its own matter."""
    task = asyncio.current_task()
    try:
        await stack.aclose()
    except asyncio.CancelledError:
        # Some servers' cleanup raises it by itself; only a caller's is passed on.
        if task is not None and task.cancelling():
            raise
        _log.debug("MCP server %r: closing was cancelled by the server", name)
    except (Exception, BaseExceptionGroup):
        _log.debug("MCP server %r: closing failed", name, exc_info=True)


async def close_mcp_servers(state: Any) -> None:
    """Close all servers of ``state``, for ever."""
    if isinstance(state, MCPProvider):
        await state.aclose()
        return
    state._mcp_closing = True
    stacks = dict(state._mcp_stacks)
    state._mcp_stacks.clear()
    fleet: Fleet | None = getattr(state, _FLEET, None)
    if fleet is not None:
        await fleet.aclose()
    for name, stack in stacks.items():
        await _close_stack(name, stack)


async def request_mcp_reload(bus: Any, *, timeout: float = 15.0) -> dict[str, Any]:
    """Ask the running agent to reload its MCP servers.

    Args:
        bus: nanobot's message bus, or anything with an async ``publish_inbound(message)``.
        timeout: Seconds to wait for the agent.

    Returns:
        What :func:`reload_servers` gave there; with ``ok`` false if there was no answer.
    """
    ack: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    message = _message_class()(
        channel="system",
        sender_id="webui-settings",
        chat_id="runtime",
        content=RUNTIME_CONTROL_MCP_RELOAD,
        metadata={
            INBOUND_META_RUNTIME_CONTROL: RUNTIME_CONTROL_MCP_RELOAD,
            RUNTIME_CONTROL_ACK: ack,
        },
    )
    await bus.publish_inbound(message)
    try:
        result: object = await asyncio.wait_for(ack, timeout)
    except TimeoutError:
        return {
            "ok": False,
            "message": "MCP hot reload timed out. Restart nanobot to pick up changes.",
            "requires_restart": True,
        }
    if isinstance(result, dict):
        return result
    return {
        "ok": False,
        "message": "MCP hot reload returned an unexpected response.",
        "requires_restart": True,
    }


async def handle_runtime_control(state: Any, msg: Any, registry: ToolRegistry) -> bool:
    """Reload the servers of ``state`` if the message asks for that, and answer it.

    Returns:
        Whether the message was for this.
    """
    metadata = msg.metadata if isinstance(msg.metadata, dict) else {}
    if metadata.get(INBOUND_META_RUNTIME_CONTROL) != RUNTIME_CONTROL_MCP_RELOAD:
        return False
    ack = metadata.get(RUNTIME_CONTROL_ACK)
    try:
        result = await reload_servers(state, registry)
    except Exception as exc:
        _log.exception("MCP hot reload failed")
        result = {
            "ok": False,
            "message": "MCP hot reload failed. Restart nanobot to pick up changes.",
            "requires_restart": True,
            "error": str(exc),
        }
    if isinstance(ack, asyncio.Future) and not ack.done():
        # The one who asks may be on another loop.
        loop = ack.get_loop()
        if loop is asyncio.get_running_loop():
            ack.set_result(result)
        else:
            # Closed, if nobody waits there any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: None if ack.done() else ack.set_result(result))
    return True
