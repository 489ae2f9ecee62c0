"""The parts that schemas of objects are made of, and the conversion of their values.

A :class:`Shape` is what a type hint means; :class:`ValueFault` says where a value was refused.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any

from ._results import plain

__all__ = [
    "MISSING",
    "Convert",
    "Field",
    "Shape",
    "ValueFault",
    "convert_at",
    "convert_fields",
    "object_schema",
]

Convert = Callable[[Any], Any]
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()


class ValueFault(ValueError):
    """A valid JSON value that the hint's class refuses; ``steps`` lead to it."""

    def __init__(self, steps: tuple[str | int, ...], text: str) -> None:
        super().__init__(steps, text)
        self.steps = steps
        self.text = text

    def __str__(self) -> str:
        path = ""
        for step in self.steps:
            path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
        return f"{path}: {self.text}" if path else self.text

    @property
    def pointer(self) -> str:
        """The JSON Pointer to the value."""
        return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in self.steps)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A hint's schema, and how a value that is valid under it is converted."""

    schema: dict[str, Any]
    convert: Convert | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One property of an object: of a function's parameters, of a dataclass and the like."""

    name: str
    shape: Shape
    required: bool
    description: str = ""
    default: Any = MISSING


def object_schema(fields: Iterable[Field], additional: bool | dict[str, Any] = False) -> dict[str, Any]:
    """The schema of an object with these properties."""
    fields = list(fields)
    properties: dict[str, Any] = {}
    for field in fields:
        schema = dict(field.shape.schema)
        if field.description and "description" not in schema:
            schema["description"] = field.description
        if field.default is not MISSING and field.default is not None and "default" not in schema:
            default = _json_default(field.default)
            if default is not MISSING:
                schema["default"] = default
        properties[field.name] = schema
    schema = {"type": "object", "properties": properties}
    if required := [field.name for field in fields if field.required]:
        schema["required"] = required
    schema["additionalProperties"] = additional
    return schema


def convert_fields(fields: Iterable[Field], others: Convert | None = None) -> Convert | None:
    """A conversion of the properties of an object, into a new dict; None if there is nothing to convert.

    Args:
        fields: The known properties.
        others: The conversion of any other.
    """
    converters = {field.name: field.shape.convert for field in fields}
    if others is None and not any(converters.values()):
        return None

    def convert(value: Any) -> dict[str, Any]:
        made = {}
        for key, item in value.items():
            one = converters.get(key, others)
            made[key] = item if one is None else convert_at(key, one, item)
        return made

    return convert


def _json_default(value: Any) -> Any:
    try:
        made = plain(value)
        json.dumps(made, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return MISSING
    return made


def convert_at(step: str | int, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except ValueFault as fault:
        raise ValueFault((step, *fault.steps), fault.text) from fault.__cause__
    except (ValueError, TypeError, ArithmeticError) as exc:
        raise ValueFault((step,), _fault_text(exc)) from exc


def _fault_text(exc: BaseException) -> str:
    errors = getattr(exc, "errors", None)
    if callable(errors):  # pydantic's ValidationError: its own text has the input in it
        parts = []
        for error in errors(include_url=False, include_context=False, include_input=False):
            where = ".".join(map(str, error.get("loc", ())))
            parts.append(f"{where}: {error['msg']}" if where else error["msg"])
        return "; ".join(parts)
    return str(exc) or type(exc).__name__
