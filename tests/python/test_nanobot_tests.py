"""The comparison of nanobot's own tests without and with the drop-in notices what it is there for."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ACTIVE = {"targets": [["mcp", "connect", "active", None]]}


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("nanobot_tests")


class Scripted:
    """A suite whose runs come out as told."""

    def __init__(self, runner: Any, whole: dict[str, str], alone: dict[tuple[str, str], str], report: Any):
        self.tried: list[tuple[str, str]] = []
        self.left_out: list[str] = []
        self._runner, self._whole, self._alone, self._report = runner, whole, alone, report

    def run(self, mode: str, left_out: list[str]) -> Any:
        self.left_out = left_out
        return self._runner.Run(self._whole, [self._report], "")

    def alone(self, test: str, mode: str) -> Any:
        self.tried.append((test, mode))
        return self._runner.Run({test: self._alone[test, mode]}, [], "the log of it")


def compare(
    runner: Any,
    whole: dict[str, str],
    alone: dict[tuple[str, str], str] | None = None,
    listed: dict[str, Any] | None = None,
    report: Any = ACTIVE,
) -> tuple[list[str], Scripted]:
    """The complaints when ``a`` and ``b`` pass and ``c`` fails without the drop-in."""
    without = runner.Run({"a": "passed", "b": "passed", "c": "failed"}, [], "")
    suite = Scripted(runner, whole, alone or {}, report)
    return runner.compare(suite, "native", without, listed or {}), suite


def test_what_passes_without_has_to_pass_with_the_drop_in(runner: Any) -> None:
    assert compare(runner, {"a": "passed", "b": "passed", "c": "failed"})[0] == []
    both = {("b", "native"): "failed", ("b", "off"): "passed"}
    complaints, suite = compare(runner, {"a": "passed", "b": "failed", "c": "failed"}, both)
    assert complaints == ["native: b is failed"]
    assert suite.tried == [("b", "native"), ("b", "off")]
    assert compare(runner, {"a": "passed", "b": "skipped"}, both)[0] == ["native: b is skipped"]
    assert compare(runner, {"a": "passed"}, both)[0] == ["native: b is gone"]


def test_a_test_that_fails_now_and_then_is_named_and_does_not_count(
    runner: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"a": "passed", "b": "failed"}
    for alone in (("passed", "passed"), ("failed", "failed"), ("passed", "failed")):
        outcomes = {("b", mode): outcome for mode, outcome in zip(("native", "off"), alone, strict=True)}
        assert compare(runner, whole, outcomes)[0] == []
        assert "b is flaky" in capsys.readouterr().out


def test_where_many_differ_none_is_taken_for_flaky(runner: Any) -> None:
    tests = [f"t{number}" for number in range(runner.ALONE + 1)]
    without = runner.Run(dict.fromkeys(tests, "passed"), [], "")
    suite = Scripted(runner, dict.fromkeys(tests, "failed"), {}, ACTIVE)
    assert len(runner.compare(suite, "native", without, {})) == len(tests)


def test_listed_tests_may_fail_and_may_not_pass(runner: Any) -> None:
    listed = {"b": {"id": "b"}, "c": {"id": "c"}, "of another version": {"id": "of another version"}}
    assert compare(runner, {"a": "passed", "b": "failed"}, listed=listed)[0] == []
    assert compare(runner, {"a": "passed", "b": "passed", "c": "passed"}, listed=listed)[0] == [
        "native: b is listed and passes"
    ]


def test_a_listed_test_that_would_take_pytest_down_is_left_out(runner: Any) -> None:
    complaints, suite = compare(runner, {"a": "passed"}, listed={"b": {"id": "b", "run": False}})
    assert complaints == []
    assert suite.left_out == ["b"]


def test_a_drop_in_that_did_nothing_or_left_a_target_alone_is_complained_of(runner: Any) -> None:
    whole = {"a": "passed", "b": "passed"}
    assert compare(runner, whole, report={"targets": [["mcp", "x", "waiting", None]]})[0] == [
        "native: the drop-in did nothing"
    ]
    skipped = {"targets": [*ACTIVE["targets"], ["executor", "x", "skipped", "it looks odd"]]}
    assert compare(runner, whole, report=skipped)[0] == ["native: x was left alone"]
    # Native search has the texts of some versions only.
    search = {"targets": [*ACTIVE["targets"], [runner.OPTIONAL, "x", "skipped", "it is older"]]}
    assert compare(runner, whole, report=search)[0] == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Something like a checkout: tests of every outcome, and a file that cannot be collected."""
    tests = tmp_path / "checkout/tests"
    tests.mkdir(parents=True)
    (tests / "test_all.py").write_text(
        "import os, pathlib, pytest\n"
        "def test_well(): pathlib.Path('written').touch()\n"
        "def test_ill(): assert False\n"
        "def test_not(): pytest.skip('no')\n"
        "def test_in_its_end(request): request.addfinalizer(lambda: 1 / 0)\n"
        "def test_dies(): os._exit(1)\n"
    )
    (tests / "test_broken.py").write_text("import no_such_module\n")
    return tmp_path / "checkout"


def test_a_run_records_every_test_and_writes_nothing_into_the_checkout(runner: Any, checkout: Path) -> None:
    run = runner.Suite(checkout, Path(sys.executable), ["tests"], "1", checkout / "../kept").run("off")
    name = "tests/test_all.py::test_{}".format
    assert run.outcomes == {
        name("well"): "passed",
        name("ill"): "failed",
        name("not"): "skipped",
        name("in_its_end"): "failed",
        name("dies"): "failed",
        "tests/test_broken.py": "failed",
    }, run.log
    assert [path.name for path in checkout.iterdir()] == ["tests"]
    assert sorted(path.name for path in (checkout / "../kept").iterdir()) == ["off.json", "off.log"]


def test_a_run_of_nothing_is_no_run_without_failures(runner: Any, checkout: Path) -> None:
    for nothing in ("tests/no_such_file.py", "tests/test_all.py::no_such_test"):
        suite = runner.Suite(checkout, Path(sys.executable), [nothing], "1", None)
        with pytest.raises(SystemExit, match="did not get to its end"):
            suite.run("off")


def test_a_run_with_the_drop_in_reports_what_it_did_in_each_process(runner: Any, checkout: Path) -> None:
    run = runner.Suite(checkout, Path(sys.executable), ["tests/test_all.py"], "2", None).alone(
        "tests/test_all.py::test_well", "native"
    )
    assert run.outcomes == {"tests/test_all.py::test_well": "passed"}, run.log
    (report,) = run.reports
    assert report["installed"] is True
    assert report["targets"]
