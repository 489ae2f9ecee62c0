"""``nanobot-tools bench``: how fast an MCP server answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, CommandError, Config, Json, Wait, command, finish, near, server_names, wrong
from ._measure import Measured, Once, many
from ._output import complain, print_json, print_table, say, seconds
from .call import arguments_from

if TYPE_CHECKING:
    from ..mcp import MCPConnection
    from ._session import Session

__all__ = ["add_to"]


@command
def bench(
    server: Annotated[
        str,
        typer.Argument(help="The server, as the configuration names it.", autocompletion=server_names),
    ],
    tool: Annotated[
        str | None,
        typer.Option(help="The tool to call, as the server or a model names it; without one, it is pinged."),
    ] = None,
    args: Annotated[
        str | None, typer.Option(metavar="JSON", help="The tool's arguments; - reads them from stdin.")
    ] = None,
    calls: Annotated[int, typer.Option(min=1, help="How many calls are made, each way.")] = 100,
    parallel: Annotated[int, typer.Option(min=1, help="How many run at once the second time.")] = 16,
    config: Config = None,
    timeout: Wait = 30,
    as_json: Json = False,
) -> None:
    """Measure a server: its start, and calls one by one and side by side.

    The latencies are those of calls that succeeded. The exit status is 1 if one failed. The tool is really
    called: 2 * CALLS times, and once before.

    Example: nanobot-tools bench search --tool query --args '{"q": "rust"}' --calls 50
    """
    if args is not None and tool is None:
        raise wrong("--args needs a --tool")
    arguments = arguments_from([], args)
    configured = _config.required(config).only([server])
    from . import _session

    async def work() -> tuple[dict[str, Any], float | None]:
        async with _session.connected(configured, timeout=timeout) as session:
            if session.failures:
                raise CommandError(f"MCP server {server}: {session.failures[server]}")
            if server not in session.connections:
                raise CommandError(f"MCP server {server} is disabled")
            once = (
                _calling(session, server, tool, arguments) if tool else _pinging(session.connections[server])
            )
            # What is only made for the first call is not measured.
            await once()
            return {
                "one by one": await many(once, calls, 1),
                "side by side": await many(once, calls, parallel),
            }, session.start_times.get(server)

    found, start = _session.run(work())
    for warning in configured.warnings:
        complain(f"Warning: {warning}")
    if as_json:
        measured = {how.replace(" ", "_"): one.as_dict() for how, one in found.items()}
        print_json({"server": server, "tool": tool, "start_time": start, **measured})
    else:
        say(f"{server}: start {seconds(start)}; {f'tool {tool}' if tool else 'ping'}")
        columns = ("", "calls", "at once", "calls/s", "p50", "p95", "max", "failed")
        print_table(columns, [_row(how, one) for how, one in found.items()])
    finish(FAILED if any(one.errors for one in found.values()) else OK)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


def _row(how: str, measured: Measured) -> tuple[object, ...]:
    latency = measured.as_dict()["latency"]
    failed = ", ".join(f"{count} {kind}" for kind, count in measured.errors.items())
    return (
        how,
        measured.calls,
        measured.parallel,
        f"{measured.per_second:.1f}",
        *(seconds(latency[name]) for name in ("p50", "p95", "max")),
        failed or 0,
    )


def _pinging(connection: MCPConnection) -> Once:
    from ..errors import NanobotToolsError

    async def once() -> tuple[float, str | None]:
        started = time.perf_counter()
        try:
            await connection.ping()
        except NanobotToolsError as exc:
            return time.perf_counter() - started, exc.code
        return time.perf_counter() - started, None

    return once


def _calling(session: Session, server: str, tool: str, arguments: dict[str, Any]) -> Once:
    from .._native import mcp_name
    from ..executor import ToolCall, ToolExecutor

    registry = session.registry
    name = tool if registry.has(tool) else mcp_name("tool", server, tool)
    if not registry.has(name):
        raise wrong(f"there is no tool {tool!r} on {server}{near(name, registry.tool_names)}")
    _, _, error = registry.prepare_call(name, arguments)
    if error is not None:
        raise CommandError(str(error).removeprefix("Error: "))
    executor = ToolExecutor(registry, max_concurrency=None)

    async def once() -> tuple[float, str | None]:
        started = time.perf_counter()
        (outcome,) = await executor.run([ToolCall(name, arguments)])
        return time.perf_counter() - started, outcome.error_kind

    return once
