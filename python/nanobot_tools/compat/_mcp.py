"""nanobot's MCP client, server by server: ours, or nanobot's own where that has to do it.

nanobot goes on calling what it called: ``connect_mcp_servers`` and, around it, its ``MCPProvider`` (0.3.5) or
the functions over a state (before). What is behind them is a :class:`Pool` for each registry.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

from .. import _native
from ..errors import ConfigError
from ..mcp import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper, _foreign_render
from ..mcp._connection import MCPConnection
from ..mcp._entry import plain_entry
from ..mcp._provider import RUNTIME
from ..mcp.wrappers import ask_session
from . import _options
from ._pool import Connection, Pool, find_pool, pool_of, reloading

__all__ = [
    "close_mcp",
    "connect_mcp_servers",
    "execute_prompt",
    "execute_resource",
    "execute_tool",
    "provider_aclose",
    "provider_reload",
    "reload_servers",
    "runtime_status",
    "unregister_server_tools",
]

_log = logging.getLogger("nanobot_tools.mcp")

_HTTP = ("sse", "streamableHttp")


def _wrappers(module: ModuleType) -> Mapping[str, Any]:
    """The classes of what is registered: ours, which are nanobot's own as well."""
    made: Mapping[str, Any] | None = vars(module).get("_nbtools_wrappers")
    if made is None:
        ours = {"tool": MCPToolWrapper, "resource": MCPResourceWrapper, "prompt": MCPPromptWrapper}
        made = {
            kind: type(cls.__name__, (cls, getattr(module, cls.__name__)), {"__module__": module.__name__})
            for kind, cls in ours.items()
        }
        module._nbtools_wrappers = made  # type: ignore[attr-defined]
    return made


# -- connecting ------------------------------------------------------------------------------------------


def connect_mcp_servers(original: Any, module: ModuleType) -> Any:
    """For ``connect_mcp_servers``."""

    @functools.wraps(original)
    async def connect_mcp_servers(mcp_servers: Any, registry: Any, **more: Any) -> Any:
        options = _read_options()
        native: dict[str, dict[str, Any]] = {}
        left: dict[str, Any] = {}
        for name, cfg in mcp_servers.items():
            if getattr(cfg, "auth", None) == "oauth" or options.backend(name) == "sdk":
                left[name] = cfg
                continue
            entry = await _entry(module, name, cfg, options)
            if entry is not None:
                native[name] = entry
        work: list[Awaitable[Mapping[str, Any]]] = []
        if native:
            work.append(_connect(pool_of(registry, _wrappers(module)), native))
        if left:
            work.append(original(left, registry, **more))
        # One alone is awaited in the task that asks, as nanobot's own would be.
        done = [await work[0]] if len(work) == 1 else await asyncio.gather(*work)
        connected = {name: one for each in done for name, one in each.items()}
        return {name: connected[name] for name in mcp_servers if name in connected}

    return connect_mcp_servers


def _read_options() -> _options.Options:
    options = _options.read()
    for complaint in options.complaints:
        _log.warning("%s", complaint)
    return options


async def _connect(pool: Pool, entries: Mapping[str, dict[str, Any]]) -> Mapping[str, Connection]:
    connected = await pool.connect(entries)
    for name in entries:
        one = pool.get(name)
        if name in connected and one is not None:
            _log.info("MCP server '%s': connected, %d capabilities registered", name, len(one.tools))
        elif one is not None and one.failure is None:
            # A failure was logged when it happened.
            _log.warning("MCP server '%s': it is %s; its tools come when it is there", name, one.state)
    return connected


async def _entry(module: ModuleType, name: str, cfg: Any, options: _options.Options) -> dict[str, Any] | None:
    """The entry that our client gets: nanobot's, our options and nanobot's policy; ``None`` if refused.

    The policy is asked through nanobot's module, in nanobot's words.
    """
    own = options.of(name)
    try:
        entry = {**plain_entry(name, cfg), **own}
        kind = entry.get("type") or _kind(entry)
        if kind is None:
            _log.warning("MCP server '%s': no command or url configured, skipping", name)
            return None
        if kind not in ("stdio", *_HTTP):
            _log.warning("MCP server '%s': unknown transport type '%s'", name, kind)
            return None
        if kind in _HTTP:
            policy = await _policy(module, name, entry)
            if policy is None:
                return None
            entry.update(policy)
        elif os.name == "nt" and hasattr(module, "_normalize_windows_stdio_command"):
            command, args, env = module._normalize_windows_stdio_command(
                entry["command"], entry.get("args"), entry.get("env")
            )
            entry.update(command=command, args=args, env=env or {})
        entry.setdefault("artifacts", str(_artifacts()))
        _native.check_server(name, entry)
    except ConfigError as exc:
        _log.warning("MCP server '%s': faulty entry: %s", name, exc)
        return None
    return entry


def _kind(entry: Mapping[str, Any]) -> str | None:
    if entry.get("command"):
        return "stdio"
    url = entry.get("url")
    if not url:
        return None
    return "sse" if str(url).rstrip("/").endswith("/sse") else "streamableHttp"


async def _policy(module: ModuleType, name: str, entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a server's address may lead to, by nanobot's own rules; ``None`` if they refuse it.

    That is what ``ssrfWhitelist`` allows and what nanobot has just resolved the address to and judged; and
    anything where nanobot has no rules (0.2.1), or where our options say so for this server.
    """
    if entry.get("allow_private") or entry.get("ssrf_whitelist"):
        return {}
    validate = getattr(module, "validate_url_target", None)
    if validate is None:
        return {"allow_private": True}
    url = entry["url"]
    # Names are resolved, which may take its time.
    ok, error = await asyncio.to_thread(validate, url)
    if not ok:
        _log.warning("MCP server '%s': blocked unsafe URL %s (%s)", name, _shown(module, url), error)
        return None
    from nanobot.security import network  # type: ignore[import-not-found, unused-ignore]

    allowed = [str(net) for net in network._allowed_networks]
    resolve = getattr(module, "resolve_url_target", None)
    if resolve is not None:
        ok, _, addresses = await asyncio.to_thread(resolve, url)
        if ok:
            allowed.extend(addresses)
    return {"ssrf_whitelist": list(dict.fromkeys(allowed))}


def _shown(module: ModuleType, url: str) -> str:
    redact = getattr(module, "_redact_url", None)
    return str(redact(url)) if redact is not None else "<redacted-url>"


def _artifacts() -> Any:
    """Where nanobot keeps the images that tools make."""
    from nanobot.config.paths import get_media_dir  # type: ignore[import-not-found, unused-ignore]

    return get_media_dir() / "generated"


# -- what nanobot does around it -------------------------------------------------------------------------


def unregister_server_tools(original: Any, module: ModuleType) -> Any:
    """For ``_unregister_server_tools``: nanobot is about to close the server, which it may not hold."""

    @functools.wraps(original)
    def _unregister_server_tools(*args: Any) -> Any:
        # (registry, name) in 0.3.5, (state, registry, name) before.
        registry, name = args[-2:]
        removed = original(*args)
        pool = find_pool(registry)
        if pool is not None:
            pool.release(name)
        return removed

    return _unregister_server_tools


def provider_reload(original: Any, module: ModuleType) -> Any:
    """For ``MCPProvider.reload``."""

    @functools.wraps(original)
    async def reload(self: Any) -> Any:
        return await _reload(module, lambda: original(self), self._registry, lambda: self._servers)

    return reload


def reload_servers(original: Any, module: ModuleType) -> Any:
    """For ``reload_servers``."""

    @functools.wraps(original)
    async def reload_servers(state: Any, registry: Any) -> Any:
        return await _reload(module, lambda: original(state, registry), registry, lambda: state._mcp_servers)

    return reload_servers


async def _reload(
    module: ModuleType,
    original: Callable[[], Awaitable[Any]],
    registry: Any,
    servers: Callable[[], Mapping[str, Any]],
) -> Any:
    """Reload as nanobot does, and then take what has changed in the file that it does not know."""
    with reloading():
        result = await original()
        pool = find_pool(registry)
        if pool is None or not isinstance(result, dict) or "changed" not in result:
            return result
        options = _read_options()
        if options.is_unreadable:
            # What is connected goes on as it is.
            return result
        changed = {}
        for name, cfg in servers().items():
            before = pool.entry(name)
            if before is None or options.backend(name) == "sdk":
                continue
            entry = await _entry(module, name, cfg, options)
            if entry is not None and entry != before:
                changed[name] = entry
        if changed:
            await pool.connect(changed)
            result["changed"] = sorted({*result["changed"], *changed})
            if result["message"] == "MCP config is already live.":
                result["message"] = "MCP config reloaded without restarting nanobot."
    return result


def provider_aclose(original: Any, module: ModuleType) -> Any:
    """For ``MCPProvider.aclose``: all servers at once, and also while others are being connected."""

    @functools.wraps(original)
    async def aclose(self: Any) -> None:
        self._closing = True
        pool = find_pool(self._registry)
        if pool is not None:
            await pool.aclose()
        await original(self)

    return aclose


def close_mcp(original: Any, module: ModuleType) -> Any:
    """For ``AgentLoop.close_mcp``."""

    @functools.wraps(original)
    async def close_mcp(self: Any) -> None:
        pool = find_pool(getattr(self, "tools", None))
        if pool is not None:
            pool.closing = True
        try:
            await original(self)
        finally:
            if pool is not None:
                await pool.aclose()

    return close_mcp


def runtime_status(original: Any, module: ModuleType) -> Any:
    """For ``MCPProvider.runtime_status``: how the servers are now, rather than how connecting them went."""

    @functools.wraps(original)
    def runtime_status(self: Any) -> Any:
        statuses = dict(original(self))
        pool = find_pool(self._registry)
        for name in statuses if pool is not None else ():
            one: MCPConnection | None = pool.get(name)  # type: ignore[union-attr]
            if one is not None:
                statuses[name] = RUNTIME.get(one.state, statuses[name])
        return statuses

    return runtime_status


# -- wrappers of sessions that are not ours --------------------------------------------------------------


def execute_tool(original: Any, module: ModuleType) -> Any:
    """For ``MCPToolWrapper.execute``."""

    @functools.wraps(original)
    async def execute(self: Any, **kwargs: Any) -> Any:
        return await ask_session(
            self, "tool", "tool call", self._tool_timeout, kwargs,
            lambda session: session.call_tool(self._original_name, arguments=kwargs),
            _foreign_render.call_result, artifacts=_artifacts(),
        )  # fmt: skip

    return execute


def execute_resource(original: Any, module: ModuleType) -> Any:
    """For ``MCPResourceWrapper.execute``."""

    @functools.wraps(original)
    async def execute(self: Any, **kwargs: Any) -> Any:
        return await ask_session(
            self, "resource", "resource read", self._resource_timeout, kwargs,
            lambda session: session.read_resource(self._uri), _foreign_render.resource_result,
        )  # fmt: skip

    return execute


def execute_prompt(original: Any, module: ModuleType) -> Any:
    """For ``MCPPromptWrapper.execute``."""

    @functools.wraps(original)
    async def execute(self: Any, **kwargs: Any) -> Any:
        return await ask_session(
            self, "prompt", "prompt call", self._prompt_timeout, kwargs,
            lambda session: session.get_prompt(self._prompt_name, arguments=kwargs),
            _foreign_render.prompt_result,
        )  # fmt: skip

    return execute
