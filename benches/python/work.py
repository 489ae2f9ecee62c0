"""What all sides have in common: the schema, the arguments, and the check that a result is the right one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

#: Does the work of a row as often as it is told, and returns the last result. What its attribute
#: ``afterwards``
#: does, if it has one, is not timed.
Many = Callable[[int], Awaitable[Any]]
Maker = Callable[[], AbstractAsyncContextManager[Many]]
Made = AsyncIterator[Many]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Where"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "mode": {"type": "string", "enum": ["lines", "files", "count"]},
        "deep": {"type": "boolean"},
    },
    "required": ["path"],
}
ARGUMENTS: dict[str, Any] = {"path": "src/lib.rs", "limit": 20, "mode": "lines", "deep": True}
TEXT = "hello"
TEXT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}
# In one file out of a hundred, once.
PATTERN = "needle_[0-9]+"

MCP_TOOLS = 180
# What the server for HTTP has: a list of about 2 MiB, and a result of 8 MiB.
HTTP_TOOLS = 1_000
BIG = 8 << 20
# The embedded server has four tools of its own. It needs no package, so both sides start the same file.
ECHO_SERVER = Path(__file__).resolve().parents[2] / "python/nanobot_tools/testing/echo_server.py"
MANY_TOOLS = {"command": sys.executable, "args": [str(ECHO_SERVER), "--tools", str(MCP_TOOLS - 4)]}


def expect(condition: bool, result: Any) -> Any:
    """``result``, if it is what was asked for: an error may be had quicker than the work."""
    if not condition:
        raise RuntimeError(f"not the result that is measured: {str(result)[:500]}")
    return result


def expect_text(result: Any, text: str) -> Any:
    """``result``, if it is just ``text`` and no error."""
    return expect(str(result) == text and not getattr(result, "is_error", False), result)


def plain_class(base: type) -> type:
    """A tool class whose schema is a property, as most plugins write it."""

    class Plain(base):  # type: ignore[misc]
        name = "plain"
        description = "A tool."
        read_only = True

        @property
        def parameters(self) -> dict[str, Any]:
            return SCHEMA

        async def execute(self, **kwargs: Any) -> str:
            return TEXT

    return Plain


def trivial_class(base: type) -> type:
    """A tool class that gives its text back."""

    class Trivial(base):  # type: ignore[misc]
        name = "trivial"
        description = "Give the text back."
        read_only = True

        @property
        def parameters(self) -> dict[str, Any]:
            return TEXT_SCHEMA

        async def execute(self, text: str) -> str:
            return text

    return Trivial


def named_class(base: type, decorate: Callable[[dict[str, Any]], Callable[[type], type]]) -> type:
    """A tool class that is told its name, with a schema that never changes."""

    class Named(base):  # type: ignore[misc]
        def __init__(self, name: str, description: str = "A tool among many.") -> None:
            self._name = name
            self._description = description

        @property
        def name(self) -> str:
            return self._name

        @property
        def description(self) -> str:
            return self._description

        async def execute(self, **kwargs: Any) -> str:
            return TEXT

    return decorate(SCHEMA)(Named)
