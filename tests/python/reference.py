"""Talks to nanobot-ai 0.3.5, which runs in an interpreter of its own (never imported here)."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("NBTOOLS_REFERENCE_PYTHON", ROOT / ".venvs/reference/bin/python"))


class Reference:
    """One running reference process; answers one question at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(PYTHON), "-W", "ignore", str(Path(__file__).with_name("reference_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


@functools.cache
def available() -> bool:
    """Whether the reference's interpreter is there."""
    return PYTHON.exists()
