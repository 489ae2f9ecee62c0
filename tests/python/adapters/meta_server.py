"""An MCP server over stdio whose answers are the ``_meta`` that it was sent."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result for a request."""
    said = json.dumps(params.get("_meta", {}))
    if method == "initialize":
        capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "meta", "version": "1"},
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {"fail": {"type": "boolean"}}}
        return {"tools": [{"name": "meta", "inputSchema": schema, "annotations": {"readOnlyHint": True}}]}
    if method == "resources/list":
        return {"resources": [{"uri": "meta://it", "name": "it"}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "ask"}]}
    if method == "tools/call":
        failed = params.get("arguments", {}).get("fail", False)
        return {"content": [{"type": "text", "text": said}], "isError": failed}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": said}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
