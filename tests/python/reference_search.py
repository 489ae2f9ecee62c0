"""Runs nanobot's own search tools for the parity tests: JSON lines in, JSON lines out.

Started with the interpreter in which nanobot-ai is installed; imports nothing of this package.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from nanobot.agent.tools.search import FindFilesTool, GrepTool

CLASSES = {"grep": GrepTool, "find_files": FindFilesTool}


def build(request: dict[str, Any]) -> Any:
    policy = dict(request["policy"])
    for key in ("workspace", "allowed_dir"):
        if policy.get(key) is not None:
            policy[key] = Path(policy[key])
    for key in ("extra_read_allowed_dirs", "extra_read_allowed_files"):
        policy[key] = [Path(p) for p in policy.get(key, [])]
    return CLASSES[request["tool"]](**policy)


def describe(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


async def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        tool = build(request)
        if request.get("describe"):
            reply = describe(tool)
        else:
            result = await tool.execute(**request["args"])
            reply = {"text": str(result), "is_error": bool(getattr(result, "is_error", False))}
        print(json.dumps(reply), flush=True)


asyncio.run(main())
