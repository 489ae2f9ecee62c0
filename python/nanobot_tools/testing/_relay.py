"""The process of a scripted server over stdio: it carries bytes between its client and the test.

Run by its path, with nothing of this package: ``python -I -S _relay.py HOST PORT``, with the test's token in
``NBTOOLS_TEST_TOKEN``. What comes on standard input goes to the test as it is; what the test sends are JSON
lines: ``{"out": text}`` and ``{"err": text}`` to write, ``{"close": true}`` to close standard input and
output, ``{"exit": status}`` to end. It ends with its input, and with the test.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading


def _write(descriptor: int, text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(descriptor, data) :]


def _forward(connection: socket.socket) -> None:
    """Send standard input to the test, up to its end."""
    try:
        while data := os.read(0, 1 << 16):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        # The test is gone, or standard input was closed: the main thread knows what is to be done.
        return


def main() -> int:
    """Run until the input or the test ends; the exit status."""
    address = (sys.argv[1], int(sys.argv[2]))
    try:
        connection = socket.create_connection(address, 30)
    except OSError as exc:
        print(f"the test that this server belongs to is over: {exc}", file=sys.stderr)
        return 1
    connection.settimeout(None)
    connection.sendall(os.environ["NBTOOLS_TEST_TOKEN"].encode() + b"\n")
    threading.Thread(target=_forward, args=(connection,), daemon=True).start()
    with connection.makefile("rb") as orders:
        for line in orders:
            order = json.loads(line)
            if "out" in order:
                _write(1, order["out"])
            elif "err" in order:
                _write(2, order["err"])
            elif "close" in order:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 0)
                os.dup2(null, 1)
                os.close(null)
            else:
                return int(order["exit"])
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except (OSError, KeyboardInterrupt):
        status = 1
    # A thread may still wait for input.
    os._exit(status)
