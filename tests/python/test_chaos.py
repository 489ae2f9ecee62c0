"""Short forms of the fault matrix and the soak; `make chaos` and `make soak` run them whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).resolve().parents[1] / "chaos"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        cwd=CHAOS,
        env={**os.environ},
        text=True,
        capture_output=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("transport", "faults"),
    [
        ("stdio", "killed,exits at start,hangs at initialize,closes stdout,floods,restarts again and again"),
        ("json", "killed,session lost (404),unavailable (503),connection reset"),
        ("sse", "half-open socket,port closed"),
        ("legacy", "killed,port closed"),
    ],
)
def test_no_fault_loses_hangs_repeats_or_leaves_anything(transport: str, faults: str) -> None:
    done = run("run.py", "--transports", transport, "--faults", faults)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_minute_of_faults_and_reloads_leaves_nothing() -> None:
    # Memory takes longer than this to be flat; the whole soak looks at that.
    done = run("soak.py", "--minutes", "0.4", "--seed", "1")
    assert "bad: " not in done.stdout.replace("bad: ['memory grows']", ""), done.stdout + done.stderr
    assert "reloads" in done.stdout, done.stdout + done.stderr
