"""MCP servers that others wrote: where `make test` has put them, and how each starts.

A server that listens runs in a process of its own, with nothing of this environment, on a port that was free,
and is ended by its process id.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "tests/node/node_modules/@modelcontextprotocol"
LOOPBACK = ROOT / "tests/node/loopback.mjs"
#: Newest versions of the two eras.
MODERN, LEGACY = "2026-07-28", "2025-11-25"
#: Anything that must not hang is given this long; a busy machine starts Node in many seconds.
GENEROUS = 60.0


def raw_tools(name: str) -> list[dict[str, Any]]:
    """A server's tools as it lists them, taken down once."""
    listed = json.loads((ROOT / f"tests/data/tool_lists/{name}.json").read_text(encoding="utf-8"))
    tools: list[dict[str, Any]] = listed["tools"]
    return tools


def node(package: str) -> list[str]:
    """The command of a server from npm."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("needs Node")
    script = NODE / package / "dist/index.js"
    if not script.exists():
        pytest.fail(f"{package} is not installed: run `make test`")
    return [program, str(script)]


def python(environment: str, program: str) -> list[str]:
    """The command of a server in a virtual environment of its own."""
    path = ROOT / ".venvs" / environment / "bin" / program
    if not path.exists():
        pytest.fail(f"no {path.relative_to(ROOT)}: run `make test`")
    return [str(path)]


def rust(example: str) -> list[str]:
    """The command of a server that is an example of this package, as it was built last."""
    found = [
        path for kind in ("debug", "release") if (path := ROOT / f"target/{kind}/examples/{example}").exists()
    ]
    if not found:
        pytest.fail(f"{example} is not built: run `make test`")
    return [str(max(found, key=lambda path: path.stat().st_mtime))]


@dataclass
class Real:
    """A server over stdio.

    Attributes:
        command: What starts it.
        version: The newest protocol version that it speaks.
        info: The name that it gives of itself.
        older: A version that it can be pinned to.
        env: What it wants from the environment.
    """

    command: list[str]
    version: str
    info: str
    older: str = "2024-11-05"
    env: dict[str, str] = field(default_factory=dict)

    def entry(self, **more: Any) -> dict[str, Any]:
        """Its entry in a configuration."""
        return {"command": self.command[0], "args": self.command[1:], "env": self.env, **more}


def repository(folder: Path) -> Path:
    """A git repository with one commit and one change."""
    where = folder / "repository"
    where.mkdir()
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "Begin"]):
        (where / "note.txt").write_text("first\n")
        subprocess.run([*git, *arguments], cwd=where, check=True, capture_output=True)
    (where / "note.txt").write_text("second\n")
    return where


def servers(name: str, folder: Path) -> Real:
    """The server of that name, with what it works on below ``folder``."""
    match name:
        case "everything":
            return Real([*node("server-everything"), "stdio"], LEGACY, "mcp-servers/everything")
        case "filesystem":
            return Real([*node("server-filesystem"), str(folder)], LEGACY, "secure-filesystem-server")
        case "memory":
            env = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
            return Real(node("server-memory"), LEGACY, "memory-server", env=env)
        case "sequential-thinking":
            return Real(node("server-sequential-thinking"), LEGACY, "sequential-thinking-server")
        case "git":
            command = [*python("servers", "mcp-server-git"), "--repository", str(repository(folder))]
            return Real(command, MODERN, "mcp-git")
        case "time":
            command = [*python("servers", "mcp-server-time"), "--local-timezone", "UTC"]
            return Real(command, MODERN, "mcp-time")
        case "fetch":
            command = [*python("servers", "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"]
            return Real(command, MODERN, "mcp-fetch")
        case "sqlite":
            command = [*python("servers-sdk1", "mcp-server-sqlite"), "--db-path", str(folder / "data.db")]
            return Real(command, LEGACY, "sqlite")
        case "rust":
            return Real([*rust("rmcp_server"), "stdio"], MODERN, "rust")
    raise ValueError(name)


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether somebody listens."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def everything_over(mode: str) -> Iterator[str]:
    """server-everything as it listens: the address of ``"sse"`` or ``"streamableHttp"``."""
    program, script = node("server-everything")
    command = [program, "--import", str(LOOPBACK), script, mode]
    words = ""
    for _ in range(3):
        port = free_port()
        # `get-env` gives all of its environment to whoever asks.
        env = {"PATH": os.environ["PATH"], "PORT": str(port)}
        with tempfile.TemporaryFile() as said, running(command, env, said) as process:
            deadline = time.monotonic() + GENEROUS / 2
            while process.poll() is None and not accepts(port) and time.monotonic() < deadline:
                time.sleep(0.05)
            # Another program may have been quicker to take the port: then this one has ended.
            if process.poll() is None and accepts(port):
                yield f"http://127.0.0.1:{port}/{'sse' if mode == 'sse' else 'mcp'}"
                return
            said.seek(0)
            words = said.read().decode(errors="replace")
    pytest.fail(f"server-everything does not listen over {mode}; it said: {words}")


@contextlib.contextmanager
def running(command: list[str], env: dict[str, str], said: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the block."""
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def listening(command: list[str]) -> Iterator[str]:
    """A server that says its address in its first line, and ends when its stdin does."""
    process = subprocess.Popen(
        command, env={"PATH": os.environ["PATH"]}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield next(line.strip() for line in process.stdout if line.startswith("http://"))
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
