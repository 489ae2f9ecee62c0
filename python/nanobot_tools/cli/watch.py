"""``nanobot-tools watch``: the MCP servers of the configuration, live."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, Config, Json, command, finish
from ._output import clean, console, is_terminal, print_json, print_table, rich_table, say, seconds, size
from .servers import Names

if TYPE_CHECKING:
    import asyncio

    from ..mcp import MCPConnection
    from ._session import Session

__all__ = ["add_to"]

COLUMNS = (
    "server",
    "state",
    "tools",
    "in flight",
    "requests",
    "p50",
    "p95",
    "sent",
    "received",
    "reconnects",
)
#: Where the terminal is too narrow for all columns, these are left out.
_WIDE, _SPARED = 100, ("tools", "p95")


@command
def watch(
    names: Names = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2,
    once: Annotated[bool, typer.Option(help="Look once, and end.")] = False,
    config: Config = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that servers get before one look.")] = 30,
    as_json: Json = False,
) -> None:
    """Keep the MCP servers of the configuration connected, and show how they are until Ctrl-C.

    The requests are those of this command, which pings each server at every look; their latencies show how
    it does. Without a terminal a line is printed whenever something has changed. With --json, or --once,
    there is one look, and the exit status is 1 if a server cannot be called.
    """
    configured = _config.required(config)
    if names:
        configured = configured.only(names)
    from . import _session

    async def look() -> int:
        async with _session.connected(configured, timeout=timeout) as session:
            seen = _Look(session)
            await seen.ping_all(interval)
            if as_json:
                print_json({"servers": session.status()})
            else:
                print_table(COLUMNS, seen.rows())
                for line in seen.failures():
                    say(line)
            return FAILED if session.failures else OK

    async def follow() -> int:
        with _stopped() as stop:
            # They are shown while they start, so they are not waited for.
            async with _session.connected(configured, timeout=0.01) as session:
                await _follow(_Look(session), interval, stop)
        return OK

    if once or as_json:
        finish(_session.run(look()))
    try:
        status = _session.run(follow())
    except KeyboardInterrupt:
        # Where the loop cannot handle signals, they end it.
        status = OK
    finish(status)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(watch)


class _Look:
    """What is known of the servers at one moment."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.pinged = False

    def rows(self) -> Iterator[tuple[object, ...]]:
        """How each server is, for people."""
        for status in self.session.status():
            failed = sum(status["errors"].values())
            yield (
                status["name"],
                status["state"],
                status["tools"],
                status["running"],
                f"{status['calls']}{f', {failed} failed' if failed else ''}",
                seconds(status["latency"]["p50"]),
                seconds(status["latency"]["p95"]),
                size(status["bytes_sent"]),
                size(status["bytes_received"]),
                status["reconnects"],
            )

    def failures(self) -> list[str]:
        """Why each server was last not well, a line each."""
        return [clean(f"{name}: {failure}") for name, failure in self.session.last_failures.items()]

    def changing(self) -> dict[str, tuple[object, ...]]:
        """Name -> what is worth a line when it changes."""
        return {
            status["name"]: (
                status["state"],
                status["tools"],
                status.get("reconnects", 0),
                status["last_failure"],
            )
            for status in self.session.status()
        }

    async def ping_all(self, limit: float) -> None:
        """Ask every server that is there for a sign of life, and note which gives none within the limit."""
        import asyncio

        there = self.session.connections
        self.pinged = self.pinged or bool(there)
        await asyncio.gather(*(self._ping(name, there[name], max(limit, 1)) for name in there))

    async def _ping(self, name: str, connection: MCPConnection, limit: float) -> None:
        import asyncio

        from ..errors import NanobotToolsError

        try:
            await asyncio.wait_for(connection.ping(), limit)
        except NanobotToolsError as exc:
            self.session.last_failures[name] = _config.without_prefix(name, exc)
        except TimeoutError:
            self.session.last_failures[name] = f"it does not answer within {seconds(limit)}"


async def _follow(look: _Look, interval: float, stop: asyncio.Event) -> None:
    """Show the servers until it is to stop."""
    import asyncio

    async def pinging() -> None:
        while True:
            await look.ping_all(interval)
            # Until one is there they are looked for more often.
            await asyncio.sleep(interval if look.pinged else 0.1)

    pings = asyncio.create_task(pinging())
    try:
        with _display(look) as show:
            while not stop.is_set():
                show()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), min(interval, 0.5))
    finally:
        pings.cancel()
        await asyncio.gather(pings, return_exceptions=True)


@contextlib.contextmanager
def _display(look: _Look) -> Iterator[Any]:
    """What shows the servers as they are: a live table, or lines for what has changed."""
    if is_terminal():
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        terminal = console()
        with Live(console=terminal, auto_refresh=False) as live:

            def draw() -> None:
                spared = _SPARED if terminal.width < _WIDE else ()
                kept = [i for i, column in enumerate(COLUMNS) if column not in spared]
                rows = [[row[i] for i in kept] for row in look.rows()]
                table = rich_table([COLUMNS[i] for i in kept], rows, dense=True)
                live.update(Group(table, "", *map(Text, look.failures())), refresh=True)

            yield draw
        return
    before: dict[str, tuple[object, ...]] = {}

    def show() -> None:
        now = look.changing()
        for name, (state, tools, reconnects, failure) in now.items():
            if before.get(name) != now[name]:
                clock = time.strftime("%H:%M:%S")
                why = f": {failure}" if failure else ""
                say(f"{clock} {name} {state}, {tools} tools, {reconnects} reconnects{why}")
        before.update(now)

    yield show


@contextlib.contextmanager
def _stopped() -> Iterator[asyncio.Event]:
    """An event that is set by Ctrl-C or SIGTERM, where a loop can handle these."""
    import asyncio
    import signal

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    handled = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # On Windows, and outside the main thread, it cannot.
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(number, stop.set)
            handled.append(number)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
