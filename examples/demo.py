"""The whole runtime on real input: `make demo`.

Tools of every kind meet in one registry: a `Tool` subclass, a function, a plugin, tools written in Rust and
tools of MCP servers. What a model would see of them is shown, and then the calls of a model response run in
parallel, three of them faulty. The workspace is a copy of this repository's own sources.

Exits with 1 if any other calls fail than the three that are meant to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from nanobot_tools import (
    IntegerSchema,
    StringSchema,
    Tool,
    ToolContext,
    ToolError,
    ToolExecutor,
    ToolLoader,
    ToolOutcome,
    ToolRegistry,
    connect_mcp_servers,
    tool,
    tool_parameters,
    tool_parameters_schema,
)
from rich.console import Console
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
NODE_SERVERS = ROOT / "tests/node/node_modules/@modelcontextprotocol"
COPIED = ("src", "python", "docs", "README.md", "Cargo.toml")


@tool_parameters(
    tool_parameters_schema(
        required=["path"],
        path=StringSchema("File below the workspace", min_length=1),
        lines=IntegerSchema(description="Lines to show", minimum=1, maximum=50),
    )
)
class HeadTool(Tool):
    """The first lines of a file: a tool as nanobot's plugins write them."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    @property
    def name(self) -> str:
        return "head"

    @property
    def description(self) -> str:
        return "Show the first lines of a file."

    @property
    def read_only(self) -> bool:
        return True

    async def execute(self, path: str, lines: int = 3) -> str:
        target = (self._workspace / path).resolve()
        if not target.is_relative_to(self._workspace):
            raise ToolError(f"Error: {path} is outside of the workspace")
        with target.open(encoding="utf-8") as file:
            return "".join(line for line, _ in zip(file, range(lines), strict=False))


@tool(read_only=True)
async def convert(
    value: Annotated[float, "What to convert"], unit: Literal["km", "mi"] = "km"
) -> dict[str, float | str]:
    """Convert a distance between kilometres and miles."""
    if unit == "km":
        return {"value": round(value / 1.609344, 3), "unit": "mi"}
    return {"value": round(value * 1.609344, 3), "unit": "km"}


def server_entries(workspace: Path, console: Console) -> dict[str, dict[str, Any]]:
    """The MCP servers: the embedded one and, where Node and the servers are there, two from npm."""
    servers: dict[str, dict[str, Any]] = {
        "echo": {"command": sys.executable, "args": ["-m", "nanobot_tools.testing.echo_server"]}
    }
    node = shutil.which("node")
    if node is None or not NODE_SERVERS.is_dir():
        what = "Node is not installed" if node is None else "the npm servers are not installed"
        console.print(f"[yellow]{what}[/]: the embedded server stands in for the two from npm.\n")
        return servers
    files = NODE_SERVERS / "server-filesystem/dist/index.js"
    servers["files"] = {"command": node, "args": [str(files), str(workspace)]}
    everything = NODE_SERVERS / "server-everything/dist/index.js"
    servers["everything"] = {"command": node, "args": [str(everything), "stdio"]}
    return servers


def model_response(workspace: Path, servers: Iterable[str]) -> tuple[list[dict[str, Any]], set[str]]:
    """Thirty calls as a model's response holds them, and the ids of the three that are to fail."""
    good: list[tuple[str, dict[str, Any]]] = [
        ("head", {"path": "README.md", "lines": "2"}),
        ("head", {"path": "Cargo.toml"}),
        ("convert", {"value": 42.195}),
        ("convert", {"value": "26.2", "unit": "mi"}),
        ("convert_length", {"value": "6", "source": "ft"}),
        ("convert_length", {"value": 3, "source": "mi", "target": "km"}),
        ("notes", {"text": "The demo was here."}),
        ("grep", {"pattern": r"pub trait \w+", "path": "src"}),
        ("grep", {"pattern": "asyncio", "path": "python", "output_mode": "count"}),
        ("find_files", {"glob": "**/registry.*"}),
        ("find_files", {"query": "test"}),
        ("mcp_echo_echo", {"text": "héllo"}),
        ("mcp_echo_add", {"a": 2, "b": "40"}),
        ("mcp_echo_sleep", {"seconds": 0.5}),
        ("mcp_echo_sleep", {"seconds": 0.5}),
        ("mcp_echo_sleep", {"seconds": 0.5}),
    ]
    faulty: list[tuple[str, Any]] = [
        ("convert", {"value": "far", "unit": "ly"}),
        ("mcp_echo_fail", {"text": "the server says no"}),
        ("find_file", {"query": "registry"}),
    ]
    if {"files", "everything"} <= set(servers):
        note = workspace / "note.txt"
        good += [
            ("mcp_files_list_directory", {"path": str(workspace)}),
            ("mcp_files_read_text_file", {"path": str(workspace / "Cargo.toml"), "head": 3}),
            # Has a side effect: runs alone, and what comes after it sees what it wrote.
            ("mcp_files_write_file", {"path": str(note), "content": "written by the demo\n"}),
            ("mcp_files_read_text_file", {"path": str(note)}),
            ("mcp_files_get_file_info", {"path": str(note)}),
            ("mcp_files_search_files", {"path": str(workspace), "pattern": "**/*.toml"}),
            ("mcp_everything_echo", {"message": "hello"}),
            ("mcp_everything_get-sum", {"a": "19", "b": 23}),
            ("mcp_everything_get-structured-content", {"location": "Chicago"}),
            ("mcp_everything_get-resource-links", {"count": 2}),
            ("mcp_everything_trigger-long-running-operation", {"duration": 1, "steps": 2}),
        ]
    else:
        good += [("mcp_echo_add", {"a": n, "b": n}) for n in range(11)]
    ordered = [*good[:10], faulty[0], *good[10:17], faulty[1], *good[17:], faulty[2]]
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(ordered, 1)
    ]
    expected = {f"call_{number}" for number, call in enumerate(ordered, 1) if call in faulty}
    return calls, expected


def kind_of(registry: ToolRegistry, name: str, servers: Iterable[str]) -> str:
    """What a tool is made of, for the tables."""
    found = registry.get(name)
    if found is None:
        return "unknown"
    for server in servers:
        if name.startswith(f"mcp_{server}_"):
            return f"MCP: {server}"
    if isinstance(found, HeadTool):
        return "Python class"
    if found is convert:
        return "function"
    return "Rust" if type(found).__module__.startswith("nanobot_tools.tools.") else "plugin"


def show_definitions(console: Console, registry: ToolRegistry, servers: Iterable[str]) -> None:
    """Print what a model would see."""
    table = Table(title="What the model sees", title_justify="left")
    for column in ("name", "kind", "parameters (* required)"):
        table.add_column(column, overflow="fold")
    for definition in registry.get_definitions():
        function = definition["function"]
        schema = function["parameters"]
        required = schema.get("required", [])
        names = (f"{name}*" if name in required else name for name in schema.get("properties", {}))
        table.add_row(function["name"], kind_of(registry, function["name"], servers), ", ".join(names))
    console.print(table)
    size = len(registry.definitions_json())
    console.print(f"{len(registry)} tools, {size:,} bytes of JSON, fingerprint {registry.fingerprint()}\n")


def row(
    registry: ToolRegistry, outcome: ToolOutcome, servers: Iterable[str]
) -> tuple[str, str, str, str, str]:
    """One outcome as the cells of a row."""
    first, *others = str(outcome.result).strip().splitlines() or [""]
    return (
        outcome.name,
        kind_of(registry, outcome.name, servers),
        outcome.error_kind or "ok",
        f"{outcome.duration * 1000:.1f}",
        f"{first} (+{len(others)} lines)" if others else first,
    )


def show_outcomes(
    console: Console, registry: ToolRegistry, outcomes: list[ToolOutcome], servers: Iterable[str]
) -> None:
    """Print what became of each call."""
    rows = [row(registry, outcome, servers) for outcome in outcomes]
    table = Table(title="Outcomes", title_justify="left")
    widths = [max(len(cells[column]) for cells in rows) for column in range(4)]
    for title, width in zip(("tool", "kind", "status", "ms"), widths, strict=True):
        table.add_column(title, no_wrap=True, min_width=width, justify="right" if title == "ms" else "left")
    # Only the last column gives way in a narrow terminal: three characters around each, and a last border.
    room = max(20, console.width - sum(widths) - 16)
    table.add_column("result", no_wrap=True, max_width=room)
    for cells in rows:
        result = Text(cells[4])
        result.truncate(room, overflow="ellipsis")
        table.add_row(*cells[:2], Text(cells[2], "green" if cells[2] == "ok" else "red"), cells[3], result)
    console.print(table)


async def demo(console: Console, workspace: Path) -> int:
    """Run the demonstration; 0 if just those calls failed that were to fail."""
    async with ToolRegistry() as registry:
        registry.register(HeadTool(workspace))
        registry.register(convert)
        ToolLoader().load(ToolContext(config=None, workspace=str(workspace)), registry)
        entries = server_entries(workspace, console)
        started = time.perf_counter()
        connections = await connect_mcp_servers(entries, registry)
        try:
            took = time.perf_counter() - started
            console.print(f"Connected to {', '.join(connections)} in {took:.2f} s.\n")
            if missing := entries.keys() - connections.keys():
                console.print(f"[red]Not connected: {', '.join(sorted(missing))}[/]")
                return 1
            show_definitions(console, registry, connections)
            calls, expected = model_response(workspace, connections)
            executor = ToolExecutor(registry)
            sizes = [len(batch) for batch in executor.plan(calls)]
            console.print(
                f"{len(calls)} calls in {len(sizes)} batches, one after the other, of these sizes: {sizes}"
            )
            started = time.perf_counter()
            outcomes = await executor.run(calls)
            took = time.perf_counter() - started
            show_outcomes(console, registry, outcomes, connections)
            added = sum(outcome.duration for outcome in outcomes)
            console.print(f"{took:.2f} s for all calls; their own times add up to {added:.2f} s.")
            failed = {str(outcome.id) for outcome in outcomes if outcome.is_error}
            console.print(f"{len(failed)} of {len(outcomes)} calls failed, {len(expected)} were meant to.")
            if failed != expected:
                console.print(f"[red]Not as meant: {', '.join(sorted(failed ^ expected))}[/]")
            return 0 if failed == expected else 1
        finally:
            await asyncio.gather(*(connection.aclose() for connection in connections.values()))


def main() -> int:
    """Run from the command line."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory).resolve()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
                shutil.copytree(source, workspace / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, workspace / name)
        return asyncio.run(demo(console, workspace))


if __name__ == "__main__":
    sys.exit(main())
