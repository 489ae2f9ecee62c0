"""Hints whose values are one text, number or choice in JSON."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal, InvalidOperation
from pathlib import Path, PosixPath, PurePath, PurePosixPath
from typing import Any
from uuid import UUID

from ._results import plain
from ._shape import Convert, Shape

__all__ = ["PRIMITIVES", "choices", "enumeration", "simple", "to_float"]

PRIMITIVES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_PATHS = {Path, PurePath, PosixPath, PurePosixPath}


def to_float(value: Any) -> Any:
    """A JSON number as a float."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("the number is too large") from None
    return value


def _to_decimal(value: Any) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a decimal number") from None


def simple(cls: type) -> Shape | None:
    """The shape of a class whose values are one text or number in JSON."""
    if cls in _PATHS:
        return Shape({"type": "string"}, cls)
    if cls is datetime.datetime:
        return Shape({"type": "string", "format": "date-time"}, datetime.datetime.fromisoformat)
    if cls is datetime.date:
        return Shape({"type": "string", "format": "date"}, datetime.date.fromisoformat)
    if cls is datetime.time:
        return Shape({"type": "string", "format": "time"}, datetime.time.fromisoformat)
    if cls is datetime.timedelta:
        schema = {"type": "number", "description": "seconds"}
        return Shape(schema, lambda value: datetime.timedelta(seconds=value))
    if cls is UUID:
        return Shape({"type": "string", "format": "uuid"}, UUID)
    if cls is Decimal:
        return Shape({"type": "string", "description": "a decimal number"}, _to_decimal)
    return None


def _kind(value: Any) -> str | None:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else PRIMITIVES.get(type(value))


def _choice_schema(values: list[Any]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(_kind(value) for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def choices(args: tuple[Any, ...]) -> Shape:
    """The shape of a ``Literal``."""
    values = [arg.value if isinstance(arg, enum.Enum) else arg for arg in args]
    if any(_kind(value) is None for value in values):
        raise TypeError(f"Literal{list(args)} has no JSON form")
    members = [(value, arg) for value, arg in zip(values, args, strict=True) if isinstance(arg, enum.Enum)]
    return Shape(_choice_schema(values), _pick(members) if members else None)


def enumeration(cls: type[enum.Enum]) -> Shape:
    """The shape of an enum: its values, or its names where the values have no JSON form."""
    members = [(member.value, member) for member in cls]
    if not members:
        raise TypeError(f"{cls.__qualname__} has no members")
    plain_value = (str, int, float, bool)
    pairs = [(plain(m) if isinstance(v, plain_value) else None, m) for v, m in members]
    if any(_kind(value) in (None, "null") for value, _ in pairs) or issubclass(cls, enum.Flag):
        pairs = [(member.name, member) for member in cls]
    return Shape(_choice_schema([value for value, _ in pairs]), _pick(pairs))


def _pick(members: list[tuple[Any, Any]]) -> Convert:
    # 1, 1.0 and True are one key of a dict, and are different values here.
    known = {(isinstance(value, bool), value): member for value, member in members}
    return lambda value: known.get((isinstance(value, bool), value), value)
