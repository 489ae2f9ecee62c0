"""LangChain: the tools of a registry as tools of ``langchain_core``, and one of those as a tool of ours.

Example:
    >>> agent = create_agent(model, tools=to_langchain(registry))
    >>> registry.register(from_langchain(DuckDuckGoSearchRun()))
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from langchain_core.tools import BaseTool, ToolException  # type: ignore[import-not-found, unused-ignore]

from .. import _sync
from .._native import current_call
from ..base import Tool, ToolResult, is_tool_error_result
from ..registry import ToolRegistry
from ..schema import normalize_schema

__all__ = ["RegistryTool", "from_langchain", "to_langchain"]


class RegistryTool(BaseTool):  # type: ignore[misc, unused-ignore]
    """A tool of a registry as a tool of LangChain's; made by :func:`to_langchain`.

    Arguments are cast and validated by the registry. What fails is a ``ToolException``, so that its text
    reaches the model (``handle_tool_error`` is on). ``invoke`` works in threads without an event loop.
    """

    registry: Any
    handle_tool_error: Any = True

    def _run(self, /, **arguments: Any) -> Any:
        result = _sync.run(lambda: self.registry.execute(self.name, arguments), "invoke()", "await ainvoke()")
        return _checked(result)

    async def _arun(self, /, **arguments: Any) -> Any:
        return _checked(await self.registry.execute(self.name, arguments))


def _checked(result: Any) -> Any:
    if is_tool_error_result(result):
        raise ToolException(str(result))
    return result


def to_langchain(registry: ToolRegistry, names: Iterable[str] | None = None) -> list[Any]:
    """The tools of a registry as they are now, as :class:`RegistryTool`.

    Args:
        registry: Where the tools are; it runs the calls.
        names: The tools that are wanted; all by default.

    Raises:
        KeyError: There is no tool of such a name.
    """
    described = {}
    for definition in registry.get_definitions():
        function = definition.get("function", definition)
        described[function["name"]] = function
    return [
        RegistryTool(
            name=name,
            description=described[name].get("description") or name,
            args_schema=normalize_schema(described[name].get("parameters") or {}),
            registry=registry,
        )
        for name in (described if names is None else names)
    ]


class _LangChainTool(Tool):
    """A tool of LangChain's, called as a model's call of it."""

    _plugin_discoverable = False

    def __init__(self, tool: Any, read_only: bool) -> None:
        self._tool = tool
        self._is_read_only = read_only
        schema = tool.tool_call_schema
        self._parameters = schema if isinstance(schema, dict) else schema.model_json_schema()

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return str(self._tool.name)

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        return str(self._tool.description)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, without those that LangChain injects."""
        return self._parameters

    @property
    def read_only(self) -> bool:
        """Whether a call has no side effect, as was said when the tool was made."""
        return self._is_read_only

    async def execute(self, /, **kwargs: Any) -> Any:
        """Invoke the tool; its errors that it shows to a model are error results."""
        call = current_call()
        identity = str(call.id) if call is not None and call.id is not None else uuid.uuid4().hex
        message = await self._tool.ainvoke(
            {"type": "tool_call", "name": self._tool.name, "args": kwargs, "id": identity}
        )
        content = getattr(message, "content", message)
        if getattr(message, "status", "success") == "error":
            return ToolResult.error(str(content))
        if isinstance(content, list):
            return [{"type": "text", "text": item} if isinstance(item, str) else item for item in content]
        return content


def from_langchain(tool: Any, *, read_only: bool = False) -> Tool:
    """A tool of LangChain's (``BaseTool``) as one that a registry takes.

    Args:
        tool: The tool.
        read_only: Whether calls have no side effect, so that they may run side by side.
    """
    return _LangChainTool(tool, read_only)
