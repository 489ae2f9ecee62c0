"""Entries of a configuration, as the core reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError

# What an entry may hold, for entries that are objects. Dicts are passed on as they are.
_FIELDS = (
    "type", "command", "args", "env", "cwd", "url", "headers", "auth", "tool_timeout", "enabled_tools",
    "disabled", "disabled_tools", "connect_timeout", "startup_wait", "retry", "lazy", "idle_timeout",
    "trust_read_only", "allow_private", "ssrf_whitelist", "tool_timeouts", "progress_cap", "resources",
    "artifacts", "max_result_bytes", "protocol",
)  # fmt: skip


def _plain(entry: Any) -> dict[str, Any]:
    """An entry as a dict with JSON values."""
    if isinstance(entry, Mapping):
        return dict(entry)
    found = {field: getattr(entry, field, None) for field in _FIELDS}
    plain = (str, int, float, bool, list, tuple, dict)
    return {
        field: value for field, value in found.items() if isinstance(value, plain) and value not in ("", None)
    }


def plain_entry(name: str, entry: Any) -> dict[str, Any]:
    """An entry as a dict with JSON values.

    Raises:
        ConfigError: It is none, or holds what JSON cannot.
    """
    try:
        plain = _plain(entry)
        json.dumps(plain)
        return plain
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigError(f"MCP server {name!r}: {exc}") from exc
