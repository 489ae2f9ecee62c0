"""The tool runtime for Python agents."""
