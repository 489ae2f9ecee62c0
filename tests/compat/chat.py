"""Says one thing to a gateway over its websocket and waits for the answer.

``python chat.py PORT MESSAGE EXPECTED`` runs in an interpreter that has nanobot, and so ``websockets``. It
ends once what comes holds the expected text, with all that came on its output.
"""

from __future__ import annotations

import asyncio
import sys

import websockets

#: Seconds for all of it, the gateway's start included.
PATIENCE = 150


async def say(port: str, message: str, expected: str) -> None:
    """Send a message as soon as somebody listens, and wait for what is expected."""
    while True:
        try:
            async with websockets.connect(
                f"ws://127.0.0.1:{port}/?client_id=tester", max_size=None
            ) as socket:
                await socket.send(message)
                async for event in socket:
                    print(event, flush=True)
                    if expected in str(event):
                        return
                raise SystemExit("the gateway hung up")
        except OSError:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(say(*sys.argv[1:]), PATIENCE))
