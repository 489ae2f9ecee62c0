"""The MCP servers that several test files connect to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nanobot_tools import MCPConnection

TESTS = Path(__file__).resolve().parent.parent
NPM = TESTS / "node/node_modules/@modelcontextprotocol"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not NPM.exists(), reason="needs Node and the servers in tests/node"
)


def echo(*options: str, **entry: Any) -> dict[str, Any]:
    """The entry of the server that ships inside the package."""
    args = ["-m", "nanobot_tools.testing.echo_server", *options]
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **entry.pop("env", {})}
    return {"command": sys.executable, "args": args, "env": env, **entry}


def asking(*options: str, **entry: Any) -> dict[str, Any]:
    """The entry of the server that asks its client what it is told to ask."""
    return {"command": sys.executable, "args": [str(TESTS / "servers/asking.py"), *options], **entry}


def everything(**entry: Any) -> dict[str, Any]:
    """The entry of the official server that has a bit of everything."""
    script = NPM / "server-everything/dist/index.js"
    return {"command": "node", "args": [str(script), "stdio"], **entry}


async def say(connection: MCPConnection, tool: str, **arguments: Any) -> str:
    """Call a tool; the text of its result."""
    result = await connection.call_tool(tool, arguments)
    text: str = result["content"][0]["text"]
    return text


async def asked(connection: MCPConnection, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    """Have the asking server make a request; the client's answer without id and version."""
    answer = json.loads(await say(connection, "ask", method=method, params=params or {}, **more))
    return {key: value for key, value in answer.items() if key not in ("id", "jsonrpc")}


async def eventually(fact: Callable[[], object]) -> None:
    """Wait until something is so."""
    for _ in range(3000):
        if fact():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come true")
