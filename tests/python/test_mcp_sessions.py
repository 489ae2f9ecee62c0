"""Our wrappers on sessions of the Python SDK, beside nanobot's own: see ``reference_sessions.py``."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import nanobot_tools
import pytest

PACKAGE = Path(nanobot_tools.__file__).parents[1]
SCRIPT = Path(__file__).with_name("reference_sessions.py")
PROMISES = [
    node.name
    for node in ast.parse(SCRIPT.read_text(encoding="utf-8")).body
    if isinstance(node, ast.AsyncFunctionDef)
    and any(isinstance(mark, ast.Name) and mark.id == "promise" for mark in node.decorator_list)
]


@pytest.fixture(scope="module")
def kept(reference_python: Path) -> dict[str, str | None]:
    """What went wrong with each promise."""
    done = subprocess.run(
        [reference_python, "-W", "ignore", SCRIPT],
        capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.rsplit("\n", 1)[-1])
    return found


@pytest.mark.parametrize("promise", PROMISES)
def test_with_the_sdk(promise: str, kept: dict[str, str | None]) -> None:
    assert kept[promise] is None, kept[promise]
