"""Fails when a tracked file holds what is true of one machine only.

That is: a path of somebody's machine, or the address of a package registry, which every machine configures
for itself. The patterns are built from pieces so that this file passes its own check.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Continuous integration may run as another user than the one who owns the clone.
TRUST = ["-c", "safe.directory=*"]

# A folder at the root of the file system; the same name deeper inside a path or an address is not meant.
FOLDERS = "|".join(["wo" + "rk", "ro" + "ot", "ho" + r"me/\w+", "Us" + r"ers/\w+"])
MACHINE_PATH = re.compile(rf"(?:(?<![\w./~$}}*-])|(?<=file://))/(?:{FOLDERS})/")
HOSTS = [
    "py" + "pi.org",
    "pyth" + "onhosted.org",
    "npm" + "js.org",
    "npm" + "js.com",
    "yarn" + "pkg.com",
    # Not the name of the index, which every lock file of cargo holds.
    "crates" + ".io(?!-index)",
]
REGISTRY = re.compile(rf"(?<![\w-])(?:{'|'.join(HOSTS).replace('.', '[.]')})")


def tracked() -> list[Path]:
    """The files that git tracks, or would after the next commit, as far as they exist."""
    names = subprocess.run(
        ["git", *TRUST, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True,
    ).stdout  # fmt: skip
    files = (ROOT / name for name in names.split("\0") if name)
    return sorted({path for path in files if path.is_file() and not path.is_symlink()})


def complaints(path: Path) -> list[str]:
    """What is wrong with one file; a file that is not text has nothing to read."""
    content = path.read_bytes()
    if b"\0" in content:
        return []
    found = []
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        for what, pattern in (("a path of one machine", MACHINE_PATH), ("a registry's host", REGISTRY)):
            if match := pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {what}: {match[0]}")
    return found


def main() -> int:
    """Run from the command line; 0 when nothing is found."""
    found = [complaint for path in tracked() for complaint in complaints(path)]
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
