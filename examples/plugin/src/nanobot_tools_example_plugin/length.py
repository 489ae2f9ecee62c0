"""A tool that is a function: the entry point names the decorated object."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nanobot_tools.decorator import tool
from nanobot_tools.errors import ToolError

Unit = Literal["mm", "cm", "m", "km", "in", "ft", "mi"]

_METRES = {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "mi": 1609.344}


@tool(read_only=True)
def convert_length(
    value: Annotated[float, "The length to convert"], source: Unit, target: Unit = "m"
) -> dict[str, Any]:
    """Convert a length from one unit to another.

    Args:
        source: Unit of the value.
        target: Unit of the result.
    """
    if value < 0:
        raise ToolError("A length cannot be negative.")
    return {"value": round(value * _METRES[source] / _METRES[target], 9), "unit": target}
