"""The floor under each row: bare pipes and sockets to the same server, and coroutines that check nothing."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from http_rows import http_floor
from rows import BATCH
from work import BIG, TEXT, Made, Maker, expect, expect_text


def request(ident: int, tool: str = "echo") -> bytes:
    """A call as it stands on the wire."""
    message = {
        "jsonrpc": "2.0",
        "id": ident,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {"text": TEXT}},
    }
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def start(floor: str) -> subprocess.Popen[bytes]:
    """The server as a child process."""
    return subprocess.Popen([floor], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def read_lines(descriptor: int, count: int) -> bytes:
    """Read until ``count`` lines are there."""
    data = os.read(descriptor, 1 << 16)
    while data.count(b"\n") < count:
        more = os.read(descriptor, 1 << 16)
        expect(bool(more), "the server has ended")
        data += more
    return data


def receive(connection: socket.socket) -> bytes:
    """What has arrived."""
    data = connection.recv(1 << 20)
    expect(bool(data), "the server has hung up")
    return data


def read_body(connection: socket.socket) -> bytes:
    """Read a response that says its length; give its body."""
    data = receive(connection)
    while b"\r\n\r\n" not in data:
        data += receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.lower().splitlines()[1:])
    length, have = int(fields[b"content-length"]), len(body)
    whole = bytearray(length)
    whole[:have] = body
    rest = memoryview(whole)
    while have < length:
        more = connection.recv_into(rest[have:])
        expect(more > 0, "the server has hung up")
        have += more
    return bytes(whole)


def texts(data: bytes) -> list[str]:
    """The texts of replies."""
    return [json.loads(line)["result"]["content"][0]["text"] for line in data.splitlines()]


def makers(floor: str, tree: str) -> dict[str, Maker]:
    """The rows."""

    @asynccontextmanager
    async def pipes(calls: int) -> Made:
        process = start(floor)
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        # Requests are ready and replies are not decoded: this is the time of the pipes and the server.
        data = b"".join(request(ident) for ident in range(1, calls + 1))
        to_server, from_server = stdin.fileno(), stdout.fileno()

        async def many(number: int) -> Any:
            for _ in range(number):
                os.write(to_server, data)
                reply = read_lines(from_server, calls)
            found = [expect_text(text, TEXT) for text in texts(reply)]
            return found if calls > 1 else found[0]

        try:
            yield many
        finally:
            stdin.close()
            stdout.close()
            process.wait(10)

    @asynccontextmanager
    async def sockets(calls: int, tool: str) -> Made:
        body = request(1, tool)
        head = "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        data = head.encode() + str(len(body)).encode() + b"\r\n\r\n" + body
        async with http_floor(floor) as address, AsyncExitStack() as stack:
            host, _, port = address.removeprefix("http://").partition(":")
            connections = [
                stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(calls)
            ]

            async def many(number: int) -> Any:
                for _ in range(number):
                    for connection in connections:
                        connection.sendall(data)
                    bodies = [read_body(connection) for connection in connections]
                if tool == "big":
                    [text] = texts(bodies[0])
                    return len(expect(len(text) == BIG, text))
                found = [expect_text(texts(body)[0], TEXT) for body in bodies]
                return found if calls > 1 else found[0]

            yield many

    async def coroutine(text: str) -> str:
        return text

    @asynccontextmanager
    async def python_batch() -> Made:
        async def many(number: int) -> Any:
            for _ in range(number):
                results = await asyncio.gather(*(coroutine(TEXT) for _ in range(BATCH)))
            return [expect_text(result, TEXT) for result in results]

        yield many

    return {
        "mcp_one": lambda: pipes(1),
        "mcp_gather": lambda: pipes(BATCH),
        "mcp_batch": lambda: pipes(BATCH),
        "python_batch": python_batch,
        "http_one": lambda: sockets(1, "echo"),
        "http_json": lambda: sockets(BATCH, "slow"),
        "big": lambda: sockets(1, "big"),
    }
