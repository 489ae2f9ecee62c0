"""What nanobot-ai shows a model of MCP results, in nanobot-ai's own interpreter.

`tests/data/rendering.json` holds the cases and, under `reference`, what this script made of them:

    .venvs/reference/bin/python tests/python/reference_render.py tests/data/rendering.json > new.json

Names, dates and folders that differ from run to run are replaced by words. Nothing of this project is
imported here.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

from loguru import logger  # type: ignore[import-not-found]
from nanobot.agent.tools import mcp as nanobot_mcp  # type: ignore[import-not-found]
from nanobot.config.loader import set_config_path  # type: ignore[import-not-found]

from mcp import McpError, types  # type: ignore[import-not-found]

RESULTS = {
    "call": types.CallToolResult,
    "resource": types.ReadResourceResult,
    "prompt": types.GetPromptResult,
}


FAILURES = {
    "TimeoutError": TimeoutError(),
    "CancelledError": asyncio.CancelledError(),
    "RuntimeError": RuntimeError("why"),
    "McpError": McpError(types.ErrorData(code=-32000, message="why")),
    "ConnectionResetError": ConnectionResetError("why"),
}


class Session:
    """A session that has one answer to everything."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def _reply(self) -> Any:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    async def call_tool(self, name: str, arguments: Any = None) -> Any:
        return await self._reply()

    async def read_resource(self, uri: Any) -> Any:
        return await self._reply()

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        return await self._reply()


def wrapper(kind: str, session: Session) -> Any:
    if kind == "call":
        return nanobot_mcp.MCPToolWrapper(session, "srv", types.Tool(name="t", inputSchema={}))
    if kind == "resource":
        return nanobot_mcp.MCPResourceWrapper(session, "srv", types.Resource(name="r", uri="x://y"))
    return nanobot_mcp.MCPPromptWrapper(session, "srv", types.Prompt(name="p"))


def shown(case: dict[str, Any], root: Path) -> str:
    answer = (
        FAILURES[case["raises"]] if "raises" in case else RESULTS[case["kind"]].model_validate(case["result"])
    )
    tool = wrapper(case["kind"], Session(answer))
    text = str(asyncio.run(tool.execute(**case.get("arguments", {}))))
    text = text.replace(str(root.resolve() / "media/generated"), "ROOT")
    text = re.sub(r"img_[0-9a-f]+", "img_ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?[+-]\d\d:\d\d", "TIME", text)
    return re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)


def main() -> None:
    logger.remove()
    fixture = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        set_config_path(Path(folder) / "config.json")
        # A call that lost its connection is tried again after a second.
        with patch.object(nanobot_mcp.asyncio, "sleep", AsyncMock()):
            for case in fixture["failures"]:
                case["reference"] = shown(case, Path(folder))
        for case in fixture["cases"]:
            case["reference"] = shown(case, Path(folder))
    json.dump(fixture, sys.stdout, ensure_ascii=False, indent=1)
    print()


main()
