"""Results of sessions that are not ours, brought into the protocol's own form to be rendered natively.

A result may be made of the SDK's models (of either major version), of plain objects, or of dicts. What cannot
be recognised is shown as its text, since a model can still make something of that. Objects that have no type
are taken for what their fields say.

What has no content at all raises ``AttributeError`` or ``TypeError``, like any use of it would.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from .._field import field

__all__ = ["call_result", "prompt_result", "resource_result"]

#: Fields of content blocks and resources in the protocol's spelling, and how objects may spell them.
_FIELDS = {
    "type": ("type",),
    "text": ("text",),
    "data": ("data",),
    "blob": ("blob",),
    "mimeType": ("mimeType", "mime_type"),
    "uri": ("uri",),
    "name": ("name",),
    "title": ("title",),
    "description": ("description",),
}


def call_result(result: Any) -> dict[str, Any]:
    """The result of ``tools/call``."""
    a_dict = isinstance(result, Mapping)
    content = result.get("content") if a_dict else result.content
    structured = field(result, "structuredContent", "structured_content")
    made = dict(result) if a_dict else {}
    made["isError"] = bool(field(result, "isError", "is_error"))
    # The protocol lets a server leave the content out; an object without any is no result.
    if content is not None or not (a_dict or structured is not None):
        made["content"] = _blocks(content)
    if structured is not None:
        made["structuredContent"] = structured
    return made


def resource_result(result: Any) -> dict[str, Any]:
    """The result of ``resources/read``."""
    contents = result["contents"] if isinstance(result, Mapping) else result.contents
    return {"contents": [_resource(item) for item in contents]}


def prompt_result(result: Any) -> dict[str, Any]:
    """The result of ``prompts/get``."""
    messages = result["messages"] if isinstance(result, Mapping) else result.messages
    return {"messages": [_message(item) for item in messages]}


def _message(message: Any) -> dict[str, Any]:
    content = message["content"] if isinstance(message, Mapping) else message.content
    return {"role": str(field(message, "role") or "user"), "content": _blocks(content, one=True)}


def _blocks(content: Any, *, one: bool = False) -> list[Any]:
    """The blocks of a list; a text is one, and with ``one`` so is whatever is no list."""
    if isinstance(content, str) or (one and not isinstance(content, (list, tuple))):
        return [_block(content)]
    items: Iterable[Any] = content
    return [_block(item) for item in items]


def _block(block: Any) -> Any:
    if isinstance(block, str):
        return _text(block)
    if getattr(block, "type", None) == "text" and isinstance(text := block.text, str):
        return _text(text)
    made = _fields(block)
    inner = _fields(made.get("resource", getattr(block, "resource", None)))
    if inner:
        made["resource"] = inner
    if not made and not isinstance(block, Mapping):
        return _text(str(block))
    if not isinstance(made.get("type"), str) and (kind := _kind(made)):
        made["type"] = kind
    return made


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _kind(block: Mapping[str, Any]) -> str | None:
    """What a block without a type is, going by its fields."""
    if isinstance(block.get("text"), str):
        return "text"
    if "resource" in block:
        return "resource"
    if isinstance(block.get("data"), str):
        family = str(block.get("mimeType") or "image").partition("/")[0]
        return family if family in ("image", "audio") else None
    return "resource_link" if "uri" in block else None


def _resource(resource: Any) -> dict[str, Any]:
    made = {} if isinstance(resource, str) else _fields(resource)
    return made or {"text": str(resource)}


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a block or a resource that the protocol knows; of a dict or a model all of them."""
    if isinstance(value, Mapping):
        made = {str(key): _plain(item) for key, item in value.items()}
        if "mime_type" in made:
            made.setdefault("mimeType", made.pop("mime_type"))
        return made
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        made = dump(mode="json", by_alias=True, exclude_none=True)
        if isinstance(made, dict):
            return made
    found = {key: _plain(field(value, *names)) for key, names in _FIELDS.items()}
    return {key: item for key, item in found.items() if isinstance(item, str)}


def _plain(value: Any) -> Any:
    """A value as the protocol carries it: data in base64, addresses as text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    # pydantic's addresses are no strings.
    return str(value) if type(value).__name__.endswith("Url") else value
