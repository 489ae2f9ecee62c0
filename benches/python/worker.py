"""One side of the comparison, in a process and an environment of its own.

``python worker.py WHO FLOOR TREE`` takes commands as lines of JSON on standard input, answers each with
a line on standard output, and ends when its input ends. While it waits it does nothing, so that the turns of
the others are not disturbed.

Commands: ``prepare`` (a row; answers with a digest of the result that the row's work gives, so that the
driver sees whether all sides did the same), ``run`` (``number`` times; answers with seconds of wall and of
CPU time of this process) and ``finish``.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import json
import os
import sys
import time
import traceback
from contextlib import AsyncExitStack
from typing import Any, TextIO


class Worker:
    """Keeps the row that is prepared."""

    def __init__(self, who: str, floor: str, tree: str) -> None:
        self._makers = importlib.import_module(f"side_{who}").makers(floor, tree)
        self._stack = AsyncExitStack()
        self._many: Any = None

    async def handle(self, command: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command."""
        match command["do"]:
            case "prepare":
                await self._stack.aclose()
                self._many = await self._stack.enter_async_context(self._makers[command["row"]]())
                result = await self._many(1)
                return {
                    "digest": hashlib.sha256(repr(result).encode()).hexdigest()[:16],
                    "result": repr(result)[:200],
                }
            case "run":
                gc.collect()
                cpu, wall = time.process_time(), time.perf_counter()
                await self._many(command["number"])
                answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
                if afterwards := getattr(self._many, "afterwards", None):
                    await afterwards()
                return answer
            case "finish":
                await self._stack.aclose()
                self._many = None
                return {}
        raise ValueError(f"unknown command: {command}")


async def serve(worker: Worker, answers: TextIO) -> None:
    """Handle commands until the input ends."""
    for line in sys.stdin:
        try:
            answer = await worker.handle(json.loads(line))
        except Exception as exc:
            traceback.print_exc()
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), file=answers, flush=True)
    await worker.handle({"do": "finish"})


def main() -> None:
    """Run from the command line."""
    # Whatever a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    who, floor, tree = sys.argv[1:]
    asyncio.run(serve(Worker(who, floor, tree), answers))


if __name__ == "__main__":
    main()
