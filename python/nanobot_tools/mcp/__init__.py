"""MCP servers: connecting to them, and wrapping what they offer as tools."""

from __future__ import annotations

from ._connection import MCPConnection, MCPToolWrapper, connect_mcp_servers

__all__ = ["MCPConnection", "MCPToolWrapper", "connect_mcp_servers"]
