"""MCP servers: connecting to them, and wrapping what they offer as tools."""

from __future__ import annotations

from ._callbacks import MCPCallbacks
from ._connect import connect_mcp_server, connect_mcp_servers
from ._connection import MCPConnection
from .wrappers import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper

__all__ = [
    "MCPCallbacks",
    "MCPConnection",
    "MCPPromptWrapper",
    "MCPResourceWrapper",
    "MCPToolWrapper",
    "connect_mcp_server",
    "connect_mcp_servers",
]
