"""What type checkers are told of the package is true, and enough for strict programs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import nanobot_tools
import pytest
from nanobot_tools import _native

PACKAGE = Path(nanobot_tools.__file__).parent

GOOD = """
from nanobot_tools import ToolCall, ToolExecutor, ToolOutcome, ToolRegistry, tool


@tool(read_only=True)
async def add(a: int, b: int = 1) -> int:
    return a + b


async def run() -> list[ToolOutcome]:
    registry = ToolRegistry()
    registry.register(add)
    size: int = len(registry.definitions_json())
    fingerprint: str = registry.fingerprint()
    print(size, fingerprint)
    return await ToolExecutor(registry, timeout=1.0).run([ToolCall("add", {"a": 1})])
"""
BAD = """
from nanobot_tools import ToolExecutor, ToolRegistry

ToolExecutor(ToolRegistry(), timeout="soon")
"""


def check(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(program.parent / "cache"),
            str(program),
        ],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_the_stub_names_what_the_native_module_has_and_nothing_else() -> None:
    tree = ast.parse((PACKAGE / "_native.pyi").read_text(encoding="utf-8"))
    named = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            named.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named.add(node.target.id)
    present = {name for name in dir(_native) if not name.startswith("__")}
    assert {name for name in named if not name.startswith("__")} == present


def test_everything_that_is_exported_can_be_imported() -> None:
    assert [name for name in nanobot_tools.__all__ if not hasattr(nanobot_tools, name)] == []


@pytest.mark.parametrize(("program", "fine"), [(GOOD, True), (BAD, False)], ids=["right", "wrong"])
def test_a_strict_checker_accepts_right_programs_only(program: str, fine: bool, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = check(file)
    assert (done.returncode == 0) is fine, done.stdout + done.stderr
    if not fine:
        assert 'Argument "timeout"' in done.stdout
