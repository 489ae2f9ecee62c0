"""The soak: ten servers, batches of calls, a fault every second and a reload every ten.

``make soak MINUTES=10`` runs it. At the end nothing may have hung, run twice or be left over, and memory must
be flat.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from nanobot_tools import MCPProvider, ToolCall, ToolExecutor, ToolRegistry
from run import PATIENCE, resources, settle
from subject import CONTINUE, STOP, Subject

KINDS = ("stdio", "stdio", "stdio", "stdio", "stdio", "json", "json", "sse", "sse", "legacy")
#: How much larger the last third may be on average than the middle one: what an allocator does in that time.
GROWTH = 1.05
BATCH = 20
#: Seconds between two lines about what the process has collected.
SHOWN = 30


def memory() -> float:
    """Resident memory of this process in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Soak:
    """Ten servers and what is done to them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.subjects = {f"s{number}": Subject(kind) for number, kind in enumerate(KINDS)}
        self.entries: dict[str, dict[str, Any]] = {}
        self.registry = ToolRegistry()
        self.counts: Counter[str] = Counter()
        self.memory: list[float] = []
        self.number = 0
        self.over = False

    async def run(self, minutes: float) -> list[str]:
        """Everything at once; what must not be."""
        for name, subject in self.subjects.items():
            self.entries[name] = await subject.open()
        provider = MCPProvider(
            self.entries, self.registry, server_loader=lambda: dict(self.entries), cache_dir=None
        )
        await provider.connect()
        executor = ToolExecutor(self.registry, max_concurrency=BATCH)
        try:
            work = [self.call(executor), self.break_things(provider), self.reload(provider), self.sample()]
            tasks = [asyncio.create_task(one) for one in work]
            await asyncio.sleep(minutes * 60)
            self.over = True
            await asyncio.gather(*tasks)
        finally:
            begun = time.monotonic()
            await provider.aclose()
            self.counts["seconds to close"] = round(time.monotonic() - begun)
            effects = [effect for subject in self.subjects.values() for effect in subject.side_effects()]
            self.counts["twice"] = len(effects) - len(set(effects))
            for subject in self.subjects.values():
                await subject.end()
            await asyncio.sleep(1)
            self.counts["orphans"] = sum(len(subject.processes()) for subject in self.subjects.values())
            for subject in self.subjects.values():
                await subject.close()
        third = len(self.memory) // 3
        middle, last = self.memory[third : 2 * third], self.memory[2 * third :]
        growth = (sum(last) / len(last)) / (sum(middle) / len(middle)) if middle and last else 1.0
        print(
            f"memory {min(self.memory):.1f} to {max(self.memory):.1f} MB, "
            f"its last third {growth:.3f} times the middle one"
        )
        bad = [name for name in ("hung", "twice", "orphans") if self.counts[name]]
        return bad + (["memory grows"] if growth > GROWTH else [])

    async def call(self, executor: ToolExecutor) -> None:
        """Batches, one after the other."""
        while not self.over:
            calls = []
            for _ in range(BATCH):
                self.number += 1
                name = self.random.choice(list(self.subjects))
                if self.random.random() < 0.3:
                    # Some take a while after their effect, so that faults find them under way.
                    do = self.random.choice(["note", "slow_note"])
                    calls.append(ToolCall(f"mcp_{name}_write_c", {"do": do, "id": self.number}))
                else:
                    calls.append(ToolCall(f"mcp_{name}_act", {"do": "x" * self.random.randrange(2000)}))
            try:
                outcomes = await asyncio.wait_for(executor.run(calls), 2 * PATIENCE)
            except TimeoutError:
                self.counts["hung"] += 1
                continue
            for outcome in outcomes:
                self.counts[outcome.error_kind or "answered"] += 1

    async def break_things(self, provider: MCPProvider) -> None:
        """A fault every second."""
        while not self.over:
            await asyncio.sleep(1)
            name = self.random.choice(list(self.subjects))
            subject = self.subjects[name]
            self.counts["faults"] += 1
            if subject.relay is None:
                await self.break_process(subject, provider, name)
            elif self.random.random() < 0.3:
                await subject.end()
                await subject.start()
            else:
                subject.relay.mode = self.random.choice(["stall", "reset", "503 Service Unavailable"])
                await asyncio.sleep(0.5)
                subject.relay.mode = "pass"
                subject.relay.cut(reset=True)

    async def break_process(self, subject: Subject, provider: MCPProvider, name: str) -> None:
        try:
            pid = provider.connection(name).pid
        except KeyError:
            return
        if self.random.random() < 0.7:
            subject.signal(9, pid)
            return
        subject.signal(STOP, pid)
        await asyncio.sleep(0.5)
        subject.signal(CONTINUE, pid)

    async def reload(self, provider: MCPProvider) -> None:
        """A reload every ten seconds, with something changed."""
        original = dict(self.entries)
        while not self.over:
            for _ in range(100):
                await asyncio.sleep(0.1)
                if self.over:
                    return
            name = self.random.choice(list(original))
            change = self.random.choice(["narrow", "limit", "restart", "remove", "restore"])
            match change:
                case "narrow":
                    self.entries[name] = {**original[name], "enabledTools": ["act", "write_c"]}
                case "limit":
                    self.entries[name] = {**original[name], "toolTimeout": self.random.choice([1, 2, 3])}
                case "restart":
                    self.entries[name] = {**original[name], "protocol": "2025-06-18"}
                case "remove":
                    self.entries.pop(name, None)
                case "restore":
                    self.entries.update(original)
            await provider.reload()
            self.counts["reloads"] += 1

    async def sample(self) -> None:
        """Memory, once a second; now and then a line about that and what else a process collects."""
        begun = time.monotonic()
        while not self.over:
            self.memory.append(memory())
            if len(self.memory) % SHOWN == 0:
                print(
                    f"{time.monotonic() - begun:6.0f} s {self.memory[-1]:6.1f} MB {dict(resources())}",
                    flush=True,
                )
            await asyncio.sleep(1)


async def soak(minutes: float, seed: int) -> int:
    """Soak; 0 if everything is as it must be."""
    short = Soak(seed)
    # What is made once for the life of a process is no leak.
    await short.run(0.1)
    before = resources()
    long = Soak(seed + 1)
    bad = await long.run(minutes)
    leaks = await settle(before)
    print(dict(long.counts))
    if leaks:
        bad.append(leaks)
    print(f"bad: {bad}" if bad else "nothing that must not be")
    return 1 if bad else 0


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    logging.getLogger("nanobot_tools").setLevel(logging.CRITICAL)
    return asyncio.run(soak(options.minutes, options.seed))


if __name__ == "__main__":
    sys.exit(main())
