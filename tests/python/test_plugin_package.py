"""The example plugin is installed as a user installs it, found by its entry points, and works."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nanobot_tools.base import ToolResult
from nanobot_tools.context import ToolContext
from nanobot_tools.errors import ToolError
from nanobot_tools.loader import ToolLoader

SOURCE = Path(__file__).parents[2] / "examples" / "plugin"
NAME = "nanobot_tools_example_plugin"


class Registry:
    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        return name in self.tools

    def register(self, one: Any) -> None:
        self.tools[one.name] = one


def _builds_wheels() -> bool:
    """Whether setuptools is here and can build without fetching anything."""
    try:
        release = tuple(int(part) for part in version("setuptools").split(".")[:2])
    except PackageNotFoundError:
        return False
    return release >= (70, 1) or importlib.util.find_spec("wheel") is not None


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the installed plugin."""
    root = tmp_path_factory.mktemp("plugin")
    # A copy: a build leaves files beside the sources.
    source = shutil.copytree(SOURCE, root / "source")
    target = root / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if _builds_wheels():
        command.append("--no-build-isolation")
    done = subprocess.run(
        [*command, "--target", target, source], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def plugin(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    importlib.invalidate_caches()
    yield importlib.import_module(NAME)
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def load(workspace: Path, config: Any = None, scope: str = "core") -> dict[str, Any]:
    registry = Registry()
    context = ToolContext(config=config or SimpleNamespace(), workspace=str(workspace))
    names = ToolLoader(test_classes=[]).load(context, registry, scope=scope)
    assert sorted(names) == sorted(registry.tools)
    return registry.tools


def test_its_tools_are_found_and_made(plugin, tmp_path):
    tools = load(tmp_path)
    assert {"notes", "convert_length"} <= set(tools)
    assert isinstance(tools["notes"], plugin.NotesTool)
    assert tools["convert_length"] is plugin.convert_length
    assert "convert_length" not in load(tmp_path, scope="subagent")
    assert "notes" in load(tmp_path, scope="subagent")


def test_the_configuration_reaches_it(plugin, tmp_path):
    config = SimpleNamespace(notes=plugin.NotesConfig(file="n.txt", limit=2))
    notes = load(tmp_path, config)["notes"]

    async def keep() -> list[Any]:
        return [await notes.execute(text=text) for text in ("one", "two", "three")]

    assert asyncio.run(keep())[-1] == "- two\n- three"
    assert (tmp_path / "n.txt").read_text() == "two\nthree\n"
    assert "notes" not in load(tmp_path, SimpleNamespace(notes=plugin.NotesConfig(enable=False)))


def test_its_failures_are_errors(plugin, tmp_path):
    notes = load(tmp_path / "missing")["notes"]
    result = asyncio.run(notes.execute(text="x"))
    assert isinstance(result, ToolResult)
    assert result.is_error
    with pytest.raises(ToolError, match=r"A length cannot be negative\."):
        plugin.convert_length.execute(value=-1.0, source="m")


def test_its_function_is_a_tool(plugin):
    convert = plugin.convert_length
    arguments = convert.cast_params({"value": "3", "source": "km"})
    assert convert.validate_params(arguments) == []
    assert convert.execute(**arguments) == '{"value": 3000.0, "unit": "m"}'
    assert convert.validate_params({"value": 1, "source": "parsec"})
    described = convert.parameters["properties"]
    assert [described[name]["description"] for name in ("value", "source", "target")] == [
        "The length to convert",
        "Unit of the value.",
        "Unit of the result.",
    ]
