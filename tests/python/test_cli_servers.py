"""``nanobot-tools servers`` says how the servers of the configuration are."""

from __future__ import annotations

import sys
from pathlib import Path

from command_line import configuration, nbtools
from mcp_servers import asking, echo


def test_each_server_is_told_with_state_protocol_tools_and_start(tmp_path: Path) -> None:
    path = configuration(tmp_path, one=echo(), two=asking(), off={"command": "x", "disabled": True})
    done = nbtools("servers", "--config", path, "--json")
    found = {status["name"]: status for status in done.json["servers"]}
    assert list(found) == ["one", "two", "off"]
    assert (found["one"]["state"], found["one"]["protocol_version"]) == ("ready", "2025-11-25")
    assert found["one"]["tools"] == 4
    assert 0 < found["one"]["start_time"] < 30
    assert found["two"]["state"] == "ready"
    assert (found["off"]["state"], found["off"]["start_time"]) == ("disabled", None)
    assert done.json["config"] == str(path)


def test_the_table_has_a_line_for_each(tmp_path: Path) -> None:
    path = configuration(tmp_path, one=echo(), off={"command": "x", "disabled": True})
    head, one, off = nbtools("servers", "--config", path).out.splitlines()
    assert head.split()[:4] == ["SERVER", "STATE", "PROTOCOL", "TOOLS"]
    assert one.split()[:4] == ["one", "ready", "2025-11-25", "4"]
    assert off.split() == ["off", "disabled", "-", "0", "-", "-"]


def test_one_that_cannot_be_called_fails_the_command_and_says_why(tmp_path: Path) -> None:
    failing = {"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]}
    path = configuration(tmp_path, well=echo(), failing=failing, odd={"command": 1})
    done = nbtools("servers", "--config", path, status=1)
    assert "no licence" in done.out
    assert "'command' must be a string" in done.out
    assert nbtools("servers", "well", "--config", path).status == 0


def test_a_server_that_is_not_configured_is_answered_with_near_names(tmp_path: Path) -> None:
    done = nbtools("servers", "ecko", "--config", configuration(tmp_path), status=2)
    assert "there is no server 'ecko'" in done.err
    assert "did you mean echo?" in done.err


def test_entries_are_asked_themselves_and_not_the_cache(tmp_path: Path) -> None:
    path = configuration(tmp_path, echo={**echo(), "lazy": True, "idleTimeout": 0.1})
    for _ in range(2):
        status = nbtools("servers", "--config", path, "--json").json["servers"][0]
        assert (status["state"], status["cached"]) == ("ready", False)
