"""The command line: ``nanobot-tools``, which needs the extra ``cli`` (typer and rich).

It shows what the loader finds on this machine, for those who write plugins. It runs no tool.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ImportError as exc:
    raise SystemExit(f"{exc}: install nanobot-tools[cli]") from exc

from . import ToolContext, ToolLoader, ToolRegistry, __version__

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


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
