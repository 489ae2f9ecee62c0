"""Answers for nanobot-ai's registry, in nanobot-ai's own interpreter: one JSON document a line.

Run by `reference.py`. Nothing of this project is imported here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from nanobot.agent.tools.base import Schema, Tool  # type: ignore[import-not-found]
from nanobot.agent.tools.registry import ToolRegistry  # type: ignore[import-not-found]


class Probe(Tool):  # type: ignore[misc]
    """A tool that has the schema under test."""

    name = "x"
    description = "probe"
    parameters: dict[str, Any] = {}

    async def execute(self, **kwargs: Any) -> Any:
        return kwargs


def answer(request: dict[str, Any]) -> dict[str, Any]:
    Probe.parameters = request["schema"]
    if "value" in request:
        return {
            "failures": Schema.validate_json_schema_value(
                request["value"], request["schema"], request["path"]
            )
        }
    registry = ToolRegistry()
    registry.register(Probe())
    _, params, error = registry.prepare_call("x", request["params"])
    return {"params": params, "error": None if error is None else str(error)}


for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as error:
        reply = {"raised": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
