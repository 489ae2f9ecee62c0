"""Type hints as JSON Schema, and JSON values back as what the hints promise.

:class:`Hints` turns hints into :class:`Shape`: a schema, and a function that converts a value which is valid
under it (``None`` where a value is right as it is). Structured classes become definitions, to which
:func:`~nanobot_tools._defs.settled` gives their place. Hints that have no JSON form raise ``TypeError``.
pydantic and annotated_types are known by what they look like and never imported.
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import enum
import json
import sys
import types
import typing
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from ._defs import reference, references, renamed
from ._docstrings import parse
from ._members import (
    dataclass_fields,
    has_own_docstring,
    named_tuple_fields,
    type_arguments,
    typed_dict_fields,
)
from ._native import CompiledSchema
from ._results import plain
from ._scalars import PRIMITIVES, choices, enumeration, simple, to_float
from ._shape import MISSING, Convert, Field, Shape, ValueFault, convert_at, convert_fields, object_schema
from .base import Schema

__all__ = ["Hints"]

_SCALARS = {"string", "integer", "number", "boolean", "null"}
_LISTS = {
    list,
    abc.Sequence,
    abc.MutableSequence,
    abc.Collection,
    abc.Iterable,
    abc.Container,
    abc.Reversible,
}
_SETS = {set, abc.Set, abc.MutableSet}
_MAPPINGS = {dict, abc.Mapping, abc.MutableMapping}

_PYDANTIC = {"__pydantic_core_schema__", "__get_pydantic_core_schema__"}

#: Attribute of a constraint (of annotated_types, or in pydantic's Field) -> keyword, by the schema's type.
_CONSTRAINTS: dict[str, dict[str, str]] = {
    "gt": {"number": "exclusiveMinimum", "integer": "exclusiveMinimum"},
    "ge": {"number": "minimum", "integer": "minimum"},
    "lt": {"number": "exclusiveMaximum", "integer": "exclusiveMaximum"},
    "le": {"number": "maximum", "integer": "maximum"},
    "multiple_of": {"number": "multipleOf", "integer": "multipleOf"},
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
    "pattern": {"string": "pattern"},
}


class Hints:
    """Turns the hints of one tool into shapes; ``defs`` are the classes that these refer to."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._converters: dict[Any, Convert | None] = {}
        self._compiled: dict[int, CompiledSchema] = {}

    def shape(self, hint: Any) -> Shape:
        """The shape of a hint.

        Raises:
            TypeError: It has no JSON form.
        """
        if typing.get_origin(hint) is typing.Annotated:  # First: its metadata may not be hashable.
            return self._annotated(hint)
        if hint is Any or hint is object or hint is MISSING:
            return Shape({})
        if hint is None or hint is type(None):
            return Shape({"type": "null"})
        if hint in PRIMITIVES:
            return Shape({"type": PRIMITIVES[hint]}, to_float if hint is float else None)
        if isinstance(hint, typing.NewType):
            return self.shape(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            if hint.__constraints__:
                return self._union(hint.__constraints__)
            return self.shape(hint.__bound__ if hint.__bound__ is not None else Any)
        if type(hint).__name__ == "TypeAliasType" and hasattr(hint, "__value__"):
            return self.shape(hint.__value__)
        origin = typing.get_origin(hint)
        if origin is not None:
            return self._generic(hint, origin, typing.get_args(hint))
        if isinstance(hint, type):
            return self._class(hint)
        raise TypeError(f"{_name(hint)} has no JSON form")

    # -- generic hints ---------------------------------------------------------------------------------

    def _generic(self, hint: Any, origin: Any, args: tuple[Any, ...]) -> Shape:
        if origin is typing.Union or origin is types.UnionType:
            return self._union(args)
        if origin is typing.Literal:
            return choices(args)
        if getattr(origin, "_name", "") in ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar"):
            return self.shape(args[0])
        if origin is tuple:
            return self._tuple(args)
        if origin in _LISTS or origin in _SETS or origin is frozenset:
            return self._list(origin, args[0])
        if origin in _MAPPINGS:
            return self._mapping(args[0], args[1])
        if type(origin).__name__ == "TypeAliasType" and hasattr(origin, "__value__"):
            return self.shape(origin.__value__[args])
        if isinstance(origin, type) and not hasattr(hint, "model_json_schema"):
            return self._class(origin, hint)
        return self._class(hint)

    def _list(self, kind: Any, item: Any) -> Shape:
        inner = self.shape(item)
        schema: dict[str, Any] = {"type": "array", "items": inner.schema}
        each = inner.convert
        make: Callable[[Iterable[Any]], Any] = list
        if kind in _SETS or kind is frozenset:
            schema["uniqueItems"] = True
            make = frozenset if kind is frozenset else set
        elif each is None:
            return Shape(schema)

        def convert(value: Any) -> Any:
            return make(value if each is None else [convert_at(i, each, x) for i, x in enumerate(value)])

        return Shape(schema, convert)

    def _tuple(self, args: tuple[Any, ...]) -> Shape:
        if len(args) == 2 and args[1] is Ellipsis:
            inner = self._list(list, args[0])
            each = inner.convert
            return Shape(inner.schema, tuple if each is None else lambda value: tuple(each(value)))
        if not args or args == ((),):
            return Shape({"type": "array", "items": {}, "maxItems": 0}, tuple)
        # Providers refuse prefixItems, so that the model is told of the kinds and the number of items;
        # what stands where is checked here.
        shapes = [self.shape(arg) for arg in args]
        distinct = _distinct([shape.schema for shape in shapes])
        items = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
        schema = {"type": "array", "items": items, "minItems": len(args), "maxItems": len(args)}

        def convert(value: Any) -> Any:
            made = []
            for i, (shape, item) in enumerate(zip(shapes, value, strict=True)):
                if wrong := self._wrong(shape, item, f"[{i}]"):
                    raise ValueFault((), wrong[0])
                made.append(item if shape.convert is None else convert_at(i, shape.convert, item))
            return tuple(made)

        return Shape(schema, convert)

    def _mapping(self, key: Any, value: Any) -> Shape:
        keys, inner = self.shape(key), self.shape(value)
        schema: dict[str, Any] = {"type": "object", "additionalProperties": inner.schema or True}
        kind = keys.schema.get("type")
        if key is int:
            read: Convert | None = int
        elif kind == "string" or not keys.schema:
            read = keys.convert
            if "enum" in keys.schema or "pattern" in keys.schema:
                schema["propertyNames"] = {k: v for k, v in keys.schema.items() if k != "type"}
        else:
            raise TypeError(f"keys of type {_name(key)} have no JSON form")
        each = inner.convert
        if read is None and each is None:
            return Shape(schema)

        def convert(value: Any) -> Any:
            return {
                k if read is None else convert_at(k, read, k): v if each is None else convert_at(k, each, v)
                for k, v in value.items()
            }

        return Shape(schema, convert)

    def _union(self, args: Iterable[Any]) -> Shape:
        shapes = [self.shape(arg) for arg in args]
        schemas = _distinct([shape.schema for shape in shapes])
        if {} in schemas:
            schema: dict[str, Any] = {}
        elif len(schemas) == 1:
            schema = schemas[0]
        else:
            schema = _joined(schemas)
        if all(shape.convert is None for shape in shapes):
            return Shape(schema)

        def convert(value: Any) -> Any:
            fault: Exception | None = None
            for shape in shapes:
                if self._wrong(shape, value):
                    continue
                if shape.convert is None:
                    return value
                try:
                    return shape.convert(value)
                except (ValueError, TypeError, ArithmeticError) as exc:
                    fault = fault or exc
            if fault is not None:
                raise fault
            return value

        return Shape(schema, convert)

    def _wrong(self, shape: Shape, value: Any, path: str = "") -> list[str]:
        # By identity: the shapes that are asked about live as long as the conversion that asks.
        compiled = self._compiled.get(id(shape))
        if compiled is None:
            compiled = CompiledSchema({**shape.schema, "$defs": self.defs})
            self._compiled[id(shape)] = compiled
        return compiled.validate(value, path)

    def _annotated(self, hint: Any) -> Shape:
        inner, *metadata = typing.get_args(hint)
        if "pydantic" in sys.modules and any(_is_pydantic_validator(item) for item in metadata):
            shape = self._pydantic(hint)
        else:
            try:
                shape = self.shape(inner)
            except TypeError:
                if not any(isinstance(item, (Schema, dict)) for item in metadata):
                    raise
                # Who says what the schema is takes the value as it comes.
                shape = Shape({})
        schema = dict(shape.schema)
        for item in _flattened(metadata):
            self._annotate(schema, item)
        return Shape(schema, shape.convert)

    def _annotate(self, schema: dict[str, Any], item: Any) -> None:
        if isinstance(item, str):
            schema["description"] = item
            return
        if isinstance(item, (Schema, dict)):
            schema.update(Schema.fragment(item))
            return
        if isinstance(item, type):
            return
        for source, target in (("description", "description"), ("documentation", "description")):
            text = getattr(item, source, None)
            if isinstance(text, str) and text:
                schema[target] = text
        title, examples = getattr(item, "title", None), getattr(item, "examples", None)
        if isinstance(title, str) and _is_field_info(item):
            schema["title"] = title
        if isinstance(examples, list) and _is_field_info(item):
            schema["examples"] = plain(examples)
        for attribute, keywords in _CONSTRAINTS.items():
            value = getattr(item, attribute, None)
            if attribute == "pattern":
                value = getattr(value, "pattern", value)
                if value is not None and not isinstance(value, str):
                    continue
            if value is not None and not callable(value):
                _constrain(schema, keywords, value)

    # -- classes ---------------------------------------------------------------------------------------

    def _class(self, cls: Any, hint: Any = None) -> Shape:
        """The shape of a class; ``hint`` is the class with its type arguments, if it has some."""
        hint = cls if hint is None else hint
        if not isinstance(cls, type):
            raise TypeError(f"{_name(hint)} has no JSON form")
        if cls in _LISTS or cls in _SETS or cls is frozenset:
            return self._list(cls, Any)
        if cls is tuple:
            return self._tuple((Any, Ellipsis))
        if cls in _MAPPINGS:
            return self._mapping(str, Any)
        if issubclass(cls, enum.Enum):
            return enumeration(cls)
        scalar = simple(cls)
        if scalar is not None:
            return scalar
        if "pydantic" in sys.modules and _PYDANTIC.intersection(dir(cls)):
            return self._pydantic(hint)
        if typing.is_typeddict(cls):
            return self._structured(hint, cls, typed_dict_fields, None)
        if dataclasses.is_dataclass(cls):
            return self._structured(hint, cls, dataclass_fields, cls)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._structured(hint, cls, named_tuple_fields, cls)
        raise TypeError(
            f"{_name(hint)} has no JSON form; Annotated[..., a Schema or a JSON Schema dict] can give it one"
        )

    def _structured(self, hint: Any, cls: Any, read: Any, make: Callable[..., Any] | None) -> Shape:
        name = self._names.get(hint)
        if name is None:
            name = self._names[hint] = self._free_name(cls.__name__)
            # Taken from now on, and what a class that refers to itself finds.
            self.defs[name] = {}
            lead, about = parse(cls.__doc__) if has_own_docstring(cls) else ("", {})
            fields = [
                Field(key, self._member(cls, key, inner), required, text or about.get(key, ""), default)
                for key, inner, required, text, default in read(cls, type_arguments(hint, cls))
            ]
            schema = object_schema(fields)
            self.defs[name] = {"type": "object", "description": lead, **schema} if lead else schema
            self._converters[hint] = _maker(make, convert_fields(fields))
        if self._converters.get(hint, MISSING) is None:
            return Shape(reference(name))
        return Shape(reference(name), lambda value: self._convert_later(hint, value))

    def _member(self, cls: Any, name: str, hint: Any) -> Shape:
        try:
            return self.shape(hint)
        except TypeError as exc:
            raise TypeError(f"{cls.__name__}.{name}: {exc}") from None

    def _convert_later(self, hint: Any, value: Any) -> Any:
        convert = self._converters[hint]
        return value if convert is None else convert(value)

    def _free_name(self, name: str) -> str:
        free, number = name, 2
        while free in self.defs:
            free, number = f"{name}{number}", number + 1
        return free

    def _pydantic(self, hint: Any) -> Shape:
        adapter = sys.modules["pydantic"].TypeAdapter(hint)
        schema = adapter.json_schema()
        bodies = schema.pop("$defs", {})
        if isinstance(hint, type) and "properties" in schema:
            # Like the classes below it, so that one used in several places is written once.
            bodies[hint.__name__] = schema
            schema = reference(hint.__name__)
        # Known already are those that are the same down to the last definition below them.
        known = {name for name, body in bodies.items() if self.defs.get(name) == body}
        while strange := {name for name in known if not known.issuperset(references(bodies[name]))}:
            known -= strange
        names: dict[str, str] = {}
        for name, body in bodies.items():
            names[name] = name if name in known else self._free_name(name)
            self.defs[names[name]] = body
        for name, body in bodies.items():
            self.defs[names[name]] = renamed(body, names)
        return Shape(renamed(schema, names), adapter.validate_python)


# -- helpers --


def _maker(make: Callable[..., Any] | None, inside: Convert | None) -> Convert | None:
    """The conversion of an object into an instance: its fields first, then the class."""
    if make is None:
        return inside
    return lambda value: make(**(value if inside is None else inside(value)))


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _distinct(schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_text = {json.dumps(schema, sort_keys=True, default=repr): schema for schema in schemas}
    return list(by_text.values())


def _joined(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema for any of several: a list of types where that says it all, else ``anyOf``."""
    others = [schema for schema in schemas if schema != {"type": "null"}]
    nullable = len(others) < len(schemas)
    if nullable and len(others) == 1 and isinstance(others[0].get("type"), str) and "$ref" not in others[0]:
        joined = {**others[0], "type": [others[0]["type"], "null"]}
        if "enum" in joined:
            joined["enum"] = [*joined["enum"], None]
        return joined
    if all(set(schema) == {"type"} and schema["type"] in _SCALARS for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _is_field_info(item: Any) -> bool:
    return type(item).__name__ == "FieldInfo" and hasattr(item, "metadata")


def _is_pydantic_validator(item: Any) -> bool:
    return hasattr(type(item), "__get_pydantic_core_schema__") and not _is_field_info(item)


def _flattened(metadata: Iterable[Any]) -> Iterable[Any]:
    """Metadata with what it groups: pydantic's Field, and ``Interval``, ``Len`` and the like."""
    for item in metadata:
        if _is_field_info(item):
            yield item
            yield from _flattened(item.metadata)
        elif hasattr(type(item), "__is_annotated_types_grouped_metadata__"):
            yield from _flattened(item)
        else:
            yield item


def _constrain(schema: dict[str, Any], keywords: dict[str, str], value: Any) -> None:
    """Put a constraint on a schema, or on those branches of a union that it is for."""
    for branch in schema.get("anyOf", ()):
        _constrain(branch, keywords, value)
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind in keywords:
            schema[keywords[kind]] = float(value) if isinstance(value, Decimal) else plain(value)
