"""``nanobot-tools call`` calls a tool as a model would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import configuration, nbtools, process, variant
from mcp_servers import echo
from nanobot_tools.cli._measure import percentile

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return configuration(tmp_path)


def test_arguments_are_cast_by_the_schema(config: Path) -> None:
    assert nbtools("call", "mcp_echo_add", "a=2", "b=3.5", "--config", config).out == "5.5\n"
    assert nbtools("call", "mcp_echo_echo", "text=2", "--config", config).out == "2\n"
    assert nbtools("call", "mcp_echo_echo", "text=a=b", "--config", config).out == "a=b\n"


def test_arguments_come_as_json_from_an_option_or_from_stdin(config: Path) -> None:
    for options, stdin in ((["--args", '{"a": 1, "b": 2}'], None), (["--args", "-"], '{"a": 1, "b": 2}')):
        assert nbtools("call", "mcp_echo_add", *options, "--config", config, stdin=stdin).out == "3\n"
    mixed = nbtools("call", "mcp_echo_add", "b=4", "--args", '{"a": 1, "b": 2}', "--config", config)
    assert mixed.out == "5\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a"], "'a' is not of the form key=value"),
        (["=a"], "is not of the form key=value"),
        (["a=1", "a=2"], "'a' is given twice"),
        (["--args", '{"a": 1,'], "--args:1:9: "),
        (["--args", "[1]"], "must be a JSON object"),
    ],
)
def test_arguments_that_cannot_be_read_are_wrong_usage(config: Path, arguments: list[str], says: str) -> None:
    assert says in nbtools("call", "mcp_echo_add", *arguments, "--config", config, status=2).err


def test_what_the_schema_refuses_fails_and_says_what_is_wrong(config: Path) -> None:
    done = nbtools("call", "mcp_echo_add", "a=2", "b=x", "--config", config, status=1)
    assert done.out == ""
    assert done.err == "Error: Invalid parameters for tool 'mcp_echo_add': b should be number\n"
    found = nbtools("call", "mcp_echo_add", "a=2", "--config", config, "--json", status=1).json
    assert (found["ok"], found["error_kind"]) == (False, "invalid_arguments")


def test_a_failing_tool_fails_the_command(config: Path) -> None:
    done = nbtools("call", "mcp_echo_fail", "text=because", "--config", config, status=1)
    assert "because" in done.err


def test_a_call_may_take_as_long_as_the_option_says_whatever_the_entry_says(tmp_path: Path) -> None:
    path = configuration(tmp_path, echo={**echo(), "toolTimeout": 0.2, "toolTimeouts": {"sleep": 0.1}})
    call = ("call", "mcp_echo_sleep", "seconds=0.5", "--config", path)
    assert "timed out" in nbtools(*call, status=1).err
    assert nbtools(*call, "--timeout", 20).out == "slept 0.5 s\n"
    assert "timed out" in nbtools(*call, "--timeout", 0.1, status=1).err


def test_a_tool_of_the_package_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    path = configuration(tmp_path, gone={"command": "no-such-program"})
    done = nbtools("call", "grep", "pattern=needle", "--workspace", tmp_path, "--config", path)
    assert "a.txt" in done.out
    assert done.err == ""


def test_an_unknown_tool_is_answered_with_near_names(config: Path) -> None:
    for name in ("mcp_echo_ad", "add"):
        assert "did you mean mcp_echo_add" in nbtools("call", name, "--config", config, status=2).err


def test_repeated_calls_are_measured(config: Path) -> None:
    done = nbtools("call", "mcp_echo_echo", "text=x", "--repeat", 20, "--parallel", 4, "--config", config)
    assert done.out == "x\n"
    assert done.err.startswith("20 calls, 4 at once, in ")
    assert all(word in done.err for word in ("calls/s", "p50", "p95", "max"))
    few = nbtools("call", "mcp_echo_echo", "text=x", "--repeat", 2, "--parallel", 4, "--config", config)
    assert few.err.startswith("2 calls, 2 at once, in ")
    found = nbtools(
        "call", "mcp_echo_sleep", "seconds=0.1", "--parallel", 3, "--config", config, "--json"
    ).json["measured"]
    assert (found["calls"], found["parallel"], found["failed"]) == (3, 3, {})
    assert 0.1 <= found["latency"]["p50"] <= found["latency"]["max"]
    # Side by side, or it would be three times as long.
    assert found["elapsed"] < sum([found["latency"]["p50"]] * 3)


def test_of_many_calls_a_failed_one_is_shown_and_counted(config: Path) -> None:
    found = nbtools(
        "call", "mcp_echo_fail", "text=no", "--repeat", 3, "--config", config, "--json", status=1
    ).json
    assert found["ok"] is False
    assert sum(found["measured"]["failed"].values()) == 3


def test_images_and_audio_are_named_as_files(tmp_path: Path) -> None:
    blocks = [
        {"type": "text", "text": "see:"},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    ]
    sound = [{"type": "audio", "data": "UklGRiQAAABXQVZF", "mimeType": "audio/wav"}]
    change = f"""
        for name, blocks in (("image", {blocks!r}), ("audio", {sound!r})):
            run = lambda *_, blocks=blocks: {{"content": blocks}}
            server._add(name, "Show.", base._schema([]), run)
    """
    path, folder = configuration(tmp_path, echo=variant(tmp_path, change)), tmp_path / "files"
    shown = nbtools("call", "mcp_echo_image", "--config", path, "--artifacts", folder).out
    first, second = shown.splitlines()
    assert first == "see:"
    assert second.startswith(f"[image: image/png, stored as {folder}")
    assert Path(second.rpartition(" as ")[2].removesuffix("]")).read_bytes().startswith(b"\x89PNG")
    found = nbtools("call", "mcp_echo_image", "--config", path, "--artifacts", folder, "--json").json
    assert len(found["files"]) == 1
    assert "stored as" in nbtools("call", "mcp_echo_audio", "--config", path, "--artifacts", folder).out


def test_a_result_is_piped_as_it_is_and_without_progress(tmp_path: Path) -> None:
    path = configuration(tmp_path, echo=echo())
    arguments = json.dumps({"text": "a\x1b[1mb"})
    done = process("call", "mcp_echo_echo", "--args", "-", "--config", path, stdin=arguments)
    assert (done.out, done.err) == ("a\x1b[1mb\n", "")
    assert process("call", "mcp_echo_sleep", "seconds=0.2", "--config", path).err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")
def test_progress_is_a_bar_on_a_terminal_and_stays_out_of_the_result(tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    options = ["call", "mcp_echo_sleep", "seconds=0.5", "--config", str(configuration(tmp_path))]
    done = subprocess.run(
        [sys.executable, "-m", "nanobot_tools.cli", *options],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal, timeout=60,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    with open(controller, "rb", buffering=0) as output:
        shown = output.read(1 << 20).decode()
    assert done.stdout == b"slept 0.5 s\n"
    assert "mcp_echo_sleep" in shown
    assert "━" in shown


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([], 0.5) is None
    assert percentile([1.0], 0.95) == 1.0
    hundred = [float(i) for i in range(1, 101)]
    assert [percentile(hundred, share) for share in (0.5, 0.95, 1.0)] == [50.0, 95.0, 100.0]
