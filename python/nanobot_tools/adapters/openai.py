"""OpenAI: chat completions and responses, with dicts or the objects of its library, which is not needed.

Example:
    >>> response = client.chat.completions.create(model=..., messages=messages, tools=chat_tools(registry))
    >>> messages.append(response.choices[0].message)
    >>> outcomes = await executor.run(tool_calls(response))
    >>> messages += tool_messages(outcomes)

    >>> response = client.responses.create(model=..., input=items, tools=responses_tools(registry))
    >>> items += response.output
    >>> items += function_call_outputs(await executor.run(tool_calls(response)))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._field import field
from .._native import ToolCall, ToolOutcome
from ..registry import ToolRegistry
from ._content import Part, data_url, described, items, parts

__all__ = ["chat_tools", "function_call_outputs", "responses_tools", "tool_calls", "tool_messages"]


def chat_tools(registry: ToolRegistry) -> list[dict[str, Any]]:
    """The tools as ``tools`` of a chat completion. The dicts are the caller's own."""
    return described(registry, "openai", _chat_tool)


def responses_tools(registry: ToolRegistry) -> list[dict[str, Any]]:
    """The tools as ``tools`` of a response. The dicts are the caller's own.

    They are not strict: schemas of tools need not follow the rules of strict mode, which this API would
    otherwise apply.
    """
    return described(registry, "openai", _responses_tool)


def _chat_tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


def _responses_tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": schema,
        "strict": False,
    }


def tool_calls(answer: Any) -> list[ToolCall]:
    """The calls of functions in what the API answered, ready for an executor.

    Args:
        answer: A chat completion, a choice of one or its message, a response, its ``output``, or a list of
            calls; as objects or dicts. Of a completion with several choices the first counts. Calls of
            anything but functions are left out.
    """
    choices = field(answer, "choices")
    if choices is not None:
        return tool_calls(choices[0]) if choices else []
    message = field(answer, "message")
    if message is not None:
        return tool_calls(message)
    found = answer if isinstance(answer, (list, tuple)) else field(answer, "output", "tool_calls")
    return [call for item in items(found) if (call := _call(item)) is not None]


def _call(item: Any) -> ToolCall | None:
    function = field(item, "function")
    if function is None and field(item, "type") == "function_call":
        function = item
    if function is None:
        return None
    return ToolCall(field(function, "name"), field(function, "arguments"), field(item, "call_id", "id"))


def tool_messages(outcomes: Iterable[ToolOutcome]) -> list[dict[str, Any]]:
    """A message with the role ``tool`` for each outcome, in the same order.

    Such messages hold text alone. Images follow all of them in one message of the user, which names the calls
    that they are of; other data is only mentioned.
    """
    messages: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for outcome in outcomes:
        pieces = parts(outcome.result)
        text = "\n".join(part.text for part in pieces)
        messages.append({"role": "tool", "tool_call_id": outcome.id, "content": text})
        seen = [part for part in pieces if part.kind == "image"]
        if seen:
            images.append({"type": "text", "text": f"Images of tool call {outcome.id} ({outcome.name}):"})
            images += [{"type": "image_url", "image_url": {"url": data_url(part)}} for part in seen]
    if images:
        messages.append({"role": "user", "content": images})
    return messages


def function_call_outputs(outcomes: Iterable[ToolOutcome]) -> list[dict[str, Any]]:
    """An item ``function_call_output`` for each outcome, in the same order; with images and files in it."""
    made = []
    for outcome in outcomes:
        pieces = parts(outcome.result)
        output: Any = [_output(part) for part in pieces]
        if all(part.kind in ("text", "audio") for part in pieces):
            output = "\n".join(part.text for part in pieces)
        made.append({"type": "function_call_output", "call_id": outcome.id, "output": output})
    return made


def _output(part: Part) -> dict[str, Any]:
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    if part.kind == "file" and part.data is not None:
        return {"type": "input_file", "filename": part.name or "file", "file_data": data_url(part)}
    if part.kind == "file":
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_text", "text": part.text}
