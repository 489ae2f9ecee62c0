"""``nanobot-tools bench`` measures a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import configuration, nbtools
from mcp_servers import echo


@pytest.fixture
def config(tmp_path: Path) -> Path:
    off = {"command": "x", "disabled": True}
    return configuration(tmp_path, echo=echo(), gone={"command": "no-such-program"}, off=off)


def test_a_server_is_pinged_one_by_one_and_side_by_side(config: Path) -> None:
    found = nbtools("bench", "echo", "--calls", 20, "--parallel", 5, "--config", config, "--json").json
    assert found["start_time"] > 0
    for how, parallel in (("one_by_one", 1), ("side_by_side", 5)):
        measured = found[how]
        assert (measured["calls"], measured["parallel"], measured["failed"]) == (20, parallel, {})
        assert measured["calls_per_second"] > 0
        assert 0 < measured["latency"]["p50"] <= measured["latency"]["p95"] <= measured["latency"]["max"]


def test_a_tool_may_be_named_as_the_server_or_a_model_does(config: Path) -> None:
    for tool in ("sleep", "mcp_echo_sleep"):
        found = nbtools(
            "bench", "echo", "--tool", tool, "--args", '{"seconds": "0.05"}', "--calls", 4, "--parallel", 4,
            "--config", config, "--json",
        ).json  # fmt: skip
        assert found["one_by_one"]["elapsed"] >= 4 * 0.05
        assert found["side_by_side"]["elapsed"] < found["one_by_one"]["elapsed"]


def test_the_table_names_what_was_measured(config: Path) -> None:
    out = nbtools(
        "bench", "echo", "--tool", "add", "--args", "-", "--config", config, stdin='{"a":1,"b":2}'
    ).out
    first, head, one, many = out.splitlines()
    assert first.startswith("echo: start ")
    assert first.endswith("tool add")
    assert head.split()[0] == "CALLS"
    assert one.startswith("one by one")
    assert many.startswith("side by side")


def test_calls_that_fail_are_counted_and_fail_the_command(config: Path) -> None:
    command = ("bench", "echo", "--tool", "fail", "--args", '{"text": "x"}', "--calls", 3)
    done = nbtools(*command, "--config", config, "--json", status=1)
    assert sum(done.json["one_by_one"]["failed"].values()) == 3
    assert done.json["one_by_one"]["latency"]["p50"] is None


def test_what_cannot_be_measured_says_why(config: Path) -> None:
    for status, says, arguments in (
        (2, "did you mean echo?", ["ecko"]),
        (2, "did you mean", ["echo", "--tool", "ad"]),
        (2, "--args needs a --tool", ["echo", "--args", "{}"]),
        (1, "missing required", ["echo", "--tool", "add", "--args", "{}"]),
        (1, "could not be started", ["gone"]),
        (1, "is disabled", ["off"]),
    ):
        assert says in nbtools("bench", *arguments, "--config", config, status=status).err
