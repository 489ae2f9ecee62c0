"""Every program in docs/adapters.md prints what the page says, and every name in its table exists."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import nanobot_tools
import pytest
from test_adapters_libraries import PYTHON
from test_readme import FENCE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/adapters.md").read_text(encoding="utf-8")
BLOCKS = [(found[1], found[2]) for found in FENCE.finditer(PAGE)]


def test_each_program_is_followed_by_its_output_and_nothing_else_is_on_the_page() -> None:
    assert [language for language, _ in BLOCKS] == ["python", "text"] * (len(BLOCKS) // 2)
    assert BLOCKS


@pytest.mark.parametrize("index", range(0, len(BLOCKS), 2))
def test_a_program_prints_what_the_page_says(index: int, tmp_path: Path) -> None:
    code = BLOCKS[index][1]
    # What needs no library runs where the package is installed, so that its servers find it as well.
    needs_library = any(name in code for name in ("langchain_core", "pydantic_ai", "opentelemetry"))
    python = PYTHON if needs_library else sys.executable
    assert os.access(python, os.X_OK), f"no interpreter at {python}: run `make test`"
    script = tmp_path / "program.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [python, script.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(nanobot_tools.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == BLOCKS[index + 1][1]


def test_the_functions_in_the_table_exist() -> None:
    module = None
    named = 0
    for row in re.findall(r"^\| (?!\|)(.*) \|$", PAGE, re.MULTILINE):
        first, *cells = (cell.strip() for cell in row.split("|"))
        if found := re.match(r"`(nanobot_tools\.adapters\.\w+)`", first):
            module = importlib.import_module(found[1])
        if module is not None:
            for name in re.findall(r"`(\w+)`", " ".join(cells)):
                assert name in module.__all__
                named += 1
    assert named == 13
