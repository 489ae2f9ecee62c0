"""The faults: what happens to a server while it is called, and how it is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nanobot_tools import MCPProvider
from subject import CONTINUE, KILL, STOP, TRANSPORTS, Subject

Act = Callable[[Subject, MCPProvider], Awaitable[None]]
HTTP = ("json", "sse", "legacy")


@dataclass(frozen=True)
class Fault:
    """One way in which a server fails.

    Attributes:
        cause: Makes it happen.
        cure: Undoes it; by default nothing has to be done.
        over: The transports that it makes sense for.
        lasts: Seconds from cause to cure.
        unlisted: It changes the configuration: until it is undone there are no tools, and calls are told so.
    """

    cause: Act
    cure: Act | None = None
    over: tuple[str, ...] = TRANSPORTS
    lasts: float = 1.0
    unlisted: bool = False


def pid(provider: MCPProvider) -> int | None:
    return provider.connection("s").pid


async def kill(subject: Subject, provider: MCPProvider) -> None:
    if subject.transport == "stdio":
        subject.signal(KILL, pid(provider))
    else:
        await subject.end()


async def back(subject: Subject, _: MCPProvider) -> None:
    if subject.transport != "stdio":
        await subject.start()


async def stop(subject: Subject, provider: MCPProvider) -> None:
    subject.signal(STOP, pid(provider))


async def go_on(subject: Subject, provider: MCPProvider) -> None:
    subject.signal(CONTINUE, pid(provider))


def restarted_as(mode: str) -> Act:
    async def cause(subject: Subject, provider: MCPProvider) -> None:
        subject.switch(mode)
        subject.signal(KILL, pid(provider))

    return cause


async def as_before(subject: Subject, _: MCPProvider) -> None:
    subject.switch("normal")


def told(what: str, timeout: float = 2) -> Act:
    """The server is told to misbehave, by a call of its own, which is waited for so many seconds."""

    async def cause(_: Subject, provider: MCPProvider) -> None:
        try:
            await provider.connection("s").call_tool("write_c", {"do": what}, timeout=timeout)
        except Exception:
            return

    return cause


def relayed(mode: str) -> Act:
    async def cause(subject: Subject, _: MCPProvider) -> None:
        assert subject.relay is not None
        subject.relay.mode = mode
        # A status answers new connections; those that are open must be made anew.
        if mode[0].isdigit() or mode == "pass":
            subject.relay.cut(reset=False)

    return cause


async def vanish(subject: Subject, _: MCPProvider) -> None:
    assert subject.relay is not None
    subject.relay.freeze()


async def port_closed(subject: Subject, _: MCPProvider) -> None:
    assert subject.relay is not None
    await subject.relay.close()


async def port_open(subject: Subject, _: MCPProvider) -> None:
    assert subject.relay is not None
    await subject.relay.open()


def moved(scheme: str, host: str) -> Act:
    """The configuration is changed to an address that cannot be reached."""

    async def cause(subject: Subject, provider: MCPProvider) -> None:
        before = subject.entry["url"]
        rest = before.removeprefix("http://").removeprefix("127.0.0.1")
        subject.entry = {**subject.entry, "url": f"{scheme}://{host}{rest}"}
        await provider.reload()

    return cause


async def moved_back(subject: Subject, provider: MCPProvider) -> None:
    assert subject.relay is not None
    path = subject.entry["url"].rpartition("/")[2]
    subject.entry = {**subject.entry, "url": f"http://127.0.0.1:{subject.relay.port}/{path}"}
    await provider.reload()


async def restarts(subject: Subject, provider: MCPProvider) -> None:
    for _ in range(100 if subject.transport == "stdio" else 20):
        await kill(subject, provider)
        await back(subject, provider)
        await asyncio.sleep(0.03)


PASS = relayed("pass")
FAULTS = {
    "killed": Fault(kill, back),
    "stopped": Fault(stop, go_on, lasts=3),
    "stopped for good": Fault(stop, over=("stdio",), lasts=3),
    "exits at start": Fault(restarted_as("exit_at_once"), as_before, ("stdio",), 2),
    "hangs at initialize": Fault(restarted_as("mute"), as_before, ("stdio",), 2),
    "hangs at list": Fault(restarted_as("mute_list"), as_before, ("stdio",), 2),
    "exits in a call": Fault(told("exit"), over=("stdio",)),
    "closes stdout": Fault(told("close_stdout"), over=("stdio",)),
    "floods": Fault(told("flood"), over=("stdio",)),
    # It needs 0.4 s, and its caller is gone by then.
    "answers late": Fault(told("late", 0.1)),
    "restarts again and again": Fault(restarts, over=("stdio", "json"), lasts=0.1),
    "session lost (404)": Fault(relayed("404 Not Found"), PASS, ("json", "sse")),
    "session lost (400)": Fault(relayed("400 Bad Request"), PASS, ("json", "sse")),
    "unauthorised (401)": Fault(relayed("401 Unauthorized"), PASS, HTTP),
    "unavailable (503)": Fault(relayed("503 Service Unavailable"), PASS, HTTP),
    "connection reset": Fault(relayed("reset"), PASS, HTTP),
    "half-open socket": Fault(relayed("stall"), PASS, HTTP, 3),
    # Nobody ever closes the old sockets: it is the client that has to give them up.
    "peer vanishes": Fault(vanish, over=HTTP, lasts=3),
    "one byte a second": Fault(relayed("drip"), PASS, HTTP, 3),
    "port closed": Fault(port_closed, port_open, HTTP, 2),
    # No resolver knows this name, and none has to be asked for it (RFC 6761).
    "DNS fails": Fault(moved("http", "nowhere.invalid"), moved_back, HTTP, 2, unlisted=True),
    # What answers there does not talk TLS.
    "TLS fails": Fault(moved("https", "127.0.0.1"), moved_back, HTTP, 2, unlisted=True),
}
