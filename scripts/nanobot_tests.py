"""Runs nanobot's own test suite without and with the drop-in, and names every test that differs.

The source is a checkout of nanobot, which is copied and left alone. What it depends on is installed into an
environment of its own. Tests run where there is no network but loopback, as far as the system allows, since
some of them wait long for what they cannot reach.

A test that passes without the drop-in has to pass with it. Those that cannot are listed in
``nanobot_tests_expected.toml``, with their reasons and with what holds their promise instead. One that would
take pytest itself down (``run = false``) is not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = ROOT / "scripts/nanobot_tests_expected.toml"
# The SDK's 1.30 changed when servers end idle sessions, which one of nanobot's tests depends on.
EXTRAS = ["mcp>=1.26,<1.30", "pytest-xdist", "pytest-timeout"]
MODES = {"off": {}, "native": {}, "sdk": {"NBTOOLS_MCP": "sdk"}}
#: Seconds that one test may take, and a whole run.
ONE, ALL = 60, 3600


def main() -> int:
    """Run from the command line; 0 when no test differs that is not listed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, help="a checkout of nanobot")
    parser.add_argument("--modes", default="native,sdk", help="of native and sdk, separated by commas")
    parser.add_argument("--select", default="tests", help="files or folders of tests, separated by spaces")
    parser.add_argument("--workers", default="2", help="how many tests run at once")
    arguments = parser.parse_args()
    source = arguments.source.resolve()
    if not (source / "nanobot").is_dir() or not (source / "tests").is_dir():
        parser.error(f"{source} is no checkout of nanobot")
    suite = Suite(source, environment(source), arguments.select.split(), arguments.workers)
    expected = {
        item["id"]: item for item in tomllib.loads(EXPECTED.read_text(encoding="utf-8")).get("test", [])
    }
    without = suite.run("off")
    print(f"{'mode':<8}{'tests':>7}{'failed':>8}{'differ':>8}")
    print(f"{'off':<8}{len(without):>7}{failures(without):>8}")
    complaints = []
    for mode in arguments.modes.split(","):
        listed = expected if mode == "native" else {}
        left_out = [test for test, item in listed.items() if not item.get("run", True)]
        with_us = suite.run(mode, left_out=[test for test in left_out if test in without])
        differing = [
            test
            for test, outcome in without.items()
            if outcome == "passed" and with_us.get(test) != "passed" and test not in left_out
        ]
        unlisted = [test for test in differing if test not in listed]
        if unlisted:
            print(f"{mode}: trying {len(unlisted)} tests alone", *unlisted, sep="\n  ", file=sys.stderr)
        real = [test for test in differing if test in listed or not suite.passes_alone(test, mode)]
        print(f"{mode:<8}{len(with_us):>7}{failures(with_us):>8}{len(real):>8}")
        flaky = set(differing) - set(real)
        complaints += [
            f"{mode}: {test} is {with_us.get(test, 'gone')}" for test in real if test not in listed
        ]
        complaints += [
            f"{mode}: {test} is listed and passes"
            for test in listed
            if with_us.get(test) == "passed" and without.get(test) == "passed"
        ]
        for test in sorted(flaky):
            print(f"  {test} failed once and passed alone")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def failures(outcomes: dict[str, str]) -> int:
    """How many tests failed."""
    return sum(outcome == "failed" for outcome in outcomes.values())


def environment(source: Path) -> Path:
    """The interpreter of an environment with what the checkout depends on, made if it is not there."""
    text = (source / "pyproject.toml").read_bytes()
    project = tomllib.loads(text.decode())["project"]
    optional = project.get("optional-dependencies", {})
    wanted = [*project["dependencies"], *optional.get("dev", ()), *optional.get("api", ()), *EXTRAS]
    folder = ROOT / f".venvs/nanobot-tests-{hashlib.sha256(text).hexdigest()[:12]}"
    python = folder / "bin/python"
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (folder / ".ready").touch()
    return python


class Suite:
    """The tests of one checkout."""

    def __init__(self, source: Path, python: Path, select: list[str], workers: str) -> None:
        self._source = source
        self._python = python
        self._select = select
        self._workers = workers

    def run(self, mode: str, *, left_out: list[str] | None = None) -> dict[str, str]:
        """Run all that is selected; test -> outcome."""
        more = [f"--deselect={test}" for test in left_out or ()]
        return self._run(mode, ["-n", self._workers, *more, *self._select])

    def passes_alone(self, test: str, mode: str) -> bool:
        """Whether a test passes when it is run by itself."""
        return self._run(mode, [test]).get(test) == "passed"

    def _run(self, mode: str, arguments: list[str]) -> dict[str, str]:
        with tempfile.TemporaryDirectory(prefix="nanobot-tests-") as temporary:
            folder = Path(temporary)
            copy = shutil.copytree(self._source, folder / "source", symlinks=True)
            (folder / "home").mkdir()
            outcomes = folder / "outcomes.json"
            pytest = [
                self._python,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "nanobot_tests_plugin",
            ]
            limits = [f"--timeout={ONE}", "--timeout-method=thread"]
            paths = [copy, ROOT / "scripts", *([ROOT / "python"] if mode != "off" else [])]
            values = {
                **{key: value for key, value in os.environ.items() if not key.startswith("NBTOOLS")},
                **MODES[mode],
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "HOME": str(folder / "home"),
                # Some tests build the web interface, and npm tries for long to reach what it cannot.
                "npm_config_offline": "true",
                "NBTOOLS_CACHE_DIR": str(folder / "cache"),
                "NANOBOT_TESTS_OUTCOMES": str(outcomes),
                "NANOBOT_TESTS_DROP_IN": "off" if mode == "off" else "on",
            }
            with (folder / "log").open("w") as log:
                subprocess.run(
                    [*apart(), *pytest, *limits, *arguments],
                    cwd=copy, env=values, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
                    timeout=ALL,
                )  # fmt: skip
            said = (folder / "log").read_text(encoding="utf-8", errors="replace")
            if not outcomes.exists() or "INTERNALERROR" in said:
                raise SystemExit(f"pytest did not get to its end:\n{said[-4000:]}")
            found: dict[str, str] = json.loads(outcomes.read_text(encoding="utf-8"))
            return found


def apart() -> list[str]:
    """The command before a command that is to run without a network but loopback, if that is allowed here."""
    command = [
        "unshare",
        "--map-root-user",
        "--net",
        "--",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
    ]
    if shutil.which("unshare") and shutil.which("ip"):
        tried = subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False)
        if tried.returncode == 0:
            return command
    return []


if __name__ == "__main__":
    sys.exit(main())
