"""A pytest plugin for nanobot's own tests: records their outcomes, and lets the drop-in in before nanobot.

``NANOBOT_TESTS_RECORDS`` names the folder for what is recorded: ``outcomes.json``, and of each process that
ran tests what the drop-in did there. ``NANOBOT_TESTS_DROP_IN`` says whether to install.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

DROP_IN = os.environ.get("NANOBOT_TESTS_DROP_IN") == "on"
RECORDS = Path(os.environ["NANOBOT_TESTS_RECORDS"])

if DROP_IN:
    import nanobot_tools

    nanobot_tools.install()

_outcomes: dict[str, str] = {}


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep what could not be collected: its tests are not there to fail."""
    if report.failed:
        _outcomes[report.nodeid] = report.outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of a test's phases."""
    known = _outcomes.get(report.nodeid)
    if report.failed or known is None or (report.skipped and known == "passed"):
        _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded."""
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker:
        (RECORDS / "outcomes.json").write_text(json.dumps(_outcomes), encoding="utf-8")
    if DROP_IN and (is_worker or not session.config.getoption("numprocesses", None)):
        report = dataclasses.asdict(nanobot_tools.compat.report())
        (RECORDS / f"report-{os.getpid()}.json").write_text(json.dumps(report), encoding="utf-8")
