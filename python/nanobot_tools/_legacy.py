"""The rule for plugins from before ``ToolResult``: text that begins with ``Error:`` is an error.

:func:`legacy` puts a thin object around a plugin's tool. It forwards everything, passes for an instance of
the plugin's class, and runs a plain ``execute`` as a plain one. Its class defines only what the plugin's
class overrides, so that the native half sees the same overrides and keeps its fast path where there are none.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

__all__ = ["legacy"]

_METHODS = ("cast_params", "validate_params", "to_schema", "_cast_value", "_cast_object", "_resolve_type")
_TABLES = ("_TYPE_MAP", "_BOOL_TRUE", "_BOOL_FALSE")
_BASE_MODULES = ("nanobot_tools.base", "nanobot.agent.tools.base")


def legacy(tool: Any) -> Any:
    """Put the rule on a plugin's tool.

    Tools that cannot be of the old kind come back as they are: those made by ``@tool``, and native ones.
    """
    if isinstance(tool, _LegacyErrorPrefixTool) or getattr(type(tool), "_reports_errors", False):
        return tool
    if getattr(type(tool).__dict__.get("execute"), "_runs_native_tool", False):
        return tool
    cls: Any = type(tool)
    return _around(cls, inspect.iscoroutinefunction(tool.execute))(tool)


def _judged(result: Any) -> Any:
    # nanobot's ToolResult is another class than ours; both have the mark.
    if isinstance(result, str) and not hasattr(result, "is_error") and result.startswith("Error:"):
        from .base import ToolResult

        return ToolResult.error(result)
    return result


async def _judged_later(awaitable: Any) -> Any:
    return _judged(await awaitable)


class _LegacyErrorPrefixTool:
    """A plugin's tool with the rule on it; see the module's text."""

    __slots__ = ("__weakref__", "_wrapped")

    _wrapped: Any

    def __init__(self, wrapped: Any) -> None:
        object.__setattr__(self, "_wrapped", wrapped)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._wrapped.__class__

    def __getattr__(self, name: str) -> Any:
        if name == "_wrapped":
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._wrapped, name)

    def __dir__(self) -> list[str]:
        return dir(self._wrapped)

    def __repr__(self) -> str:
        return repr(self._wrapped)

    def __reduce__(self) -> Any:
        return legacy, (self._wrapped,)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()


class _OnLoop(_LegacyErrorPrefixTool):
    __slots__ = ()

    async def execute(self, /, **kwargs: Any) -> Any:
        """Run the tool and judge its text."""
        result = self._wrapped.execute(**kwargs)
        return _judged(await result if inspect.isawaitable(result) else result)


class _InThread(_LegacyErrorPrefixTool):
    __slots__ = ()

    def execute(self, /, **kwargs: Any) -> Any:
        """Run the tool and judge its text, or that of the awaitable that it returns."""
        result = self._wrapped.execute(**kwargs)
        return _judged_later(result) if inspect.isawaitable(result) else _judged(result)


@lru_cache(maxsize=256)
def _around(cls: type, is_coroutine: bool) -> type[_LegacyErrorPrefixTool]:
    """The class for tools of ``cls``."""
    # nanobot calls the tools written for its classes on the loop, whatever their execute is.
    on_loop = is_coroutine or any(base.__module__.partition(".")[0] == "nanobot" for base in cls.__mro__)
    body: dict[str, Any] = {"__slots__": (), "__module__": __name__}
    for name in _METHODS:
        if _overrides(cls, name):
            body[name] = _forward(name)
    for name in _TABLES:
        if hasattr(cls, name):
            body[name] = getattr(cls, name)
    # The getter that tool_parameters makes reads nothing of its object, and is how the native half knows
    # that the schema never changes.
    parameters = getattr(cls, "parameters", None)
    if getattr(getattr(parameters, "fget", None), "__module__", None) in _BASE_MODULES:
        body["parameters"] = parameters
    return type(f"Legacy{cls.__name__}", (_OnLoop if on_loop else _InThread,), body)


def _overrides(cls: type, name: str) -> bool:
    method = getattr(cls, name, None)
    return method is not None and getattr(method, "__module__", None) not in _BASE_MODULES


def _forward(name: str) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._wrapped, name)(*args, **kwargs)

    forward.__name__ = name
    return forward
