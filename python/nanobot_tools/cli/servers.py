"""``nanobot-tools servers``: how the MCP servers of the configuration are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, Config, Json, Wait, command, finish, server_names
from ._output import complain, print_json, print_table, seconds

__all__ = ["COLUMNS", "Names", "add_to"]

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Only these servers.",
        autocompletion=server_names,
        show_default=False,
    ),
]

COLUMNS = ("server", "state", "protocol", "tools", "start", "last failure")


@command
def servers(names: Names = None, config: Config = None, timeout: Wait = 30, as_json: Json = False) -> None:
    """Connect the MCP servers of the configuration, and say how each of them is.

    The start is the time from the command's start of a server to its first readiness for calls. The exit
    status is 1 if one that is not disabled cannot be called.
    """
    configured = _config.required(config)
    if names:
        configured = configured.only(names)
    from . import _session

    async def work() -> tuple[list[dict[str, Any]], bool]:
        async with _session.connected(configured, timeout=timeout) as session:
            return session.status(), bool(session.failures)

    found, failed = _session.run(work())
    for warning in configured.warnings:
        complain(f"Warning: {warning}")
    if as_json:
        print_json({"config": str(configured.path), "servers": found, "warnings": configured.warnings})
    else:
        print_table(COLUMNS, [_row(status) for status in found])
    finish(FAILED if failed else OK)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(servers)


def _row(status: dict[str, Any]) -> tuple[object, ...]:
    return (
        status["name"],
        status["state"],
        status.get("protocol_version"),
        status["tools"],
        seconds(status["start_time"]),
        status["last_failure"],
    )
