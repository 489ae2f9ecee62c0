"""The rows over HTTP that are written the same for both registries, and the server that they call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from registries import Names, close
from rows import BATCH
from work import BIG, HTTP_TOOLS, TEXT, Made, Maker, expect, expect_text


@asynccontextmanager
async def http_floor(floor: str) -> AsyncIterator[str]:
    """Starts the server that lies beside the floor server's program; gives its address, without a path."""
    process = await asyncio.create_subprocess_exec(
        str(Path(floor).with_name("floor_http")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


def http_makers_for(names: Names, floor: str) -> dict[str, Maker]:
    """The rows of a registry."""

    @asynccontextmanager
    async def connected(path: str, kind: str = "streamableHttp") -> AsyncIterator[Any]:
        async with http_floor(floor) as address:
            registry = names.registry()
            entry = names.entry({"type": kind, "url": address + path})
            connections = await names.connect({"floor": entry}, registry)
            try:
                expect("mcp_floor_echo" in registry.tool_names, registry.tool_names)
                yield registry
            finally:
                await close(connections)

    @asynccontextmanager
    async def one() -> Made:
        async with connected("/json") as registry:

            async def many(number: int) -> Any:
                for _ in range(number):
                    result = await registry.execute("mcp_floor_echo", {"text": TEXT})
                return expect_text(result, TEXT)

            yield many

    @asynccontextmanager
    async def parallel(path: str, kind: str = "streamableHttp") -> Made:
        async with connected(path, kind) as registry:

            async def many(number: int) -> Any:
                for _ in range(number):
                    results = await asyncio.gather(
                        *(registry.execute("mcp_floor_slow", {"text": TEXT}) for _ in range(BATCH))
                    )
                return [str(expect_text(result, TEXT)) for result in results]

            yield many

    @asynccontextmanager
    async def many_tools() -> Made:
        async with http_floor(floor) as address:
            entry = names.entry({"type": "streamableHttp", "url": address + "/many"})

            async def many(number: int) -> Any:
                for _ in range(number):
                    registry = names.registry()
                    connections = await names.connect({"floor": entry}, registry)
                    found = registry.get_definitions()
                    await close(connections)
                return len(expect(len(found) == HTTP_TOOLS, found))

            yield many

    @asynccontextmanager
    async def big() -> Made:
        async with connected("/json") as registry:

            async def many(number: int) -> Any:
                for _ in range(number):
                    result = await registry.execute("mcp_floor_big", {"text": TEXT})
                return len(expect(len(result) == BIG, result))

            yield many

    return {
        "http_one": one,
        "http_json": lambda: parallel("/json"),
        "http_sse": lambda: parallel("/sse"),
        "legacy_sse": lambda: parallel("/legacy", "sse"),
        "many_tools": many_tools,
        "big": big,
    }
