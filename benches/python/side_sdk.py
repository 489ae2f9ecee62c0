"""The Python MCP SDK alone, without a registry."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from http_rows import http_floor
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from rows import BATCH
from work import BIG, HTTP_TOOLS, TEXT, Made, Maker, expect, expect_text

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

    @asynccontextmanager
    async def over_http(url: str, client: Any = streamable_http_client) -> Any:
        async with client(url) as (read, write, *_), ClientSession(read, write) as found:
            await found.initialize()
            yield found

    @asynccontextmanager
    async def http_one() -> Made:
        async with http_floor(floor) as address, over_http(address + "/json") as client:

            async def many(number: int) -> Any:
                for _ in range(number):
                    result = await client.call_tool("echo", {"text": TEXT})
                return expect_text(result.content[0].text, TEXT)

            yield many

    @asynccontextmanager
    async def parallel(path: str, kind: Any = streamable_http_client) -> Made:
        async with http_floor(floor) as address, over_http(address + path, kind) as client:

            async def many(number: int) -> Any:
                for _ in range(number):
                    results = await asyncio.gather(
                        *(client.call_tool("slow", {"text": TEXT}) for _ in range(BATCH))
                    )
                return [expect_text(result.content[0].text, TEXT) for result in results]

            yield many

    @asynccontextmanager
    async def many_tools() -> Made:
        async with http_floor(floor) as address:

            async def many(number: int) -> Any:
                for _ in range(number):
                    async with over_http(address + "/many") as client:
                        found = (await client.list_tools()).tools
                return len(expect(len(found) == HTTP_TOOLS, found))

            yield many

    @asynccontextmanager
    async def big() -> Made:
        async with http_floor(floor) as address, over_http(address + "/json") as client:

            async def many(number: int) -> Any:
                for _ in range(number):
                    result = (await client.call_tool("big", {"text": TEXT})).content[0].text
                return len(expect(len(result) == BIG, result))

            yield many

    return {
        "mcp_one": mcp_one,
        "mcp_gather": mcp_gather,
        "http_one": http_one,
        "http_json": lambda: parallel("/json"),
        "http_sse": lambda: parallel("/sse"),
        "legacy_sse": lambda: parallel("/legacy", sse_client),
        "many_tools": many_tools,
        "big": big,
    }
