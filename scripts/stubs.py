"""Keeps the committed stub of the native module equal to what the Rust sources say.

``--write`` regenerates it and ``--check`` fails with the difference. maturin builds the crate and reads
the stub out of the library; the result is given a header and formatted here, so that the committed file
passes the same checks as any other source. The profile is that of the installed package, so that nothing
is compiled for this alone.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "python/nanobot_tools/_native.pyi"
HEADER = "# Generated from the Rust sources by `make stubs`; do not edit.\n"
BIN = Path(sys.executable).parent

# As the Makefile builds the package; without symbols there is nothing to read the stub out of.
RUSTC = ["-C", "strip=none"]

# What is made when the module is loaded, which pyo3 cannot describe; stubtest holds it against the module.
OBJECTS = "CURRENT_CALL: ContextVar[CurrentCall | str | None]\n"
IMPORTS = "from contextvars import ContextVar\n"


def generate() -> str:
    """The stub that the current Rust sources give."""
    with tempfile.TemporaryDirectory() as directory:
        maturin = [str(BIN / "maturin"), "generate-stubs", "--quiet", "--locked", "--profile", "release"]
        command = [*maturin, "--out", directory, "--", *RUSTC]
        subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
        found = sorted(Path(directory).rglob("*.pyi"))
        names = [str(path.relative_to(directory)) for path in found]
        if names != ["nanobot_tools/_native.pyi"]:
            raise SystemExit(f"maturin wrote {names}, not the one stub nanobot_tools/_native.pyi")
        return normalise(found[0].read_text(encoding="utf-8"))


def normalise(text: str) -> str:
    """``text`` with the header, complete types, sorted imports and the formatting of the committed file."""
    lines = [complete(line) for line in text.splitlines(keepends=True)]
    lines.insert(next(at for at, line in enumerate(lines) if line.startswith("from ")), IMPORTS)
    text = HEADER + "".join(lines) + OBJECTS
    name = ["--stdin-filename", str(STUB)]
    text = ruff(["check", "--quiet", "--fix-only", "--select", "F401,I", *name, "-"], text)
    return ruff(["format", "--quiet", *name, "-"], text)


def complete(line: str) -> str:
    """One line of maturin's text as strict typing wants it.

    pyo3 leaves the types of ``*args`` and of the items of ``PyList`` and ``PyDict`` open, which mypy refuses;
    and it allows every name in the module, by which a forgotten one would stay unseen: stubtest finds it.
    """
    if line.startswith("def __getattr__("):
        return ""
    if not line.lstrip().startswith("def "):
        return line
    line = re.sub(r"(\*{1,2}\w+)(?=[,)])", r"\1: Any", line)
    line = re.sub(r"(: |> |\[)(list|set|frozenset)\b(?!\[)", r"\1\2[Any]", line)
    return re.sub(r"(: |> |\[)dict\b(?!\[)", r"\1dict[Any, Any]", line)


def ruff(arguments: list[str], text: str) -> str:
    """What ruff makes of ``text``."""
    done = subprocess.run(
        [str(BIN / "ruff"), *arguments], cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> int:
    """Run from the command line; 0 when the stub is written or equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="fail when the committed stub differs")
    mode.add_argument("--write", action="store_true", help="write the stub")
    arguments = parser.parse_args()
    wanted = generate()
    shown = STUB.relative_to(ROOT)
    if arguments.write:
        STUB.write_text(wanted, encoding="utf-8")
        return 0
    present = STUB.read_text(encoding="utf-8") if STUB.exists() else ""
    if present == wanted:
        return 0
    difference = difflib.unified_diff(
        present.splitlines(keepends=True),
        wanted.splitlines(keepends=True),
        f"{shown}",
        f"{shown} (generated)",
    )
    sys.stderr.writelines(difference)
    sys.stderr.write(f"{shown} is not what the Rust sources give: run `make stubs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
