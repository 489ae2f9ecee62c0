"""The demonstration does what it says, with the servers that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/demo.py")],
        env={**os.environ, "COLUMNS": "160", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_thirty_calls_run_and_just_the_faulty_three_fail() -> None:
    assert "3 of 30 calls failed, 3 were meant to." in run()


def test_tools_of_every_kind_are_offered() -> None:
    shown = run()
    kinds = ["Python class", "function", "plugin", "Rust", "MCP: echo"]
    if shutil.which("node"):
        kinds += ["MCP: files", "MCP: everything"]
    assert [kind for kind in kinds if kind not in shown] == []


@pytest.mark.skipif(os.name == "nt", reason="an empty PATH hides node only where programs are found by it")
def test_without_node_the_embedded_server_is_enough(tmp_path: Path) -> None:
    shown = run(PATH=str(tmp_path))
    assert "Node is not installed" in shown
    assert "3 of 30 calls failed, 3 were meant to." in shown
