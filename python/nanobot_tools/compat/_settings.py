"""The switches in the environment."""

from __future__ import annotations

import os
import re

__all__ = ["LIMITS", "PARTS", "Switches", "number"]

#: The parts of the drop-in, with the variable that switches each and whether it is on by default.
PARTS = {
    "registry": ("NBTOOLS_REGISTRY", True),
    "loader": ("NBTOOLS_LOADER", True),
    "mcp": ("NBTOOLS_MCP", True),
    "executor": ("NBTOOLS_EXECUTOR", True),
    "native-tools": ("NBTOOLS_NATIVE_TOOLS", False),
}

#: How many tool calls of a response run at once: of all, and of one MCP server.
LIMITS = ("NBTOOLS_MAX_CONCURRENCY", "NBTOOLS_PER_SERVER")

_WORDS = {
    **dict.fromkeys(("1", "on", "true", "yes", "native"), True),
    **dict.fromkeys(("0", "off", "false", "no", "sdk"), False),
}


def number(variable: str) -> int | None:
    """A positive number in the environment; ``None`` if the variable holds anything else."""
    value = os.environ.get(variable, "").strip()
    return int(value) if re.fullmatch("0*[1-9][0-9]{0,8}", value) else None


class Switches:
    """What the environment says when it is read.

    Attributes:
        off: Why nothing is to be done at all, or ``None``.
        disabled: Part -> why it is off.
        complaints: Variables with values that nobody understands; their defaults hold.
    """

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.off = None if self._read("NBTOOLS", True) else f"NBTOOLS={os.environ['NBTOOLS']}"
        self.disabled: dict[str, str] = {}
        for part, (variable, default) in PARTS.items():
            if not self._read(variable, default):
                value = os.environ.get(variable, "")
                self.disabled[part] = f"{variable}={value}" if value else f"not asked for ({variable}=on)"
        for variable in LIMITS:
            if os.environ.get(variable) and number(variable) is None:
                text = f"{variable}={os.environ[variable]} is no positive number; it is taken as not set"
                self.complaints.append(text)

    def _read(self, variable: str, default: bool) -> bool:
        value = os.environ.get(variable, "")
        if not value:
            return default
        known = _WORDS.get(value.strip().lower())
        if known is None:
            self.complaints.append(f"{variable}={value} is neither on nor off; it is taken as not set")
            return default
        return known
