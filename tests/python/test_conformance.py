"""A few scenarios of the official conformance suites; `make conformance` runs them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFORMANCE = Path(__file__).resolve().parent.parent / "conformance"
INSTALLED = CONFORMANCE / "node_modules" / ".package-lock.json"


@pytest.mark.skipif(not INSTALLED.exists(), reason="the suites are not installed")
@pytest.mark.parametrize(
    ("channel", "scenario"),
    [
        ("stable", "initialize"),
        ("stable", "elicitation-sep1034-client-defaults"),
        ("alpha", "tools_call"),
        ("alpha", "request-metadata"),
        ("alpha", "sep-2322-client-request-state"),
        ("alpha", "http-custom-headers"),
    ],
)
def test_the_official_suite_is_satisfied(channel: str, scenario: str, tmp_path: Path) -> None:
    """Both eras of the protocol are spoken as the suites demand."""
    command = [
        sys.executable, str(CONFORMANCE / "run.py"), "--channel", channel, "--scenario", scenario,
        "--out", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    logs = "\n".join(path.read_text() for path in tmp_path.rglob("*.txt"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
