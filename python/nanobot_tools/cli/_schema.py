"""The JSON Schema of the configuration file."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

__all__ = ["PATH", "fields", "schema"]

#: Where it is published.
PATH = Path(__file__).resolve().parents[1] / "config.schema.json"


@functools.cache
def schema() -> dict[str, Any]:
    """The schema."""
    content: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return content


def fields() -> list[str]:
    """The fields of a server's entry, as the documentation spells them."""
    return [name for name in schema()["$defs"]["server"]["properties"] if "_" not in name]
