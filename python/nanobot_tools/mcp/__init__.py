"""MCP servers: connecting to them, and wrapping what they offer as tools."""

from __future__ import annotations

from ._connection import MCPConnection, connect_mcp_servers
from .wrappers import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper

__all__ = [
    "MCPConnection",
    "MCPPromptWrapper",
    "MCPResourceWrapper",
    "MCPToolWrapper",
    "connect_mcp_servers",
]
