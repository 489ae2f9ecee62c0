"""Runs nanobot's own test suite without and with the drop-in, and names every test that differs.

The source is a checkout of nanobot, which is copied and left alone. What it depends on is installed into an
environment of its own. Tests run where there is no network but loopback, as far as the system allows, since
some of them wait long for what they cannot reach.

A test that passes without the drop-in has to pass with it. Those that cannot are listed in
``nanobot_tests_expected.toml``, with their reasons and with what holds their promise instead. One that would
take pytest itself down (``run = false``) is not run. A test that differs and is not listed is run alone once
more, both ways, before it counts: some of nanobot's tests fail now and then, or in some company.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = ROOT / "scripts/nanobot_tests_expected.toml"
# The SDK's 1.30 changed when servers end idle sessions, which one of nanobot's tests depends on.
EXTRAS = ["mcp>=1.26,<1.30", "pytest-xdist", "pytest-timeout"]
MODES = {"native": {"NBTOOLS_NATIVE_TOOLS": "on"}, "sdk": {"NBTOOLS_MCP": "sdk"}}
#: The part that may leave its targets alone: native search has the texts of some versions only.
OPTIONAL = "native-tools"
#: Seconds that one test may take, and a whole run.
ONE, ALL = 60, 3600
#: How many tests are tried alone: when more differ, it is not by chance.
ALONE = 20


def main() -> int:
    """Run from the command line; 0 when no test differs that is not listed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="a checkout of nanobot")
    parser.add_argument(
        "--modes", default=",".join(MODES), help=f"of {', '.join(MODES)}; none: only without the drop-in"
    )
    parser.add_argument("--select", default="", help="files, folders or tests; by default all of nanobot's")
    parser.add_argument("--workers", default="2", help="how many tests run at once")
    parser.add_argument("--keep", type=Path, help="a folder for the outcomes and logs of the whole runs")
    arguments = parser.parse_args()
    source = arguments.source.resolve()
    modes = [mode for mode in arguments.modes.split(",") if mode]
    if not (source / "nanobot").is_dir() or not (source / "tests").is_dir():
        parser.error(f"{source} is no checkout of nanobot")
    if unknown := [mode for mode in modes if mode not in MODES]:
        parser.error(f"--modes: {', '.join(unknown)}: none of {', '.join(MODES)}")
    if not apart():
        print("tests run with the network that there is: unshare is not allowed here", file=sys.stderr)
    suite = Suite(source, environment(source), arguments.select.split(), arguments.workers, arguments.keep)
    listed = {item["id"]: item for item in tomllib.loads(EXPECTED.read_text(encoding="utf-8"))["test"]}
    without = suite.run("off")
    print(f"{'mode':<8}{'tests':>7}{'passed':>8}{'failed':>8}{'listed':>8}{'differ':>8}", flush=True)
    show("off", without)
    complaints: list[str] = []
    for mode in modes:
        complaints += compare(suite, mode, without, listed if mode == "native" else {})
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def compare(suite: Suite, mode: str, without: Run, listed: dict[str, dict[str, Any]]) -> list[str]:
    """Run with the drop-in; what is wrong, in words."""
    passed = [test for test, outcome in without.outcomes.items() if outcome == "passed"]
    left_out = [test for test in passed if not listed.get(test, {}).get("run", True)]
    with_us = suite.run(mode, left_out)
    differing = [test for test in passed if with_us.outcomes.get(test) != "passed" and test not in left_out]
    unlisted = [test for test in differing if test not in listed]
    real, notes = list(unlisted), []
    if len(unlisted) <= ALONE:
        for test in unlisted:
            print(f"{mode}: trying {test} alone", file=sys.stderr)
            with_us_alone, without_alone = suite.alone(test, mode), suite.alone(test, "off")
            if with_us_alone.outcomes.get(test) == "passed":
                notes.append(f"{test} is flaky: it failed once and passed alone")
            elif without_alone.outcomes.get(test) != "passed":
                notes.append(f"{test} is flaky: alone it fails without the drop-in too")
            else:
                print(with_us_alone.log[-4000:], file=sys.stderr)
                continue
            real.remove(test)
    show(mode, with_us, len(differing) - len(unlisted) + len(left_out), len(real))
    active, skipped = with_us.active(), with_us.skipped()
    print(f"  active: {', '.join(active) or 'nothing'}")
    for note in notes + [f"{target} was left alone ({reason})" for (_, target), reason in skipped.items()]:
        print(f"  {note}", flush=True)
    wrong = [f"{mode}: {test} is {with_us.outcomes.get(test, 'gone')}" for test in real]
    wrong += [
        f"{mode}: {test} is listed and passes"
        for test in passed
        if test in listed and with_us.outcomes.get(test) == "passed"
    ]
    wrong += [f"{mode}: {target} was left alone" for part, target in skipped if part != OPTIONAL]
    if not active:
        wrong.append(f"{mode}: the drop-in did nothing")
    return wrong


def show(mode: str, run: Run, *more: int) -> None:
    """Print a line of the table."""
    outcomes = list(run.outcomes.values())
    figures = (len(outcomes), outcomes.count("passed"), outcomes.count("failed"), *more)
    print(f"{mode:<7}" + "".join(f"{figure:>8}" for figure in figures), flush=True)


def environment(source: Path) -> Path:
    """The interpreter of an environment with what the checkout depends on, made if it is not there."""
    text = (source / "pyproject.toml").read_bytes()
    tables = tomllib.loads(text.decode())
    wanted = [*tables["project"]["dependencies"], *EXTRAS]
    for groups in (tables["project"].get("optional-dependencies", {}), tables.get("dependency-groups", {})):
        for name in ("dev", "test", "tests", "api"):
            wanted += [one for one in groups.get(name, ()) if isinstance(one, str)]
    key = hashlib.sha256("\n".join(sorted(wanted)).encode()).hexdigest()[:12]
    folder = ROOT / f".venvs/nanobot-tests-{key}"
    python = folder / "bin/python"
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (folder / ".ready").touch()
    return python


@dataclass(frozen=True)
class Run:
    """What came of one run.

    Attributes:
        outcomes: Test -> ``"passed"``, ``"failed"`` or ``"skipped"``; also files that could not be collected.
        reports: What the drop-in did in each process that ran tests.
        log: What pytest printed.
    """

    outcomes: dict[str, str]
    reports: list[dict[str, Any]]
    log: str

    def _targets(self, wanted: str) -> Iterator[tuple[str, str, str]]:
        for report in self.reports:
            for part, target, status, reason in report["targets"]:
                if status == wanted:
                    yield part, target, reason or ""

    def active(self) -> list[str]:
        """The parts of the drop-in that were active in any process."""
        return list(dict.fromkeys(part for part, _, _ in self._targets("active")))

    def skipped(self) -> dict[tuple[str, str], str]:
        """(part, target) -> why it was left alone."""
        return {(part, target): reason for part, target, reason in self._targets("skipped")}


class Suite:
    """The tests of one checkout."""

    def __init__(
        self, source: Path, python: Path, select: list[str], workers: str, keep: Path | None
    ) -> None:
        self._source = source
        self._python = python
        self._select = select
        self._workers = workers
        self._keep = keep

    def run(self, mode: str, left_out: list[str] | None = None) -> Run:
        """Run all that is selected."""
        more = [f"--deselect={test}" for test in left_out or ()]
        whole = ["-n", self._workers, "--dist=loadfile", "--continue-on-collection-errors"]
        status, run = self._run(mode, [*whole, *more, *self._select])
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            (self._keep / f"{mode}.log").write_text(run.log, encoding="utf-8")
            outcomes = json.dumps(run.outcomes, indent=1, sort_keys=True)
            (self._keep / f"{mode}.json").write_text(outcomes, encoding="utf-8")
        # All passed, or some failed; else it was interrupted, or there are no such tests.
        if status not in (0, 1) or not run.outcomes or "INTERNALERROR" in run.log:
            raise SystemExit(f"{mode}: pytest did not get to its end:\n{run.log[-4000:]}")
        return run

    def alone(self, test: str, mode: str) -> Run:
        """Run one test by itself."""
        return self._run(mode, [test])[1]

    def _run(self, mode: str, arguments: list[str]) -> tuple[int, Run]:
        # The name is short: some tests look for paths in what is wrapped at 80 columns.
        with tempfile.TemporaryDirectory(prefix="nbt-") as temporary:
            folder = Path(temporary)
            copy = shutil.copytree(self._source, folder / "source", symlinks=True)
            if (copy / "nanobot/web").is_dir():
                # Without a built web interface some tests build it, with packages of npm.
                (copy / "nanobot/web/dist").mkdir(exist_ok=True)
                (copy / "nanobot/web/dist/index.html").touch()
            home, records = folder / "home", folder / "records"
            home.mkdir()
            records.mkdir()
            plugins = ["-p", "no:cacheprovider", "-p", "nanobot_tests_plugin"]
            options = [f"--timeout={ONE}", "--timeout-method=thread", f"--basetemp={folder / 't'}"]
            paths = [copy, ROOT / "scripts", *([ROOT / "python"] if mode != "off" else [])]
            values = {
                **{key: value for key, value in os.environ.items() if not key.startswith("NBTOOLS")},
                **MODES.get(mode, {}),
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "HOME": str(home),
                "NBTOOLS_CACHE_DIR": str(folder / "cache"),
                "NANOBOT_TESTS_RECORDS": str(records),
                "NANOBOT_TESTS_DROP_IN": "off" if mode == "off" else "on",
            }
            with (folder / "log").open("w") as log:
                done = subprocess.run(
                    [*apart(), self._python, "-m", "pytest", "-q", *plugins, *options, *arguments],
                    cwd=copy, env=values, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
                    timeout=ALL,
                )  # fmt: skip
            outcomes = records / "outcomes.json"
            return done.returncode, Run(
                json.loads(outcomes.read_text(encoding="utf-8")) if outcomes.exists() else {},
                [json.loads(one.read_text(encoding="utf-8")) for one in records.glob("report-*.json")],
                (folder / "log").read_text(encoding="utf-8", errors="replace"),
            )


@functools.cache
def apart() -> tuple[str, ...]:
    """The command before a command that is to run without a network but loopback, if that is allowed here."""
    up = 'ip link set lo up && exec "$@"'
    command = ("unshare", "--map-root-user", "--net", "--", "sh", "-c", up, "sh")
    if shutil.which("unshare") and shutil.which("ip"):
        tried = subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False)
        if tried.returncode == 0:
            return command
    return ()


if __name__ == "__main__":
    sys.exit(main())
