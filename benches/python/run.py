"""Compares us with nanobot-ai, the Python MCP SDK and the Rust one: `make bench`.

Each side works in a process and an environment of its own. All sides take turns, so that what else goes on
on the machine hits everybody alike; medians over the rounds are compared. Nothing is asserted: targets are
printed with whether they were met. docs/decisions/0001-benches.md says what the rows mean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import table
import tree
from memory import measure_memory
from rows import (
    GRAFTED,
    IMPORT_MEMORY,
    IMPORT_TIME,
    OURS,
    PACKAGE_TIME,
    PLAIN,
    REFERENCE,
    RMCP,
    ROWS,
    SDK,
    SERVER_MEMORY,
    Row,
)
from side import Side, measure_import

ROOT = Path(__file__).resolve().parents[2]
#: Seconds of work in a turn; a longer turn would only let more disturbances in.
TURN = 0.1
Sides = dict[str, dict[str, Any]]


def main() -> int:
    """Run from the command line; 0 if every side could do its work."""
    options = arguments()
    pythons = {OURS: options.ours, PLAIN: options.ours, REFERENCE: options.reference, SDK: options.reference}
    programs = {
        **pythons,
        RMCP: str(Path(options.floor).with_name("side_rmcp")),
        GRAFTED: options.reference,
    }
    load = os.getloadavg()[0]
    if load > 0.5:
        print(
            f"Other work is going on (load {load:.1f}): times will be too long, and ratios off.",
            file=sys.stderr,
        )
    machine = describe(pythons, load)
    results: list[tuple[Row, Sides]] = []
    with tempfile.TemporaryDirectory() as directory:
        chosen = [row for row in ROWS if not options.rows or row.key in options.rows]
        if any(row.key == "grep" for row in chosen):
            tree.make(Path(directory))
        sides = {
            who: Side(
                who, program, options.floor, directory, package(options.ours) if who == GRAFTED else None
            )
            for who, program in programs.items()
            if any(who == row.side(one) for row in chosen for one in row.who)
        }
        try:
            for row in chosen:
                print(f"{row.title} ...", file=sys.stderr, flush=True)
                found = measure(row, [sides[row.side(who)] for who in row.who], options.rounds)
                results.append((row, {who: found[row.side(who)] for who in row.who}))
        finally:
            for side in sides.values():
                side.close()
    if not options.rows or "import" in options.rows:
        print("import ...", file=sys.stderr, flush=True)
        results += imports(pythons, options.rounds)
    if not options.rows or SERVER_MEMORY.key in options.rows:
        print(f"{SERVER_MEMORY.title} ...", file=sys.stderr, flush=True)
        rounds = options.rounds or SERVER_MEMORY.rounds
        sides_of_it = {
            who: measure_memory(who, pythons[who], options.floor, rounds) for who in (OURS, REFERENCE)
        }
        results.append((SERVER_MEMORY, sides_of_it))
    cells = table.lines(results)
    print(table.for_terminal(cells))
    failures = [(row, who, side) for row, found in results for who, side in found.items() if "error" in side]
    for row, who, side in failures:
        print(f"{row.key}, {who}: {side['error']}", file=sys.stderr)
    if not options.dry:
        write(results, machine)
        if not options.rows and not failures:
            table.write_readme(ROOT / "README.md", table.for_readme(cells, sentence(machine)))
    return 1 if failures else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare with nanobot-ai and the Python MCP SDK.")
    reference = os.environ.get("NBTOOLS_REFERENCE_PYTHON", str(ROOT / ".venvs/reference/bin/python"))
    floor = str(ROOT / "target/release/examples/floor_server")
    parser.add_argument(
        "rows",
        nargs="*",
        help="only these rows: " + ", ".join([r.key for r in ROWS] + ["import", SERVER_MEMORY.key]),
    )
    parser.add_argument("--ours", default=sys.executable, help="interpreter with nanobot-tools")
    parser.add_argument("--reference", default=reference, help="interpreter with nanobot-ai")
    parser.add_argument(
        "--floor", default=floor, help="the floor server's program; those for HTTP lie beside it"
    )
    parser.add_argument("--rounds", type=int, help="turns for everybody instead of each row's own number")
    parser.add_argument("--dry", action="store_true", help="write neither the JSON nor the README")
    return parser.parse_args()


def measure(row: Row, sides: list[Side], rounds: int | None) -> Sides:
    """Medians of one row by side, in the unit of the row."""
    found: Sides = {}
    numbers: dict[str, int] = {}
    digests: dict[str, str] = {}
    for side in sides:
        answer = side.ask(do="prepare", row=row.key)
        if "error" in answer:
            found[side.who] = answer
            continue
        digests[side.who] = answer["digest"]
        calibrated = calibrate(side)
        if isinstance(calibrated, dict):
            found[side.who] = calibrated
        else:
            numbers[side.who] = calibrated
    if len(set(digests.values())) > 1:
        print(f"{row.key}: the results of the sides differ: {digests}", file=sys.stderr)
    turns: dict[str, list[dict[str, float]]] = {who: [] for who in numbers}
    for turn in range(rounds or row.rounds):
        # Everybody is first now and then.
        first = turn % len(sides)
        for side in sides[first:] + sides[:first]:
            if side.who in found:
                continue
            answer = side.ask(do="run", number=numbers[side.who])
            if "error" in answer:
                found[side.who] = answer
            else:
                turns[side.who].append(answer)
    for side in sides:
        side.ask(do="finish")
        if side.who not in found:
            scale = table.SCALE[row.unit] / (numbers[side.who] * row.per)
            found[side.who] = summary(turns[side.who], scale)
    return {side.who: found[side.who] for side in sides}


def calibrate(side: Side) -> int | dict[str, Any]:
    """How often a side does the work in one turn, or its error."""
    number = 1
    while True:
        answer = side.ask(do="run", number=number)
        if "error" in answer:
            return answer
        if answer["wall"] >= TURN / 2:
            return max(1, round(number * TURN / answer["wall"]))
        number = min(number * 8, math.ceil(number * TURN / max(answer["wall"], 1e-6)))


def summary(turns: list[dict[str, float]], scale: float) -> dict[str, Any]:
    """Medians, and how far the turns lie apart."""
    walls = sorted(turn["wall"] * scale for turn in turns)
    return {
        "wall": statistics.median(walls),
        "cpu": statistics.median(turn["cpu"] * scale for turn in turns),
        "least": walls[0],
        "most": walls[-1],
        "turns": len(walls),
    }


def imports(pythons: dict[str, str], rounds: int | None) -> list[tuple[Row, Sides]]:
    """Time and memory of imports, in fresh processes: of the package alone, and of all that is used."""
    found: list[tuple[Row, Sides]] = []
    for everything, row in ((False, PACKAGE_TIME), (True, IMPORT_TIME)):
        turns: dict[str, list[dict[str, Any]]] = {OURS: [], REFERENCE: []}
        for who in turns:
            # The first one compiles and fills the cache of the system.
            measure_import(who, pythons[who], everything=everything)
        for _ in range(rounds or row.rounds):
            for who, done in turns.items():
                done.append(measure_import(who, pythons[who], everything=everything))
        times: Sides = {}
        memory: Sides = {}
        for who, done in turns.items():
            errors = [turn for turn in done if "error" in turn]
            if errors:
                times[who] = memory[who] = errors[0]
                continue
            times[who] = summary(done, table.SCALE[row.unit])
            memory[who] = {"wall": statistics.median(turn["memory"] for turn in done), "turns": len(done)}
        found.append((row, times))
        if everything:
            found.append((IMPORT_MEMORY, memory))
    return found


def package(python: str) -> str:
    """The folder from which an interpreter imports our package."""
    program = "import nanobot_tools, pathlib; print(pathlib.Path(nanobot_tools.__file__).parents[1])"
    done = subprocess.run(
        [python, "-c", program], stdout=subprocess.PIPE, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.strip()


def describe(pythons: dict[str, str], load: float) -> dict[str, Any]:
    """The machine and what was compared."""

    def ask(python: str, program: str) -> list[str]:
        done = subprocess.run(
            [python, "-c", program], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
        )
        # A side that cannot be asked cannot work either, and its rows will say why.
        return done.stdout.split() or ["(not there)"] * 2

    ours = ask(pythons[OURS], "import nanobot_tools; print(nanobot_tools.__version__)")
    metadata = "from importlib.metadata import version; print(version('nanobot-ai'), version('mcp'))"
    nanobot, sdk = ask(pythons[REFERENCE], metadata)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(load, 2),
        "versions": {"nanobot-tools": ours[0], "nanobot-ai": nanobot, "mcp": sdk},
    }


def sentence(machine: dict[str, Any]) -> str:
    """What readers have to know about the machine."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['date']}, {machine['system']}, {machine['cores']} cores, Python {machine['python']}, "
        f"load {machine['load']:g} at the start; {versions}."
    )


def write(results: list[tuple[Row, Sides]], machine: dict[str, Any]) -> None:
    """Write ``benches/results/latest.json``."""
    rows = [
        {
            "key": row.key,
            "title": row.title,
            "unit": row.unit,
            "sides": sides,
            "ratio": {measure: table.ratio(sides, measure) for measure in ("wall", "cpu")},
            "targets": [table.judge(row, target, sides) for target in row.targets],
        }
        for row, sides in results
    ]
    path = ROOT / "benches/results/latest.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
