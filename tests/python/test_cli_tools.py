"""``nanobot-tools tools`` shows what a model would see."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from command_line import configuration, nbtools, process, variant
from mcp_servers import echo
from under_nanobot import PACKAGE, distribution

NATIVE = {"grep", "find_files"}

pytestmark = pytest.mark.usefixtures("no_configuration")


def test_own_tools_are_listed_without_a_configuration() -> None:
    out = nbtools("tools").out
    assert all(name in out for name in NATIVE)
    assert nbtools("tools", "--json", "--scope", "none").json["definitions"] == []


def test_the_tools_of_servers_are_listed_unless_they_are_not_wanted(tmp_path: Path) -> None:
    path = configuration(tmp_path)

    def names(*options: str) -> set[str]:
        found = nbtools("tools", "--json", "--config", path, *options).json["definitions"]
        return {definition["function"]["name"] for definition in found}

    own = names("--no-servers")
    # Plugins that are installed come with the package's own.
    assert own >= NATIVE
    assert names() == own | {"mcp_echo_echo", "mcp_echo_add", "mcp_echo_sleep", "mcp_echo_fail"}


def test_the_estimate_is_a_quarter_of_the_bytes_and_says_so(tmp_path: Path) -> None:
    from nanobot_tools import ToolRegistry
    from nanobot_tools.cli import _session

    registry: ToolRegistry = _session.local_tools(tmp_path)
    size = len(registry.definitions_json())
    listed = nbtools("tools", "--json", "--workspace", tmp_path).json
    assert listed["bytes"] == size
    assert listed["estimated_tokens"] == -(-size // 4)
    assert f"estimated: {size} bytes of JSON / 4" in nbtools("tools", "--workspace", tmp_path).out


def test_one_tool_is_shown_with_its_schema_in_the_form_that_a_provider_wants(tmp_path: Path) -> None:
    change = 'server._tools["echo"][0]["inputSchema"]["properties"]["text"]["examples"] = ["hi"]'
    path = configuration(tmp_path, echo=variant(tmp_path, change))
    shown = nbtools("tools", "show", "mcp_echo_echo", "--config", path, "--json").json
    assert shown["server"] == "echo"
    assert shown["read_only"] is True
    assert shown["function"]["parameters"]["properties"]["text"]["examples"] == ["hi"]
    gemini = nbtools("tools", "show", "mcp_echo_echo", "--config", path, "--json", "--profile", "gemini").json
    assert gemini["function"]["parameters"]["properties"]["text"]["example"] == "hi"
    text = nbtools("tools", "show", "mcp_echo_echo", "--config", path, "--profile", "gemini").out
    assert "schema for gemini:" in text
    assert "Give back the text." in text


def test_only_the_server_that_may_have_the_tool_is_asked(tmp_path: Path) -> None:
    path = configuration(tmp_path, echo=echo(), gone={"command": "no-such-program"})
    done = nbtools("tools", "show", "mcp_echo_add", "--config", path)
    assert "gone" not in done.err
    assert "gone" not in nbtools("tools", "show", "grep", "--config", path).err


def test_an_unknown_tool_is_answered_with_near_names(tmp_path: Path) -> None:
    path = configuration(tmp_path, echo=echo(), gone={"command": "no-such-program"})
    done = nbtools("tools", "show", "mcp_echo_ad", "--config", path, status=2)
    assert "did you mean mcp_echo_add" in done.err
    # It may be one of a server that is not there: then it is no wrong usage.
    done = nbtools("tools", "show", "search", "--config", path, status=1)
    assert "servers that are not there: gone" in done.err


def test_a_server_that_is_not_there_costs_only_its_tools(tmp_path: Path) -> None:
    path = configuration(tmp_path, echo=echo(), gone={"command": "no-such-program"}, odd={})
    done = nbtools("tools", "--config", path, "--json", status=1)
    assert "mcp_echo_add" in done.out
    assert set(done.json["failures"]) == {"gone", "odd"}
    assert "Error: MCP server gone: 'no-such-program' could not be started" in done.err
    assert "Error: MCP server odd: the entry needs a 'command' or a 'url'" in done.err


def test_one_that_is_slow_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    slow = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    path = configuration(tmp_path, slow=slow)
    done = nbtools("tools", "--config", path, "--timeout", "0.3", status=1)
    assert "MCP server slow: it is still connecting after the time that it was given" in done.err


def test_a_faulty_plugin_is_named_on_stderr_and_costs_only_itself(tmp_path: Path) -> None:
    folder = distribution(
        tmp_path / "site", "some-plugin", {"nanobot.tools": {"broken": "some_tools:missing"}},
        some_tools="NUMBER = 5",
    )  # fmt: skip
    search = os.pathsep.join([str(folder), str(PACKAGE)])
    done = process("tools", "--no-servers", PYTHONPATH=search)
    assert "grep" in done.out
    assert "broken" in done.err
    assert "Traceback" not in done.err
