"""The rows that are written the same for both registries, since their names are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rows import BATCH
from work import (
    ARGUMENTS,
    MANY_TOOLS,
    MCP_TOOLS,
    PATTERN,
    TEXT,
    Made,
    Maker,
    expect,
    expect_text,
    named_class,
    plain_class,
    trivial_class,
)


class Names:
    """What the two packages call alike, and how each runs a batch.

    Args:
        registry: The registry class.
        tool: The base class of tools.
        tool_parameters: The decorator.
        connect: ``connect_mcp_servers``.
        entry: Makes a server entry of its dict.
        grep: Makes the grep tool for a workspace.
        batch: Runs calls, given as (name, arguments), as one batch; returns the results.
    """

    def __init__(
        self,
        *,
        registry: type[Any],
        tool: type[Any],
        tool_parameters: Callable[[dict[str, Any]], Callable[[type], type]],
        connect: Callable[..., Awaitable[dict[str, Any]]],
        entry: Callable[[dict[str, Any]], Any],
        grep: Callable[[Path], Any],
        batch: Callable[[Any], Callable[[list[tuple[str, dict[str, Any]]]], Awaitable[list[Any]]]],
    ) -> None:
        self.registry = registry
        self.tool = tool
        self.tool_parameters = tool_parameters
        self.connect = connect
        self.entry = entry
        self.grep = grep
        self.batch = batch


def makers_for(names: Names, floor: str, tree: str) -> dict[str, Maker]:
    """The rows of a registry."""

    @asynccontextmanager
    async def prepare(tool: Any) -> Made:
        registry = names.registry()
        registry.register(tool)
        name = tool.name
        check_validation(registry, name)

        async def many(number: int) -> Any:
            for _ in range(number):
                prepared = registry.prepare_call(name, ARGUMENTS)
            return expect(prepared[2] is None, prepared)[1]

        yield many

    def prepare_plain() -> Any:
        return prepare(plain_class(names.tool)())

    def prepare_decorated() -> Any:
        return prepare(named_class(names.tool, names.tool_parameters)("decorated"))

    @asynccontextmanager
    async def execute() -> Made:
        registry = names.registry()
        registry.register(trivial_class(names.tool)())
        expect(
            registry.prepare_call("trivial", {})[2] is not None, "a call without its argument was let through"
        )

        async def many(number: int) -> Any:
            for _ in range(number):
                result = await registry.execute("trivial", {"text": TEXT})
            return expect_text(result, TEXT)

        yield many

    @asynccontextmanager
    async def definitions() -> Made:
        registry = names.registry()
        connections = await names.connect({"many": names.entry(MANY_TOOLS)}, registry)
        try:
            expect(len(registry.tool_names) == MCP_TOOLS, registry.tool_names)
            cls = named_class(names.tool, names.tool_parameters)
            for index in range(20):
                registry.register(cls(f"tool_{index:02}"))
            changing = [cls("tool_20", "One wording."), cls("tool_20", "Another wording.")]

            async def many(number: int) -> Any:
                for index in range(number):
                    registry.register(changing[index % 2])
                    found = registry.get_definitions()
                expect(len(found) == MCP_TOOLS + 21, len(found))
                return [definition["function"]["name"] for definition in found]

            yield many
        finally:
            await close(connections)

    @asynccontextmanager
    async def floor_registry() -> Any:
        registry = names.registry()
        connections = await names.connect({"floor": names.entry({"command": floor, "args": []})}, registry)
        try:
            expect("mcp_floor_echo" in registry.tool_names, registry.tool_names)
            refused = registry.prepare_call("mcp_floor_echo", {})[2]
            expect(refused is not None, "a call without its argument was let through")
            yield registry
        finally:
            await close(connections)

    @asynccontextmanager
    async def mcp_one() -> Made:
        async with floor_registry() as registry:

            async def many(number: int) -> Any:
                for _ in range(number):
                    result = await registry.execute("mcp_floor_echo", {"text": TEXT})
                return expect_text(result, TEXT)

            yield many

    @asynccontextmanager
    async def mcp_gather() -> Made:
        async with floor_registry() as registry:

            async def many(number: int) -> Any:
                for _ in range(number):
                    results = await asyncio.gather(
                        *(registry.execute("mcp_floor_echo", {"text": TEXT}) for _ in range(BATCH))
                    )
                return [str(expect_text(result, TEXT)) for result in results]

            yield many

    @asynccontextmanager
    async def batch_of(registry: Any, name: str) -> Made:
        run = names.batch(registry)
        calls = [(name, {"text": TEXT}) for _ in range(BATCH)]

        async def many(number: int) -> Any:
            for _ in range(number):
                results = await run(calls)
            return [str(expect_text(result, TEXT)) for result in expect(len(results) == BATCH, results)]

        yield many

    @asynccontextmanager
    async def mcp_batch() -> Made:
        async with floor_registry() as registry, batch_of(registry, "mcp_floor_echo") as many:
            yield many

    @asynccontextmanager
    async def python_batch() -> Made:
        registry = names.registry()
        registry.register(trivial_class(names.tool)())
        expect(
            registry.prepare_call("trivial", {})[2] is not None, "a call without its argument was let through"
        )
        async with batch_of(registry, "trivial") as many:
            yield many

    @asynccontextmanager
    async def grep() -> Made:
        registry = names.registry()
        registry.register(names.grep(Path(tree)))

        async def many(number: int) -> Any:
            arguments = {"pattern": PATTERN, "output_mode": "files_with_matches"}
            for _ in range(number):
                result = await registry.execute("grep", arguments)
            return str(expect("needle" not in str(result) and "/" in str(result), result))

        yield many

    return {
        "prepare": prepare_plain,
        "prepare_decorated": prepare_decorated,
        "execute": execute,
        "definitions": definitions,
        "mcp_one": mcp_one,
        "mcp_gather": mcp_gather,
        "mcp_batch": mcp_batch,
        "python_batch": python_batch,
        "grep": grep,
    }


async def close(connections: dict[str, Any]) -> None:
    """Close what was connected."""
    for connection in connections.values():
        await connection.aclose()


def check_validation(registry: Any, name: str) -> None:
    """Raise unless arguments are cast and validated: a side that checks nothing is quick at it."""
    for wrong in ({"limit": "many"}, {"limit": 0}, {"mode": "all"}, {"path": ""}, {"deep": "perhaps"}):
        error = registry.prepare_call(name, {**ARGUMENTS, **wrong})[2]
        expect(error is not None, f"{wrong} was let through")
    without = {key: value for key, value in ARGUMENTS.items() if key != "path"}
    expect(registry.prepare_call(name, without)[2] is not None, "a call without `path` was let through")
    _, cast, error = registry.prepare_call(name, {**ARGUMENTS, "limit": "20"})
    expect(error is None and cast["limit"] == 20, f"text was not cast: {cast}, {error}")
