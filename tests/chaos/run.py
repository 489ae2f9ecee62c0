"""The fault matrix: every fault over every transport, under a load of parallel calls.

``make chaos`` runs it. For each fault it prints how many calls were made, answered, and failed with a clear
error; how many hung, were run twice or failed without saying why; which processes, descriptors, threads and
tasks are left; and how long the server took to be back. It ends with an error if any of what must be zero is
not.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from faults import FAULTS, Fault
from hosts import HOST_FAULTS, host_trial
from nanobot_tools import MCPProvider, ToolRegistry, is_tool_error_result
from subject import TRANSPORTS, Subject

#: The longest that a call may take: its own limit of 2 s, and much slack for a busy machine.
PATIENCE = 30.0
#: The longest that a server may need to be back.
RECOVERY = 120.0
WORKERS = 8


@dataclass
class Report:
    """What came of one fault over one transport; ``bad`` names what must be zero and is not."""

    fault: str
    transport: str
    made: int = 0
    answered: int = 0
    failed: int = 0
    unclear: list[str] = field(default_factory=list)
    hung: int = 0
    twice: int = 0
    orphans: int = 0
    leaks: str = ""
    recovered: float | None = None

    @property
    def bad(self) -> list[str]:
        """What must not be."""
        names = [name for name in ("unclear", "hung", "twice", "orphans", "leaks") if getattr(self, name)]
        return names + (["not recovered"] if self.recovered is None else [])


class Load:
    """Calls of all kinds, side by side, until it is told to end."""

    def __init__(self, registry: ToolRegistry, report: Report) -> None:
        self.registry = registry
        self.report = report
        self.over = False
        self.unlisted = False
        self._number = 0

    async def work(self, worker: int) -> None:
        """Call, and call again."""
        turn = worker
        while not self.over:
            turn += 1
            await (self.call("mcp_s_act", do="x") if turn % 3 else self.note())
            await asyncio.sleep(0.005)

    async def note(self) -> None:
        """A call with a side effect that the server counts."""
        self._number += 1
        # Every other one takes a while after its effect, so that whatever happens finds calls under way that
        # must not be run again.
        do = "note" if self._number % 2 else "slow_note"
        await self.call("mcp_s_write_c", do=do, id=self._number)

    async def call(self, tool: str, **arguments: Any) -> bool:
        """Call once; whether it was answered."""
        self.report.made += 1
        try:
            result = await asyncio.wait_for(self.registry.execute(tool, arguments), PATIENCE)
        except TimeoutError:
            self.report.hung += 1
            return False
        if not is_tool_error_result(result):
            self.report.answered += 1
            return True
        self.report.failed += 1
        text = str(result).split("\n")[0]
        if self.unlisted and text.startswith("Error: Tool 'mcp_s_") and "not found" in text:
            return False
        if not any(sign in text for sign in ("'s'", "timed out", "HTTP", "status")):
            self.report.unclear.append(text)
        return False


def resources() -> Counter[str]:
    """What a process must not collect."""
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    threads = sum(not t.name.startswith(("nanobot-tools", "asyncio_")) for t in threading.enumerate())
    return Counter(descriptors=descriptors, threads=threads, tasks=len(asyncio.all_tasks()))


async def settle(before: Counter[str]) -> str:
    """What there is more of than before, once everything had the time to end."""
    more: Counter[str] = Counter()
    for _ in range(100):
        more = resources() - before
        if not more:
            return ""
        await asyncio.sleep(0.1)
    return ", ".join(f"{number} {name}" for name, number in more.items())


async def trial(name: str, fault: Fault, transport: str, calm: float = 0.3) -> Report:
    """One fault over one transport."""
    report = Report(name, transport)
    before = resources()
    subject = Subject(transport)
    registry = ToolRegistry()
    entry = await subject.open()
    provider = MCPProvider({"s": entry}, registry, server_loader=lambda: {"s": subject.entry}, cache_dir=None)
    try:
        await provider.connect()
        load = Load(registry, report)
        load.unlisted = fault.unlisted
        workers = [asyncio.create_task(load.work(n)) for n in range(WORKERS)]
        await asyncio.sleep(calm)
        await fault.cause(subject, provider)
        await asyncio.sleep(fault.lasts)
        if fault.unlisted:
            # Nobody can call it, so its status is where to look for what is wrong.
            failure = provider.status()["s"]["failure"]
            if not failure or "'s'" not in failure:
                report.unclear.append(f"status: {failure}")
        if fault.cure is not None:
            await fault.cure(subject, provider)
        begun = time.monotonic()
        while time.monotonic() - begun < RECOVERY:
            if await load.call("mcp_s_act", do="x"):
                report.recovered = round(time.monotonic() - begun, 2)
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(calm)
        load.over = True
        await asyncio.gather(*workers)
    finally:
        await provider.aclose()
        effects = Counter(subject.side_effects())
        report.twice = sum(number - 1 for number in effects.values())
        await subject.end()
        for _ in range(50):
            if not (left := subject.processes()):
                break
            await asyncio.sleep(0.1)
        report.orphans = len(left)
        await subject.close()
    report.leaks = await settle(before)
    return report


async def matrix(faults: list[str], transports: list[str]) -> list[Report]:
    """Every fault over every transport, one after the other."""
    reports = []
    # What is made once for the life of a process is no leak.
    await trial("warm-up", FAULTS["killed"], "stdio")
    await trial("warm-up", FAULTS["killed"], "json")
    for name in faults:
        for transport in transports:
            if name in FAULTS and transport in FAULTS[name].over:
                report = await trial(name, FAULTS[name], transport)
                show(report)
                reports.append(report)
    for name in faults:
        if name in HOST_FAULTS and "stdio" in transports:
            report = await host_trial(name, Report(name, "stdio"))
            show(report)
            reports.append(report)
    return reports


def show(report: Report) -> None:
    """One line."""
    back = "never" if report.recovered is None else f"{report.recovered:.2f} s"
    print(
        f"{report.fault:26} {report.transport:7} made {report.made:6} answered {report.answered:6} "
        f"failed {report.failed:5} hung {report.hung} twice {report.twice} orphans {report.orphans} "
        f"leaks {report.leaks or 0} back after {back}" + (f"  BAD: {report.bad}" if report.bad else ""),
        flush=True,
    )
    for text in report.unclear[:3]:
        print(f"    unclear: {text}", flush=True)


def main() -> int:
    """Run from the command line; 0 if everything is as it must be."""
    known = [*FAULTS, *HOST_FAULTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", help="only these, with commas between: " + ", ".join(known))
    parser.add_argument("--transports", help="only these, with commas between: " + ", ".join(TRANSPORTS))
    parser.add_argument("--json", action="store_true", help="print the reports as JSON at the end")
    options = parser.parse_args()
    faults = options.faults.split(",") if options.faults else known
    if unknown := [name for name in faults if name not in known]:
        parser.error(f"no such faults: {unknown}")
    transports = options.transports.split(",") if options.transports else list(TRANSPORTS)
    logging.getLogger("nanobot_tools").setLevel(logging.CRITICAL)
    reports = asyncio.run(matrix(faults, transports))
    if options.json:
        print(json.dumps([asdict(report) for report in reports]))
    bad = [report for report in reports if report.bad]
    print(f"{len(reports)} trials, {len(bad)} with something that must not be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
