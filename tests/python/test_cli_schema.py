"""The published JSON Schema of the configuration says what the core reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp_servers import asking, echo
from nanobot_tools import ConfigError
from nanobot_tools._native import check_server
from nanobot_tools.cli import _schema
from nanobot_tools.mcp._entry import _FIELDS

CORE = Path(__file__).resolve().parents[2] / "src/mcp/config.rs"
VALIDATOR = jsonschema.Draft202012Validator(_schema.schema())

GOOD: list[dict[str, Any]] = [
    echo(),
    asking("--slow", toolTimeout=0.5, enabledTools=[], trustReadOnly=False),
    {"command": "c", "tool_timeout": 0.5, "enabled_tools": ["a*"], "trust_read_only": True},
    {"command": "c", "env": {"PORT": 8080, "T": "x", "B": True}, "args": ["a", 1, False]},
    {"type": "http", "url": "http://h"},
    {"type": "streamable-http", "url": "http://h"},
    {"type": "streamableHttp", "url": "https://h/mcp", "headers": {"Authorization": "Bearer x"}},
    {"type": "sse", "url": "http://h/sse?key=1"},
    {"type": "", "url": "http://h", "command": None},
    {"url": "http://h", "allowPrivate": True, "ssrfWhitelist": ["10.0.0.0/8"]},
    {"url": "http://h", "allowPrivate": ["127.0.0.1", "fe80::/10"]},
    {"url": "http://h", "protocol": "2025-06-18"},
    {"command": "c", "toolTimeouts": {"x": 1, "y*": "2.5"}, "progressCap": "60", "connectTimeout": 1e9},
    {"command": "c", "retry": "always", "lazy": True, "idleTimeout": 5, "startupWait": 1},
    {"command": "c", "lazy": "auto", "resources": "one", "artifacts": "/a", "maxResultBytes": 1},
    {"command": "c", "disabled": True, "disabledTools": ["x"], "auth": "oauth", "cwd": "/"},
    {"command": "c", "args": None, "env": None, "toolTimeout": None, "retry": None, "lazy": None},
]

FAULTY: list[Any] = [
    3,
    {},
    {"command": ""},
    {"command": 1},
    {"command": "c", "args": "x"},
    {"command": "c", "args": [[]]},
    {"command": "c", "env": {"A": []}},
    {"command": "c", "env": {"": "x"}},
    {"command": "c", "env": {"A=B": "x"}},
    {"command": "c", "env": []},
    {"command": "c", "toolTimeout": 0},
    {"command": "c", "toolTimeout": "0.0"},
    {"command": "c", "toolTimeout": "soon"},
    {"command": "c", "toolTimeouts": {"x": -1}},
    {"command": "c", "toolTimeouts": {"x": None}},
    {"command": "c", "retry": "sometimes"},
    {"command": "c", "lazy": "yes"},
    {"command": "c", "resources": "all"},
    {"command": "c", "maxResultBytes": 0},
    {"command": "c", "maxResultBytes": 1.5},
    {"command": "c", "disabled": "yes"},
    {"command": "c", "enabledTools": "x"},
    {"url": "http://h", "allowPrivate": ["home"]},
    {"url": "http://h", "allowPrivate": 1},
    {"url": "http://h", "ssrfWhitelist": True},
    {"url": "http://h", "protocol": "2030-01-01"},
    {"url": "http://h", "headers": {"A": None}},
    {"type": "carrier-pigeon", "url": "u"},
    {"type": "stdio", "url": "u"},
    {"type": "sse", "command": "c"},
]


def file(entry: Any) -> dict[str, Any]:
    return {"mcpServers": {"s": entry}}


def snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(_schema.schema())


def test_every_field_that_the_core_reads_is_in_it_in_both_spellings_and_no_other() -> None:
    source = CORE.read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
    read = set(re.findall(r"self\.(?:text|texts|list|optional_list|flag|seconds|take)\(\"(\w+)\"", source))
    documented = _schema.fields()
    assert {snake(name) for name in documented} == read == set(_FIELDS)
    properties = _schema.schema()["$defs"]["server"]["properties"]
    assert set(properties) == set(documented) | read
    assert all(properties[name]["description"] for name in documented)


@pytest.mark.parametrize("entry", GOOD, ids=range(len(GOOD)))
def test_what_the_core_takes_without_a_word_is_valid(entry: dict[str, Any]) -> None:
    assert check_server("s", entry)[1] == []
    VALIDATOR.validate(file(entry))
    VALIDATOR.validate({"tools": file(entry), "agents": {}})


@pytest.mark.parametrize("entry", FAULTY, ids=range(len(FAULTY)))
def test_what_the_core_refuses_is_not(entry: Any) -> None:
    with pytest.raises(ConfigError):
        check_server("s", entry)
    assert not VALIDATOR.is_valid(file(entry))


def test_a_field_that_the_core_warns_about_is_not_valid() -> None:
    entry = {"command": "c", "colour": 1}
    assert "unknown field 'colour' is ignored" in check_server("s", entry)[1][0]
    assert not VALIDATOR.is_valid(file(entry))


def test_defaults_are_those_of_the_readme() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    properties = _schema.schema()["$defs"]["server"]["properties"]
    for name in ("connectTimeout", "startupWait"):
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{name}`"))
        assert row.split("|")[3].strip() == str(properties[name]["default"])
    assert all(f"`{name}`" in readme for name in properties if "_" not in name and name != "auth")
