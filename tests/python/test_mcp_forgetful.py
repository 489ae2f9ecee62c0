"""What happens when an HTTP server forgets its session: one new handshake, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mcp_servers import eventually
from nanobot_tools import connect_mcp_server


class Forgetful(ThreadingHTTPServer):
    """A server over Streamable HTTP whose session can be forgotten."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions = 0
        #: Method and session of each request.
        self.seen: list[tuple[str, str | None]] = []

    def methods(self, session: str) -> list[str]:
        return [method for method, of in self.seen if of == session]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Forgetful

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, session = message.get("method", ""), self.headers.get("Mcp-Session-Id")
        if method == "server/discover":
            return self.answer(400, {"id": message["id"], "error": {"code": -32601, "message": "what?"}})
        if method == "initialize":
            self.server.sessions += 1
            session = f"s{self.server.sessions}"
        elif session != f"s{self.server.sessions}":
            return self.answer(404, None)
        self.server.seen.append((method, session))
        if "id" not in message:
            return self.answer(202, None)
        return self.answer(200, {"id": message["id"], "result": self.result(method)}, session)

    def result(self, method: str) -> dict[str, Any]:
        if method == "initialize":
            capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
            info = {"name": "forgetful", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
        if method == "tools/list":
            # In a new session it has something new to offer.
            names = ["t", "u"][: self.server.sessions]
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
        return {}

    def do_GET(self) -> None:
        self.answer(405, None)

    def do_DELETE(self) -> None:
        self.answer(200, None)

    def answer(self, status: int, body: dict[str, Any] | None, session: str | None = None) -> None:
        text = b"" if body is None else json.dumps({"jsonrpc": "2.0", **body}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        if text:
            self.send_header("Content-Type", "application/json")
        if session is not None:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    with Forgetful() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_calls_survive_a_forgotten_session_and_what_was_asked_once_is_asked_again(
    forgetful: Forgetful,
) -> None:
    """One handshake serves all calls that wait; subscriptions, log level and lists follow."""
    url = f"http://127.0.0.1:{forgetful.server_port}/mcp"
    entry = {"url": url, "allowPrivate": ["127.0.0.0/8"]}
    async with await connect_mcp_server("web", entry) as connection:
        assert [tool.name for tool in connection.tools] == ["mcp_web_t"]
        await connection.set_logging_level("debug")
        await connection.subscribe_resource("a:b")
        forgetful.sessions += 1
        results = await asyncio.gather(*(connection.call_tool("t") for _ in range(5)))
        assert {result["content"][0]["text"] for result in results} == {"done"}
        await eventually(lambda: len(connection.tools) == 2)
        assert forgetful.methods("s3").count("initialize") == 1
        assert {"logging/setLevel", "resources/subscribe"} <= set(forgetful.methods("s3"))
        assert forgetful.sessions == 3
