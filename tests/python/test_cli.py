"""What holds for every command: which configuration is read, how errors look, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nanobot_tools
import pytest
from command_line import configuration, nbtools, process, variant
from mcp_servers import echo

pytestmark = pytest.mark.usefixtures("no_configuration")


def test_the_version_is_that_of_the_package() -> None:
    assert nbtools("version").out.strip() == nanobot_tools.__version__


def test_without_the_extra_the_message_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; import nanobot_tools.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "install nanobot-tools[cli]" in done.stderr


def test_a_command_imports_no_more_than_it_needs() -> None:
    program = """
import sys
from nanobot_tools.cli import app
app(["version"], standalone_mode=False)
modules = {"asyncio", "nanobot_tools.mcp", "nanobot_tools.executor", "nanobot_tools.loader"}
print(sorted(modules & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{nanobot_tools.__version__}\n[]\n"


def test_the_configuration_is_the_named_one_or_that_of_the_environment_or_of_nanobot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def servers(*options: object) -> set[str]:
        return {status["name"] for status in nbtools("servers", "--json", *options).json["servers"]}

    (tmp_path / ".nanobot").mkdir()
    entries = {"own": {"command": "x", "disabled": True}}
    (tmp_path / ".nanobot/config.json").write_text(json.dumps({"tools": {"mcpServers": entries}}))
    assert servers() == {"own"}
    other = configuration(tmp_path, other={"command": "x", "disabled": True})
    monkeypatch.setenv("NBTOOLS_CONFIG", str(other))
    assert servers() == {"other"}
    named = configuration(tmp_path, "named.json", named={"command": "x", "disabled": True})
    assert servers("--config", named) == {"named"}


def test_nanobots_file_comes_with_its_networks_and_our_options(tmp_path: Path) -> None:
    from nanobot_tools.cli import _config

    path = tmp_path / "config.json"
    servers = {"one": {"url": "http://10.0.0.1/mcp", "toolTimeout": 3}}
    path.write_text(json.dumps({"tools": {"mcpServers": servers, "ssrfWhitelist": ["10.0.0.0/8"]}, "ui": 1}))
    (tmp_path / "nanobot-tools.json").write_text(json.dumps({"defaults": {"retry": "always"}, "what": 1}))
    config = _config.read(path)
    assert config.servers["one"] == {
        "url": "http://10.0.0.1/mcp", "toolTimeout": 3, "retry": "always", "ssrf_whitelist": ["10.0.0.0/8"],
    }  # fmt: skip
    assert [warning for warning in config.warnings if "unknown key 'what'" in warning] == config.warnings


def test_unknown_fields_are_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {"one": {"command": "x", "disabled": True, "speed": 1}}, "y": 2})
    )
    done = nbtools("servers", "--config", path)
    assert "unknown field 'speed' is ignored" in done.err
    assert "unknown field 'y' is ignored" in done.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"mcpServers": {\n  "a": {,}\n}}', ":2:9: "),
        ('{"mcpServers": [1]}', "mcpServers must be an object"),
        ("[]", "must be a JSON object"),
        ('{"mcpServers": {}}', "no MCP servers in it"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_faulty_file_is_wrong_usage_and_the_place_is_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(content, encoding="utf-8")
    done = nbtools("servers", "--config", path, status=2)
    assert done.err.startswith(f"Error: {path}")
    assert says in done.err
    assert done.out == ""


def test_a_file_that_is_not_there_or_not_readable_as_text_is_wrong_usage(tmp_path: Path) -> None:
    assert "does not exist" in nbtools("servers", "--config", tmp_path / "none.json", status=2).err
    assert "no configuration" in nbtools("servers", status=2).err
    (tmp_path / "latin.json").write_bytes(b'{"caf\xe9": 1}')
    assert "not UTF-8" in nbtools("servers", "--config", tmp_path / "latin.json", status=2).err
    assert "Is a directory" in nbtools("servers", "--config", tmp_path, status=2).err


def test_variables_are_replaced_and_those_that_are_not_set_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = {**echo(), "command": "${MY_PYTHON}"}
    path = configuration(tmp_path, echo=entry)
    assert "MY_PYTHON is not set" in nbtools("servers", "--config", path, status=1).out
    monkeypatch.setenv("MY_PYTHON", sys.executable)
    assert nbtools("servers", "--config", path, "--json").json["servers"][0]["state"] == "ready"


def test_it_works_without_a_terminal_and_prints_no_colours(tmp_path: Path) -> None:
    path = configuration(tmp_path)
    for command in (["tools"], ["servers"], ["--help"]):
        done = process(*command, NBTOOLS_CONFIG=str(path), PYTHONIOENCODING="ascii", LC_ALL="C")
        assert "\x1b" not in done.out + done.err
        assert "Traceback" not in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Unix")
@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_on_a_terminal_there_are_styles_unless_they_are_not_wanted(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    path = configuration(tmp_path, off={"command": "x", "disabled": True})

    def shown(**more: str) -> str:
        controller, terminal = os.openpty()
        environment = {**os.environ, "TERM": "xterm", **more}
        environment.pop("NO_COLOR" if not more else "", None)
        command = [sys.executable, "-m", "nanobot_tools.cli", "servers", "--config", str(path)]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, env=environment, timeout=60
        )
        os.close(terminal)
        with open(controller, "rb", buffering=0) as output:
            text = output.read(65536).decode()
        assert done.returncode == 0, text
        return text

    assert "\x1b[" in shown()
    assert "\x1b[" not in shown(**variables)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_an_interrupt_ends_a_call_and_its_server_without_a_traceback(tmp_path: Path) -> None:
    pid, called = tmp_path / "pid", tmp_path / "called"
    change = f"""
        import os, pathlib
        pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))
        schema, sleep = server._tools["sleep"]
        def run(*arguments):
            pathlib.Path({str(called)!r}).touch()
            return sleep(*arguments)
        server._tools["sleep"] = (schema, run)
    """
    path = configuration(tmp_path, echo=variant(tmp_path, change))
    options = ["call", "mcp_echo_sleep", "seconds=50", "--config", str(path)]
    command = [sys.executable, "-m", "nanobot_tools.cli", *options]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        deadline = time.monotonic() + 60
        while not called.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "Traceback" not in out + err
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Unix")
def test_a_reader_that_goes_away_is_no_error_to_see(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "nanobot_tools.cli", "tools", "--no-servers", "--json"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writer)
    assert b"Traceback" not in done.stderr


def test_users_see_no_traceback_and_scripts_the_exit_status(tmp_path: Path) -> None:
    path = configuration(tmp_path, gone={"command": "no-such-program"})
    for status, command in (
        (0, ["tools", "--no-servers"]),
        (1, ["tools", "--config", path]),
        (2, ["tools", "--config", tmp_path / "none.json"]),
        (2, ["tools", "show", "grip", "--no-servers"]),
        (2, ["tools", "show"]),
        (2, ["tools", "--profile", "nobody"]),
        (2, ["no-such-command"]),
    ):
        done = process(*command, status=status)
        assert "Traceback" not in done.err


def test_shells_complete_commands_and_the_servers_of_the_configuration(tmp_path: Path) -> None:
    path = configuration(tmp_path, first=echo(), second=echo())

    def completed(line: str) -> set[str]:
        done = process(
            _NANOBOT_TOOLS_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line, NBTOOLS_CONFIG=str(path)
        )
        return {word for word in ("first", "second", "servers", "tools") if f'"{word}"' in done.out}

    assert completed("nanobot-tools ") == {"servers", "tools"}
    assert completed("nanobot-tools servers ") == {"first", "second"}
    assert completed("nanobot-tools bench se") == {"second"}
    path.write_text("{", encoding="utf-8")
    assert completed("nanobot-tools servers ") == set()


def test_help_calls_the_program_by_its_name() -> None:
    assert "Usage: nanobot-tools [OPTIONS]" in process("--help").out


def test_what_others_say_cannot_steer_the_terminal() -> None:
    from nanobot_tools.cli import _output

    assert _output.clean("a\x1b[2Jb\tc\nd\u202ee") == "a\\x1b[2Jb\tc\nd\\x202ee"
    assert _output.plain_table(("x", "y"), [("a\nb", None), ("c", 12)]) == "X    Y\na b  -\nc    12"
