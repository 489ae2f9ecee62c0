"""Plays the scene with real nanobots, each without and with the package, and compares: ``make compat``.

What the calls result in has to be the same. Where it is not, the difference is one of those named here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from turns import Transcript, play

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("0.2.1", "0.2.2", "0.3.0", "0.3.5")

#: Turns whose results may differ.
DIFFERENT = {
    "a kill half-way": "a call that was lost says that it may have run, or is repeated if that does no harm",
    "after the kill": "nanobot may need another call to see that a server is gone; ours is back",
}
#: Facts that differ on purpose.
BETTER = {
    "process kept over a reload": "only a limit was changed, for which ours restarts nothing",
    "tools": "the plugin on our Tool is there only with us",
}


def main() -> int:
    """Run from the command line; 0 when nothing differs but what is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--versions", default=",".join(VERSIONS), help="of nanobot-ai, separated by commas")
    parser.add_argument(
        "--pythons", help="interpreters that have these versions, instead of environments made here"
    )
    parser.add_argument("--log", action="store_true", help="show what nanobot logged")
    options = parser.parse_args()
    versions = options.versions.split(",")
    pythons = (
        [Path(path) for path in options.pythons.split(",")] if options.pythons else map(environment, versions)
    )
    complaints = []
    for version, python in zip(versions, pythons, strict=True):
        without, with_us = play(python, with_us=False), play(python, with_us=True)
        if options.log:
            print(without.log, with_us.log, sep="\n" + "=" * 100 + "\n")
        print(f"nanobot-ai {version}")
        for line in shown(without, with_us):
            print(f"  {line}")
        complaints += [f"{version}: {complaint}" for complaint in compare(without, with_us)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def environment(version: str) -> Path:
    """The interpreter of an environment with a version of nanobot-ai, made if it is not there."""
    folder = ROOT / f".venvs/nanobot-{version}"
    python = folder / "bin/python"
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        wanted = ["--requirement", ROOT / f"requirements/nanobot-{version}.txt"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        (folder / ".ready").touch()
    return python


def compare(without: Transcript, with_us: Transcript) -> list[str]:
    """What differs or is not as it has to be."""
    found = []
    if with_us.died is not None:
        found.append(f"nanobot ended at {with_us.died}")
        return found
    if "active: " not in with_us.log or "skipped: " in with_us.log:
        found.append("the log does not say that all parts are active")
    for turn, theirs in without.turns.items():
        ours = [result for result in with_us.turns[turn] if result[0] != "ours_shout"]
        if known(ours) != known(theirs) and turn not in DIFFERENT:
            found.append(f"{turn}: {ours} instead of {theirs}")
    for name, value in without.facts.items():
        if with_us.facts[name] != value and name not in BETTER:
            found.append(f"{name}: {with_us.facts[name]} instead of {value}")
    if ("ours_shout", "B") not in with_us.turns["a batch"]:
        found.append("the plugin on our Tool gave no result")
    recovered = [("mcp_stdio_echo", "again"), ("mcp_web_echo", "too")]
    if with_us.turns["after the kill"] != recovered:
        found.append(f"the killed server did not recover: {with_us.turns['after the kill']}")
    if with_us.turns["a kill half-way"][1:] != [("mcp_web_echo", "beside")]:
        found.append(f"the kill cost more than its call: {with_us.turns['a kill half-way']}")
    if not with_us.facts["process kept over a reload"]:
        found.append("a changed limit restarted a server")
    if with_us.facts["left over"]:
        found.append(f"processes are left: {with_us.facts['left over']}")
    return found


def known(results: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Results without what differs in each: ours names near tools where nanobot lists all of them."""
    return [(name, re.sub(r"(not found\.).*", r"\1", text, flags=re.DOTALL)) for name, text in results]


def shown(without: Transcript, with_us: Transcript) -> list[str]:
    """What happened, for people."""

    def brief(results: Any) -> str:
        return ", ".join(f"{name}: {text[:60]!r}" for name, text in results)

    lines = []
    for turn, theirs in without.turns.items():
        ours = with_us.turns.get(turn, [])
        if ours == theirs:
            lines.append(f"{turn}: {brief(ours)}")
        else:
            lines += [f"{turn}, without: {brief(theirs)}", f"{turn}, with us: {brief(ours)}"]
    for name, value in without.facts.items():
        lines.append(f"{name}: {value} without, {with_us.facts.get(name)} with us")
    if without.died is not None:
        lines.append(f"without: nanobot ended at {without.died}")
        lines += [
            f"{turn}, with us: {brief(r)}" for turn, r in with_us.turns.items() if turn not in without.turns
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
