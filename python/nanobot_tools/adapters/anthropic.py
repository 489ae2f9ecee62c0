"""Anthropic: messages, with dicts or the objects of its library, which is not needed.

Example:
    >>> answer = client.messages.create(model=..., max_tokens=..., messages=messages, tools=tools(registry))
    >>> messages.append({"role": "assistant", "content": answer.content})
    >>> outcomes = await executor.run(tool_calls(answer))
    >>> messages.append({"role": "user", "content": tool_results(outcomes)})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._field import field
from .._native import ToolCall, ToolOutcome
from ..registry import ToolRegistry
from ._content import Part, described, items, parts

__all__ = ["tool_calls", "tool_results", "tools"]

#: What the API takes as images; other kinds are mentioned.
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def tools(registry: ToolRegistry) -> list[dict[str, Any]]:
    """The tools as ``tools`` of a request. The dicts are the caller's own, to add ``cache_control`` to."""
    return described(registry, "anthropic", _tool)


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": schema}


def tool_calls(answer: Any) -> list[ToolCall]:
    """The calls in what the API answered (``tool_use``), ready for an executor.

    Args:
        answer: A message, its ``content``, or a list of blocks; as objects or dicts. Other blocks are
            left out, as are calls that the server made itself.
    """
    blocks = answer if isinstance(answer, (list, tuple)) else field(answer, "content")
    return [
        ToolCall(field(block, "name"), field(block, "input"), field(block, "id"))
        for block in items(blocks)
        if field(block, "type") == "tool_use"
    ]


def tool_results(outcomes: Iterable[ToolOutcome]) -> list[dict[str, Any]]:
    """A block ``tool_result`` for each outcome, in the same order, to begin the user's next message with."""
    made = []
    for outcome in outcomes:
        pieces = parts(outcome.result)
        plain = len(pieces) == 1 and pieces[0].kind == "text"
        # The API refuses blocks of text with nothing in them.
        content = pieces[0].text if plain else [_block(part) for part in pieces if part.text]
        block = {"type": "tool_result", "tool_use_id": outcome.id, "content": content}
        if outcome.is_error:
            block["is_error"] = True
        made.append(block)
    return made


def _block(part: Part) -> dict[str, Any]:
    source: dict[str, Any] = {"type": "url", "url": part.url}
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.kind == "image" and (part.data is None or part.media_type in _IMAGES):
        return {"type": "image", "source": source}
    if part.kind == "file" and (part.data is None or part.media_type == "application/pdf"):
        return {"type": "document", "source": source}
    return {"type": "text", "text": part.text}
