"""``nanobot-tools version``."""

from __future__ import annotations

import typer

__all__ = ["add_to"]


def version() -> None:
    """Print the version."""
    from .. import __version__

    typer.echo(__version__)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(version)
