"""A worker as the driver sees it, and the programs that measure an import."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

from rows import RMCP

HERE = Path(__file__).resolve().parent
#: Seconds that a command may take; a slow machine needs half a minute for the slowest.
PATIENCE = 300.0

_PACKAGE = {"ours": "import nanobot_tools", "reference": "import nanobot.agent.tools"}
_IMPORTS = {
    "ours": """
from nanobot_tools import Tool, ToolExecutor, ToolLoader, ToolRegistry, connect_mcp_servers, tool
""",
    "reference": """
import mcp
from nanobot.agent.tools.base import Tool
from nanobot.agent.tools.execution import execute_tool_calls
from nanobot.agent.tools.loader import ToolLoader
from nanobot.agent.tools.mcp import connect_mcp_servers
from nanobot.agent.tools.registry import ToolRegistry
""",
}
# What the bare interpreter takes is not counted.
_PROBE = """
import json, time
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024
before, cpu, wall = resident(), time.process_time(), time.perf_counter()
{imports}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps({{"wall": wall, "cpu": cpu, "memory": resident() - before}}))
"""


class Side:
    """One worker process.

    Args:
        who: Which side it is.
        program: Its interpreter; for a side that is no Python, the program itself.
        floor: The floor server's program.
        tree: The tree to search.
        package: A folder with a package that its interpreter does not have.
    """

    def __init__(self, who: str, program: str, floor: str, tree: str, package: str | None = None) -> None:
        self.who = who
        command = [program, floor] if who == RMCP else [program, str(HERE / "worker.py"), who, floor, tree]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": package} if package is not None else None,
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        """The answer to a command; ``{"error": text}`` when there is none."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            stdin.write(json.dumps(command) + "\n")
            line = stdout.readline()
        except OSError as exc:
            return {"error": f"the worker has ended: {exc}"}
        finally:
            watchdog.cancel()
        if not line:
            return {"error": f"the worker has ended with status {self._process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the worker."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def measure_import(who: str, python: str, *, everything: bool) -> dict[str, Any]:
    """Seconds and megabytes that the import of a side takes in a fresh process."""
    program = _PROBE.format(imports=(_IMPORTS if everything else _PACKAGE)[who])
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
