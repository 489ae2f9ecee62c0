"""``nanobot-tools tools``: the tools that a model would see, and what each of them takes."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, CommandError, Config, Json, Wait, command, finish, near, wrong
from ._output import as_json as to_text
from ._output import print_json, print_table, say

if TYPE_CHECKING:
    from ..registry import ToolRegistry

__all__ = ["Action", "Profile", "add_to", "estimate", "missing"]


class Action(enum.StrEnum):
    """What is wanted."""

    list = "list"
    show = "show"


class Profile(enum.StrEnum):
    """For whom schemas are made; see :func:`nanobot_tools.normalize_schema`."""

    openai = "openai"
    anthropic = "anthropic"
    gemini = "gemini"
    moonshot = "moonshot"
    json_schema = "json-schema"


@command
def tools(
    action: Annotated[Action, typer.Argument(help="All tools, or one with its schema.")] = Action.list,
    name: Annotated[str | None, typer.Argument(help="The tool to show.", show_default=False)] = None,
    profile: Annotated[
        Profile | None,
        typer.Option(
            help="Show schemas in the form that this provider of models accepts.", show_default=False
        ),
    ] = None,
    servers: Annotated[bool, typer.Option(help="With the tools of the configured MCP servers.")] = True,
    config: Config = None,
    workspace: Annotated[Path, typer.Option(help="The folder that tools work in.")] = Path(),
    scope: Annotated[str, typer.Option(help="Only own tools and plugins of this scope.")] = "core",
    timeout: Wait = 30,
    as_json: Json = False,
) -> None:
    """List tools: the package's own, those of plugins, and those of MCP servers; or show one of them.

    The tokens are an estimate: the bytes of the definitions as JSON, divided by 4.

    Examples: nanobot-tools tools; nanobot-tools tools show mcp_search_query --profile gemini
    """
    if (action is Action.show) != (name is not None):
        raise wrong("tools show NAME, or tools without a name")
    configured = _config.read(config) if servers else _config.Configuration(None)
    from . import _session

    registry = _session.local_tools(workspace, scope)
    if name is not None:
        configured = candidates(configured, registry, name)

    async def work() -> int:
        async with _session.connected(configured, timeout=timeout, registry=registry) as session:
            session.complain()
            if name is None:
                _list(registry, profile, as_json, session.failures)
            else:
                if not registry.has(name):
                    raise missing(registry, name, session.failures)
                _show(registry, name, profile, as_json)
            return FAILED if session.failures else OK

    finish(_session.run(work()))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tools)


def candidates(config: _config.Configuration, registry: ToolRegistry, name: str) -> _config.Configuration:
    """The servers that have to be asked for a tool of that name: those whose names it begins with."""
    from .._native import mcp_name

    if registry.has(name):
        return config.only([])
    named = [
        server
        for server in config.servers
        if name.startswith(mcp_name("tool", server, "x").removesuffix("x"))
    ]
    return config.only(named) if named else config


def missing(registry: ToolRegistry, name: str, failures: Mapping[str, str]) -> CommandError:
    """The error for a tool that there is not."""
    text = f"there is no tool {name!r}{near(name, registry.tool_names)}"
    return (
        CommandError(f"{text} (servers that are not there: {', '.join(failures)})")
        if failures
        else wrong(text)
    )


def estimate(definitions: bytes) -> int:
    """About how many tokens definitions take."""
    return -(-len(definitions) // 4)


def _definitions(registry: ToolRegistry, profile: Profile | None) -> tuple[list[dict[str, Any]], bytes]:
    """What a model sees, as objects and as JSON."""
    if profile is None:
        return registry.get_definitions(), registry.definitions_json()
    from .._native import to_json
    from ..schema import normalize_schema

    definitions = []
    for definition in registry.get_definitions():
        function = definition["function"]
        schema = normalize_schema(function["parameters"], profile.value)
        definitions.append({**definition, "function": {**function, "parameters": schema}})
    return definitions, to_json(definitions)


def _list(
    registry: ToolRegistry, profile: Profile | None, json_wanted: bool, failures: dict[str, str]
) -> None:
    definitions, text = _definitions(registry, profile)
    if json_wanted:
        print_json(
            {
                "definitions": definitions,
                "bytes": len(text),
                "estimated_tokens": estimate(text),
                "failures": failures,
            }
        )
        return
    rows = []
    for definition in definitions:
        function = definition["function"]
        required = function["parameters"].get("required", [])
        properties = function["parameters"].get("properties", {})
        names = ", ".join(f"{name}*" if name in required else name for name in properties)
        rows.append((function["name"], estimate(_compact(definition)), names, function["description"]))
    print_table(("name", "tokens", "parameters (* required)", "description"), rows)
    say(f"{len(rows)} tools, about {estimate(text)} tokens (estimated: {len(text)} bytes of JSON / 4)")


def _compact(value: Any) -> bytes:
    from .._native import to_json

    return to_json(value)


def _show(registry: ToolRegistry, name: str, profile: Profile | None, json_wanted: bool) -> None:
    definitions, _ = _definitions(registry, profile)
    definition = next((one for one in definitions if one["function"]["name"] == name), None)
    if definition is None:
        raise CommandError(f"the tool {name!r} cannot be described to a model")
    tool: Any = registry.get(name)
    about = {
        "server": getattr(tool, "_server_name", None),
        "read_only": bool(tool.read_only),
        "concurrency_safe": bool(tool.concurrency_safe),
        "estimated_tokens": estimate(_compact(definition)),
    }
    if json_wanted:
        print_json({**definition, **about})
        return
    function = definition["function"]
    say(function["name"])
    say(function["description"])
    say()
    for key, value in about.items():
        if value is not None:
            say(f"{key.replace('_', ' ')}: {json.dumps(value) if isinstance(value, bool) else value}")
    say(f"schema{f' for {profile.value}' if profile else ''}:")
    say(to_text(function["parameters"]))
