"""Gemini: ``generateContent``, with dicts or the objects of google-genai, which is not needed.

Dicts are written with the names of the REST API (``functionDeclarations``), which google-genai takes as well.

Example:
    >>> config = {"tools": tools(registry)}
    >>> response = client.models.generate_content(model=..., contents=contents, config=config)
    >>> contents.append(response.candidates[0].content)
    >>> outcomes = await executor.run(tool_calls(response))
    >>> contents.append({"role": "user", "parts": function_responses(outcomes)})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._field import field
from .._native import ToolCall, ToolOutcome
from ..registry import ToolRegistry
from ._content import described, items, parts

__all__ = ["function_declarations", "function_responses", "tool_calls", "tools"]

#: How the ids begin that calls without one get here; the model is not told them.
_WITHOUT_ID = "gemini-call-without-id-"


def function_declarations(registry: ToolRegistry) -> list[dict[str, Any]]:
    """The tools as ``functionDeclarations``. The dicts are the caller's own."""
    return described(registry, "gemini", _declaration)


def tools(registry: ToolRegistry) -> list[dict[str, Any]]:
    """The tools as ``tools`` of a request; an empty list if there are none."""
    declarations = function_declarations(registry)
    return [{"functionDeclarations": declarations}] if declarations else []


def _declaration(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": name, "description": description}
    # An object without properties is refused; no parameters is what it means.
    if schema.get("properties"):
        declaration["parameters"] = schema
    return declaration


def tool_calls(answer: Any) -> list[ToolCall]:
    """The calls in what the API answered (``functionCall``), ready for an executor.

    Args:
        answer: A response, a candidate, its content, or a list of parts or of function calls; as objects or
            dicts. Of a response with several candidates the first counts. Parts of other kinds are left out.
    """
    candidates = field(answer, "candidates")
    if candidates is not None:
        return tool_calls(candidates[0]) if candidates else []
    content = field(answer, "content")
    if content is not None:
        return tool_calls(content)
    found = answer if isinstance(answer, (list, tuple)) else field(answer, "parts")
    calls: list[ToolCall] = []
    for part in items(found):
        call = field(part, "functionCall", "function_call")
        if call is None and field(part, "name") is not None:
            call = part
        if call is not None:
            identity = field(call, "id") or f"{_WITHOUT_ID}{len(calls)}"
            calls.append(ToolCall(field(call, "name"), field(call, "args"), identity))
    return calls


def function_responses(outcomes: Iterable[ToolOutcome]) -> list[dict[str, Any]]:
    """A part ``functionResponse`` for each outcome, in the same order.

    The text is its ``output``, or its ``error``. Images and other data go into its own ``parts``.
    """
    made = []
    for outcome in outcomes:
        pieces = parts(outcome.result)
        text = "\n".join(part.text for part in pieces)
        response: dict[str, Any] = {
            "name": outcome.name,
            "response": {"error" if outcome.is_error else "output": text},
        }
        if not str(outcome.id).startswith(_WITHOUT_ID):
            response["id"] = outcome.id
        data = [
            {"inlineData": {"mimeType": part.media_type, "data": part.data}}
            for part in pieces
            if part.data is not None
        ]
        if data:
            response["parts"] = data
        made.append({"functionResponse": response})
    return made
