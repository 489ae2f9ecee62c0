"""Runs code in an interpreter that has nanobot-ai 0.3.5, the reference; it is never imported here."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_DEFAULT = Path(__file__).parents[2] / ".venvs" / "reference" / "bin" / "python"
PYTHON = Path(os.environ.get("NBTOOLS_REFERENCE_PYTHON", _DEFAULT))

needs_reference = pytest.mark.skipif(not PYTHON.exists(), reason="the reference is not installed")


@cache
def run(code: str) -> Any:
    """What the code assigns to ``result``, by way of JSON."""
    program = f"{code}\nimport json, sys\nsys.stdout.write('\\n' + json.dumps(result))"
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rsplit("\n", 1)[-1])


def both(code: str, replace: str = "nanobot.agent.tools", by: str = "nanobot_tools") -> tuple[Any, Any]:
    """What the code gives with the reference, and here with only the imports changed."""
    names: dict[str, Any] = {}
    exec(compile(code.replace(replace, by), "<ours>", "exec"), names)
    return run(code), json.loads(json.dumps(names["result"]))
