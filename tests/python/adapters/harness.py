"""Runs the checks of a script, in the environment with the other libraries, and prints what came of each."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from typing import Any


def main(names: dict[str, Any]) -> None:
    """Run every function whose name begins with ``test_``; each in a loop of its own if it is async."""
    results: dict[str, str | None] = {}
    for name, function in names.items():
        if not name.startswith("test_"):
            continue
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(function())
            else:
                function()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()
    json.dump(results, sys.stdout)
