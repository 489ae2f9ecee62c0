"""Fails when Python seeps into the core.

The core builds and is tested without Python: pyo3 is no dependency of it unless the feature ``python`` is
on, no file outside ``src/py.rs`` and ``src/py/`` names it, and ``src/lib.rs`` stays wiring.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BINDINGS = re.compile(r"\b(pyo3\w*|pythonize)\b")
LIB_LINES = 100


def dependencies() -> list[str]:
    """Complaints about what the core depends on without the feature."""
    tree = subprocess.run(
        ["cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip
    names = sorted({line.split()[0] for line in tree.splitlines() if line.strip()})
    return [
        f"{name} is a dependency without the feature `python`" for name in names if BINDINGS.fullmatch(name)
    ]


def mentions() -> list[str]:
    """Complaints about files of the core, its tests and its benches that name the bindings' crates."""
    complaints = []
    files = [path for folder in ("src", "tests", "benches") for path in sorted((ROOT / folder).rglob("*.rs"))]
    for path in files:
        inside = path.relative_to(ROOT)
        if inside.parts[0] == "src" and inside.parts[1].startswith("py"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := BINDINGS.search(line):
                complaints.append(f"{inside}:{number}: names {found[0]}, which only src/py may")
    return complaints


def wiring() -> list[str]:
    """Complaints about the length of ``lib.rs``."""
    lines = len((ROOT / "src/lib.rs").read_text(encoding="utf-8").splitlines())
    return [f"src/lib.rs has {lines} lines, more than {LIB_LINES}"] if lines > LIB_LINES else []


def main() -> int:
    """Run from the command line; 0 when there is nothing to complain about."""
    complaints = [*dependencies(), *mentions(), *wiring()]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
