"""Plays the scene with real nanobots, each with the package and without, and compares: ``make compat``.

In the environments that are made here the package is installed for the scene and uninstalled after it; an
interpreter that is given is left as it is, and the package is on its path. What the calls result in has to be
the same. Where it is not, the difference is one of those named here; what ours results in is named here as a
whole, since nanobot by itself does not get through the scene in every version.

What the versions differ in, by themselves:

- 0.2.1: once its process was killed, a server over stdio never comes back; a reload ends the gateway.
- 0.2.2: to lose the process of a server in a call ends the gateway, and so does a reload.
- 0.3.0, 0.3.5: the call is sent again over a new connection; a reload restarts what has changed.
- A reload is a request over HTTP before 0.3.5, with a token of its own in 0.3.0, and goes over the websocket
  in 0.3.5. ``/restart`` is a message in all of them, and executes nanobot anew in the same process.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import package
from scene import CHANGED_LIMIT
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
    "servers to end at a restart": "a server that nanobot lost, and did not start again, is not there to end",
    "tools": "the plugin on our Tool is there only with us",
}
#: Where nanobot by itself may end: the version, and the beginning of the step. Ours may nowhere.
ENDS = {
    "0.2.1": ("the reload",),
    # Whoever asks next may be the first to see it.
    "0.2.2": (
        'the answer to \'RUN {"calls": [["mcp_stdio_sleep"',
        'the answer to \'RUN {"calls": [["mcp_stdio_echo"',
        "the reload",
    ),
}

_BATCH = [
    ("read_file", "a note"),
    ("theirs_shout", "A"),
    ("ours_shout", "B"),
    ("mcp_stdio_echo", "c"),
    ("mcp_old_echo", "d"),
    ("mcp_web_echo", "e"),
]
#: What each call results in with us, in every version: the name, and what the text holds.
WITH_US = {
    "a batch": _BATCH,
    "a kill half-way": [("mcp_stdio_sleep", "slept 8 s"), ("mcp_web_echo", "beside")],
    "after the kill": [("mcp_stdio_echo", "again"), ("mcp_web_echo", "too")],
    "after the restart": _BATCH,
    "after the reload": [("mcp_extra_echo", "f"), ("mcp_stdio_echo", "g"), ("mcp_old_echo", "not found")],
    "after a limit was changed": [("mcp_stdio_sleep", f"timed out after {CHANGED_LIMIT}s")],
}
RELOADED = {
    "ok": True,
    "added": ["extra"],
    "changed": ["stdio"],
    "removed": ["old"],
    "connected": ["extra", "stdio", "web"],
    "failed": [],
}
_PARTS = "active: registry, loader, mcp, executor\n"


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
        if options.pythons:
            with_us = play(python, with_us=True)
        else:
            with package.installed(python):
                with_us = play(python, with_us=True, installed=True)
        # What was installed is gone again: this is the nanobot that there was before.
        without = play(python, with_us=False)
        if options.log:
            print(without.log, with_us.log, sep="\n" + "=" * 100 + "\n")
        print(f"nanobot-ai {version}")
        for line in shown(without, with_us):
            print(f"  {line}")
        complaints += [f"{version}: {complaint}" for complaint in compare(version, without, with_us)]
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


def compare(version: str, without: Transcript, with_us: Transcript) -> list[str]:
    """What differs or is not as it has to be."""
    if with_us.died is not None:
        return [f"nanobot ended with us at {with_us.died}"]
    found = []
    if without.died is not None and not without.died.startswith(ENDS.get(version, ())):
        found.append(f"nanobot ended by itself at {without.died}")
    for turn, theirs in without.turns.items():
        ours = [result for result in with_us.turns[turn] if result[0] != "ours_shout"]
        if known(ours) != known(theirs) and turn not in DIFFERENT:
            found.append(f"{turn}: {ours} instead of {theirs}")
    for name, value in without.facts.items():
        if with_us.facts[name] != value and name not in BETTER:
            found.append(f"{name}: {with_us.facts[name]} instead of {value}")
    if "nanobot-tools " in without.log:
        found.append("without us is not without us")
    return found + amiss(with_us)


def amiss(transcript: Transcript) -> list[str]:
    """What is not as it has to be with us, whatever nanobot does by itself."""
    found = []
    for turn in WITH_US.keys() | transcript.turns.keys():
        results, wanted = transcript.turns.get(turn, []), WITH_US.get(turn, [])
        names = [name for name, _ in results] == [name for name, _ in wanted]
        if not names or not all(text in result[1] for result, (_, text) in zip(results, wanted, strict=True)):
            found.append(f"{turn}: {results} instead of {wanted}")
    starts, active = transcript.log.count("Agent loop started"), transcript.log.count(_PARTS)
    if starts != 2 or active != starts:
        found.append(f"of {starts} starts (2 are meant), {active} said that all parts are active")
    facts = transcript.facts
    if facts["reload"] != RELOADED:
        found.append(f"the reload gave {facts['reload']} instead of {RELOADED}")
    if facts["servers to end at a restart"] != 1:
        found.append(
            f"{facts['servers to end at a restart']} servers were there to end at the restart, not 1"
        )
    if not facts["process kept over a reload"]:
        found.append("a changed limit restarted a server")
    if facts["left over"]:
        found.append(f"processes are left: {facts['left over']}")
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
