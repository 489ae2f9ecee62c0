"""The fields of dataclasses, TypedDicts and NamedTuples, with their hints read."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from ._shape import MISSING

__all__ = [
    "Member",
    "dataclass_fields",
    "has_own_docstring",
    "named_tuple_fields",
    "type_arguments",
    "typed_dict_fields",
]

#: Name, hint, whether it is required, description, default.
Member = tuple[str, Any, bool, str, Any]
_NONE: Mapping[Any, Any] = types.MappingProxyType({})


def _resolved(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as exc:
        raise TypeError(f"a type hint of {cls.__qualname__} cannot be resolved: {exc}") from None


def type_arguments(hint: Any, cls: Any) -> dict[Any, Any]:
    """The arguments of a generic class, by its type variables."""
    return dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(hint), strict=False))


def _filled(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    """A hint with the class's type variables filled in."""
    if not arguments:
        return hint
    if hint in arguments:
        return arguments[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(arguments.get(p, p) for p in parameters)] if parameters else hint


def dataclass_fields(cls: Any, arguments: Mapping[Any, Any]) -> Iterable[Member]:
    """The arguments of a dataclass: fields and ``InitVar``."""
    hints = _resolved(cls)
    # InitVars are arguments as well, but no fields; __dataclass_fields__ has both.
    for field in cls.__dataclass_fields__.values():
        hint = hints.get(field.name, Any)
        if typing.get_origin(hint) is typing.ClassVar or hint is typing.ClassVar or not field.init:
            continue
        if isinstance(hint, dataclasses.InitVar):
            hint = hint.type
        default = MISSING if field.default is dataclasses.MISSING else field.default
        required = default is MISSING and field.default_factory is dataclasses.MISSING
        text = field.metadata.get("description", "")
        yield field.name, _filled(hint, arguments), required, text if isinstance(text, str) else "", default


def typed_dict_fields(cls: Any, arguments: Mapping[Any, Any] = _NONE) -> Iterable[Member]:
    """The keys of a TypedDict."""
    for name, hint in _resolved(cls).items():
        required = name in cls.__required_keys__
        # Under `from __future__ import annotations` the sets are made from unread text.
        marker = hint
        while typing.get_origin(marker) is typing.Annotated:
            marker = typing.get_args(marker)[0]
        kind = getattr(typing.get_origin(marker), "_name", "")
        if kind in ("Required", "NotRequired"):
            required = kind == "Required"
        yield name, _filled(hint, arguments), required, "", MISSING


def named_tuple_fields(cls: Any, arguments: Mapping[Any, Any]) -> Iterable[Member]:
    """The fields of a NamedTuple."""
    hints = _resolved(cls)
    for name in cls._fields:
        default = cls._field_defaults.get(name, MISSING)
        yield name, _filled(hints.get(name, Any), arguments), default is MISSING, "", default


def has_own_docstring(cls: Any) -> bool:
    """Whether a class says something of itself."""
    doc = cls.__dict__.get("__doc__")
    # dataclass and NamedTuple write their signature there when the class says nothing.
    return isinstance(doc, str) and not doc.startswith(f"{cls.__name__}(")
