"""A small MCP server over stdio that needs nothing but Python.

Run it with ``python -m nanobot_tools.testing.echo_server [--page N] [--tools N]``. It offers ``echo``,
``add``, ``sleep`` (with progress) and ``fail``; ``--tools`` adds as many copies of ``echo``, ``--page`` lists
that many tools on a page. It speaks the protocol versions 2024-11-05 to 2025-11-25. Calls run beside each
other, so that a slow one does not hold up the next. When its input ends, what still runs is cancelled and the
server ends.

Every request is answered, whatever it holds: a client that sends nonsense is told so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603


class RpcError(Exception):
    """An error that the client is told."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _object(value: Any, what: str) -> dict[str, Any]:
    """An object that may be left out."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"{what} must be an object")
    return value


def _check(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise for arguments that the schema does not allow, as far as the schemas here go."""
    properties = schema["properties"]
    if missing := [name for name in schema["required"] if name not in arguments]:
        raise RpcError(INVALID_PARAMS, f"missing: {', '.join(missing)}")
    if unknown := [name for name in arguments if name not in properties]:
        raise RpcError(INVALID_PARAMS, f"unknown: {', '.join(unknown)}")
    for name, value in arguments.items():
        rules = properties[name]
        wanted: Any = str if rules["type"] == "string" else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise RpcError(INVALID_PARAMS, f"{name} must be a {rules['type']}")
        if "minimum" in rules and not rules["minimum"] <= value <= rules["maximum"]:
            raise RpcError(INVALID_PARAMS, f"{name} must be {rules['minimum']} to {rules['maximum']}")


class EchoServer:
    """The server; one instance serves one client.

    Args:
        send: Takes each message for the client; called from several threads, one at a time.
        page: Tools on a page of the list; 0 is all on one.
        extra: How many copies of ``echo`` are offered besides.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], *, page: int = 0, extra: int = 0) -> None:
        self._send = send
        self._page = page
        self._sending = threading.Lock()
        #: The calls that run, by id; the event cancels one.
        self._running: dict[Any, tuple[threading.Thread, threading.Event]] = {}
        text = {"type": "string", "description": "The text"}
        number = {"type": "number"}
        seconds = {"type": "number", "minimum": 0, "maximum": 60, "description": "How long"}
        echo = _schema(["text"], text=text)
        self._tools: dict[str, tuple[dict[str, Any], Callable[..., dict[str, Any] | None]]] = {}
        self._add("echo", "Give back the text.", echo, self._echo)
        self._add("add", "Add two numbers.", _schema(["a", "b"], a=number, b=number), self._sum)
        self._add("sleep", "Wait, and report progress.", _schema(["seconds"], seconds=seconds), self._sleep)
        self._add("fail", "Fail with the text.", echo, self._fail)
        for i in range(extra):
            self._add(f"echo_{i}", f"Give back the text, number {i}.", echo, self._echo)

    def _add(self, name: str, description: str, schema: dict[str, Any], run: Callable[..., Any]) -> None:
        listed = {
            "name": name,
            "description": description,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": True},
        }
        self._tools[name] = (listed, run)

    # -- the protocol ----------------------------------------------------------------------------------

    def receive_line(self, line: bytes) -> None:
        """Handle one line of input."""
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._fault(None, PARSE_ERROR, "not valid JSON")
        else:
            self.receive(message)

    def receive(self, message: Any) -> None:
        """Handle one message. A call goes on in a thread of its own."""
        if not isinstance(message, dict):
            self._fault(None, INVALID_REQUEST, "a message must be an object")
            return
        if "method" not in message and ("result" in message or "error" in message):
            return  # A reply; nothing was asked.
        method, ident = message.get("method"), message.get("id")
        if "id" in message and (not isinstance(ident, (str, int, float)) or isinstance(ident, bool)):
            self._fault(None, INVALID_REQUEST, "an id must be a string or a number")
        elif not isinstance(method, str):
            self._fault(ident, INVALID_REQUEST, "a request must name its method")
        elif "id" not in message:
            self._notified(method, message.get("params"))
        elif method == "tools/call":
            cancelled = threading.Event()
            arguments = (ident, method, message.get("params"), cancelled)
            thread = threading.Thread(target=self._answer, args=arguments, daemon=True)
            self._running[ident] = (thread, cancelled)
            thread.start()
        else:
            self._answer(ident, method, message.get("params"))

    def close(self) -> None:
        """Cancel the calls that run, and wait for their threads."""
        running = list(self._running.values())
        for _, cancelled in running:
            cancelled.set()
        for thread, _ in running:
            thread.join(1)

    def _notified(self, method: str, params: Any) -> None:
        if method == "notifications/cancelled" and isinstance(params, dict):
            ident = params.get("requestId")
            running = self._running.get(ident) if isinstance(ident, (str, int, float)) else None
            if running is not None:
                running[1].set()

    def _answer(self, ident: Any, method: str, params: Any, cancelled: threading.Event | None = None) -> None:
        try:
            result = self._result(method, _object(params, "params"), cancelled)
        except RpcError as exc:
            self._fault(ident, exc.code, exc.message)
        except Exception as exc:
            self._fault(ident, INTERNAL_ERROR, f"{type(exc).__name__}: {exc}")
        else:
            if result is not None:
                self._emit({"id": ident, "result": result})
        finally:
            self._running.pop(ident, None)

    def _fault(self, ident: Any, code: int, message: str) -> None:
        self._emit({"id": ident, "error": {"code": code, "message": message}})

    def _emit(self, message: dict[str, Any]) -> None:
        with self._sending:
            self._send({"jsonrpc": "2.0", **message})

    def _result(
        self, method: str, params: dict[str, Any], cancelled: threading.Event | None
    ) -> dict[str, Any] | None:
        if method == "initialize":
            asked = params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1.0.0"},
                "instructions": "Tools for trying things out.",
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return self._list(params.get("cursor"))
        if method == "tools/call":
            return self._call(params, cancelled)
        raise RpcError(METHOD_NOT_FOUND, f"no method {method}")

    def _list(self, cursor: Any) -> dict[str, Any]:
        listed = [tool for tool, _ in self._tools.values()]
        size = self._page or len(listed)
        starts = {str(start): start for start in range(0, len(listed), size)}
        start = 0 if cursor is None else starts.get(cursor) if isinstance(cursor, str) else None
        if start is None:
            raise RpcError(INVALID_PARAMS, f"no such cursor: {cursor!r}")
        page: dict[str, Any] = {"tools": listed[start : start + size]}
        if str(start + size) in starts:
            page["nextCursor"] = str(start + size)
        return page

    def _call(self, params: dict[str, Any], cancelled: threading.Event | None) -> dict[str, Any] | None:
        name = params.get("name")
        known = self._tools.get(name) if isinstance(name, str) else None
        if known is None:
            raise RpcError(INVALID_PARAMS, f"no tool {name!r}")
        arguments = _object(params.get("arguments"), "arguments")
        _check(arguments, known[0]["inputSchema"])
        return known[1](arguments, cancelled, _object(params.get("_meta"), "_meta").get("progressToken"))

    # -- the tools; one that is cancelled gives no result and is not answered ----------------------------

    def _echo(self, arguments: dict[str, Any], *_: Any) -> dict[str, Any]:
        return _text(arguments["text"])

    def _sum(self, arguments: dict[str, Any], *_: Any) -> dict[str, Any]:
        total = arguments["a"] + arguments["b"]
        whole = isinstance(total, float) and total.is_integer() and abs(total) < 2**53
        return _text(str(int(total) if whole else total))

    def _fail(self, arguments: dict[str, Any], *_: Any) -> dict[str, Any]:
        return {**_text(arguments["text"]), "isError": True}

    def _sleep(
        self, arguments: dict[str, Any], cancelled: threading.Event | None, token: Any
    ) -> dict[str, Any] | None:
        seconds = float(arguments["seconds"])
        started = time.monotonic()
        for step in range(1, 11):
            left = started + seconds * step / 10 - time.monotonic()
            if cancelled is not None and cancelled.wait(max(left, 0)):
                return None
            if token is not None:
                progress = {"progressToken": token, "progress": step, "total": 10}
                self._emit({"method": "notifications/progress", "params": progress})
        return _text(f"slept {seconds:g} s")


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def main(argv: list[str] | None = None) -> None:
    """Serve standard input and output until the input ends or nobody reads the output."""
    parser = argparse.ArgumentParser(description="A small MCP server over stdio.")
    parser.add_argument("--page", type=int, default=0, metavar="N", help="tools on a page of the list")
    parser.add_argument("--tools", type=int, default=0, metavar="N", help="further tools")
    options = parser.parse_args(argv)
    out = sys.stdout.fileno()

    def send(message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        # Not through the buffer of `sys.stdout`, whose lock a thread may hold when the interpreter ends.
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(out, data) :]

    server = EchoServer(send, page=max(options.page, 0), extra=max(options.tools, 0))
    try:
        for line in sys.stdin.buffer:
            server.receive_line(line)
    except KeyboardInterrupt:
        pass
    finally:
        server.close()


if __name__ == "__main__":
    main()
