"""The command line as tests call it: in this process, or as a process of its own without a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_servers import echo
from nanobot_tools.cli import app
from typer.testing import CliRunner


@dataclass
class Done:
    """What became of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


def nbtools(*arguments: object, stdin: str | None = None, status: int | None = 0) -> Done:
    """Run a command in this process; it must end with that status."""
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False
    )
    done = Done(result.exit_code, result.stdout, result.stderr)
    assert status is None or done.status == status, done
    return done


def process(
    *arguments: object, stdin: str | None = None, status: int | None = 0, cwd: Path | None = None, **more: str
) -> Done:
    """Run a command in a process of its own, with pipes for a terminal; it must end with that status."""
    result = subprocess.run(
        [sys.executable, "-m", "nanobot_tools.cli", *(str(argument) for argument in arguments)],
        input=stdin or "", capture_output=True, text=True, timeout=100, check=False, cwd=cwd,
        env={**os.environ, **more},
    )  # fmt: skip
    done = Done(result.returncode, result.stdout, result.stderr)
    assert status is None or done.status == status, done
    return done


def variant(folder: Path, change: str) -> dict[str, Any]:
    """The entry of an echo server that is changed: ``change`` is code that may use ``server``."""
    script = folder / "variant.py"
    script.write_text(
        "import nanobot_tools.testing.echo_server as base\n"
        "class Variant(base.EchoServer):\n"
        "    def __init__(server, *args, **kwargs):\n"
        "        super().__init__(*args, **kwargs)\n"
        f"{textwrap.indent(textwrap.dedent(change), ' ' * 8)}\n"
        "base.EchoServer = Variant\n"
        "base.main()\n",
        encoding="utf-8",
    )
    return {**echo(), "args": [str(script)]}


def configuration(folder: Path, name: str = "mcp.json", **servers: Any) -> Path:
    """A configuration file with these servers; with the echo server alone by default."""
    path = folder / name
    path.write_text(json.dumps({"mcpServers": servers or {"echo": echo()}}), encoding="utf-8")
    return path
