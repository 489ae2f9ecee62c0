"""The MCP servers whose tools are in one registry of nanobot's.

nanobot opens, closes and reloads servers one connection after the other. A server here outlives that: what
nanobot closes is released and ends only when nobody asks for it again in a moment, so that a reload finds the
process as it was, with the calls that run; and what could not be connected goes on being tried, and registers
its tools when it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from .. import _native
from ..mcp._connection import MCPConnection
from ..mcp._fleet import Fleet, is_live

__all__ = ["Connection", "Pool", "find_pool", "pool_of", "reloading"]

_log = logging.getLogger("nanobot_tools.mcp")

_POOL = "_nbtools_pool"
#: How long a server that was closed may be asked for again, in seconds.
LINGER = 2.0
#: How long closing everything may take, in seconds.
CLOSE_WITHIN = 5.0

_reloading: contextvars.ContextVar[bool] = contextvars.ContextVar("nanobot_tools_reloading", default=False)


@contextlib.contextmanager
def reloading() -> Iterator[None]:
    """Whoever connects servers inside wants to know whether they are there, and waits for them a little."""
    token = _reloading.set(True)
    try:
        yield
    finally:
        _reloading.reset(token)


class _Registered:
    """nanobot's registry with the methods that a connection needs of one."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    @property
    def tool_names(self) -> list[str]:
        names: list[str] = self._registry.tool_names
        return names

    def get(self, name: str) -> Any:
        return self._registry.get(name)

    def apply(self, removed: list[str], added: list[Any]) -> None:
        for name in removed:
            self._registry.unregister(name)
        for tool in added:
            self._registry.register(tool)


class Connection:
    """What nanobot holds of a server: something to close."""

    def __init__(self, pool: Pool, name: str, server: MCPConnection) -> None:
        self._pool = pool
        self._name = name
        self._server = server

    @property
    def server(self) -> MCPConnection:
        """The connection that the tools use."""
        return self._server

    async def aclose(self) -> None:
        """Unregister the server's tools, and let the server go unless it is connected again at once."""
        if self._pool.closing:
            await self._pool.aclose()
        elif self._pool.get(self._name) is self._server:
            self._pool.release(self._name)

    def __repr__(self) -> str:
        return f"<Connection to {self._server!r}>"


class Pool:
    """The servers of one registry; see the module's text."""

    def __init__(self, registry: Any, wrappers: Mapping[str, Any]) -> None:
        self.closing = False
        self._registry = registry
        registered: Any = _Registered(registry)
        self._fleet = Fleet(registered, shelf=_native.default_shelf(), wrappers=wrappers)
        self._entries: dict[str, dict[str, Any]] = {}
        self._released: dict[str, asyncio.TimerHandle] = {}

    def get(self, name: str) -> MCPConnection | None:
        """The server of that name."""
        return self._fleet.get(name)

    def entry(self, name: str) -> dict[str, Any] | None:
        """The entry that the server was opened with."""
        return self._entries.get(name)

    async def connect(self, entries: Mapping[str, dict[str, Any]]) -> dict[str, Connection]:
        """Connect servers, all at once; those that are there.

        New servers are waited for as long as their ``startupWait`` says. One that is known and not there is
        tried again now and waited for only by a reload: a turn does not wait for a server that is down.
        """
        for name in entries:
            timer = self._released.pop(name, None)
            if timer is not None:
                timer.cancel()
        before = {name: self._entries[name] for name in entries if self._fleet.get(name) is not None}
        changed = {name for name, entry in before.items() if entry != entries[name]}
        self._entries.update(entries)
        try:
            if changed or _reloading.get():
                await self._fleet.reconcile(lambda: before, entries)
            else:
                lost = {name for name, one in self._known(before) if not is_live(one)}
                for name in lost:
                    self._fleet.get(name).reconnect()  # type: ignore[union-attr]
                await self._fleet.connect(
                    lambda: {name: entry for name, entry in entries.items() if name not in lost}
                )
        except BaseException:
            for name in entries:
                self.release(name)
            raise
        connected = {}
        for name in entries:
            one = self._fleet.get(name)
            if one is None:
                continue
            one._join(self._fleet.registry)
            if is_live(one):
                connected[name] = Connection(self, name, one)
        return connected

    def _known(self, names: Mapping[str, Any]) -> Iterator[tuple[str, MCPConnection]]:
        for name in names:
            one = self._fleet.get(name)
            if one is not None:
                yield name, one

    def release(self, name: str) -> None:
        """Unregister a server's tools; unless it is connected again at once, it ends after its calls."""
        one = self._fleet.get(name)
        if one is None or name in self._released:
            return
        one._release()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Nobody could adopt it here, and nothing could wait for its calls.
            self._forget(name)
            one._native.kill()
            return
        self._released[name] = loop.call_later(LINGER, self._let_go, name)

    def _let_go(self, name: str) -> None:
        self._released.pop(name, None)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._entries.pop(name, None)
        with contextlib.suppress(RuntimeError):  # The loop is gone, and the server with it.
            self._fleet.drop(name)

    async def aclose(self) -> None:
        """End all servers, within 5 s; a pool is of no use after that."""
        self.closing = True
        for timer in self._released.values():
            timer.cancel()
        self._released.clear()
        self._entries.clear()
        if vars(self._registry).get(_POOL) is self:
            delattr(self._registry, _POOL)
        try:
            await asyncio.wait_for(self._fleet.aclose(), CLOSE_WITHIN)
        except TimeoutError:
            _log.warning(
                "MCP servers did not close within %s s; they are ended with this process", CLOSE_WITHIN
            )


def find_pool(registry: Any) -> Pool | None:
    """The servers of a registry, if it ever had any."""
    found = getattr(registry, "__dict__", {}).get(_POOL)
    return found if isinstance(found, Pool) else None


def pool_of(registry: Any, wrappers: Mapping[str, Any]) -> Pool:
    """The servers of a registry."""
    pool = find_pool(registry)
    if pool is None:
        pool = Pool(registry, wrappers)
        setattr(registry, _POOL, pool)
    return pool
