"""Where nanobot works: a home of its own, a configuration, MCP servers, and plugins.

One plugin is written on nanobot's ``Tool`` and, where the package is there, one on ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
#: The ``toolTimeout`` that the server over stdio has once the configuration has changed.
CHANGED_LIMIT = 3

_WEB_SERVER = """
import asyncio, sys
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

server = FastMCP("web", host="127.0.0.1", port=int(sys.argv[2]))

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def echo(text: str) -> str:
    return text

server.run(transport=sys.argv[1])
"""

_THEIRS = """
from nanobot.agent.tools.base import Tool

class Shout(Tool):
    name = "theirs_shout"
    description = "Make text loud."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    read_only = True

    async def execute(self, text):
        return text.upper()
"""
_OURS = """
from nanobot_tools import Tool

class Shout(Tool):
    name = "ours_shout"
    description = "Make text loud, by another."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    read_only = True

    async def execute(self, text):
        return text.upper()
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(fact: Any, what: str) -> Any:
    """Wait until something is so; what it gave."""
    deadline = time.monotonic() + PATIENCE
    while not (found := fact()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)
    return found


class Scene:
    """A folder with all that nanobot needs; servers over HTTP run while the scene is entered.

    Args:
        folder: An empty folder.
        python: The interpreter that has nanobot.
        model: The base URL of the endpoint.
        with_us: Whether the package is there.
        installed: Whether it is there because it is installed; otherwise it is put on the path.
    """

    def __init__(
        self, folder: Path, python: Path, model: str, *, with_us: bool, installed: bool = False
    ) -> None:
        self.home = folder / "home"
        self.python = python
        self.with_us = with_us
        self._on_path = with_us and not installed
        self.port = free_port()
        self._model = model
        self._site = folder / "site"
        self._stack = contextlib.ExitStack()
        self._web: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Scene:
        workspace = self.home / "workspace"
        workspace.mkdir(parents=True)
        (workspace / "note.txt").write_text("a note\n", encoding="utf-8")
        points = {"theirs": "theirs_plugin:Shout"}
        self._distribution("theirs-plugin", {"nanobot.tools": points}, theirs_plugin=_THEIRS)
        if self.with_us:
            self._distribution(
                "ours-plugin", {"nanobot.tools": {"ours": "ours_plugin:Shout"}}, ours_plugin=_OURS
            )
        if self._on_path:
            door = {"nanobot_tools": "nanobot_tools.compat.activate:entry_point"}
            self._distribution("nanobot-tools", {"nanobot.tools": door})
        try:
            for kind, path in (("sse", "/sse"), ("streamable-http", "/mcp")):
                port = free_port()
                command = [self.python, "-c", _WEB_SERVER, kind, str(port)]
                self._stack.enter_context(running(command, self.environment()))
                wait_for(lambda port=port: listens(port), f"the server over {kind}")
                self._web[kind] = (f"http://127.0.0.1:{port}{path}", port)
            self.configure()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _distribution(self, name: str, groups: dict[str, dict[str, str]], **modules: str) -> None:
        info = self._site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8"
        )
        lines = []
        for group, points in groups.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for module, source in modules.items():
            (self._site / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """The environment of all processes."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("NBTOOLS", "NANOBOT", "OPENAI", "VIRTUAL_ENV"))
            and "proxy" not in key.lower()
        }
        path = [str(self._site), *([str(ROOT / "python")] if self._on_path else [])]
        return {
            **kept,
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(path),
            "NBTOOLS_CACHE_DIR": str(self.home / "cache"),
        }

    def configure(self, *, changed: bool = False) -> None:
        """Write nanobot's configuration; ``changed`` adds a server, removes one, and changes a limit."""
        script = ROOT / "python/nanobot_tools/testing/echo_server.py"
        stdio = {"command": str(self.python), "args": [str(script)]}
        servers: dict[str, Any] = {
            "stdio": {**stdio, "toolTimeout": CHANGED_LIMIT if changed else 40},
            "web": {"type": "streamableHttp", "url": self._web["streamable-http"][0]},
        }
        servers["extra" if changed else "old"] = (
            stdio if changed else {"type": "sse", "url": self._web["sse"][0]}
        )
        config = {
            "agents": {"defaults": {
                "workspace": str(self.home / "workspace"), "model": "scripted", "provider": "custom",
            }},
            "providers": {"custom": {"apiKey": "none", "apiBase": self._model}},
            "channels": {"websocket": {
                "enabled": True, "host": "127.0.0.1", "port": self.port, "websocketRequiresToken": False,
                "allowFrom": ["*"],
            }},
            "gateway": {"port": free_port(), "heartbeat": {"enabled": False}},
            "tools": {"mcpServers": servers, "ssrfWhitelist": ["127.0.0.0/8"]},
        }  # fmt: skip
        file = self.home / ".nanobot/config.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(config), encoding="utf-8")


@contextlib.contextmanager
def running(
    command: list[Any], environment: dict[str, str], **more: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended at the end."""
    more = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
