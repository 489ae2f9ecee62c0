"""``nanobot-tools resources`` and ``prompts`` show what servers have besides tools."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from command_line import configuration, nbtools, variant
from mcp_servers import echo

LIBRARY = f"""
answers = {{
    "resources/list": {{"resources": [
        {{"uri": "doc://a", "name": "a", "mimeType": "text/plain"}}, {{"uri": "doc://b", "name": "b"}},
    ]}},
    "resources/templates/list": {{"resourceTemplates": [{{"uriTemplate": "doc://x/{{n}}", "name": "x"}}]}},
    "prompts/list": {{"prompts": [
        {{"name": "greet", "arguments": [{{"name": "who", "required": True}}], "description": "Say hello."}}
    ]}},
}}
base_result = server._result
def result(method, params, cancelled):
    if method == "initialize":
        capabilities = {{"resources": {{}}, "prompts": {{}}}}
        return {{**base_result(method, params, cancelled), "capabilities": capabilities}}
    if method == "resources/read":
        uri = params["uri"]
        if uri == "doc://b":
            blob = "{base64.b64encode(b"PNG data").decode()}"
            return {{"contents": [{{"uri": uri, "mimeType": "image/png", "blob": blob}}]}}
        if not uri.startswith(("doc://a", "doc://x/")):
            raise base.RpcError(-32002, "no such resource")
        return {{"contents": [{{"uri": uri, "text": "content of " + uri}}]}}
    if method == "prompts/get":
        who = params.get("arguments", {{}}).get("who")
        if who is None:
            raise base.RpcError(-32602, "who is missing")
        image = {{"type": "image", "data": "AAAA", "mimeType": "image/png"}}
        return {{"messages": [
            {{"role": "user", "content": {{"type": "text", "text": "Greet " + who}}}},
            {{"role": "assistant", "content": image}},
        ]}}
    return answers[method] if method in answers else base_result(method, params, cancelled)
server._result = result
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return configuration(tmp_path, library=variant(tmp_path, LIBRARY), echo=echo())


def test_resources_and_templates_are_listed_with_their_server(config: Path) -> None:
    head, *lines = nbtools("resources", "--config", config).out.splitlines()
    assert head.split() == ["SERVER", "ADDRESS", "TYPE", "NAME"]
    assert [line.split() for line in lines] == [
        ["library", "doc://a", "text/plain", "a"], ["library", "doc://b", "-", "b"],
        ["library", "doc://x/{n}", "-", "x"],
    ]  # fmt: skip
    found = nbtools("resources", "--config", config, "--json").json
    assert [one["uri"] for one in found["resources"]] == ["doc://a", "doc://b"]
    assert [one["uriTemplate"] for one in found["templates"]] == ["doc://x/{n}"]


def test_a_resource_is_read_from_the_server_that_has_it_also_by_a_template(config: Path) -> None:
    assert nbtools("resources", "read", "doc://a", "--config", config).out == "content of doc://a\n"
    assert nbtools("resources", "read", "doc://x/7", "--config", config).out == "content of doc://x/7\n"
    found = nbtools("resources", "read", "doc://a", "--config", config, "--json").json
    assert (found["server"], found["contents"][0]["text"]) == ("library", "content of doc://a")


def test_data_is_stored_on_request_and_nothing_is_overwritten(config: Path, tmp_path: Path) -> None:
    shown = nbtools("resources", "read", "doc://b", "--config", config).out
    assert shown == "[image/png, 8 B; --output FILE stores it]\n"
    target = tmp_path / "b.png"
    nbtools("resources", "read", "doc://b", "--config", config, "--output", target)
    assert target.read_bytes() == b"PNG data"
    as_json = nbtools("resources", "read", "doc://b", "--config", config, "-o", target, "--force", "--json")
    assert as_json.json["contents"][0]["mimeType"] == "image/png"
    again = ("resources", "read", "doc://a", "--config", config, "--output", target)
    assert "--force overwrites it" in nbtools(*again, status=2).err
    nbtools(*again, "--force")
    assert target.read_bytes() == b"content of doc://a"


def test_a_resource_that_nobody_has_fails_with_what_the_server_said(config: Path) -> None:
    done = nbtools("resources", "read", "doc:/b", "--config", config, status=1)
    assert "no such resource" in done.err
    assert "did you mean doc://b" in done.err
    done = nbtools("resources", "read", "doc://a", "--server", "echo", "--config", config, status=1)
    assert "none of the servers that are there has resources" in done.err
    assert nbtools("resources", "--server", "echo", "--config", config).out == "There are no resources.\n"


def test_prompts_are_listed_with_their_arguments(config: Path) -> None:
    line = nbtools("prompts", "--config", config).out.splitlines()[1]
    assert line.split(maxsplit=3) == ["library", "greet", "who*", "Say hello."]
    assert nbtools("prompts", "--config", config, "--json").json["prompts"][0]["server"] == "library"
    assert nbtools("prompts", "--server", "echo", "--config", config).out == "There are no prompts.\n"


def test_a_prompt_is_filled_in(config: Path) -> None:
    done = nbtools("prompts", "get", "greet", "who=Ada", "--config", config)
    assert done.out == "user: Greet Ada\nassistant: [image/png, 3 bytes]\n"
    found = nbtools("prompts", "get", "greet", "who=Ada", "--config", config, "--json").json
    assert found["messages"][0]["content"]["text"] == "Greet Ada"


def test_a_prompt_that_there_is_not_or_that_fails_says_so(config: Path, tmp_path: Path) -> None:
    done = nbtools("prompts", "get", "great", "--config", config, status=2)
    assert "did you mean greet?" in done.err
    assert "who is missing" in nbtools("prompts", "get", "greet", "--config", config, status=1).err
    two = configuration(tmp_path, one=variant(tmp_path, LIBRARY), two=variant(tmp_path, LIBRARY))
    done = nbtools("prompts", "get", "greet", "who=x", "--config", two, status=2)
    assert "name one with --server: one, two" in done.err
    assert nbtools("prompts", "get", "greet", "who=x", "--server", "two", "--config", two).status == 0


def test_an_address_and_a_name_belong_to_their_action() -> None:
    assert "resources read URI" in nbtools("resources", "read", status=2).err
    assert "prompts get NAME" in nbtools("prompts", "get", status=2).err
