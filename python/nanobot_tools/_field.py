"""Reading what may be an object or a dict, under any of its spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["field"]


def field(value: Any, *names: str) -> Any:
    """The first of these keys or attributes that is there and not null."""
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if found is not None:
            return found
    return None
