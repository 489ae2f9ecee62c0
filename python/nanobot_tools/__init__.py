"""The tool runtime for Python agents.

Tools written in Python, in Rust and on MCP servers meet in one registry, which checks their arguments,
keeps what a model sees of them cached, and runs the calls of a model response in parallel.

Example:
    >>> from nanobot_tools import ToolExecutor, ToolRegistry, tool
    >>> @tool(read_only=True)
    ... async def add(a: int, b: int) -> str:
    ...     "Add two numbers."
    ...     return str(a + b)
    >>> registry = ToolRegistry()
    >>> registry.register(add)
    >>> await registry.execute("add", {"a": "1", "b": 2})
    '3'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import VERSION as __version__
    from .base import Schema, Tool, ToolResult, is_tool_error_result, tool_parameters
    from .call import CurrentCall, current_call
    from .compat import install, uninstall
    from .context import (
        ContextAware,
        RequestContext,
        ToolContext,
        bind_request_context,
        current_request_context,
        current_request_session_key,
        request_context,
        reset_request_context,
    )
    from .decorator import tool
    from .errors import (
        ConfigError,
        InternalError,
        InvalidArgumentsError,
        LoopRunningError,
        MCPConnectionError,
        MCPError,
        NanobotToolsError,
        ToolCancelledError,
        ToolError,
        ToolNotFoundError,
        ToolRefusedError,
        ToolTimeoutError,
    )
    from .executor import ToolCall, ToolEvent, ToolExecutor, ToolOutcome
    from .loader import ToolLoader
    from .mcp import MCPCallbacks, MCPConnection, MCPProvider, connect_mcp_server, connect_mcp_servers
    from .registry import RegistrySnapshot, ToolRegistry
    from .schema import (
        ArraySchema,
        BooleanSchema,
        IntegerSchema,
        NumberSchema,
        ObjectSchema,
        StringSchema,
        normalize_schema,
        tool_parameters_schema,
    )

# Everything is imported when it is first used: importing the package alone costs next to nothing, which is
# what programs pay that only find it installed (pytest for its plugin, nanobot for its entry point).
_LAZY = {
    "Schema": "base",
    "Tool": "base",
    "ToolResult": "base",
    "is_tool_error_result": "base",
    "tool_parameters": "base",
    "CurrentCall": "call",
    "current_call": "call",
    "install": "compat",
    "uninstall": "compat",
    "ContextAware": "context",
    "RequestContext": "context",
    "ToolContext": "context",
    "bind_request_context": "context",
    "current_request_context": "context",
    "current_request_session_key": "context",
    "request_context": "context",
    "reset_request_context": "context",
    "tool": "decorator",
    "ConfigError": "errors",
    "InternalError": "errors",
    "InvalidArgumentsError": "errors",
    "LoopRunningError": "errors",
    "MCPConnectionError": "errors",
    "MCPError": "errors",
    "NanobotToolsError": "errors",
    "ToolCancelledError": "errors",
    "ToolError": "errors",
    "ToolNotFoundError": "errors",
    "ToolRefusedError": "errors",
    "ToolTimeoutError": "errors",
    "ToolCall": "executor",
    "ToolEvent": "executor",
    "ToolExecutor": "executor",
    "ToolOutcome": "executor",
    "ToolLoader": "loader",
    "MCPCallbacks": "mcp",
    "MCPConnection": "mcp",
    "MCPProvider": "mcp",
    "connect_mcp_server": "mcp",
    "connect_mcp_servers": "mcp",
    "RegistrySnapshot": "registry",
    "ToolRegistry": "registry",
    "ArraySchema": "schema",
    "BooleanSchema": "schema",
    "IntegerSchema": "schema",
    "NumberSchema": "schema",
    "ObjectSchema": "schema",
    "StringSchema": "schema",
    "normalize_schema": "schema",
    "tool_parameters_schema": "schema",
}
#: What is imported together by the first use of anything, so that no first call has to.
_CORE = ("_native", "base", "context", "errors", "schema")

__all__ = [
    "ArraySchema",
    "BooleanSchema",
    "ConfigError",
    "ContextAware",
    "CurrentCall",
    "IntegerSchema",
    "InternalError",
    "InvalidArgumentsError",
    "LoopRunningError",
    "MCPCallbacks",
    "MCPConnection",
    "MCPConnectionError",
    "MCPError",
    "MCPProvider",
    "NanobotToolsError",
    "NumberSchema",
    "ObjectSchema",
    "RegistrySnapshot",
    "RequestContext",
    "Schema",
    "StringSchema",
    "Tool",
    "ToolCall",
    "ToolCancelledError",
    "ToolContext",
    "ToolError",
    "ToolEvent",
    "ToolExecutor",
    "ToolLoader",
    "ToolNotFoundError",
    "ToolOutcome",
    "ToolRefusedError",
    "ToolRegistry",
    "ToolResult",
    "ToolTimeoutError",
    "__version__",
    "bind_request_context",
    "connect_mcp_server",
    "connect_mcp_servers",
    "current_call",
    "current_request_context",
    "current_request_session_key",
    "install",
    "is_tool_error_result",
    "normalize_schema",
    "request_context",
    "reset_request_context",
    "tool",
    "tool_parameters",
    "tool_parameters_schema",
    "uninstall",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None and name not in _CORE and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    core = {part: import_module(f".{part}", __name__) for part in _CORE}
    if module is None:
        value: Any = core["_native"].VERSION if name == "__version__" else core[name]
    else:
        value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_CORE, *globals()})
