"""The command line shows what the loader finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nanobot_tools
from nanobot_tools.cli import app
from typer.testing import CliRunner


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_version_is_that_of_the_package() -> None:
    assert run("version").strip() == nanobot_tools.__version__


def test_the_native_tools_are_listed(tmp_path: Path) -> None:
    shown = run("tools", "--workspace", str(tmp_path))
    assert "grep" in shown
    assert "find_files" in shown


def test_definitions_are_json_as_a_model_sees_them(tmp_path: Path) -> None:
    definitions = json.loads(run("tools", "--json", "--workspace", str(tmp_path)))
    assert {"grep", "find_files"} <= {definition["function"]["name"] for definition in definitions}


def test_a_scope_without_tools_is_an_empty_list(tmp_path: Path) -> None:
    assert json.loads(run("tools", "--json", "--scope", "none", "--workspace", str(tmp_path))) == []


def test_without_the_extra_the_message_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; import nanobot_tools.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "install nanobot-tools[cli]" in done.stderr
