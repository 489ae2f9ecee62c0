"""MCP servers: connecting to them, and wrapping what they offer as tools."""

from __future__ import annotations

from ._callbacks import MCPCallbacks
from ._connect import connect_mcp_server, connect_mcp_servers
from ._connection import MCPConnection
from ._functional import (
    close_mcp_servers,
    connect_missing_servers,
    handle_runtime_control,
    reload_servers,
    request_mcp_reload,
)
from ._provider import MCPProvider
from .wrappers import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper

__all__ = [
    "MCPCallbacks",
    "MCPConnection",
    "MCPPromptWrapper",
    "MCPProvider",
    "MCPResourceWrapper",
    "MCPToolWrapper",
    "close_mcp_servers",
    "connect_mcp_server",
    "connect_mcp_servers",
    "connect_missing_servers",
    "handle_runtime_control",
    "reload_servers",
    "request_mcp_reload",
]
