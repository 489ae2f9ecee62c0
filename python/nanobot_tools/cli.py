"""The command line: ``nanobot-tools``, which needs the extra ``cli`` (typer and rich).

It shows what the loader finds on this machine, for those who write plugins, and what the drop-in does with an
installed nanobot. It runs no tool.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError as exc:
    raise SystemExit(f"{exc}: install nanobot-tools[cli]") from exc

from . import ToolContext, ToolLoader, ToolRegistry, __version__

if TYPE_CHECKING:
    from .compat._doctor import Diagnosis

__all__ = ["app", "main"]

app = typer.Typer(help="The tool runtime for Python agents.", no_args_is_help=True, add_completion=False)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def tools(
    workspace: Annotated[Path, typer.Option(help="The folder that tools work in.")] = Path(),
    scope: Annotated[str, typer.Option(help="Only tools of this scope.")] = "core",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the definitions as a model sees them.")
    ] = False,
) -> None:
    """List the package's own tools and those of installed plugins. Faulty plugins are named on stderr."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    registry = ToolRegistry()
    ToolLoader().load(ToolContext(config=None, workspace=str(workspace.resolve())), registry, scope=scope)
    if as_json:
        typer.echo(json.dumps(registry.get_definitions(), indent=2, ensure_ascii=False))
        return
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("parameters (* required)")
    table.add_column("description")
    for definition in registry.get_definitions():
        function = definition["function"]
        required = function["parameters"].get("required", [])
        properties = function["parameters"].get("properties", {})
        names = ", ".join(f"{name}*" if name in required else name for name in properties)
        # What tools say of themselves is text, not markup.
        table.add_row(*(Text(cell) for cell in (function["name"], names, function["description"])))
    Console().print(table)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Say what the drop-in does with the nanobot of this environment, its MCP servers and its plugins.

    Nothing is started. The exit status is 1 if something should be mended.
    """
    from .compat._doctor import diagnose

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s: %(message)s")
    with _quiet():
        found = diagnose()
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2, ensure_ascii=False))
    else:
        _show(found)
    raise typer.Exit(1 if found.findings else 0)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context) -> None:
    """Run nanobot with the drop-in: nanobot-tools run -- gateway --port 18790."""
    from .compat._run import run as run_nanobot

    try:
        status = run_nanobot(context.args)
    except LookupError as exc:
        typer.echo(f"Error: {exc}", err=True)
        raise typer.Exit(1) from exc
    raise typer.Exit(status)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep nanobot's log out of what is printed."""
    try:
        from loguru import logger  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        yield
        return
    logger.disable("nanobot")
    try:
        yield
    finally:
        logger.enable("nanobot")


def _show(found: Diagnosis) -> None:
    console = Console()
    console.print(Text(found.summary))
    if found.targets:
        _print_table(
            console,
            ("part", "function of nanobot's", "status", "reason"),
            (
                (t.part, t.name.removeprefix("nanobot.agent."), t.status, t.reason or "")
                for t in found.targets
            ),
        )
    if found.config is not None:
        console.print(Text(f"configuration: {found.config}, our options: {found.options or 'none'}"))
    if found.servers:
        _print_table(
            console,
            ("MCP server", "client", "reason"),
            ((s.name, s.backend, s.reason or "") for s in found.servers),
        )
    if found.plugins:
        _print_table(
            console,
            ("plugin", "distribution", "names", "verdict", "reason"),
            ((p.name, p.distribution, p.names, p.verdict, p.reason or "") for p in found.plugins),
        )
    for finding in found.findings:
        console.print(Text(f"! {finding}"))
    if not found.findings:
        console.print(Text("Nothing to mend."))


def _print_table(console: Console, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    table = Table(*columns)
    for row in rows:
        # What others wrote is text, not markup.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
