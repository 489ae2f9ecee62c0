"""Finding plugins, behind the methods of nanobot's ``ToolLoader``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from .. import _dispatch
from .._legacy import legacy
from ..loader import ToolLoader

__all__ = ["discover_plugins", "load", "skip_modules"]

#: Modules of nanobot's tool package that have no tools, and of which it says so itself or forgot to. One of
#: them imports the whole MCP SDK.
_NO_TOOLS = frozenset(("execution", "mcp_oauth"))


class _Loader(ToolLoader):
    """Our loader at work for one of nanobot's."""

    def __init__(self, module: ModuleType, package: Any, classes: list[Any] | None = None) -> None:
        super().__init__(package, test_classes=classes)
        self._module = module

    def _entry_points(self, group: str) -> Iterable[Any]:
        # Looked up at each call, since tests replace it there.
        found: Iterable[Any] = self._module.entry_points(group=group)
        return found

    def _wrap(self, tool: Any) -> Any:
        return _Awaited(tool) if _is_plain(wrapped := legacy(tool)) else wrapped


def _is_plain(tool: Any) -> bool:
    return not inspect.iscoroutinefunction(tool.execute)


class _Awaited:
    """A tool whose ``execute`` is a plain function, for a host that awaits it: it runs in a thread."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._tool = legacy(wrapped)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._wrapped.__class__

    def __getattr__(self, name: str) -> Any:
        if name in ("_wrapped", "_tool"):
            raise AttributeError(name)
        return getattr(self._tool, name)

    async def execute(self, /, **kwargs: Any) -> Any:
        """Run the tool."""
        return await _dispatch.run_tool(self._tool, kwargs, _dispatch.mode(self._tool))


def discover_plugins(original: Any, module: ModuleType) -> Any:
    """For ``ToolLoader._discover_plugins``."""

    @functools.wraps(original)
    def _discover_plugins(self: Any) -> Any:
        if self._plugins is None:
            self._plugins = _Loader(module, self._package)._discover_plugins()
        return self._plugins

    return _discover_plugins


def load(original: Any, module: ModuleType) -> Any:
    """For ``ToolLoader.load``."""

    @functools.wraps(original)
    def load(self: Any, ctx: Any, registry: Any, *, scope: str = "core") -> Any:
        ours = _Loader(module, self._package, self.discover())
        ours._plugins = self._discover_plugins()
        return ours.load(ctx, registry, scope=scope)

    return load


def skip_modules(original: Any, module: ModuleType) -> Any:
    """For ``_SKIP_MODULES``."""
    return frozenset(original) | _NO_TOOLS
