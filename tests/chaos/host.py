"""A host that calls its servers until something happens to it; ``hosts.py`` starts it.

``python host.py ENTRIES...`` takes the first entry as JSON, calls that server from many tasks at once, and
prints ``up`` once it was answered. Lines on standard input say what to do: ``count`` prints what came of its
calls so far, ``execv`` makes it replace itself by a host with the entries that are left, and ``end`` makes it
close and print what came of its calls.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from dataclasses import asdict

from nanobot_tools import MCPProvider, ToolRegistry
from run import WORKERS, Load, Report


async def host(entry: dict[str, object]) -> None:
    """Call until told otherwise."""
    report = Report("host", "stdio")
    registry = ToolRegistry()
    provider = MCPProvider({"s": entry}, registry, cache_dir=None)
    await provider.connect()
    load = Load(registry, report)
    if not await load.call("mcp_s_act", do="x"):
        raise SystemExit("the server does not answer")
    workers = [asyncio.create_task(load.work(number)) for number in range(WORKERS)]
    print("up", flush=True)
    while (line := (await asyncio.to_thread(sys.stdin.readline)).strip()) == "count":
        print(json.dumps(asdict(report)), flush=True)
    if line == "execv":
        # As nanobot restarts: in the middle of everything, with nothing closed.
        os.execv(sys.executable, [sys.executable, __file__, *sys.argv[2:]])
    load.over = True
    await asyncio.gather(*workers)
    await provider.aclose()
    print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    logging.getLogger("nanobot_tools").setLevel(logging.CRITICAL)
    asyncio.run(host(json.loads(sys.argv[1])))
