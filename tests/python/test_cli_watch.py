"""``nanobot-tools watch`` shows the servers as they are, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import configuration, nbtools, variant
from mcp_servers import echo

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of Unix")


def test_one_look_is_a_table_or_json(tmp_path: Path) -> None:
    path = configuration(tmp_path)
    head, line = nbtools("watch", "--once", "--config", path).out.splitlines()
    assert head.split()[:4] == ["SERVER", "STATE", "TOOLS", "IN"]
    assert line.split()[:2] == ["echo", "ready"]
    (status,) = nbtools("watch", "--json", "--config", path).json["servers"]
    assert (status["name"], status["state"], status["running"]) == ("echo", "ready", 0)
    assert (status["calls"], status["errors"]) == (1, {})
    assert status["latency"]["p50"] > 0
    assert status["bytes_received"] > status["bytes_sent"] > 0


def test_one_look_at_a_server_that_is_not_there_fails(tmp_path: Path) -> None:
    path = configuration(tmp_path, one=echo(), gone={"command": "no-such-program"})
    assert "could not be started" in nbtools("watch", "--once", "--config", path, status=1).out
    assert nbtools("watch", "one", "--once", "--config", path).status == 0


class Watching:
    """A ``watch`` that goes on; its output is read through ``descriptor``."""

    def __init__(self, path: Path, descriptor: int, output: int) -> None:
        command = [
            sys.executable,
            "-m",
            "nanobot_tools.cli",
            "watch",
            "--interval",
            "0.1",
            "--config",
            str(path),
        ]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "COLUMNS": "200", "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(output)
        self.descriptor = descriptor
        self.text = ""

    def read_until(self, fact: Callable[[str], object]) -> None:
        """Read what it prints until something is so."""
        deadline = time.monotonic() + 60
        while not fact(self.text):
            assert time.monotonic() < deadline, self.text
            self.text += os.read(self.descriptor, 65536).decode(errors="replace")

    def end(self, number: int) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        try:
            while chunk := os.read(self.descriptor, 65536):
                self.text += chunk.decode(errors="replace")
        except OSError:
            # A terminal without a program is an error to read.
            pass
        finally:
            os.close(self.descriptor)
        return self.process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_terminal_a_change_is_a_line_and_a_signal_ends_it_cleanly(
    tmp_path: Path, number: int
) -> None:
    watching = Watching(configuration(tmp_path), *os.pipe())
    watching.read_until(lambda text: "echo ready, 4 tools, 0 reconnects" in text)
    assert watching.end(number) == 0
    assert "Traceback" not in watching.text
    assert "\x1b" not in watching.text


def test_a_server_that_is_lost_and_found_again_is_told(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        f"import os, pathlib; pathlib.Path({str(pids)!r}).write_text(str(os.getpid()));"
        "import nanobot_tools.testing.echo_server as server; server.main([])"
    )
    path = configuration(tmp_path, echo={**echo(), "args": ["-c", program]})
    watching = Watching(path, *os.pipe())
    watching.read_until(lambda text: "echo ready, 4 tools, 0 reconnects" in text)
    os.kill(int(pids.read_text()), signal.SIGKILL)
    watching.read_until(lambda text: "echo ready, 4 tools, 1 reconnects" in text)
    assert watching.end(signal.SIGINT) == 0


def test_on_a_terminal_there_is_a_live_table_and_the_cursor_comes_back(tmp_path: Path) -> None:
    controller, terminal = os.openpty()
    watching = Watching(configuration(tmp_path), controller, terminal)
    watching.read_until(lambda text: "reconnects" in text and "ready" in text)
    assert watching.end(signal.SIGINT) == 0
    assert watching.text.rstrip().endswith("\x1b[?25h")
    assert "Traceback" not in watching.text


def test_a_ping_that_is_not_answered_is_told(tmp_path: Path) -> None:
    change = """
        usual = server._result
        server._result = lambda method, *more: None if method == "ping" else usual(method, *more)
    """
    path = configuration(tmp_path, echo=variant(tmp_path, change))
    done = nbtools("watch", "--json", "--interval", "0.2", "--config", path)
    (status,) = json.loads(done.out)["servers"]
    assert status["last_failure"] == "it does not answer within 1.00 s"
