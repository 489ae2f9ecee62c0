"""Definitions of a schema under ``$defs``: counted, renamed, and written in place where used only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["reference", "references", "renamed", "settled"]

_PREFIX = "#/$defs/"
#: Keywords whose value maps names to schemas, and those whose value is data.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_DATA = frozenset({"default", "const", "enum", "examples"})


def reference(name: str) -> dict[str, Any]:
    """The schema that refers to a definition."""
    return {"$ref": _PREFIX + name}


def renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema with its references to definitions renamed."""

    def change(node: dict[str, Any]) -> dict[str, Any]:
        name = _target(node)
        inner = _below(node, change)
        return inner if name is None else {**inner, **reference(names.get(name, name))}

    return change(schema)


def settled(schema: dict[str, Any], defs: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The schema with its definitions: those used once stand where they are used, others under ``$defs``.

    A class that refers to itself stays a definition, and so does one that is used in several places:
    written out at each, classes that use each other twice would double with each level.
    """
    uses = Counter(references(schema))
    graph: dict[str, Counter[str]] = {}
    waiting = list(uses)
    while waiting:
        name = waiting.pop()
        if name not in graph:
            graph[name] = Counter(references(defs[name]))
            uses.update(graph[name])
            waiting.extend(graph[name])
    kept = {name for name in graph if uses[name] > 1 or _reaches(graph, name)}

    def change(node: dict[str, Any]) -> dict[str, Any]:
        name = _target(node)
        if name is None or name in kept:
            return _below(node, change)
        # What stands beside the reference was said for this place, and wins.
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**change(defs[name]), **_below(beside, change)}

    made = change(schema)
    if kept:
        made["$defs"] = {name: change(defs[name]) for name in defs if name in kept}
    return made


def _target(node: Mapping[str, Any]) -> str | None:
    ref = node.get("$ref")
    return ref[len(_PREFIX) :] if isinstance(ref, str) and ref.startswith(_PREFIX) else None


def _reaches(graph: Mapping[str, Counter[str]], start: str) -> bool:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name == start:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return False


def _below(node: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """The node with ``change`` made on the schemas directly below it."""
    made: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DATA:
            made[key] = value
        elif key in _NAMED and isinstance(value, dict):
            made[key] = {k: change(v) if isinstance(v, dict) else v for k, v in value.items()}
        elif isinstance(value, dict):
            made[key] = change(value)
        elif isinstance(value, list):
            made[key] = [change(item) if isinstance(item, dict) else item for item in value]
        else:
            made[key] = value
    return made


def references(node: dict[str, Any]) -> list[str]:
    """The definitions that a schema refers to, once for each time."""
    found: list[str] = []

    def look(inner: dict[str, Any]) -> dict[str, Any]:
        name = _target(inner)
        if name is not None:
            found.append(name)
        return _below(inner, look)

    look(node)
    return found
