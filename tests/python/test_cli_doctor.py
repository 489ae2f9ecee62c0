"""``nanobot-tools doctor`` goes through the servers step by step, and says what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Done, configuration, nbtools, variant
from mcp_servers import asking, echo
from under_nanobot import UnderNanobot

pytestmark = pytest.mark.usefixtures("no_configuration")


def steps(done: Done, server: str = "one") -> dict[str, bool]:
    """Step -> whether it is well, of a server."""
    return {check["step"]: check["ok"] for check in done.json["checks"] if check["server"] == server}


def detail(done: Done, step: str, server: str = "one") -> Iterator[dict[str, Any]]:
    return (c for c in done.json["checks"] if (c["server"], c["step"]) == (server, step))


def test_a_well_server_passes_every_step(tmp_path: Path) -> None:
    done = nbtools("doctor", "--config", configuration(tmp_path, one=echo(), two=asking()), "--json")
    wanted = ["entry", "command", "start", "handshake", "lists", "schemas", "health", "names"]
    for server in ("one", "two"):
        assert steps(done, server) == dict.fromkeys(wanted, True)
    assert done.json["findings"] == []
    assert "protocol 2025-11-25, echo 1.0.0" in next(detail(done, "handshake"))["detail"]
    assert next(detail(done, "lists", "two"))["detail"] == "5 tools, 1 resources, 1 prompts"
    assert "gemini 4 adapted" in next(detail(done, "schemas"))["detail"]


def test_it_says_nothing_to_mend_also_without_any_configuration() -> None:
    out = nbtools("doctor").out
    assert "there is no configuration of servers" in out
    assert "Nothing to mend." in out


@pytest.mark.parametrize(
    ("entry", "step", "found", "advice"),
    [
        ({}, "entry", "needs a 'command' or a 'url'", "mend the entry"),
        ({"command": "${NO_SUCH_VARIABLE}"}, "entry", "is not set", "set NO_SUCH_VARIABLE"),
        ({"command": "no-such-program"}, "command", "no-such-program is not found", "install it"),
        ({"command": "npx", "env": {"PATH": "nowhere"}}, "command", "npx is not found", "install Node.js"),
        ({"command": "python", "cwd": "no/folder"}, "command", "no/folder is no folder", "mend cwd"),
        ({"url": "example.org/mcp"}, "address", "it is no address", "https://host/path"),
    ],
)
def test_a_fault_is_found_without_starting_anything(
    tmp_path: Path, entry: dict[str, Any], step: str, found: str, advice: str
) -> None:
    path = configuration(tmp_path, one=entry)
    for options in (["--no-start"], []):
        done = nbtools("doctor", "--config", path, "--json", *options, status=1)
        (finding,) = done.json["findings"]
        assert finding.startswith(f"MCP server one: {step}: ")
        assert found in finding
        assert advice in finding
        assert "start" not in steps(done)


def test_an_unknown_field_is_a_finding_and_the_server_is_started_all_the_same(tmp_path: Path) -> None:
    path = configuration(tmp_path, one={**echo(), "toolTimeOuts": {}, "enabledTool": ["*"]})
    done = nbtools("doctor", "--config", path, "--json", status=1)
    text = "\n".join(done.json["findings"])
    assert "unknown field 'enabled_tool' is ignored: take it out; did you mean enabledTools" in text
    assert steps(done)["health"]


@pytest.mark.parametrize(
    ("code", "found", "advice"),
    [
        ("raise SystemExit('no licence')", "no licence", "run the command in a shell"),
        ("import sys; sys.stdin.read()", "connecting", "--timeout"),
        ("input(); print('{}', flush=True); input()", "", ""),
    ],
)
def test_a_server_that_does_not_shake_hands_is_told_with_its_reason(
    tmp_path: Path, code: str, found: str, advice: str
) -> None:
    path = configuration(tmp_path, one={"command": sys.executable, "args": ["-c", code]})
    done = nbtools("doctor", "--config", path, "--json", "--timeout", 1, status=1)
    assert steps(done) == {"entry": True, "command": True, "handshake": False}
    check = next(detail(done, "handshake"))
    assert found in check["detail"]
    assert advice in check["advice"]


def test_an_address_that_may_not_be_reached_is_told_how_to_allow_it(tmp_path: Path) -> None:
    path = configuration(tmp_path, one={"url": "http://127.0.0.1:9/mcp"})
    (finding,) = nbtools("doctor", "--config", path, "--json", status=1).json["findings"]
    assert "allowPrivate" in finding
    path = configuration(tmp_path, one={"url": "http://127.0.0.1:9/mcp", "allowPrivate": True})
    (finding,) = nbtools("doctor", "--config", path, "--json", status=1).json["findings"]
    assert "see that the server runs" in finding


def test_schemas_and_names_that_are_not_as_they_should_be_are_found(tmp_path: Path) -> None:
    change = """
        schema = server._tools["echo"][0]["inputSchema"]
        schema["properties"]["text"]["type"] = "strin"
        server._tools["again"] = server._tools["add"]
    """
    done = nbtools(
        "doctor", "--config", configuration(tmp_path, one=variant(tmp_path, change)), "--json", status=1
    )
    assert not steps(done)["schemas"]
    assert "tool echo" in next(detail(done, "schemas"))["detail"]
    assert "it lists the tool add twice" in next(detail(done, "names"))["detail"]


def test_two_servers_with_the_same_names_are_found(tmp_path: Path) -> None:
    path = configuration(tmp_path, **{"a b": echo(), "a_b": echo()})
    done = nbtools("doctor", "--config", path, "--json", status=1)
    assert "is also a tool of a b" in next(detail(done, "names", "a_b"))["detail"]
    assert all("disabledTools" in text for text in done.json["findings"] if "also a tool" in text)
    path = configuration(tmp_path, **{"a b": echo(), "a_b": {**echo(), "disabledTools": ["*"]}})
    done = nbtools("doctor", "--config", path, "--json")
    assert next(detail(done, "lists", "a_b"))["detail"] == "4 tools (4 not offered)"


def test_a_list_that_fails_and_a_server_that_does_not_answer_are_found(tmp_path: Path) -> None:
    change = """
        usual = server._result
        def result(method, params, cancelled):
            if method == "initialize":
                return {**usual(method, params, cancelled), "capabilities": {"tools": {}, "prompts": {}}}
            if method == "ping":
                raise base.RpcError(-32603, "not now")
            return usual(method, params, cancelled)
        server._result = result
    """
    path = configuration(tmp_path, one=variant(tmp_path, change))
    done = nbtools("doctor", "--config", path, "--json", status=1)
    assert "no method prompts/list" in "\n".join(done.json["findings"])
    path = configuration(tmp_path, one=variant(tmp_path, change.replace(', "prompts": {}', "")))
    done = nbtools("doctor", "--config", path, "--json", status=1)
    assert not steps(done)["health"]
    assert "not now" in next(detail(done, "health"))["detail"]


def test_a_disabled_server_is_left_alone(tmp_path: Path) -> None:
    path = configuration(tmp_path, one={"command": "no-such-program", "disabled": True})
    assert steps(nbtools("doctor", "--config", path, "--json")) == {"entry": True}


def test_a_file_that_cannot_be_read_is_a_finding_but_one_that_is_not_there_wrong_usage(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{\n  1", encoding="utf-8")
    assert f"! {path}:2:3: " in nbtools("doctor", "--config", path, status=1).out
    nbtools("doctor", "--config", tmp_path / "none.json", status=2)


def test_under_nanobot_the_servers_are_checked_beside_the_drop_in(nanobot: UnderNanobot) -> None:
    servers = {"one": echo(), "theirs": {"command": "no-such-program"}, "empty": {}}
    nanobot.configure({"tools": {"mcpServers": servers}}, {"mcpServers": {"theirs": {"backend": "sdk"}}})
    program = """
        import sys
        from nanobot_tools.cli import main
        sys.argv = ["", "doctor", "--json"]
        try:
            main()
        except SystemExit as exc:
            assert exc.code == 1
        """
    report = json.loads(nanobot.run(program))
    assert report["nanobot"] == "0.3.5"
    done = Done(1, json.dumps(report), "")
    assert steps(done)["health"]
    assert not steps(done, "theirs")["command"]
    # What the drop-in says of an entry is not said twice.
    assert [text for text in report["findings"] if "empty" in text] == [
        text for text in report["findings"] if text.startswith("MCP server empty: ")
    ]
    assert len([text for text in report["findings"] if "empty" in text]) == 1
