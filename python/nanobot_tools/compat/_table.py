"""What of nanobot's is replaced by what.

The order within a module is the order of replacing. What is not in a version (``MCPProvider`` before 0.3.5's
source, ``_execute_tools`` since) is absent there, and that is no fault.
"""

from __future__ import annotations

from . import _arguments, _executor, _loader, _mcp, _registry, _search
from ._graft import Target

__all__ = ["MODULES", "TARGETS"]

_BASE = "nanobot.agent.tools.base"
_REGISTRY = "nanobot.agent.tools.registry"
_LOADER = "nanobot.agent.tools.loader"
_MCP = "nanobot.agent.tools.mcp"
_SEARCH = "nanobot.agent.tools.search"
_EXECUTION = "nanobot.agent.tools.execution"
_RUNNER = "nanobot.agent.runner"
_LOOP = "nanobot.agent.loop"

_GREP = (
    "self, pattern, path='.', glob=None, type=None, pages=None, case_insensitive=False, fixed_strings=False, "
    "output_mode='content', context_before=5, context_after=5, max_matches=None, max_results=None, "
    "head_limit=None, offset=0, **kwargs"
)
_FIND_FILES = (
    "self, path='.', query=None, glob=None, type=None, include_dirs=False, sort='path', head_limit=None, "
    "offset=0, **kwargs"
)

_CALLS = "self, spec, tool_calls, external_lookup_counts, workspace_violation_counts"
_RESPONSE = (
    "tools, tool_calls, *, concurrent, external_lookup_counts, workspace_violation_counts, hook, context, "
    "model_messages=None, compacted_tool_results=None"
)

TARGETS = (
    Target(
        "registry",
        _BASE,
        "Schema.validate_json_schema_value",
        ("val, schema, path=''",),
        _arguments.validate_json_schema_value,
    ),
    Target("registry", _BASE, "Tool.cast_params", ("self, params",), _arguments.cast_params),
    Target("registry", _BASE, "Tool.validate_params", ("self, params",), _arguments.validate_params),
    Target("registry", _REGISTRY, "ToolRegistry.unregister", ("self, name",), _registry.unregister),
    Target(
        "registry", _REGISTRY, "ToolRegistry.prepare_call", ("self, name, params",), _registry.prepare_call
    ),
    Target("registry", _REGISTRY, "ToolRegistry.get_definitions", ("self",), _registry.get_definitions),
    Target("loader", _LOADER, "_SKIP_MODULES", (), _loader.skip_modules),
    Target("loader", _LOADER, "ToolLoader._discover_plugins", ("self",), _loader.discover_plugins),
    Target("loader", _LOADER, "ToolLoader.load", ("self, ctx, registry, *, scope='core'",), _loader.load),
    Target(
        "mcp",
        _MCP,
        "connect_mcp_servers",
        ("mcp_servers, registry", "mcp_servers, registry, *, oauth_handlers=None"),
        _mcp.connect_mcp_servers,
        is_async=True,
    ),
    Target("mcp", _MCP, "MCPToolWrapper.execute", ("self, **kwargs",), _mcp.execute_tool, is_async=True),
    Target(
        "mcp", _MCP, "MCPResourceWrapper.execute", ("self, **kwargs",), _mcp.execute_resource, is_async=True
    ),
    Target("mcp", _MCP, "MCPPromptWrapper.execute", ("self, **kwargs",), _mcp.execute_prompt, is_async=True),
    Target(
        "mcp",
        _MCP,
        "_unregister_server_tools",
        ("registry, server_name", "state, registry, server_name"),
        _mcp.unregister_server_tools,
    ),
    Target("mcp", _MCP, "MCPProvider.reload", ("self",), _mcp.provider_reload, is_async=True),
    Target("mcp", _MCP, "MCPProvider.aclose", ("self",), _mcp.provider_aclose, is_async=True),
    Target("mcp", _MCP, "MCPProvider.runtime_status", ("self",), _mcp.runtime_status),
    Target("mcp", _MCP, "reload_servers", ("state, registry",), _mcp.reload_servers, is_async=True),
    Target("mcp", _LOOP, "AgentLoop.close_mcp", ("self",), _mcp.close_mcp, is_async=True),
    Target(
        "executor",
        _EXECUTION,
        "execute_tool_calls",
        (_RESPONSE,),
        _executor.execute_tool_calls,
        is_async=True,
    ),
    Target(
        "executor",
        _RUNNER,
        "AgentRunner._execute_tools",
        (_CALLS, f"{_CALLS}, hook=None, context=None"),
        _executor.execute_tools,
        is_async=True,
    ),
    Target("native-tools", _SEARCH, "GrepTool.execute", (_GREP,), _search.grep, is_async=True),
    Target(
        "native-tools", _SEARCH, "FindFilesTool.execute", (_FIND_FILES,), _search.find_files, is_async=True
    ),
)

#: The modules that have targets.
MODULES = tuple(dict.fromkeys(target.module for target in TARGETS))
