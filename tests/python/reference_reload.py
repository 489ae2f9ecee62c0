"""What nanobot-ai's provider says at each reload, in nanobot-ai's own interpreter.

Reads a list of configurations from stdin (name -> entry, each), reloads with one after the other, closes,
reloads once more, and prints after each of these: the result, who is connected, their status, and the names
in the registry. Nothing of this project is imported here.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from nanobot.agent.tools.mcp import MCPProvider  # type: ignore[import-not-found]
from nanobot.agent.tools.registry import ToolRegistry  # type: ignore[import-not-found]
from nanobot.config.schema import MCPServerConfig  # type: ignore[import-not-found]


async def main(steps: list[dict[str, Any]]) -> list[Any]:
    current: dict[str, Any] = {}
    registry = ToolRegistry()
    provider = MCPProvider({}, registry, server_loader=lambda: current)

    async def step() -> list[Any]:
        result = await provider.reload()
        names = sorted(provider.connected_server_names)
        return [result, names, provider.runtime_status(), sorted(registry.tool_names)]

    told = []
    for servers in steps:
        current = {name: MCPServerConfig(**entry) for name, entry in servers.items()}
        told.append(await step())
    await provider.aclose()
    told.append(await step())
    return told


print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))
