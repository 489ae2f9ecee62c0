"""The MCP servers of one owner: opened, reconciled with a configuration, and closed together.

Each server heals by itself (see :class:`MCPConnection`). A fleet only knows which servers there should be;
it never waits for one on behalf of another, and may be used from several loops and threads: its lock is held
for moments, and never while anything is awaited.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..registry import ToolRegistry
from ._callbacks import MCPCallbacks
from ._connect import open_connection
from ._connection import MCPConnection

_log = logging.getLogger("nanobot_tools.mcp")

#: How long a reload waits for servers before it goes on without them, in seconds.
RELOAD_WAIT = 4.0
#: How long calls over a connection that was replaced may go on, in seconds.
DRAIN = 120.0

CLOSING = {
    "ok": False,
    "message": "MCP connections are shutting down.",
    "requires_restart": True,
}

OnState = Callable[[str, str, str | None], object]


class Fleet:
    """The servers of one owner.

    ``registry`` is a :class:`ToolRegistry` or anything with its ``tool_names``, ``get`` and ``apply``;
    ``wrappers`` are the classes of what is registered there, by kind. ``on_state(server, state, failure)``
    hears of each change of state, on the loop that opened the server.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        callbacks: MCPCallbacks | None = None,
        shelf: Path | None = None,
        on_state: OnState | None = None,
        wrappers: Mapping[str, Any] | None = None,
    ) -> None:
        self.registry = registry
        self.closing = False
        #: How many callers connect servers for an agent now (see `connect_missing_servers`).
        self.connecting = 0
        self._callbacks = callbacks
        self._shelf = shelf
        self._on_state = on_state
        self._wrappers = wrappers
        self._lock = threading.Lock()
        # Held while it is decided and begun what is opened and closed, so that two threads do not mix.
        self._planning = threading.Lock()
        self._connections: dict[str, MCPConnection] = {}
        self._faults: dict[str, ConfigError] = {}
        self._draining: set[MCPConnection] = set()
        self._drains: set[asyncio.Task[None]] = set()

    def get(self, name: str) -> MCPConnection | None:
        """The server of that name, if it was opened."""
        return self._connections.get(name)

    def fault(self, name: str) -> ConfigError | None:
        """What is wrong with the entry of that name."""
        return self._faults.get(name)

    def live(self) -> dict[str, MCPConnection]:
        """The servers whose tools can be called."""
        return {name: one for name, one in list(self._connections.items()) if is_live(one)}

    async def connect(self, wanted: Callable[[], Mapping[str, Any]]) -> dict[str, MCPConnection]:
        """Open those of the servers that are not open, and give the others that are not there another try.

        ``wanted`` says which, at a moment at which nothing else is changed. Ends when each is there or has
        failed, at the latest after its ``startupWait``; those that take longer go on in the background, and
        their tools are registered when they are there.
        """
        with self._planning:
            opened, waits = self._start(wanted(), None)
        return await self._joined(opened, waits)

    def _start(
        self, servers: Mapping[str, Any], wait: float | None
    ) -> tuple[dict[str, MCPConnection], list[Awaitable[Any]]]:
        """Begin to open servers; what is open, and what ends when it is there, has failed or is late."""
        opened: dict[str, MCPConnection] = {}
        waits: list[Awaitable[Any]] = []
        for name, entry in servers.items():
            one, is_new = self._open(name, entry)
            if one is None:
                continue
            opened[name] = one
            if is_new:
                waits.append(one._native.settled(wait))
            elif not is_live(one):
                waits.append(one._native.retry(wait))
        return opened, waits

    async def _joined(
        self, opened: Mapping[str, MCPConnection], waits: Iterable[Awaitable[Any]]
    ) -> dict[str, MCPConnection]:
        """Wait for servers and register their tools; those that are there."""
        await asyncio.gather(*waits)
        # In the order of the configuration, so that of two equal names always the same one is changed.
        for name, one in opened.items():
            if self._connections.get(name) is one:
                one._join(self.registry)
                self._say(name, one)
        # Not those that were closed or replaced meanwhile.
        live = self.live()
        return {name: one for name, one in opened.items() if live.get(name) is one}

    async def reconcile(
        self, swap: Callable[[], Mapping[str, Any]], after: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Close, open and change servers so that they are those of ``after``; what was done.

        ``swap`` makes these the configured ones and gives those from before, at a moment at which nothing
        else is changed.
        """
        with self._planning:
            before = swap()
            removed = sorted(before.keys() - after.keys())
            added = sorted(after.keys() - before.keys())
            both = before.keys() & after.keys()
            changed = sorted(name for name in both if signature(before[name]) != signature(after[name]))
            retried = sorted(both - set(changed) - self.live().keys() - self._disabled(both))
            dropped = 0
            closing = []
            for name in removed:
                one = self._take(name)
                if one is not None:
                    dropped += one._withdraw()
                    closing.append(one)
            replaced: list[MCPConnection] = []
            reopened = []
            for name in changed:
                old = self._connections.get(name)
                tools = len(old.tools) if old is not None else 0
                if old is not None and self._update(name, old, after[name]):
                    dropped += max(0, tools - len(old.tools))
                    continue
                reopened.append(name)
                old = self._take(name)
                new, _ = self._open(name, after[name])
                if old is None:
                    continue
                dropped += tools
                if new is None:
                    old._withdraw()
                    closing.append(old)
                else:
                    replaced.append(old)
            opening = {name: after[name] for name in (*added, *reopened, *retried)}
            opened, waits = self._start(opening, RELOAD_WAIT)
            with self._lock:
                # Closing finds them here while the new ones are waited for.
                self._draining.update(replaced)
        for one in closing:
            self._drain(one)
        try:
            await self._joined(opened, waits)
        finally:
            # New calls go to the new server now; if it is not there, it registers its tools later.
            for old in replaced:
                old._withdraw()
                self._drain(old)
        live = self.live()
        tried = {*added, *changed, *retried} - self._disabled(after)
        missing = tried - live.keys()
        pending = {name for name in missing if self._is_pending(name)}
        return {
            "added": added,
            "changed": changed,
            "removed": removed,
            "retried": retried,
            "connected": sorted(live),
            "failed": sorted(missing - pending),
            "pending": sorted(pending),
            "tools_removed": dropped,
        }

    def drop(self, name: str) -> None:
        """Close a server in the background, once the calls that run have ended."""
        one = self._take(name)
        if one is not None:
            one._withdraw()
            self._drain(one)

    async def aclose(self) -> None:
        """Close all of them for ever; nothing that drains is waited for any more."""
        self.closing = True
        with self._lock:
            closing = [*self._connections.values(), *self._draining]
            self._connections.clear()
            self._draining.clear()
            self._faults.clear()
        await asyncio.gather(*(one.aclose() for one in closing))

    def _open(self, name: str, entry: Any) -> tuple[MCPConnection | None, bool]:
        """The server, and whether it was opened just now; ``None`` if its entry is faulty."""
        with self._lock:
            known = self._connections.get(name)
            if known is not None or self.closing:
                return known, False
            try:
                one = open_connection(name, entry, self._callbacks, self._shelf, wrappers=self._wrappers)
            except ConfigError as exc:
                self._faults[name] = exc
                _log.warning("MCP server %r: faulty entry: %s", name, exc)
                return None, False
            self._faults.pop(name, None)
            self._connections[name] = one
        on_state = self._on_state
        if on_state is not None:
            one._on_state = lambda state, failure: on_state(name, state, failure)
        if one.status()["cached"]:
            one._join(self.registry)
        return one, True

    def _take(self, name: str) -> MCPConnection | None:
        with self._lock:
            self._faults.pop(name, None)
            return self._connections.pop(name, None)

    def _update(self, name: str, one: MCPConnection, entry: Any) -> bool:
        """Whether a changed entry could be taken without a restart."""
        try:
            return one._update(entry)
        except ConfigError:
            # Opening it says what is wrong.
            return False

    def _drain(self, one: MCPConnection) -> None:
        """Close a server in the background, once its calls have ended."""
        with self._lock:
            drain = 0.0 if self.closing else DRAIN
            self._draining.add(one)

        async def close() -> None:
            try:
                await one.aclose(drain=drain)
            finally:
                self._draining.discard(one)

        task = asyncio.get_running_loop().create_task(close(), name=f"mcp:{one.name}:drain")
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)

    def _disabled(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if (one := self.get(name)) is not None and one.state == "disabled"}

    def _is_pending(self, name: str) -> bool:
        one = self.get(name)
        return one is not None and one.state in ("recipe", "connecting", "reconnecting")

    def _say(self, name: str, one: MCPConnection) -> None:
        for warning in one._new_warnings():
            _log.warning("MCP server %r: %s", name, warning)


def is_live(one: MCPConnection) -> bool:
    """Whether the tools of a server can be called, perhaps after a start."""
    status = one.status()
    return status["state"] in ("ready", "cached") or (status["cached"] and status["failure"] is None)


def is_same(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a server is in both configurations, with the same entry."""
    return name in before and name in after and signature(before[name]) == signature(after[name])


def signature(entry: Any) -> Any:
    """What two entries are compared by."""
    return entry.model_dump(mode="json") if hasattr(entry, "model_dump") else entry
