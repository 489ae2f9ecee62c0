"""Has a gateway reload its MCP servers, as its web interface does.

``python reload.py PORT SERVER`` runs in an interpreter that has nanobot, and so ``websockets``. It sets the
tools of a server to all of them, which changes nothing, writes the file that is there once more and reloads;
what the reload gave goes to its output. Before 0.3.5 that is a request over HTTP; since then, changes come
over the websocket of a client that has a token of the web interface.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import websockets

#: Seconds for all of it.
PATIENCE = 150
#: What a gateway answers that takes changes over the websocket alone.
_ONLY_OVER_WEBSOCKET = 405
_WANTED = {"enabled_tools": json.dumps(["*"])}


def get(url: str, token: str | None = None) -> Any:
    """The JSON at an address of the gateway."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as response:
        return json.loads(response.read())


async def over_websocket(port: str, token: str, server: str) -> Any:
    """The answer to the request, for gateways that refuse it over HTTP."""
    url = f"ws://127.0.0.1:{port}/?client_id=settings&token={urllib.parse.quote(token)}"
    async with websockets.connect(url, max_size=None) as socket:
        request = {"type": "webui_request", "request_id": "reload", "action": "settings.mcp.tools"}
        await socket.send(json.dumps({**request, "payload": {"name": server, **_WANTED}}))
        async for raw in socket:
            event = json.loads(raw)
            if event.get("event") == "webui_response" and event.get("request_id") == "reload":
                if not event["ok"]:
                    raise SystemExit(f"the gateway refused: {event['error']}")
                return event["result"]
    raise SystemExit("the gateway hung up")


async def reload(port: str, server: str) -> Any:
    """Reload; what nanobot says of it."""
    base = f"http://127.0.0.1:{port}"
    granted = get(f"{base}/webui/bootstrap")
    query = urllib.parse.urlencode({"name": server, **_WANTED})
    try:
        # Since 0.3.0 what is asked over HTTP has a token of its own.
        answer = get(
            f"{base}/api/settings/mcp-presets/tools?{query}", granted.get("api_token", granted["token"])
        )
    except urllib.error.HTTPError as error:
        if error.code != _ONLY_OVER_WEBSOCKET:
            raise
        answer = await over_websocket(port, granted["token"], server)
    return answer["hot_reload"]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(reload(*sys.argv[1:]), PATIENCE))))
