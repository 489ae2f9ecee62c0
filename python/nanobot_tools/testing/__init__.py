"""Help for tests and demonstrations: a small MCP server that needs nothing."""
