"""A real nanobot process with the package: the same results as without, and servers that recover.

All versions of nanobot are tried by `make compat`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_gateway_gives_the_same_results_with_us_and_recovers(reference_python: Path) -> None:
    command = [sys.executable, ROOT / "tests/compat/run.py", "--versions", "0.3.5"]
    done = subprocess.run(
        [*command, "--pythons", reference_python],
        capture_output=True, text=True, timeout=110, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nanobot-ai 0.3.5" in done.stdout
