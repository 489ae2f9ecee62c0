"""The client that the official MCP conformance suites put to the test.

Run as ``python -m nanobot_tools.testing.conformance URL``; the suites start it. It connects to the server
with everything that this package offers, and then does what the scenario in ``MCP_CONFORMANCE_SCENARIO``
asks of a host: calling tools, filling in a form, checking a skill. ``MCP_CONFORMANCE_CONTEXT`` (JSON) may say
with what. ``MCP_CONFORMANCE_PROTOCOL_VERSION`` is not needed: which protocol the server speaks is found out,
as with any other server. Only the public API is used.

Exit status 1 when the server could not be connected, or refused what the scenario needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nanobot_tools import NanobotToolsError, ToolRegistry
from nanobot_tools.mcp import MCPCallbacks, MCPConnection, MCPToolWrapper, connect_mcp_server

__all__ = ["main", "run"]

Scenario = Callable[[MCPConnection, Mapping[str, Any]], Awaitable[None]]

# Values for parameters that a schema requires and nothing else names.
_EXAMPLES: dict[str, Any] = {
    "string": "test", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None,
}  # fmt: skip


class SkillError(Exception):
    """A skill's file is not what the server's list says it is."""


async def run(url: str, scenario: str = "", context: Mapping[str, Any] | None = None) -> None:
    """Connect to a server and do what a scenario asks.

    Args:
        url: The server's address.
        scenario: Name of the scenario in the suites; what is not known gets :func:`call_every_tool`.
        context: The scenario's own data.

    Raises:
        NanobotToolsError: The server could not be connected, or refused a request.
        SkillError: A skill was refused.
    """
    entry = {
        "type": "streamableHttp",
        "url": url,
        "toolTimeout": 20,
        "connectTimeout": 15,
        "allowPrivate": True,
    }
    callbacks = MCPCallbacks(elicitation=_accept, sampling=_sample, roots=[])
    connection = await connect_mcp_server("conformance", entry, registry=ToolRegistry(), callbacks=callbacks)
    async with connection:
        await _SCENARIOS.get(scenario, call_every_tool)(connection, context or {})


async def call_every_tool(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """Call the tools that the context names, or each one with examples; only those offered to a model."""
    offered = {tool._original_name for tool in connection.tools if isinstance(tool, MCPToolWrapper)}
    calls = context.get("toolCalls") or [
        {"name": tool["name"], "arguments": _arguments(tool.get("inputSchema", {}))}
        for tool in await connection.list_tools()
    ]
    for call in calls:
        if call["name"] in offered:
            await connection.call_tool(call["name"], call["arguments"])


async def list_tools(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """List the tools and call none."""
    await connection.list_tools()


async def use_everything(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """Make every kind of request: call a tool, read each resource, get each prompt."""
    await call_every_tool(connection, context)
    for resource in await connection.list_resources():
        await connection.read_resource(resource["uri"])
    for prompt in await connection.list_prompts():
        await connection.get_prompt(prompt["name"])


async def call_at_once(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """Call all tools at the same time, so that what belongs to one could leak into another."""
    names = [tool["name"] for tool in await connection.list_tools()]
    await asyncio.gather(*(connection.call_tool(name, {}) for name in names))


async def echo_schema(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """Hand a tool's schema back as it was received."""
    [schema] = [
        tool["inputSchema"]
        for tool in await connection.list_tools()
        if tool["name"] == "json_schema_2020_12_tool"
    ]
    await connection.call_tool("json_schema_echo", {"schema": schema})


async def list_skills(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """List the skills and load none."""
    await connection.request("skills/list")


async def load_skills(connection: MCPConnection, context: Mapping[str, Any]) -> None:
    """Load each skill with all its files, the skill itself first; one that is not as listed is not used."""
    listing = await connection.request("skills/list")
    for skill in listing["skills"]:
        files = sorted(skill["resources"], key=lambda file: bool(file["uri"] != skill["uri"]))
        for file in files:
            result = await connection.read_resource(file["uri"])
            text = result["contents"][0]["text"]
            check_skill_file(file, text)
            if file["uri"] == skill["uri"]:
                check_frontmatter(skill["frontmatter"], text)


def check_skill_file(entry: Mapping[str, Any], text: str) -> None:
    """Compare a file with its entry of ``skills/list`` (SEP-2640, "Integrity and verification").

    Raises:
        SkillError: Length or digest differ.
    """
    content = text.encode()
    if len(content) != entry["size"]:
        raise SkillError(f"{entry['uri']}: {len(content)} bytes, not {entry['size']}")
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if digest != entry["digest"]:
        raise SkillError(f"{entry['uri']}: the digest differs")


def check_frontmatter(listed: Mapping[str, Any], text: str) -> None:
    """Compare the frontmatter of a SKILL.md field by field, as far as it is plain ``key: value`` lines.

    Raises:
        SkillError: A field differs, or one side has a field more.
    """
    _, fence, rest = text.partition("---\n")
    head, closed, _ = rest.partition("\n---")
    if not fence or not closed:
        raise SkillError("SKILL.md has no frontmatter")
    found = {}
    for line in head.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            found[key.strip()] = value.strip().strip("\"'")
    if found != dict(listed):
        raise SkillError("the frontmatter of SKILL.md differs from the list")


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for the parameters that a schema requires."""
    properties = schema.get("properties", {})
    return {
        name: _EXAMPLES.get(properties.get(name, {}).get("type"), "test")
        for name in schema.get("required", [])
    }


def _accept(server: str, params: dict[str, Any]) -> dict[str, Any]:
    """Accept a form as its defaults fill it, with examples for what has none."""
    properties = params.get("requestedSchema", {}).get("properties", {})
    content = {
        name: field["enum"][0] if field.get("enum") else _EXAMPLES.get(field.get("type"), "test")
        for name, field in properties.items()
        if "default" not in field
    }
    return {"action": "accept", "content": content}


def _sample(server: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer for a model."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": "test"},
        "model": "test-model",
        "stopReason": "endTurn",
    }


_SCENARIOS: dict[str, Scenario] = {
    "http-standard-headers": use_everything,
    "sep-2322-client-request-state": call_at_once,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": load_skills,
    "sep-2640-client-verify-size": load_skills,
    "sep-2640-client-verify-frontmatter": load_skills,
}


def main() -> int:
    """Run from the command line."""
    if len(sys.argv) != 2:
        print("usage: python -m nanobot_tools.testing.conformance URL", file=sys.stderr)
        return 2
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    try:
        asyncio.run(run(sys.argv[1], scenario, context))
    except (NanobotToolsError, SkillError) as error:
        print(f"{scenario}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
