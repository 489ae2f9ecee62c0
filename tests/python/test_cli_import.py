"""``nanobot-tools import`` reads what other clients have, and writes a configuration of ours."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import nbtools
from mcp_servers import echo
from nanobot_tools.cli import _schema
from nanobot_tools.cli._secrets import move

STDIO = {"command": "run", "args": ["a", "b"], "env": {"MODE": "x"}}


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder that is the current one too, with no file of any client."""
    for name in ("NBTOOLS_CONFIG", "XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def imported(*arguments: object) -> dict[str, Any]:
    """The servers of an import, which are valid by the published schema."""
    found = nbtools("import", *arguments, "--json").json
    jsonschema.validate({"mcpServers": found["mcpServers"]}, _schema.schema())
    return dict(found)


@pytest.mark.parametrize(
    ("where", "content"),
    [
        ("config.json", {"agents": {}, "tools": {"mcpServers": {"one": STDIO}}}),
        (".mcp.json", {"mcpServers": {"one": {"type": "stdio", **STDIO}}}),
        ("claude_desktop_config.json", {"globalShortcut": "", "mcpServers": {"one": STDIO}}),
        ("mcp.json", {"inputs": [], "servers": {"one": {"type": "stdio", **STDIO}}}),
        ("settings.json", {"editor.tabSize": 2, "mcp": {"servers": {"one": STDIO}}}),
        (
            "config.toml",
            'model = "x"\n[mcp_servers.one]\ncommand = "run"\nargs = ["a", "b"]\nenv = { MODE = "x" }\n',
        ),
    ],
)
def test_each_form_is_read(place: Path, where: str, content: Any) -> None:
    (entry,) = imported(put(place / "files" / where, content))["mcpServers"].values()
    assert {key: value for key, value in entry.items() if key != "type"} == STDIO


def test_the_files_of_all_clients_are_found_by_themselves_or_by_name(place: Path) -> None:
    def servers(name: str) -> dict[str, Any]:
        return {name: {"command": name}}

    put(place / ".nanobot/config.json", {"tools": {"mcpServers": servers("nanobot")}})
    put(place / ".mcp.json", {"mcpServers": servers("project")})
    put(place / ".cursor/mcp.json", {"mcpServers": servers("cursor")})
    put(place / ".vscode/mcp.json", {"servers": servers("vscode")})
    put(place / ".codex/config.toml", '[mcp_servers.codex]\ncommand = "codex"\n')
    projects = {str(Path.cwd()): {"mcpServers": servers("here")}, "/elsewhere": {"mcpServers": servers("x")}}
    put(place / ".claude.json", {"mcpServers": servers("claude-code"), "projects": projects})
    folder = {"darwin": "Library/Application Support", "win32": ""}.get(sys.platform, ".config")
    put(place / folder / "Claude/claude_desktop_config.json", {"mcpServers": servers("claude-desktop")})
    everyone = {"nanobot", "project", "cursor", "vscode", "codex", "claude-code", "here", "claude-desktop"}
    found = imported()
    assert set(found["mcpServers"]) == everyone
    assert {source["client"] for source in found["sources"]} == everyone - {"here"}
    assert set(imported("cursor", "codex")["mcpServers"]) == {"cursor", "codex"}
    # A place that is both the user's and the project's is told once.
    assert [source["client"] for source in found["sources"]].count("cursor") == 1


def test_comments_and_trailing_commas_are_read_and_faults_keep_their_place(place: Path) -> None:
    text = """{
      // the servers
      "servers": { /* one
      of them */ "one": { "command": "run", "args": ["http://x/*y*/", "a,]",], }, },
    }"""
    path = put(place / "mcp.json", text)
    assert imported(path)["mcpServers"]["one"]["args"] == ["http://x/*y*/", "a,]"]
    put(path, text.replace('"args"', "args"))
    column = text.splitlines()[3].index('"args"') + 1
    assert f"{path}:4:{column}: " in nbtools("import", path, status=2).err


def test_references_of_other_clients_become_variables_and_folders(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERE", "1")
    content = {
        "inputs": [{"type": "promptString", "id": "api-key", "description": "The key", "password": True}],
        "servers": {
            "one": {
                "command": "run",
                "args": [
                    "${workspaceFolder}/x",
                    "${userHome}",
                    "${GONE:-default}",
                    "${THERE:-no}",
                    "${a b}",
                ],
                "env": {"KEY": "${input:api-key}", "OTHER": "${env:OTHER}"},
                "envFile": "${workspaceFolder}/.env",
                "dev": {"watch": "*"},
            }
        },
    }
    found = imported(put(place / ".vscode/mcp.json", content))
    assert found["mcpServers"]["one"] == {
        "command": "run",
        "args": [f"{place}/x", str(place), "default", "${THERE}", "${a b}"],
        "env": {"KEY": "${API_KEY}", "OTHER": "${OTHER}"},
    }
    assert found["variables"] == ["API_KEY", "OTHER", "THERE"]
    notes = "\n".join(found["notes"])
    assert "its envFile is not read" in notes
    assert "left out dev" in notes
    assert "set API_KEY: The key" in nbtools("import", "vscode").out


def test_codex_has_its_own_fields(place: Path) -> None:
    text = """
        [mcp_servers.remote]
        url = "https://example.org/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { "X-A" = "a" }
        env_http_headers = { "X-B" = "B_VARIABLE" }
        startup_timeout_sec = 20
        tool_timeout_sec = 45.5
        enabled_tools = ["search"]
        enabled = false

        [mcp_servers.local]
        command = "run"
        env_vars = ["PASSED"]
        startup_timeout_ms = 1500
        required = true
    """
    found = imported(put(place / "config.toml", text))
    assert found["mcpServers"] == {
        "remote": {
            "url": "https://example.org/mcp",
            "connectTimeout": 20,
            "toolTimeout": 45.5,
            "enabledTools": ["search"],
            "headers": {"X-A": "a", "X-B": "${B_VARIABLE}", "Authorization": "Bearer ${TOKEN}"},
            "disabled": True,
        },
        "local": {"command": "run", "env": {"PASSED": "${PASSED}"}, "connectTimeout": 1.5},
    }
    assert found["variables"] == ["B_VARIABLE", "PASSED", "TOKEN"]
    assert "left out required" in found["notes"][0]
    put(place / "config.toml", "[mcp_servers\n")
    assert "line 1" in nbtools("import", place / "config.toml", status=2).err


def test_what_is_written_works_and_nothing_is_overwritten_unless_it_is_forced(place: Path) -> None:
    source = put(place / ".mcp.json", {"mcpServers": {"echo": echo()}})
    target = place / "ours.json"
    nbtools("import", source, "--output", target)
    assert nbtools("servers", "--config", target, "--json").json["servers"][0]["state"] == "ready"
    if os.name == "posix":
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    put(source, {"mcpServers": {"other": {"command": "x"}}})
    assert "--force overwrites it" in nbtools("import", source, "--output", target, status=2).err
    assert target.read_bytes() == before
    nbtools("import", source, "--output", target, "--force")
    assert list(json.loads(target.read_text())["mcpServers"]) == ["other"]
    assert sorted(path.name for path in place.iterdir()) == [".mcp.json", "ours.json"]


def test_secrets_are_moved_on_request_and_never_shown(place: Path) -> None:
    content = {
        "mcpServers": {
            "hub": {
                "command": "run",
                "args": ["--api-key", "sk-1", "--verbose"],
                "env": {"HUB_TOKEN": "t 1"},
            },
            "web": {
                "url": "https://h/mcp?key=sk-2",
                "headers": {"Authorization": "Bearer sk-3", "X-Mode": "m"},
            },
        }
    }
    source = put(place / ".mcp.json", content)
    shown = nbtools("import", source)
    assert not any(secret in shown.out + shown.err for secret in ("sk-1", "sk-2", "sk-3", "t 1"))
    target, variables = place / "ours.json", place / "secrets.env"
    done = nbtools("import", source, "--output", target, "--secrets-to-env", "--env-file", variables)
    assert json.loads(target.read_text())["mcpServers"] == {
        "hub": {
            "command": "run",
            "args": ["--api-key", "${HUB_API_KEY}", "--verbose"],
            "env": {"HUB_TOKEN": "${HUB_TOKEN}"},
        },
        "web": {
            "url": "https://h/mcp?key=${WEB_KEY}",
            "headers": {"Authorization": "Bearer ${WEB_AUTHORIZATION}", "X-Mode": "m"},
        },
    }
    assert variables.read_text().splitlines() == [
        "HUB_TOKEN='t 1'", "HUB_API_KEY=sk-1", "WEB_AUTHORIZATION=sk-3", "WEB_KEY=sk-2",
    ]  # fmt: skip
    assert "set HUB_TOKEN: a secret that was moved" in done.out
    assert "sk-" not in done.out + done.err


def test_variables_for_secrets_do_not_collide() -> None:
    servers: dict[str, dict[str, Any]] = {
        "a": {"env": {"TOKEN": "1", "MAX_TOKENS": "5"}},
        "b": {"env": {"TOKEN": "2"}},
        "c": {"env": {"TOKEN": "1", "KEY": "${KEY}"}},
        "db": {"args": ["postgres://me:pass@host/db", "--password=x", "plain"]},
    }
    assert move(servers) == {"TOKEN": "1", "B_TOKEN": "2", "DB_PASSWORD": "pass", "DB_PASSWORD_2": "x"}
    assert servers == {
        "a": {"env": {"TOKEN": "${TOKEN}", "MAX_TOKENS": "5"}},
        "b": {"env": {"TOKEN": "${B_TOKEN}"}},
        "c": {"env": {"TOKEN": "${TOKEN}", "KEY": "${KEY}"}},
        "db": {"args": ["postgres://me:${DB_PASSWORD}@host/db", "--password=${DB_PASSWORD_2}", "plain"]},
    }


def test_equal_servers_are_one_and_different_ones_of_one_name_are_kept_apart(place: Path) -> None:
    put(place / ".mcp.json", {"mcpServers": {"one": {"command": "a"}, "two": {"command": "b"}}})
    put(place / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "a"}, "two": {"command": "c"}}})
    found = imported("project", "cursor")
    assert found["mcpServers"] == {
        "one": {"command": "a"}, "two": {"command": "b"}, "two-cursor": {"command": "c"},
    }  # fmt: skip
    assert "it became two-cursor" in found["notes"][0]


def test_a_faulty_entry_costs_itself_and_a_faulty_file_is_named(place: Path) -> None:
    put(place / ".mcp.json", {"mcpServers": {"one": {"command": "a"}, "two": {}, "three": 3}})
    found = imported("project")
    assert list(found["mcpServers"]) == ["one"]
    assert len(found["notes"]) == 2
    put(place / ".cursor/mcp.json", "{")
    done = nbtools("import", "--json", status=1)
    assert list(done.json["mcpServers"]) == ["one"]
    assert ".cursor/mcp.json:1:2: " in done.json["faults"][0]


def test_sources_that_there_are_not_say_so(place: Path) -> None:
    assert "did you mean cursor" in nbtools("import", "curser", status=2).err
    assert "there is no file of codex" in nbtools("import", "codex", status=2).err
    assert "no servers were found" in nbtools("import", status=1).err
    assert "there are no MCP servers in it" in nbtools("import", put(place / "x.json", {}), status=2).err
    assert "needs --secrets-to-env" in nbtools("import", "--env-file", "x", status=2).err
