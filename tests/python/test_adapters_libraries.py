"""The adapters against the libraries that they are for, which are in an environment of their own.

Each script in ``adapters`` is run once there, and each of its checks is a test here.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
from pathlib import Path

import nanobot_tools
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "adapters"
PYTHON = Path(os.environ.get("NBTOOLS_ADAPTERS_PYTHON", ROOT / ".venvs/adapters/bin/python"))


def checks() -> list[tuple[str, str]]:
    """Script and name of every check; the scripts cannot be imported here."""
    found = []
    for script in sorted(SCRIPTS.glob("*.py")):
        for node in ast.parse(script.read_text(encoding="utf-8")).body:
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if is_function and node.name.startswith("test_"):
                found.append((script.stem, node.name))
    return found


@functools.cache
def results(script: str) -> dict[str, str | None]:
    """What came of each check of a script."""
    if not os.access(PYTHON, os.X_OK):
        pytest.fail(f"no interpreter at {PYTHON}: run `make test`, or set NBTOOLS_ADAPTERS_PYTHON")
    package = Path(nanobot_tools.__file__).parents[1]
    done = subprocess.run(
        [PYTHON, f"{script}.py"],
        cwd=SCRIPTS,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, str | None] = json.loads(done.stdout)
    return made


@pytest.mark.parametrize(("script", "check"), checks(), ids=[f"{s}-{c}" for s, c in checks()])
def test_with_the_library_itself(script: str, check: str) -> None:
    error = results(script)[check]
    assert error is None, error
