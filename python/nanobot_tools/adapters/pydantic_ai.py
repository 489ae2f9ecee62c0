"""pydantic-ai: the tools of a registry as a toolset.

Example:
    >>> agent = Agent("openai:gpt-5", toolsets=[RegistryToolset(registry)])
"""

from __future__ import annotations

import base64
from typing import Any

from pydantic_ai import (  # type: ignore[import-not-found, unused-ignore]
    BinaryContent,
    ImageUrl,
    exceptions,
)
from pydantic_ai.tools import ToolDefinition  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.toolsets import (  # type: ignore[import-not-found, unused-ignore]
    AbstractToolset,
    ToolsetTool,
)
from pydantic_core import SchemaValidator, core_schema  # type: ignore[import-not-found, unused-ignore]

from ..base import is_tool_error_result
from ..registry import ToolRegistry
from ..schema import normalize_schema
from ._content import Part, parts

__all__ = ["RegistryToolset"]

#: The registry casts and validates; what comes from the model only has to be JSON.
_ANYTHING = SchemaValidator(schema=core_schema.any_schema())


class RegistryToolset(AbstractToolset):  # type: ignore[misc, unused-ignore]
    """The tools of a registry, as they are at each step of a run, as a toolset of pydantic-ai.

    Arguments are cast and validated by the registry. What fails is told to the model as a failed call; it is
    no retry, and ends no run. Tools that may not run beside others are ``sequential``. Images in results are
    shown to the model as such.

    Args:
        registry: Where the tools are; it runs the calls.
        id: The toolset's id, which pydantic-ai wants for durable execution.
    """

    def __init__(self, registry: ToolRegistry, *, id: str | None = None) -> None:
        self.registry = registry
        self._id = id

    @property
    def id(self) -> str | None:
        """The id that was given."""
        return self._id

    async def get_tools(self, ctx: Any) -> dict[str, Any]:
        """The tools that are registered now."""
        tools = {}
        for definition in self.registry.get_definitions():
            function = definition.get("function", definition)
            name = function["name"]
            tools[name] = ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name,
                    description=function.get("description"),
                    parameters_json_schema=normalize_schema(function.get("parameters") or {}),
                    sequential=not getattr(self.registry.get(name), "concurrency_safe", False),
                ),
                max_retries=0,
                args_validator=_ANYTHING,
            )
        return tools

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        """Call a tool through the registry.

        Raises:
            ToolFailed: The call failed; the text is for the model. Versions of pydantic-ai without this
                exception get the text as the result.
        """
        result = await self.registry.execute(name, tool_args)
        if is_tool_error_result(result):
            failed = getattr(exceptions, "ToolFailed", None)
            if failed is None:
                return str(result)
            raise failed(str(result))
        if not isinstance(result, list):
            return str(result) if isinstance(result, str) else result
        pieces = parts(result)
        if all(part.kind == "text" for part in pieces):
            return "\n".join(part.text for part in pieces)
        return [_content(part) for part in pieces]


def _content(part: Part) -> Any:
    if part.data is not None:
        return BinaryContent(base64.b64decode(part.data), media_type=part.media_type)
    return ImageUrl(part.url) if part.kind == "image" and part.url else part.text
