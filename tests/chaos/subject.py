"""What faults happen to: a server over one transport, and over HTTP a relay that can be told to fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRANSPORTS = ("stdio", "json", "sse", "legacy")


def program() -> str:
    """The server that misbehaves on demand, as it was built last."""
    found = [
        path
        for kind in ("debug", "release")
        if (path := ROOT / f"target/{kind}/examples/misbehaving_server").exists()
    ]
    if not found:
        raise SystemExit("the server is not built: cargo build --example misbehaving_server")
    return str(max(found, key=lambda path: path.stat().st_mtime))


class Relay:
    """Passes bytes between clients and a server, until it is told to do something else.

    ``mode`` is ``pass``, ``stall`` (connections stay and nothing goes through), ``drip`` (one byte a second),
    ``reset`` (connections are reset), or an HTTP status line that answers everything.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.mode = "pass"
        self.port = 0
        self._frozen: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Listen: at the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and cut all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut(reset=False)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, *, reset: bool) -> None:
        """End all connections."""
        for writer in list(self._writers):
            if reset:
                linger = struct.pack("ii", 1, 0)
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort() if reset else writer.close()

    def freeze(self) -> None:
        """Pass nothing on over the connections that are there, for ever, and tell nobody; new ones work."""
        self._frozen |= self._writers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self.mode[0].isdigit():
                await reader.read(65536)
                writer.write(
                    f"HTTP/1.1 {self.mode}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
                )
                await writer.drain()
                return
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(back)
            try:
                await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
            finally:
                self._writers.discard(back)
                self._frozen.discard(back)
                back.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            self._frozen.discard(writer)
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            while (self.mode == "stall" or writer in self._frozen) and not writer.is_closing():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            if self.mode == "reset":
                self.cut(reset=True)
                return
            if self.mode == "drip":
                for byte in data:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    if self.mode == "drip":
                        await asyncio.sleep(1)
                continue
            writer.write(data)
            await writer.drain()
        writer.close()


class Subject:
    """A server over one transport."""

    def __init__(self, transport: str, mode: str = "normal") -> None:
        self.transport = transport
        self.mark = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory()
        self.notes = Path(self._folder.name, "notes")
        self._switch = Path(self._folder.name, "server")
        self.switch(mode)
        #: What the configuration says of it, once it is open.
        self.entry: dict[str, Any] = {}
        self.relay: Relay | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0

    def switch(self, mode: str) -> None:
        """From the next start on, the server has this mode (over stdio)."""
        script = Path(self._folder.name, "next")
        script.write_text(f"#!/bin/sh\nexec {program()} {mode}\n")
        script.chmod(0o755)
        script.replace(self._switch)

    async def open(self) -> dict[str, Any]:
        """Start what the client does not start; the entry."""
        env = {"NOTES": str(self.notes), "CHAOS": self.mark}
        limits = {"toolTimeout": 2, "connectTimeout": 5, "startupWait": 10}
        if self.transport == "stdio":
            self.entry = {"command": str(self._switch), "args": [], "env": env, **limits}
            return self.entry
        await self.start()
        self.relay = Relay(self._port)
        await self.relay.open()
        kind, path = ("sse", "sse") if self.transport == "legacy" else ("streamableHttp", "mcp")
        url = f"http://127.0.0.1:{self.relay.port}/{path}"
        self.entry = {"type": kind, "url": url, "allowPrivate": True, **limits}
        return self.entry

    async def start(self) -> None:
        """Start the HTTP server, at the port that it had."""
        env = {**os.environ, "NOTES": str(self.notes), "CHAOS": self.mark, "PORT": str(self._port)}
        self._process = await asyncio.create_subprocess_exec(
            program(),
            "normal",
            self.transport,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        self._port = int(line.rsplit(":", 1)[1].split("/")[0])

    def signal(self, number: int, pid: int | None) -> None:
        """Send a signal to the server."""
        if self._process is not None:
            pid = self._process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def end(self) -> None:
        """End the HTTP server."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    async def close(self) -> None:
        """End everything of this side."""
        if self.relay is not None:
            await self.relay.close()
        await self.end()
        self._folder.cleanup()

    def side_effects(self) -> list[str]:
        """The ids of the calls that were carried out."""
        return self.notes.read_text().split() if self.notes.exists() else []

    def processes(self) -> list[int]:
        """The processes that the server left, or is."""
        if sys.platform != "linux":
            return []
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and f"CHAOS={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


STOP, CONTINUE, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL
