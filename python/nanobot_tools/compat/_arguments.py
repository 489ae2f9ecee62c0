"""Casting and validating, behind the methods of nanobot's ``Tool`` and ``Schema``.

A class that casts in a way of its own (``_cast_value``, ``_TYPE_MAP`` and the like) is left to nanobot's own
functions.
"""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any

from ..base import _compiled, _Constant, _describes_object

__all__ = ["cast_params", "validate_json_schema_value", "validate_params"]

#: What a subclass may override of casting.
_STEPS = ("_cast_value", "_cast_object", "_resolve_type")
_TABLES = ("_TYPE_MAP", "_BOOL_TRUE", "_BOOL_FALSE")
#: The property that nanobot's decorator makes: it copies a schema that never changes at each access.
_GETTER = "tool_parameters.<locals>.decorator.<locals>.parameters"

_constants: weakref.WeakKeyDictionary[Any, _Constant] = weakref.WeakKeyDictionary()


def _schema_of(tool: Any, module: ModuleType) -> tuple[Any, Any]:
    """The tool's schema, compiled and as it is; ``(None, {})`` if it has none that can be used."""
    getter = getattr(getattr(type(tool), "parameters", None), "fget", None)
    if getattr(getter, "__qualname__", None) == _GETTER and getter.__module__ == module.__name__:
        constant = _constants.get(getter)
        if constant is None:
            constant = _constants[getter] = _Constant(tool.parameters)
        return constant.compiled(), constant.schema
    schema = tool.parameters
    if not schema or not isinstance(schema, dict):
        return None, {}
    return _compiled(schema), schema


def cast_params(original: Any, module: ModuleType) -> Any:
    """For ``Tool.cast_params``."""
    base = module.Tool
    steps = [(name, getattr(base, name, None)) for name in _STEPS]
    tables = [(name, getattr(base, name, None)) for name in _TABLES]

    @functools.wraps(original)
    def cast_params(self: Any, params: Any) -> Any:
        cls = type(self)
        plain = all(getattr(cls, name, None) is step for name, step in steps) and all(
            getattr(self, name, None) == table for name, table in tables
        )
        if not plain:
            return original(self, params)
        compiled, schema = _schema_of(self, module)
        if compiled is None or not _describes_object(schema):
            return original(self, params)
        return compiled.cast(params)

    return cast_params


def validate_params(original: Any, module: ModuleType) -> Any:
    """For ``Tool.validate_params``."""

    @functools.wraps(original)
    def validate_params(self: Any, params: Any) -> Any:
        if not isinstance(params, dict):
            return original(self, params)
        compiled, schema = _schema_of(self, module)
        if compiled is None or not _describes_object(schema):
            return original(self, params)
        return compiled.validate(params, "")

    return validate_params


def validate_json_schema_value(original: Any, module: ModuleType) -> Any:
    """For ``Schema.validate_json_schema_value``."""

    @functools.wraps(original)
    def validate_json_schema_value(val: Any, schema: Any, path: str = "") -> Any:
        if not isinstance(schema, dict):
            return original(val, schema, path)
        return _compiled(schema).validate(val, path)

    return validate_json_schema_value
