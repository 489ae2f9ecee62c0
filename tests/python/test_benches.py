"""The comparison with the reference runs, does the same work on all sides, and judges rightly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "benches/python"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    import table

    yield table
    for name in ("table", "rows"):
        sys.modules.pop(name, None)


def test_rows_with_and_without_a_server_run_on_every_side(reference_python: Path) -> None:
    floor = next(
        (
            path
            for kind in ("release", "debug")
            if (path := ROOT / f"target/{kind}/examples/floor_server").exists()
        ),
        None,
    )
    rows = ["prepare", "python_batch"] + (["mcp_gather"] if floor else [])
    # The side in Rust and the server for HTTP lie beside it, where they were built.
    if floor and all(floor.with_name(name).exists() for name in ("floor_http", "side_rmcp")):
        rows += ["http_one", "http_json"]
    command = [sys.executable, str(BENCHES / "run.py"), "--dry", "--rounds", "1"]
    command += ["--reference", str(reference_python), "--floor", str(floor), *rows]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert "differ" not in done.stderr
    assert len(done.stdout.splitlines()) == 1 + len(rows)


def test_a_side_that_fails_costs_its_cell_alone(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCHES / "run.py"),
        "--dry",
        "--rounds",
        "1",
        "--reference",
        sys.executable,
    ]
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        [*command, "execute"],
        env=environment, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 1
    _, line = done.stdout.splitlines()
    assert "failed" in line
    assert " us" in line


def test_targets_are_judged_by_what_they_say(table) -> None:
    rows = sys.modules["rows"]
    sides = {
        "ours": {"wall": 2.0, "cpu": 1.0},
        "reference": {"wall": 20.0, "cpu": 5.0},
        "plain": {"wall": 1.0, "cpu": 1.0},
    }
    row = rows.ROWS[0]

    def judged(*target: object) -> tuple[float, bool]:
        found = table.judge(row, rows.Target(*target), sides)
        return found["reached"], found["met"]

    assert judged("faster", 10) == (10, True)
    assert judged("faster", 11) == (10, False)
    assert judged("faster", 6, "reference", "cpu") == (5, False)
    assert judged("within", 2, "plain") == (2, True)
    assert judged("within", 1.5, "plain") == (2, False)
    assert judged("under", 3) == (2, True)
    assert judged("under", 2) == (2, False)


def test_a_side_that_is_missing_meets_no_target(table) -> None:
    rows = sys.modules["rows"]
    for row in (*rows.ROWS, rows.IMPORT_TIME):
        for target in row.targets:
            assert table.judge(row, target, {"ours": {"error": "no"}})["met"] is False


def test_the_readme_is_changed_between_its_marks_alone(table, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n", encoding="utf-8")
    table.write_readme(readme, "new")
    assert readme.read_text(encoding="utf-8") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
