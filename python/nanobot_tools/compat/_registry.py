"""Preparing calls and describing tools, behind the methods of nanobot's ``ToolRegistry``.

A registry of nanobot's keeps its dict of tools, and whoever reads or changes that goes on doing so. Beside it
stands a native registry that looks at each tool when it is first needed, and again when another object is
found under its name.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from .._native import NativeRegistry

__all__ = ["get_definitions", "prepare_call", "unregister"]

_MIRROR = "_nbtools_registry"


def _mirror(registry: Any) -> NativeRegistry:
    found = vars(registry).get(_MIRROR)
    if found is None:
        found = NativeRegistry()
        setattr(registry, _MIRROR, found)
    mirror: NativeRegistry = found
    return mirror


def _adopt(mirror: NativeRegistry, name: Any, tool: Any) -> bool:
    """Have the native registry know a tool; whether it can be found there under its name."""
    if mirror.get(name) is tool:
        return True
    try:
        mirror.register(tool)
    except Exception:  # An object without a usable name; nanobot's own way is open to it.
        return False
    return mirror.get(name) is tool


def _adopt_all(mirror: NativeRegistry, tools: dict[str, Any]) -> bool:
    """Have the native registry know these tools and no others, in their order; whether it does."""
    if mirror.tool_names != list(tools):
        for name in mirror.tool_names:
            mirror.unregister(name)
    return all(_adopt(mirror, name, tool) for name, tool in tools.items())


def prepare_call(original: Any, module: ModuleType) -> Any:
    """For ``ToolRegistry.prepare_call``."""

    @functools.wraps(original)
    def prepare_call(self: Any, name: Any, params: Any) -> Any:
        tool = self.get(name) if isinstance(name, str) else None
        mirror = _mirror(self)
        if tool is None:
            # What may be meant is looked for among the names that there are.
            known = isinstance(name, str) and _adopt_all(mirror, self._tools)
        else:
            known = _adopt(mirror, name, tool)
        return mirror.prepare_call(name, params) if known else original(self, name, params)

    return prepare_call


def get_definitions(original: Any, module: ModuleType) -> Any:
    """For ``ToolRegistry.get_definitions``."""

    @functools.wraps(original)
    def get_definitions(self: Any) -> Any:
        if self._cached_definitions is None:
            mirror = _mirror(self)
            if not _adopt_all(mirror, self._tools):
                return original(self)
            # A description may have changed since another tool was registered.
            mirror.refresh()
            self._cached_definitions = mirror.get_definitions()
        return self._cached_definitions

    return get_definitions


def unregister(original: Any, module: ModuleType) -> Any:
    """For ``ToolRegistry.unregister``: a tool that is gone is not kept here."""

    @functools.wraps(original)
    def unregister(self: Any, name: Any) -> None:
        original(self, name)
        mirror = vars(self).get(_MIRROR)
        if mirror is not None and isinstance(name, str):
            mirror.unregister(name)

    return unregister
