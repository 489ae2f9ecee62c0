"""A pytest plugin for nanobot's own tests: records their outcomes, and lets the drop-in in before nanobot.

``NANOBOT_TESTS_OUTCOMES`` names the file for the outcomes; ``NANOBOT_TESTS_DROP_IN`` says whether to install.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

if os.environ.get("NANOBOT_TESTS_DROP_IN") == "on":
    import nanobot_tools

    nanobot_tools.install()

_outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of a test's phases."""
    known = _outcomes.get(report.nodeid)
    if report.failed or known is None or (report.skipped and known == "passed"):
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded; in a run with workers only the process that has it all."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["NANOBOT_TESTS_OUTCOMES"]).write_text(json.dumps(_outcomes), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the drop-in did."""
    if os.environ.get("NANOBOT_TESTS_DROP_IN") == "on":
        # Under the tests nanobot may never have been imported in this process.
        terminalreporter.write_line(str(nanobot_tools.install()))
