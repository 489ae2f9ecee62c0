"""``nanobot-tools doctor`` says what the drop-in does, and ``run`` runs nanobot with it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from nanobot_tools.cli import app
from typer.testing import CliRunner
from under_nanobot import UnderNanobot, distribution


def doctor(nanobot: UnderNanobot, *options: str, **environment: str) -> tuple[int, str]:
    """Exit status and output under nanobot."""
    done = subprocess.run(
        [nanobot.python, "-m", "nanobot_tools.cli", "doctor", *options],
        capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
        env=nanobot.environment(COLUMNS="200", **environment), cwd=nanobot.home,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def found(nanobot: UnderNanobot, **environment: str) -> tuple[int, dict[str, Any]]:
    """Exit status and what was found."""
    status, text = doctor(nanobot, "--json", **environment)
    return status, json.loads(text)


def test_all_is_well_with_nothing_to_mend(nanobot: UnderNanobot) -> None:
    status, report = found(nanobot)
    assert (status, report["findings"]) == (0, [])
    assert report["nanobot"] == "0.3.5"
    assert {t["part"] for t in report["targets"] if t["status"] == "active"} == {
        "registry", "loader", "mcp", "executor",
    }  # fmt: skip
    assert {t["status"] for t in report["targets"]} == {"active", "absent", "off"}
    assert [(p["name"], p["verdict"]) for p in report["plugins"]] == [("nanobot_tools", "ours")]


def test_each_server_is_told_who_connects_to_it_and_what_nanobot_will_refuse(nanobot: UnderNanobot) -> None:
    servers = {
        "well": {"command": "echo", "toolTimeout": 5},
        "dropped": {"command": "echo", "retry": "always"},
        "unset": {"url": "https://example.org/mcp", "headers": {"X-Key": "${NO_SUCH_VARIABLE}"}},
        "odd": {"type": "http", "url": "https://example.org/mcp"},
        "oauth": {"url": "https://example.org/mcp", "auth": "oauth"},
        "theirs": {"command": "echo"},
        "empty": {},
    }
    nanobot.configure(
        {"tools": {"mcpServers": servers}}, {"mcpServers": {"theirs": {"backend": "sdk"}}, "x": 1}
    )
    status, report = found(nanobot)
    assert status == 1
    assert {s["name"]: s["backend"] for s in report["servers"]} == {
        "well": "native", "dropped": "native", "unset": "nobody", "odd": "nobody", "oauth": "sdk",
        "theirs": "sdk", "empty": "nobody",
    }  # fmt: skip
    findings = "\n".join(report["findings"])
    assert "MCP server dropped: nanobot drops the field retry" in findings
    assert "MCP server unset: nanobot refuses its whole configuration, since ${NO_SUCH_VARIABLE}" in findings
    assert "MCP server odd: nanobot refuses its whole configuration for type" in findings
    assert "MCP server empty: " in findings
    assert "unknown key 'x'" in findings
    assert len(report["findings"]) == 5
    _, report = found(nanobot, NBTOOLS_MCP="sdk")
    assert {s["backend"] for s in report["servers"]} == {"sdk", "nobody"}


def test_each_entry_point_has_its_verdict(nanobot: UnderNanobot) -> None:
    points = {"fine": "some_tools:Fine", "broken": "some_tools:missing", "number": "some_tools:NUMBER"}
    distribution(
        nanobot.site, "some-plugin", {"nanobot.tools": points},
        some_tools="""
            from nanobot_tools import Tool
            NUMBER = 5
            class Fine(Tool):
                name = "fine"
                description = "A tool."
                parameters = {"type": "object", "properties": {}}
                async def execute(self):
                    return "fine"
        """,
    )  # fmt: skip
    status, report = found(nanobot)
    assert status == 1
    verdicts = {p["name"]: p["verdict"] for p in report["plugins"]}
    assert verdicts == {"nanobot_tools": "ours", "fine": "usable", "broken": "refused", "number": "refused"}
    broken = next(p for p in report["plugins"] if p["name"] == "broken")
    assert broken["distribution"] == "some-plugin"
    assert "has no attribute 'missing'" in broken["reason"]


def test_it_is_readable_without_json_and_says_what_is_switched_off(nanobot: UnderNanobot) -> None:
    nanobot.configure({"tools": {"mcpServers": {"one": {"command": "echo"}}}})
    status, text = doctor(nanobot)
    assert status == 0
    assert text.startswith("nanobot-tools ")
    assert "active: registry, loader, mcp, executor" in text
    assert "Nothing to mend." in text
    status, text = doctor(nanobot, NBTOOLS="off")
    assert status == 0
    assert "nothing active: NBTOOLS=off" in text


def test_without_a_nanobot_it_says_so() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    report = json.loads(result.output)
    assert report["nanobot"] is None
    assert report["summary"] == "there is no nanobot in this environment"
    result = CliRunner().invoke(app, ["run", "--", "agent"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "nanobot is not installed in this environment" in result.output


def test_the_launcher_runs_nanobot_with_the_drop_in_there_first(nanobot: UnderNanobot) -> None:
    command = [nanobot.python, "-m", "nanobot_tools.cli", "run", "--", "--version"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
        env=nanobot.environment(), cwd=nanobot.home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "v0.3.5" in done.stdout
    program = """
        import importlib.metadata, sys
        from nanobot_tools.compat import _run
        import nanobot_tools

        class Script:
            dist = type("Dist", (), {"name": "nanobot-ai"})
            def load(self):
                def main():
                    assert nanobot_tools.compat.report().installed and "nanobot.agent.loop" not in sys.modules
                    print(sys.argv)
                    return 7
                return main

        importlib.metadata.entry_points = lambda **_: [Script()]
        print(_run.run(["gateway", "--port", "1"]))
        """
    assert nanobot.run(program) == "['nanobot', 'gateway', '--port', '1']\n7\n"
    assert sys.argv[0] != "nanobot"
