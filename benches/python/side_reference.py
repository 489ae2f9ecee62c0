"""nanobot-ai: the registry, its executor and its MCP client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from http_rows import http_makers_for
from loguru import logger
from nanobot.agent.hook import AgentHook, AgentHookContext
from nanobot.agent.tools.base import Tool, tool_parameters
from nanobot.agent.tools.execution import execute_tool_calls
from nanobot.agent.tools.mcp import connect_mcp_servers
from nanobot.agent.tools.registry import ToolRegistry
from nanobot.agent.tools.search import GrepTool
from nanobot.config.schema import MCPServerConfig
from nanobot.providers.base import ToolCallRequest
from nanobot.security.network import configure_ssrf_whitelist
from nanobot_rows import nanobot_makers
from registries import Names, close, makers_for
from start_rows import start_makers_for
from work import Maker


def quiet() -> None:
    """Log no more than warnings, and reach servers on this machine."""
    # What is logged about each connection is not what is measured.
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    # Its guard is told once for the whole process that loopback is meant.
    configure_ssrf_whitelist(["127.0.0.0/8"])


def batch(registry: Any) -> Callable[[list[tuple[str, dict[str, Any]]]], Awaitable[list[Any]]]:
    """Runs calls side by side in the quickest way that the reference has for them.

    Its executor runs MCP tools one after the other, as none of them is marked safe there. That would
    flatter us, so these go through the registry in one ``asyncio.gather``.
    """
    hook = AgentHook()

    async def execute(calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        requests = [
            ToolCallRequest(id=str(index), name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(calls)
        ]
        results, _ = await execute_tool_calls(
            registry,
            requests,
            concurrent=True,
            external_lookup_counts={},
            workspace_violation_counts={},
            hook=hook,
            context=AgentHookContext(iteration=0, messages=[]),
        )
        return results

    async def gather(calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        return await asyncio.gather(*(registry.execute(name, arguments) for name, arguments in calls))

    safe = all(registry.get(name).concurrency_safe for name in registry.tool_names)
    return execute if safe else gather


def grep(workspace: Path) -> Any:
    """nanobot's tool."""
    return GrepTool(workspace=workspace)


async def start(
    servers: dict[str, Any], registry: Any, _folder: Path | None
) -> Callable[[], Awaitable[None]]:
    """It keeps nothing for the next time."""
    connections = await connect_mcp_servers(servers, registry)
    return lambda: close(connections)


def makers(floor: str, tree: str) -> dict[str, Maker]:
    """The rows."""
    quiet()
    names = Names(
        registry=ToolRegistry,
        tool=Tool,
        tool_parameters=tool_parameters,
        connect=connect_mcp_servers,
        entry=lambda entry: MCPServerConfig(**entry),
        grep=grep,
        batch=batch,
    )
    rows = makers_for(names, floor, tree) | http_makers_for(names, floor)
    return rows | start_makers_for(names, floor, start) | nanobot_makers(floor)
