"""``nanobot-tools run``: nanobot with the drop-in."""

from __future__ import annotations

import typer

from ._app import CommandError, command, finish

__all__ = ["add_to"]


@command
def run(context: typer.Context) -> None:
    """Run nanobot with the drop-in: nanobot-tools run -- gateway --port 18790."""
    from ..compat._run import run as run_nanobot

    try:
        status = run_nanobot(context.args)
    except LookupError as exc:
        raise CommandError(str(exc)) from exc
    finish(status)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)
