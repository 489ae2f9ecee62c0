"""Promises about the processes of servers when their host dies without a word."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# A server below a shell, with a process that it leaves in the background.
SERVER = f'sleep 600 & "{sys.executable}" -m nanobot_tools.testing.echo_server; wait'

HOST = """
    import asyncio, json, os, sys
    from nanobot_tools import MCPProvider, ToolRegistry

    async def main():
        entry = {"command": "/bin/sh", "args": ["-c", sys.argv[1]], "env": {"PYTHONPATH": sys.argv[2]}}
        registry = ToolRegistry()
        provider = MCPProvider({"a": entry, "b": entry}, registry, cache_dir=None)
        await provider.connect()
        print(json.dumps([provider.connection(name).pid for name in "ab"]), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await provider_is_up(provider, registry)
        await asyncio.sleep(600)

    async def provider_is_up(provider, registry):
        PLACE

    asyncio.run(main())
"""


def parent_and_group(pid: int) -> tuple[str, int, int]:
    """State, parent and process group."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[2])


def of_group(leader: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, group = parent_and_group(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
            if group == leader and state not in "ZX":
                found.append(int(entry.name))
    return found


def watchdogs_of(host: int) -> list[int]:
    """The watchdogs that a process has started and that live."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"nanobot-tools-watchdog" in (entry / "cmdline").read_bytes():
                state, parent, _ = parent_and_group(int(entry.name))
                if parent == host and state not in "ZX":
                    found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def eventually(fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not fact():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


class Host:
    """A process with two servers."""

    def __init__(self, work: str) -> None:
        source = textwrap.dedent(HOST).replace("PLACE", work)
        path = os.environ.get("PYTHONPATH", "")
        command = [sys.executable, "-c", source, SERVER, path]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.groups: list[int] = json.loads(self.line())
        assert all(len(of_group(group)) >= 2 for group in self.groups), "each has a grandchild"
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.close()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def nothing_is_left(self) -> None:
        eventually(lambda: not any(of_group(group) for group in self.groups))


@pytest.fixture
def host() -> Iterator[Callable[[str], Host]]:
    """Makes hosts; what runs in them once their servers are up is Python source."""
    hosts: list[Host] = []

    def make(work: str = "pass") -> Host:
        hosts.append(Host(work))
        return hosts[-1]

    yield make
    for one in hosts:
        one.close()


def test_a_killed_host_takes_its_servers_along(host: Callable[..., Host]) -> None:
    one = host()
    [watchdog] = watchdogs_of(one.process.pid)
    one.kill()
    one.nothing_is_left()
    eventually(lambda: not Path(f"/proc/{watchdog}").exists())


def test_a_host_that_becomes_another_program_leaves_its_servers_behind(host: Callable[..., Host]) -> None:
    one = host('os.execv("/bin/sleep", ["sleep", "600"])')
    one.nothing_is_left()
    assert one.process.poll() is None, "the new program runs"


def test_a_forked_child_does_not_keep_the_servers_of_a_dead_host(host: Callable[..., Host]) -> None:
    # The child lives on, with everything open that its parent had.
    one = host(
        "\n        child = os.fork()"
        "\n        if child == 0:"
        "\n            import time; time.sleep(600)"
        "\n        print(child, flush=True)"
    )
    child = int(one.line())
    try:
        one.kill()
        one.nothing_is_left()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_that_ends_takes_nothing_along(host: Callable[..., Host]) -> None:
    one = host(
        "\n        if os.fork() == 0:"
        "\n            sys.exit(0)"
        "\n        os.wait()"
        "\n        print(await registry.execute('mcp_a_echo', {'text': 'well'}), flush=True)"
    )
    assert one.line() == "well\n"
    assert all(of_group(group) for group in one.groups)


def test_a_watchdog_that_was_killed_is_replaced(host: Callable[..., Host]) -> None:
    one = host()
    [first] = watchdogs_of(one.process.pid)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: watchdogs_of(one.process.pid) not in ([], [first]))
    one.kill()
    one.nothing_is_left()


async def test_there_is_a_watchdog_as_long_as_there_are_servers_and_one_for_all() -> None:
    from nanobot_tools import MCPProvider, ToolRegistry

    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    args = ["-m", "nanobot_tools.testing.echo_server"]
    entry: dict[str, Any] = {"command": sys.executable, "args": args, "env": env}
    async with MCPProvider(dict.fromkeys("abc", entry), ToolRegistry()):
        assert len(watchdogs_of(os.getpid())) == 1
    await asyncio.to_thread(eventually, lambda: not watchdogs_of(os.getpid()))
