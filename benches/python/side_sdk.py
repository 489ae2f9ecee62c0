"""The Python MCP SDK alone, without a registry."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.stdio import stdio_client
from rows import BATCH
from work import TEXT, Made, Maker, expect_text

from mcp import ClientSession, StdioServerParameters


def makers(floor: str, tree: str) -> dict[str, Maker]:
    """The rows."""

    @asynccontextmanager
    async def session() -> Any:
        async with (
            stdio_client(StdioServerParameters(command=floor)) as (read, write),
            ClientSession(read, write) as client,
        ):
            await client.initialize()
            yield client

    @asynccontextmanager
    async def mcp_one() -> Made:
        async with session() as client:

            async def many(number: int) -> Any:
                for _ in range(number):
                    result = await client.call_tool("echo", {"text": TEXT})
                return expect_text(result.content[0].text, TEXT)

            yield many

    @asynccontextmanager
    async def mcp_gather() -> Made:
        async with session() as client:

            async def many(number: int) -> Any:
                for _ in range(number):
                    results = await asyncio.gather(
                        *(client.call_tool("echo", {"text": TEXT}) for _ in range(BATCH))
                    )
                return [expect_text(result.content[0].text, TEXT) for result in results]

            yield many

    return {"mcp_one": mcp_one, "mcp_gather": mcp_gather}
