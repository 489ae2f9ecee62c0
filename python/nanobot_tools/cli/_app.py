"""The application, how a command ends, and the options that commands share.

Exit status: 0 if all is well; 1 if something failed; 2 if it is wrong how the command was called, which
includes a configuration that cannot be read and names that do not exist.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

__all__ = [
    "FAILED",
    "OK",
    "WRONG",
    "CommandError",
    "Config",
    "Json",
    "Server",
    "Wait",
    "app",
    "command",
    "finish",
    "main",
    "near",
    "server_names",
    "wrong",
]

OK, FAILED, WRONG = 0, 1, 2

_P = ParamSpec("_P")
_R = TypeVar("_R")

app = typer.Typer(
    name="nanobot-tools",
    help="The tool runtime for Python agents: tools, MCP servers, and nanobot with both.",
    epilog="Exit status: 0 all is well, 1 something failed, 2 wrong usage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class CommandError(Exception):
    """Ends a command with a message for its user.

    Attributes:
        status: The exit status.
    """

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


def server_names(context: typer.Context, incomplete: str) -> list[str]:
    """The servers of the configuration, for the completion of a shell."""
    from . import _config

    # Some versions of typer have it as text here.
    named: str | Path | None = context.params.get("config")
    try:
        servers = _config.read(Path(named) if named else None).servers
    except CommandError:
        # Whoever runs the command is told what is wrong; completion must not write into the line.
        return []
    return [name for name in servers if name.startswith(incomplete)]


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="NBTOOLS_CONFIG",
        help="A JSON file with mcpServers; nanobot's own by default (~/.nanobot/config.json).",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Server = Annotated[
    str | None,
    typer.Option(help="Only this server.", autocompletion=server_names, show_default=False),
]
Wait = Annotated[float, typer.Option(min=0.1, help="Seconds that servers get to start.")]


def wrong(message: str) -> CommandError:
    """The error for a command that was called in a wrong way."""
    return CommandError(message, WRONG)


def finish(status: int) -> NoReturn:
    """End the command."""
    raise typer.Exit(status)


def near(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` for a name that does not exist, or nothing."""
    import difflib

    candidates = list(dict.fromkeys(known))
    # One may know a tool by its name on the server, which is the end of the name that a model uses.
    ends = [one for one in candidates if len(name) > 1 and one.lower().endswith(f"_{name.lower()}")]
    alike = difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    found = list(dict.fromkeys([*ends, *alike]))[:3]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def command(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A command whose errors are messages, not tracebacks."""

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except CommandError as exc:
            from ._output import complain

            complain(f"Error: {exc}")
            raise typer.Exit(exc.status) from exc

    return run


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        # What servers say may hold characters that a terminal's encoding does not know.
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    app(prog_name="nanobot-tools")
