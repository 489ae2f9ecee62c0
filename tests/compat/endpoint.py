"""A model that does what it is told: an OpenAI-compatible endpoint on loopback.

A user's message that holds ``RUN {"calls": [[name, arguments], ...]}`` is answered with these calls, all in
one response; what they resulted in is answered with ``DONE``. Requests may ask for a stream of events or for
plain JSON.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_ORDER = re.compile(r"RUN (\{.*\})", re.DOTALL)


class Endpoint(ThreadingHTTPServer):
    """The endpoint, which serves from a thread until it is closed.

    Attributes:
        offered: The names of the tools of the last request that had any.
        results: What the calls of the last response resulted in: name and text of each, in their order.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.offered: list[str] = []
        self.results: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self.serve_forever, name="endpoint")
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def close(self) -> None:
        """Serve no more."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The assistant's message for a request."""
        messages = request["messages"]
        tools = request.get("tools") or []
        if tools:
            self.offered = [tool["function"]["name"] for tool in tools]
        last = max(index for index, message in enumerate(messages) if message["role"] == "user")
        order = _ORDER.search(_text(messages[last]["content"]))
        if order is None or not tools:
            return {"role": "assistant", "content": "DONE"}
        after = messages[last + 1 :]
        if after:
            names = {
                call["id"]: call["function"]["name"]
                for message in after
                for call in message.get("tool_calls") or ()
            }
            self.results = [
                (names.get(message["tool_call_id"], "?"), _text(message["content"]))
                for message in after
                if message["role"] == "tool"
            ]
            return {"role": "assistant", "content": "DONE"}
        calls = json.loads(order[1])["calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call_{index}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for index, (name, arguments) in enumerate(calls)
            ],
        }


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content)
    return str(content or "")


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Answer one request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = self.server.answer(request)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"id": "chatcmpl-1", "created": 0, "model": request.get("model", "scripted")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            answer = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            self._send("application/json", json.dumps(answer))
            return
        delta = dict(message)
        if calls := message.get("tool_calls"):
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {"choices": [], "usage": usage},
        ]
        events = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        self._send("text/event-stream", "".join(f"data: {event}\n\n" for event in (*events, "[DONE]")))

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
