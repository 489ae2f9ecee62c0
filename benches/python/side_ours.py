"""Our side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from http_rows import http_makers_for
from nanobot_tools import (
    MCPProvider,
    Tool,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    connect_mcp_servers,
    tool_parameters,
)
from nanobot_tools.tools.search import GrepTool
from registries import Names, makers_for
from start_rows import start_makers_for
from work import Maker


def batch(registry: Any) -> Callable[[list[tuple[str, dict[str, Any]]]], Awaitable[list[Any]]]:
    """Runs calls through the executor; making the calls is part of the work."""
    executor = ToolExecutor(registry)

    async def run(calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        outcomes = await executor.run(
            [ToolCall(name, arguments, id=str(index)) for index, (name, arguments) in enumerate(calls)]
        )
        return [outcome.result for outcome in outcomes]

    return run


def entry(fields: dict[str, Any]) -> dict[str, Any]:
    """A server entry. Loopback counts as private, and is closed unless the entry opens it."""
    return {**fields, "allowPrivate": True} if "url" in fields else fields


def grep(workspace: Path) -> Any:
    """The native tool."""
    return GrepTool(workspace=workspace)


async def start(servers: dict[str, Any], registry: Any, folder: Path | None) -> Callable[[], Awaitable[None]]:
    """Through the provider, which keeps what servers offer."""
    provider = MCPProvider(servers, registry, cache_dir=folder)
    await provider.connect()
    return provider.aclose


def makers(floor: str, tree: str) -> dict[str, Maker]:
    """The rows."""
    names = Names(
        registry=ToolRegistry,
        tool=Tool,
        tool_parameters=tool_parameters,
        connect=connect_mcp_servers,
        entry=entry,
        grep=grep,
        batch=batch,
    )
    rows = makers_for(names, floor, tree) | http_makers_for(names, floor)
    return rows | start_makers_for(names, floor, start)
