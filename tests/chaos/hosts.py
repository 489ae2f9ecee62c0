"""The faults of a host: what becomes of its servers, and of what they started, when it just goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from subject import Subject

if TYPE_CHECKING:
    from run import Report

#: The longest that a host needs to be up, or its servers to be gone.
PATIENCE = 30.0
#: Seconds of calls before and after.
CALM = 0.5
HERE = Path(__file__).parent


class Host:
    """A process that calls one server after the other, each of which has a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, subjects: list[Subject]) -> Host:
        """Start it; its first server answers when this ends."""
        entries = [json.dumps(await subject.open()) for subject in subjects]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "host.py"), *entries, stdin=pipe, stdout=pipe
        )
        host = cls(process)
        await host.hear("up")
        return host

    async def hear(self, what: str = "") -> str:
        """The next line, which must begin with ``what``."""
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).decode()
        if not line.startswith(what) or not line:
            raise RuntimeError(f"the host says {line!r} instead of {what!r}")
        return line

    async def count(self, report: Report, command: str) -> None:
        """Add what came of its calls, which ``command`` makes it tell."""
        self.tell(command)
        counts = json.loads(await self.hear("{"))
        for name in ("made", "answered", "failed", "hung", "unclear"):
            setattr(report, name, getattr(report, name) + counts[name])

    def tell(self, what: str) -> None:
        """Tell it what to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())

    async def close(self) -> None:
        """Kill it, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        await self.process.wait()


async def killed(host: Host, report: Report) -> None:
    """SIGKILL: nothing of the host's own can run any more."""
    await host.count(report, "count")
    host.process.kill()
    await host.process.wait()


async def replaced(host: Host, report: Report) -> None:
    """`execv`: the same process, which knows nothing of what it started before."""
    await host.count(report, "count")
    begun = time.monotonic()
    host.tell("execv")
    await host.hear("up")
    report.recovered = round(time.monotonic() - begun, 2)
    await asyncio.sleep(CALM)
    await host.count(report, "end")
    await host.process.wait()


HOST_FAULTS: dict[str, Callable[[Host, Report], Awaitable[None]]] = {
    "host killed (SIGKILL)": killed,
    "host replaced (execv)": replaced,
}


async def host_trial(name: str, report: Report) -> Report:
    """One fault of a host, whose servers are its own processes; ``report`` is filled in."""
    # The servers have started a process each, and do not end when their input does: only a kill of the group
    # helps.
    subjects = [Subject("stdio", "grandchild_stubborn") for _ in range(2)]
    host = await Host.start(subjects)
    try:
        if len(subjects[0].processes()) < 2:
            raise RuntimeError("the server has not started its own process")
        await asyncio.sleep(CALM)
        await HOST_FAULTS[name](host, report)
        begun = time.monotonic()
        while left := [pid for subject in subjects for pid in subject.processes()]:
            if time.monotonic() - begun > PATIENCE:
                break
            await asyncio.sleep(0.05)
        report.orphans = len(left)
        if report.recovered is None and not left:
            report.recovered = round(time.monotonic() - begun, 2)
        effects = Counter(
            (index, effect) for index, subject in enumerate(subjects) for effect in subject.side_effects()
        )
        report.twice = sum(number - 1 for number in effects.values())
    finally:
        await host.close()
        for subject in subjects:
            for pid in subject.processes():
                subject.signal(9, pid)
            await subject.close()
    return report
