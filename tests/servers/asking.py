"""An MCP server over stdio that asks its client, tells it things and changes its lists, on demand.

Its tools are the demands:

- ``ask(method, params, takeBackAfter?)``: make a request and return the client's answer as JSON text; after
  so many seconds without an answer the request is taken back and the text is ``taken back``;
- ``tell(method, params, times?)``: send a notification;
- ``offer(tools)``: offer exactly these further tools (name -> description), and say that the list changed;
- ``work(steps)``: report progress so many times, then return;
- ``seen()``: every message of the client so far, as JSON text.

It has a resource and a prompt, and keeps subscriptions. Versions 2024-11-05 to 2025-11-25 are spoken. With
``--slow`` it needs a second to start; with ``--restless`` it says that its tools have changed as soon as the
handshake is over.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from typing import Any

FIXED = ("ask", "tell", "offer", "work", "seen")

lock = threading.Lock()
extra: dict[str, str] = {}
seen: list[Any] = []
answers: dict[str, Any] = {}
arrived = threading.Condition()
numbers = itertools.count(1)


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message})
    with lock:
        print(line, flush=True)


def ask(arguments: dict[str, Any]) -> str:
    number = f"q{next(numbers)}"
    send({"id": number, "method": arguments["method"], "params": arguments.get("params", {})})
    limit = arguments.get("takeBackAfter", 30)
    with arrived:
        if arrived.wait_for(lambda: number in answers, limit):
            return json.dumps(answers.pop(number))
    send({"method": "notifications/cancelled", "params": {"requestId": number, "reason": "enough"}})
    return "taken back"


def call(name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> str:
    if name == "ask":
        return ask(arguments)
    if name == "tell":
        for _ in range(arguments.get("times", 1)):
            send({"method": arguments["method"], "params": arguments.get("params", {})})
        return "told"
    if name == "offer":
        extra.clear()
        extra.update(arguments["tools"])
        send({"method": "notifications/tools/list_changed"})
        return "offered"
    if name == "work":
        steps = arguments["steps"]
        for step in range(1, steps + 1):
            progress = {"progressToken": meta["progressToken"], "progress": step, "total": steps}
            send({"method": "notifications/progress", "params": {**progress, "message": f"step {step}"}})
        return "worked"
    if name == "seen":
        return json.dumps(seen)
    return f"{name}: {extra[name]}"


def tools() -> list[dict[str, Any]]:
    named = {name: f"The demand {name}" for name in FIXED} | extra
    return [
        {"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in named.items()
    ]


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        capabilities = {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {},
            "logging": {},
        }
        return {
            "protocolVersion": min(params["protocolVersion"], "2025-11-25"),
            "serverInfo": {"name": "asking", "version": "1"},
            "capabilities": capabilities,
        }
    if method == "tools/list":
        return {"tools": tools()}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments") or {}, params.get("_meta") or {})
        content = [{"type": "text", "text": text}]
        return {"content": content, "structuredContent": {"text": text, "length": len(text)}}
    if method == "resources/list":
        return {"resources": [{"uri": "memo://one", "name": "one", "description": "A memo"}]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "memo://{name}", "name": "memo"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"the text of {params['uri']}"}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]}
    if method == "prompts/get":
        text = f"Greet {params['arguments']['who']}."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    if method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
        return {}
    raise LookupError(method)


def serve(message: dict[str, Any]) -> None:
    try:
        reply = {"result": result(message["method"], message.get("params") or {})}
    except LookupError as exc:
        reply = {"error": {"code": -32601, "message": f"Method not found: {exc}"}}
    send({"id": message["id"], **reply})


def main() -> None:
    if "--slow" in sys.argv:
        time.sleep(1)
    for line in sys.stdin:
        message = json.loads(line)
        seen.append(message)
        if "method" not in message:
            with arrived:
                answers[message["id"]] = message
                arrived.notify_all()
        elif "id" in message:
            threading.Thread(target=serve, args=(message,), daemon=True).start()
        elif message["method"] == "notifications/initialized" and "--restless" in sys.argv:
            send({"method": "notifications/tools/list_changed"})


if __name__ == "__main__":
    main()
