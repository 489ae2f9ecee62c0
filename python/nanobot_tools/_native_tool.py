"""The base of tools that run natively: what the native tool says of itself, in the terms of ``Tool``."""

from __future__ import annotations

from typing import Any

from . import _native
from .base import Tool


async def run_native(tool: _native.NativeTool, arguments: dict[str, Any]) -> Any:
    """Run a native tool as ``Tool.execute`` would: text, or an error result without the retry hint."""
    started = _native.call_native(tool, arguments)
    # Arguments that have no JSON form are refused at once.
    return started if isinstance(started, str) else await started


class NativeBackedTool(Tool):
    """A tool around a ``NativeTool``, which the registry runs without coming through here.

    A subclass sets ``_native_tool``. One that overrides ``execute`` is run as it says.
    """

    _plugin_discoverable = False
    _native_tool: _native.NativeTool

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self._native_tool.name

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        return self._native_tool.description

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments as the model sees it; a new dict each time."""
        parameters: dict[str, Any] = self._native_tool.parameters
        return parameters

    @property
    def read_only(self) -> bool:
        """Whether a call has no side effect."""
        return self._native_tool.read_only

    @property
    def exclusive(self) -> bool:
        """Whether a call must run alone."""
        return self._native_tool.exclusive

    async def execute(self, /, **kwargs: Any) -> Any:
        """Run the tool with arguments that were cast and validated.

        Returns:
            Text for the model; a ``ToolResult`` that is an error when the call failed.
        """
        return await run_native(self._native_tool, kwargs)

    execute._runs_native_tool = True  # type: ignore[attr-defined]
