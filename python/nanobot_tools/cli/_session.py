"""The servers of a configuration, connected for as long as a command runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..mcp import MCPConnection, MCPProvider
from ..registry import ToolRegistry
from ._config import Configuration, without_prefix
from ._output import complain

__all__ = ["Session", "connected", "local_tools", "run"]

_T = TypeVar("_T")


class Session:
    """Servers that were connected, or could not be.

    Attributes:
        provider: Keeps them.
        registry: Has their tools.
        start_times: Name -> seconds until it could be called first.
        last_failures: Name -> why it was last not well, also if it is well now.
    """

    def __init__(self, config: Configuration, registry: ToolRegistry, provider: MCPProvider) -> None:
        self.config = config
        self.registry = registry
        self.provider = provider
        self.start_times: dict[str, float] = {}
        self.last_failures: dict[str, str] = dict(config.faults)

    @property
    def connections(self) -> dict[str, MCPConnection]:
        """The servers that can be called."""
        ready = self.provider.connected_server_names
        return {name: self.provider.connection(name) for name in self.config.servers if name in ready}

    @property
    def failures(self) -> dict[str, str]:
        """Name -> why it cannot be called, of each that should be."""
        failures = {}
        for name, status in self.provider.status().items():
            if status["state"] not in ("ready", "disabled"):
                why = status["failure"] or f"it is still {status['state']} after the time that it was given"
                failures[name] = without_prefix(name, why)
        return failures

    def status(self) -> list[dict[str, Any]]:
        """How each server is, as JSON shows it."""
        found = []
        for name, status in self.provider.stats().items():
            status["failure"] = status["failure"] and without_prefix(name, status["failure"])
            found.append(
                {
                    "name": name,
                    **status,
                    "start_time": self.start_times.get(name),
                    "last_failure": self.last_failures.get(name),
                }
            )
        return found

    def complain(self) -> None:
        """Name the servers that cannot be called on stderr, and what is odd about the configuration."""
        for warning in self.config.warnings:
            complain(f"Warning: {warning}")
        for name, failure in self.failures.items():
            complain(f"Error: MCP server {name}: {failure}")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's work on a loop of its own, with the log of the servers kept out of what it prints."""
    log = logging.getLogger("nanobot_tools.mcp")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return asyncio.run(work)
    finally:
        log.setLevel(level)


@contextlib.asynccontextmanager
async def connected(
    config: Configuration,
    *,
    timeout: float,
    registry: ToolRegistry | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> AsyncIterator[Session]:
    """Connect the servers, and close them at the end.

    What a server offers is asked of the server itself, not taken from the cache, which learns of it.

    Args:
        timeout: Seconds that they are waited for.
        registry: Where their tools go.
        overrides: Fields that every entry gets.
    """
    registry = ToolRegistry() if registry is None else registry
    more = {"lazy": False, "idle_timeout": None, "startup_wait": timeout, **(overrides or {})}
    entries = {name: _with(entry, more) for name, entry in config.servers.items()}
    started = time.perf_counter()

    def changed(name: str, state: str, failure: str | None) -> None:
        if state == "ready":
            session.start_times.setdefault(name, time.perf_counter() - started)
        if failure is not None:
            session.last_failures[name] = without_prefix(name, failure)

    provider = MCPProvider(entries, registry, server_loader=lambda: entries, on_state_change=changed)
    session = Session(config, registry, provider)
    try:
        await provider.connect()
        # What was said of the last change of a state is on its way to this loop.
        await asyncio.sleep(0)
        yield session
    finally:
        await provider.aclose()


def local_tools(workspace: Path, scope: str = "core") -> ToolRegistry:
    """The package's own tools and those of plugins. Faulty plugins are named in the log."""
    from ..context import ToolContext
    from ..loader import ToolLoader

    registry = ToolRegistry()
    context = ToolContext(config=None, workspace=str(workspace.resolve()))
    with _logged():
        ToolLoader().load(context, registry, scope=scope)
    return registry


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Show the warnings of the loader on stderr."""

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complain(f"{record.levelname.capitalize()}: {record.getMessage()}")

    log = logging.getLogger("nanobot_tools.loader")
    handler = Shown(logging.WARNING)
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


def _with(entry: Any, more: Mapping[str, Any]) -> Any:
    """An entry with some fields replaced, in whichever way they were written; ``None`` takes one out."""
    if not isinstance(entry, Mapping):
        return entry
    spellings = {field.replace("_", "") for field in more}
    kept = {key: value for key, value in entry.items() if key.replace("_", "").lower() not in spellings}
    return {**kept, **{key: value for key, value in more.items() if value is not None}}
