"""The memory of a client for each server that it is connected to, in fresh processes.

``python memory.py WHO FLOOR SERVERS`` connects so many servers and prints what is resident then, in MB. A
process with one server and one with many differ by the servers alone: imports and pools are in both. The
processes of the servers, and the one that watches them, are not counted.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: Servers in the larger of the two processes; the difference is divided by those that it has more.
MANY = 41
#: Seconds that a process may take.
PATIENCE = 120.0


def measure_memory(who: str, python: str, floor: str, rounds: int) -> dict[str, Any]:
    """The MB that one server takes in the process of a side's client."""
    found = []
    for _ in range(rounds):
        resident = []
        for number in (1, MANY):
            command = [python, str(HERE / "memory.py"), who, floor, str(number)]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
            )
            if done.returncode:
                return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
            resident.append(json.loads(done.stdout.splitlines()[-1]))
        found.append((resident[1] - resident[0]) / (MANY - 1))
    return {"wall": statistics.median(found), "least": min(found), "most": max(found), "turns": len(found)}


async def resident(who: str, floor: str, number: int) -> float:
    """What is resident with so many servers, in MB."""
    side = importlib.import_module(f"side_{who}")
    registry = side.ToolRegistry()
    entry = getattr(side, "entry", None) or (lambda fields: side.MCPServerConfig(**fields))
    servers = {f"s{index}": entry({"command": floor, "args": []}) for index in range(number)}
    close = await side.start(servers, registry, None)
    try:
        for name in registry.tool_names:
            await registry.execute(name, {"text": "hello"})
        if len(registry.tool_names) != number:
            raise RuntimeError(f"{len(registry.tool_names)} tools of {number} servers")
        gc.collect()
        return taken()
    finally:
        await close()


def taken() -> float:
    """What is resident of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


if __name__ == "__main__":
    print(json.dumps(asyncio.run(resident(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
