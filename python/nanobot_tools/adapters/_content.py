"""What the adapters share: reading objects and dicts alike, and results as parts that each renders."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _results
from ..registry import ToolRegistry
from ..schema import normalize_schema


def items(value: Any) -> list[Any]:
    """A list of things: the list itself, nothing for ``None``, or the one thing that there is."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return [value]
    # Models of pydantic iterate over their fields.
    return list(value) if isinstance(value, (list, tuple)) or not hasattr(value, "model_dump") else [value]


_known: weakref.WeakKeyDictionary[ToolRegistry, dict[str, tuple[int, list[dict[str, Any]]]]] = (
    weakref.WeakKeyDictionary()
)


def described(
    registry: ToolRegistry, profile: str, show: Callable[[str, str, dict[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """What a model is told of each tool: ``show(name, description, schema)``; kept until it changes.

    The list and the dicts in it are the caller's own; what is inside of those is shared.
    """
    generation = registry.generation
    of_registry = _known.setdefault(registry, {})
    key = f"{profile}:{show.__module__}.{show.__qualname__}"
    known = of_registry.get(key)
    if known is None or known[0] != generation:
        made = []
        for definition in registry.get_definitions():
            function = definition.get("function", definition)
            schema = normalize_schema(function.get("parameters") or {}, profile)
            made.append(show(function["name"], function.get("description") or "", schema))
        known = of_registry[key] = generation, made
    return [dict(tool) for tool in known[1]]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a result.

    Attributes:
        kind: ``"text"``, ``"image"``, ``"audio"`` or ``"file"``.
        text: The text, or what stands for the data where a model can be shown only text.
        media_type: What the data is.
        data: The data in base64.
        url: Where the data is instead.
        name: A file's name.
    """

    kind: str
    text: str = ""
    media_type: str = "application/octet-stream"
    data: str | None = None
    url: str | None = None
    name: str | None = None


def parts(result: Any) -> list[Part]:
    """A result piece by piece. What has no form of its own becomes JSON text, or its ``str``."""
    try:
        shown = _results.shown(result)
    except TypeError:
        shown = str(result)
    if isinstance(shown, list):
        return [_part(block) for block in shown]
    return [Part("text", "" if shown is None else str(shown))]


def text_of(result: Any) -> str:
    """A result as nothing but text."""
    return "\n".join(part.text for part in parts(result))


def _part(block: dict[str, Any]) -> Part:
    kind = block["type"]
    if kind == "text":
        return Part("text", str(block["text"]))
    if kind == "image_url":
        image = block["image_url"]
        return _at("image", str(image.get("url", "") if isinstance(image, Mapping) else image))
    if kind == "input_audio":
        sound = block["input_audio"]
        media_type = f"audio/{sound.get('format', 'wav')}"
        return Part("audio", f"[audio: {media_type}]", media_type, data=sound.get("data"))
    if kind == "file":
        file = block["file"]
        return _at("file", str(file.get("file_data", "")), file.get("filename"))
    return _sourced("image" if kind == "image" else "file", block)


def _at(kind: str, url: str, name: str | None = None) -> Part:
    """What is at an address, or in one (``data:``)."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        media_type = head[len("data:") : -len(";base64")].partition(";")[0] or "application/octet-stream"
        return Part(kind, f"[{kind}: {name or media_type}]", media_type, data=data, name=name)
    media_type = "image/*" if kind == "image" else "application/octet-stream"
    return Part(kind, f"[{kind}: {name or url}]", media_type, url=url, name=name)


def _sourced(kind: str, block: dict[str, Any]) -> Part:
    """A block in the form of Anthropic's."""
    source, name = block["source"], block.get("title")
    if not isinstance(source, Mapping):
        return _at(kind, str(source), name)
    if source.get("type") == "text":
        return Part("text", str(source.get("data", "")))
    if source.get("url") is not None:
        return _at(kind, str(source["url"]), name)
    media_type = str(source.get("media_type") or "application/octet-stream")
    return Part(kind, f"[{kind}: {name or media_type}]", media_type, data=source.get("data"), name=name)


def data_url(part: Part) -> str:
    """Where the data of a part is, or the data itself as an address."""
    return part.url if part.data is None and part.url else f"data:{part.media_type};base64,{part.data or ''}"
