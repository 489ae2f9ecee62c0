"""Starting with ten servers that each need half a second, with and without what is known of them."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from registries import Names
from work import Made, Maker, expect

SERVERS = 10
#: Connects the servers and returns what closes them; what is known may be kept in a folder.
Start = Callable[[dict[str, Any], Any, Path | None], Awaitable[Callable[[], Awaitable[None]]]]


def start_makers_for(names: Names, floor: str, start: Start) -> dict[str, Maker]:
    """The rows of a registry."""
    command = {"command": "/bin/sh", "args": ["-c", f"sleep 0.5; exec '{floor}'"]}
    servers = {f"s{number}": names.entry(command) for number in range(SERVERS)}

    @asynccontextmanager
    async def ten(warm: bool) -> Made:
        with tempfile.TemporaryDirectory() as folder:
            closers: list[Callable[[], Awaitable[None]]] = []

            async def many(number: int) -> Any:
                for _ in range(number):
                    registry = names.registry()
                    closers.append(await start(servers, registry, Path(folder, "cache") if warm else None))
                    found = registry.get_definitions()
                return len(expect(len(found) >= SERVERS, found))

            async def close() -> None:
                while closers:
                    await closers.pop()()

            # To end a server that is still starting is to wait for it: no part of the start.
            many.afterwards = close  # type: ignore[attr-defined]
            try:
                if warm:
                    await many(1)
                    await close()
                yield many
            finally:
                await close()

    return {"start_cold": lambda: ten(False), "start_warm": lambda: ten(True)}
