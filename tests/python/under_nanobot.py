"""Programs that run under the real nanobot, in an interpreter that has it, with this package beside it.

The package is on the path as it is here, with the entry points that it would be installed with; home folder
and configuration are the test's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nanobot_tools

PACKAGE = Path(nanobot_tools.__file__).parents[1]
ROOT = Path(__file__).resolve().parents[2]


def entry_points() -> dict[str, dict[str, str]]:
    """The entry points of the package, by group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups: dict[str, dict[str, str]] = project["entry-points"]
    return groups


def distribution(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], **modules: str) -> Path:
    """Put a distribution into a folder: its metadata, and modules with their source."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    return folder


class UnderNanobot:
    """Runs programs; see the module's text.

    Attributes:
        home: The home folder, with ``.nanobot`` in it.
        site: A folder on the path, for plugins.
    """

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self.home = folder / "home"
        self.site = distribution(folder / "site", "nanobot-tools", entry_points())
        (self.home / ".nanobot").mkdir(parents=True)

    def configure(self, config: Any = None, options: Any = None) -> None:
        """Write nanobot's configuration and the file of our options."""
        for name, content in (("config.json", config), ("nanobot-tools.json", options)):
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (self.home / ".nanobot" / name).write_text(text, encoding="utf-8")

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a program."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("NBTOOLS", "NANOBOT"))}
        cache = os.environ["NBTOOLS_CACHE_DIR"]
        path = os.pathsep.join((str(PACKAGE), str(self.site)))
        return {**kept, "HOME": str(self.home), "PYTHONPATH": path, "NBTOOLS_CACHE_DIR": cache, **more}

    def run(self, program: str, *arguments: str, timeout: float = 100, **environment: str) -> str:
        """Run a program that must succeed; what it printed. What it logged goes to ``stderr``."""
        done = subprocess.run(
            [self.python, "-c", textwrap.dedent(program), *arguments],
            capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
            env=self.environment(**environment), cwd=self.home,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.log = done.stderr
        return done.stdout


def gone(pids: list[int]) -> Iterator[int]:
    """Those of the processes that are there no more."""
    for pid in pids:
        if not Path(f"/proc/{pid}").exists():
            yield pid
