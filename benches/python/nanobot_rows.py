"""The rows in which nanobot itself works, without and with the drop-in: starting, and a response's calls."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from http_rows import http_floor
from nanobot.agent import runner
from nanobot.agent.hook import AgentHook, AgentHookContext
from nanobot.agent.tools.mcp import MCPProvider
from nanobot.agent.tools.registry import ToolRegistry
from nanobot.config.schema import MCPServerConfig
from nanobot.providers.base import ToolCallRequest
from rows import TURN_CALLS
from start_rows import SERVERS
from work import TEXT, Made, Maker, expect, expect_text


def nanobot_makers(floor: str) -> dict[str, Maker]:
    """The rows."""

    @asynccontextmanager
    async def ready(warm: bool) -> Made:
        command = {"command": "/bin/sh", "args": ["-c", f"sleep 0.5; exec '{floor}'"]}
        servers = {f"s{number}": MCPServerConfig(**command) for number in range(SERVERS)}
        providers: list[MCPProvider] = []

        async def many(number: int) -> Any:
            for _ in range(number):
                if not warm:
                    # What ours knows of servers is kept there.
                    os.environ["NBTOOLS_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
                registry = ToolRegistry()
                provider = MCPProvider(servers, registry)
                providers.append(provider)
                await provider.connect()
                found = registry.get_definitions()
            return len(expect(len(found) >= SERVERS, found))

        async def close() -> None:
            while providers:
                await providers.pop().aclose()

        many.afterwards = close  # type: ignore[attr-defined]
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NBTOOLS_CACHE_DIR"] = folder
            try:
                if warm:
                    await many(1)
                    await close()
                yield many
            finally:
                await close()

    @asynccontextmanager
    async def connected(servers: int) -> AsyncIterator[ToolRegistry]:
        async with AsyncExitStack() as stack:
            addresses = [await stack.enter_async_context(http_floor(floor)) for _ in range(servers)]
            registry = ToolRegistry()
            entries = {
                f"floor{number}": MCPServerConfig(type="streamableHttp", url=f"{address}/json")
                for number, address in enumerate(addresses)
            }
            provider = MCPProvider(entries, registry)
            stack.push_async_callback(provider.aclose)
            await provider.connect()
            yield registry

    @asynccontextmanager
    async def response(servers: int, calls: list[tuple[int, str]]) -> Made:
        requests = [
            ToolCallRequest(id=str(index), name=f"mcp_floor{server}_{tool}", arguments={"text": TEXT})
            for index, (server, tool) in enumerate(calls)
        ]
        async with connected(servers) as registry:

            async def many(number: int) -> Any:
                for _ in range(number):
                    results, _ = await runner.execute_tool_calls(
                        registry,
                        requests,
                        concurrent=True,
                        external_lookup_counts={},
                        workspace_violation_counts={},
                        hook=AgentHook(),
                        context=AgentHookContext(iteration=0, messages=[]),
                    )
                return [str(expect_text(result, TEXT)) for result in results]

            yield many

    return {
        "nanobot_cold": lambda: ready(False),
        "nanobot_warm": lambda: ready(True),
        "nanobot_turn": lambda: response(1, [(0, "slow")] * TURN_CALLS),
        "nanobot_three": lambda: response(3, [(server, "second") for server in range(3)]),
    }
