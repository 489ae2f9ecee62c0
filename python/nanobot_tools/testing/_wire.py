"""How scripted servers and cassettes speak: JSON-RPC over Streamable HTTP, and over a relayed stdio.

An endpoint lives on the loop on which it was opened, and needs nothing but asyncio.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .echo_server import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    VERSIONS,
    RpcError,
)

__all__ = ["Endpoint", "HttpEndpoint", "Request", "Session", "StdioEndpoint"]

_MAX_LINE = 64 * 1024 * 1024
_MAX_BODY = 64 * 1024 * 1024
_REASONS = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
}

Message = dict[str, Any]


@dataclass
class Request:
    """A request of a client.

    Attributes:
        method: The method's name.
        params: Its parameters.
        notify: Sends a notification that belongs to this request.
    """

    method: str
    params: dict[str, Any]
    notify: Callable[[str, Mapping[str, Any]], None]


Serve = Callable[[Request], Awaitable[dict[str, Any]]]
Seen = Callable[[Message], object]


class Session:
    """One client, from its handshake to its end.

    Args:
        serve: Answers requests; what it raises becomes an error for the client.
        push: Sends a message that belongs to no request.
        seen: Is shown each message of the client.
    """

    def __init__(self, serve: Serve, push: Callable[[Message], None], seen: Seen) -> None:
        self.push = push
        self._serve = serve
        self._seen = seen
        self._running: dict[Any, asyncio.Task[Message]] = {}

    async def receive(self, message: Any, send: Callable[[Message], None]) -> Message | None:
        """Handle one message; the reply, if there is one to send."""
        if not isinstance(message, dict):
            return _fault(None, INVALID_REQUEST, "a message must be an object")
        self._seen(message)
        method, ident, params = message.get("method"), message.get("id"), message.get("params")
        if method is None and ("result" in message or "error" in message):
            return None
        if "id" in message and (not isinstance(ident, (str, int, float)) or isinstance(ident, bool)):
            return _fault(None, INVALID_REQUEST, "an id must be a string or a number")
        if not isinstance(method, str):
            return _fault(ident, INVALID_REQUEST, "a request must name its method")
        if "id" not in message:
            self._notified(method, params)
            return None
        task = asyncio.ensure_future(self._reply(ident, method, params, send))
        self._running[ident] = task
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return None  # The client wants no answer any more.
        finally:
            self._running.pop(ident, None)

    def close(self) -> None:
        """Cancel what runs."""
        for task in list(self._running.values()):
            task.cancel()

    def _notified(self, method: str, params: Any) -> None:
        if method == "notifications/cancelled" and isinstance(params, dict):
            ident = params.get("requestId")
            task = self._running.get(ident) if isinstance(ident, (str, int, float)) else None
            if task is not None:
                task.cancel()

    async def _reply(self, ident: Any, method: str, params: Any, send: Callable[[Message], None]) -> Message:
        if params is None:
            params = {}
        elif not isinstance(params, dict):
            return _fault(ident, INVALID_PARAMS, "params must be an object")

        def notify(method: str, params: Mapping[str, Any]) -> None:
            send({"jsonrpc": "2.0", "method": method, "params": dict(params)})

        try:
            result = await self._serve(Request(method, params, notify))
        except RpcError as exc:
            return _fault(ident, exc.code, exc.message, exc.data)
        except Exception as exc:
            return _fault(ident, INTERNAL_ERROR, f"{type(exc).__name__}: {exc}")
        return {"jsonrpc": "2.0", "id": ident, "result": result}


def _fault(ident: Any, code: int, message: str, data: Any = None) -> Message:
    error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": ident, "error": error}


def agreed(params: Mapping[str, Any]) -> str:
    """The protocol version that a client's ``initialize`` leads to."""
    asked = params.get("protocolVersion")
    return asked if asked in VERSIONS else VERSIONS[0]


def unknown_method(method: str) -> RpcError:
    """The error for a request that a server does not know."""
    return RpcError(METHOD_NOT_FOUND, f"no method {method}")


def line(message: Message) -> str:
    """A message as a line of text."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=True)


class Endpoint(ABC):
    """Where clients connect to: a loopback address, open from :meth:`open` to :meth:`aclose`."""

    def __init__(self, serve: Serve, seen: Seen = lambda message: None) -> None:
        self._serve = serve
        self._seen = seen
        #: The port that is listened on, once it is open.
        self.port = 0
        self._closed = False
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def open(self) -> None:
        """Begin to listen."""
        # Not a server of asyncio: one that is closed leaves what it has just accepted unclosed.
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._accepting = asyncio.ensure_future(self._accept(self._listener))

    async def aclose(self) -> None:
        """Listen no more, end all connections and what runs for them."""
        self._closed = True
        if self._listener is not None and self._accepting is not None:
            # A last connection wakes what accepts them.
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            await self._accepting
            self._listener.close()
        self.forget()
        tasks = list(self._clients)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """The entry of a configuration to connect with."""

    @abstractmethod
    def push(self, message: Message) -> None:
        """Send a message to all clients."""

    @abstractmethod
    def drop(self) -> None:
        """Break all connections."""

    @abstractmethod
    def exit(self, status: int) -> None:
        """End the server as clients see it."""

    @abstractmethod
    def garbage(self, text: str) -> None:
        """Send what is no message."""

    @abstractmethod
    def forget(self) -> None:
        """Cancel what runs for clients."""

    @abstractmethod
    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            if self._closed:
                connection.close()
                return
            reader = asyncio.StreamReader(_MAX_LINE, loop)
            protocol = asyncio.StreamReaderProtocol(reader, self._met, loop)
            await loop.connect_accepted_socket(partial(_itself, protocol), connection)

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._attend(reader, writer))
        self._clients[task] = writer
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        writer = self._clients.pop(task)
        writer.transport.abort()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError):
            return  # The client went away.


def _itself(protocol: asyncio.StreamReaderProtocol) -> asyncio.StreamReaderProtocol:
    return protocol


class StdioEndpoint(Endpoint):
    """A server over stdio: each client starts a relay, which connects back to here."""

    def __init__(self, serve: Serve, seen: Seen = lambda message: None) -> None:
        super().__init__(serve, seen)
        self._token = secrets.token_hex(16)
        self._sessions: dict[Session, Callable[[Message], None]] = {}

    @property
    def entry(self) -> dict[str, Any]:
        relay = Path(__file__).with_name("_relay.py")
        return {
            "command": sys.executable,
            "args": ["-I", "-S", str(relay), "127.0.0.1", str(self.port)],
            "env": {"NBTOOLS_TEST_TOKEN": self._token},
        }

    def push(self, message: Message) -> None:
        for session in list(self._sessions):
            session.push(message)

    def drop(self) -> None:
        self._order({"close": True})

    def exit(self, status: int) -> None:
        self._order({"exit": status})

    def garbage(self, text: str) -> None:
        self._order({"out": text + "\n"})

    def write_stderr(self, text: str) -> None:
        """Write to the standard error of the processes."""
        self._order({"err": text})

    def forget(self) -> None:
        for session in list(self._sessions):
            session.close()

    def _order(self, order: Message) -> None:
        for order_one in list(self._sessions.values()):
            order_one(order)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token = (await reader.readline()).strip()
        if not hmac.compare_digest(token, self._token.encode()):
            return

        def order(what: Message) -> None:
            if not writer.is_closing():
                writer.write(line(what).encode() + b"\n")

        def send(message: Message) -> None:
            order({"out": line(message) + "\n"})

        async def handle(raw: bytes) -> None:
            try:
                message = json.loads(raw)
            except (ValueError, RecursionError):
                send(_fault(None, PARSE_ERROR, "not valid JSON"))
                return
            reply = await session.receive(message, send)
            if reply is not None:
                send(reply)

        session = Session(self._serve, send, self._seen)
        self._sessions[session] = order
        tasks: set[asyncio.Task[None]] = set()
        try:
            while raw := await reader.readline():
                if raw.strip():
                    task = asyncio.create_task(handle(raw))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
        finally:
            del self._sessions[session]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Stream:
    """A response as a stream of events."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def begin(self, headers: Mapping[str, str]) -> None:
        head = {**headers, "Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        self._writer.write(_head(200, {**head, "Cache-Control": "no-cache"}))

    def send(self, message: Message) -> None:
        if not self._writer.is_closing():
            event = f"event: message\ndata: {line(message)}\n\n".encode()
            self._writer.write(b"%x\r\n%s\r\n" % (len(event), event))

    def end(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(b"0\r\n\r\n")


class _HttpSession:
    """A session over HTTP: its messages, and the stream for those that belong to no request."""

    def __init__(self, serve: Serve, seen: Seen) -> None:
        self.core = Session(serve, self._push, seen)
        self._waiting: list[Message] = []
        self._stream: _Stream | None = None
        self.ended = asyncio.Event()

    def _push(self, message: Message) -> None:
        if self._stream is not None:
            self._stream.send(message)
        else:
            self._waiting.append(message)

    def attach(self, stream: _Stream) -> None:
        self._stream = stream
        while self._waiting:
            stream.send(self._waiting.pop(0))

    def detach(self, stream: _Stream) -> None:
        if self._stream is stream:
            self._stream = None

    def end(self) -> None:
        self.core.close()
        self.ended.set()


class HttpEndpoint(Endpoint):
    """A server over Streamable HTTP, in this process."""

    def __init__(self, serve: Serve, seen: Seen = lambda message: None) -> None:
        super().__init__(serve, seen)
        self._sessions: dict[str, _HttpSession] = {}
        self._garbage: str | None = None

    @property
    def entry(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/mcp"
        return {"type": "streamableHttp", "url": url, "allowPrivate": True}

    def push(self, message: Message) -> None:
        for session in list(self._sessions.values()):
            session.core.push(message)

    def drop(self) -> None:
        for writer in list(self._clients.values()):
            writer.transport.abort()

    def exit(self, status: int) -> None:
        self.forget()
        self.drop()

    def garbage(self, text: str) -> None:
        self._garbage = text

    def forget(self) -> None:
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                return
            first, *rest = head.decode("latin-1").split("\r\n")
            method = first.partition(" ")[0]
            pairs = (text.partition(":") for text in rest if text)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            if "transfer-encoding" in headers:
                writer.write(_response(411))
                return
            length = headers.get("content-length", "0")
            if not length.isascii() or not length.isdigit() or int(length) > _MAX_BODY:
                writer.write(_response(413))
                return
            body = await reader.readexactly(int(length))
            if "origin" in headers:
                writer.write(_response(403))  # A page in somebody's browser.
            elif method == "POST":
                await self._post(headers, body, writer)
            elif method == "GET":
                await self._get(headers, reader, writer)
                return
            elif method == "DELETE":
                session = self._sessions.pop(headers.get("mcp-session-id", ""), None)
                if session is not None:
                    session.end()
                writer.write(_response(404 if session is None else 200))
            else:
                writer.write(_response(405))
            await writer.drain()

    async def _post(self, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            writer.write(_response(400, _fault(None, PARSE_ERROR, "not valid JSON")))
            return
        garbage, self._garbage = self._garbage, None
        if garbage is not None:
            writer.write(_response(200, garbage))
            return
        method = message.get("method") if isinstance(message, dict) else None
        more: dict[str, str] = {}
        ident = headers.get("mcp-session-id")
        if method == "initialize":
            ident = secrets.token_hex(16)
            session = self._sessions[ident] = _HttpSession(self._serve, self._seen)
            more["Mcp-Session-Id"] = ident
        elif ident is None:
            # An error that names the request, for clients that look for a newer protocol first.
            reply = _fault(message.get("id"), METHOD_NOT_FOUND, f"no method {method}") if method else None
            writer.write(_response(400, reply))
            return
        elif ident in self._sessions:
            session = self._sessions[ident]
        else:
            writer.write(_response(404, _fault(None, INVALID_REQUEST, "no such session")))
            return
        if method == "tools/call" and "id" in message:
            stream = _Stream(writer)
            stream.begin(more)
            reply = await session.core.receive(message, stream.send)
            if reply is not None:
                stream.send(reply)
            stream.end()
            return
        reply = await session.core.receive(message, session.core.push)
        writer.write(_response(202 if reply is None else 200, reply, more))

    async def _get(
        self, headers: Mapping[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        session = self._sessions.get(headers.get("mcp-session-id", ""))
        if session is None:
            writer.write(_response(404))
            return
        stream = _Stream(writer)
        stream.begin({})
        session.attach(stream)
        # Until the session ends, or the client: it has nothing to say on this connection any more.
        gone = asyncio.ensure_future(reader.read(1))
        ended = asyncio.ensure_future(session.ended.wait())
        try:
            await asyncio.wait((gone, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            session.detach(stream)
            stream.end()
            for task in (gone, ended):
                task.cancel()
            await asyncio.gather(gone, ended, return_exceptions=True)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _response(
    status: int, body: Message | str | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    text = body if isinstance(body, str) else "" if body is None else line(body)
    data = text.encode("utf-8", "surrogateescape")
    head = {**(headers or {}), "Content-Length": str(len(data))}
    if data:
        head["Content-Type"] = "application/json"
    return _head(status, head) + data
