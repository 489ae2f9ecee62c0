"""The embedded MCP server answers every request, keeps to the protocol, and ends with its input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nanobot_tools.testing import echo_server

COMMAND = [sys.executable, "-m", "nanobot_tools.testing.echo_server"]


class Client:
    """Sends lines and reads lines."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: Any = None, ident: Any = 1) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})
        return self.read()

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def end(self) -> tuple[int, bytes]:
        """End the input; the status and what stderr holds."""
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    if client.process.returncode is None:
        assert client.end() == (0, b"")


def text(reply: dict[str, Any]) -> str:
    return reply["result"]["content"][0]["text"]


def test_a_known_version_is_kept_and_an_unknown_one_answered_with_the_newest(client: Client) -> None:
    for version in echo_server.VERSIONS:
        assert client.ask("initialize", {"protocolVersion": version})["result"]["protocolVersion"] == version
    for version in ("1999-01-01", ["2024-11-05"], None):
        reply = client.ask("initialize", {"protocolVersion": version})
        assert reply["result"]["protocolVersion"] == echo_server.VERSIONS[0]


def test_the_tools_do_what_they_say(client: Client) -> None:
    assert text(client.call("echo", text="héllo")) == "héllo"
    assert text(client.call("echo", text="\ud800")) == "\ud800"
    assert text(client.call("add", a=12345678, b=1)) == "12345679"
    assert text(client.call("add", a=1.5, b=1)) == "2.5"
    assert text(client.call("add", a=1.5, b=0.5)) == "2"
    assert client.call("fail", text="no")["result"] == {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
    }


@pytest.mark.parametrize(
    ("message", "code", "ident"),
    [
        (b"{", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"\xff", -32700, None),
        ([{"id": 1, "method": "ping"}], -32600, None),
        (5, -32600, None),
        ({"id": {}, "method": "tools/call"}, -32600, None),
        ({"id": True, "method": "ping"}, -32600, None),
        ({"id": None, "method": "ping"}, -32600, None),
        ({"id": 1}, -32600, 1),
        ({"id": 1, "method": 5}, -32600, 1),
        ({"id": 1, "method": "resources/list"}, -32601, 1),
        ({"id": 1, "method": "initialize", "params": [1]}, -32602, 1),
        ({"id": "a", "method": "tools/call", "params": "x"}, -32602, "a"),
        ({"id": 1, "method": "tools/call", "params": {"name": ["echo"]}}, -32602, 1),
        ({"id": 1, "method": "tools/call", "params": {"name": "none"}}, -32602, 1),
        ({"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": ["text"]}}, -32602, 1),
        ({"id": 1, "method": "tools/call", "params": {"name": "echo", "_meta": "m"}}, -32602, 1),
        ({"id": 1, "method": "tools/list", "params": {"cursor": "-2"}}, -32602, 1),
        ({"id": 1, "method": "tools/list", "params": {"cursor": "1"}}, -32602, 1),
        ({"id": 1, "method": "tools/list", "params": {"cursor": {}}}, -32602, 1),
    ],
)
def test_a_faulty_message_is_answered_with_an_error(
    client: Client, message: Any, code: int, ident: Any
) -> None:
    client.send(message)
    reply = client.read()
    assert (reply["error"]["code"], reply["id"]) == (code, ident)
    assert client.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("echo", {}),
        ("echo", {"text": 5}),
        ("echo", {"text": "a", "more": 1}),
        ("add", {"a": "1", "b": 2}),
        ("add", {"a": True, "b": 2}),
        ("sleep", {"seconds": -1}),
        ("sleep", {"seconds": 61}),
        ("sleep", {"seconds": float("inf")}),
        ("sleep", {"seconds": float("nan")}),
    ],
)
def test_arguments_that_the_schema_forbids_are_refused(
    client: Client, name: str, arguments: dict[str, Any]
) -> None:
    assert client.call(name, **arguments)["error"]["code"] == -32602


def test_what_needs_no_answer_gets_none(client: Client) -> None:
    client.send({"method": "notifications/initialized"})
    client.send({"method": "notifications/cancelled", "params": {"requestId": []}})
    client.send({"method": "notifications/cancelled", "params": [1]})
    client.send({"id": 1, "result": {}})
    client.send(b"")
    assert client.ask("ping", ident="last")["id"] == "last"


@pytest.mark.parametrize(("page", "pages"), [(0, [7]), (2, [2, 2, 2, 1]), (7, [7]), (100, [7])])
def test_every_tool_is_on_just_one_page(page: int, pages: list[int]) -> None:
    client = Client("--page", str(page), "--tools", "3")
    names: list[list[str]] = []
    cursor = None
    while True:
        result = client.ask("tools/list", {"cursor": cursor} if cursor else {})["result"]
        names.append([tool["name"] for tool in result["tools"]])
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    assert client.end() == (0, b"")
    assert [len(found) for found in names] == pages
    assert len({name for found in names for name in found}) == 7


def test_a_slow_call_reports_progress_and_holds_up_no_other(client: Client) -> None:
    params = {"name": "sleep", "arguments": {"seconds": 0.2}, "_meta": {"progressToken": "t"}}
    client.send({"id": "slow", "method": "tools/call", "params": params})
    client.send({"id": "quick", "method": "ping"})
    replies = [client.read() for _ in range(12)]
    ends = [reply["id"] for reply in replies if "id" in reply]
    assert ends == ["quick", "slow"]
    steps = [reply["params"]["progress"] for reply in replies if "method" in reply]
    assert steps == list(range(1, 11))


def test_a_cancelled_call_is_not_answered(client: Client) -> None:
    client.send({"id": 1, "method": "tools/call", "params": {"name": "sleep", "arguments": {"seconds": 60}}})
    client.send({"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert client.ask("ping", ident=2)["id"] == 2
    assert client.end() == (0, b"")


def test_the_end_of_the_input_ends_the_server_though_a_call_runs(client: Client) -> None:
    client.send({"id": 1, "method": "tools/call", "params": {"name": "sleep", "arguments": {"seconds": 60}}})
    assert client.ask("ping", ident=2)["id"] == 2
    assert client.end() == (0, b"")


def test_a_client_that_stops_reading_ends_it_quietly() -> None:
    client = Client()
    assert client.process.stdout is not None
    client.process.stdout.close()
    client.process.stdout = None
    client.send({"id": 1, "method": "ping"})
    assert client.end() == (0, b"")


def test_the_file_runs_without_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(Path(echo_server.__file__))]
    done = subprocess.run(
        command, input=b'{"id":1,"method":"ping"}\n', capture_output=True, timeout=30, cwd=tmp_path
    )
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
