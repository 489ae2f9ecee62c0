"""Classes that describe parameters, and schemas as the providers of models want them.

Each class makes one fragment of JSON Schema. Names, signatures and the dicts that they make are those of
nanobot-ai 0.3.5 (``nanobot.agent.tools.schema``). ``nullable`` adds ``"null"`` to the type.

Example:
    >>> tool_parameters_schema(
    ...     required=["path"],
    ...     path=StringSchema("The file to read"),
    ...     limit=IntegerSchema(description="Lines at most", minimum=1),
    ... )
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._native import normalize_schema as _normalize_schema
from .base import Schema

__all__ = [
    "ArraySchema",
    "BooleanSchema",
    "IntegerSchema",
    "NumberSchema",
    "ObjectSchema",
    "StringSchema",
    "normalize_schema",
    "tool_parameters_schema",
]


def _fragment(kind: str, nullable: bool, **keywords: Any) -> dict[str, Any]:
    """A fragment of one type with those keywords that are given."""
    fragment: dict[str, Any] = {"type": [kind, "null"] if nullable else kind}
    fragment.update((key, value) for key, value in keywords.items() if value is not None)
    return fragment


def _listed(enum: tuple[Any, ...] | list[Any] | None) -> list[Any] | None:
    return None if enum is None else list(enum)


class StringSchema(Schema):
    """A string.

    Args:
        description: What the model is told.
        min_length: Characters at least.
        max_length: Characters at most.
        enum: The values that are allowed.
        nullable: Whether null is allowed.
    """

    def __init__(
        self,
        description: str = "",
        *,
        min_length: int | None = None,
        max_length: int | None = None,
        enum: tuple[Any, ...] | list[Any] | None = None,
        nullable: bool = False,
    ) -> None:
        self._description = description
        self._min_length = min_length
        self._max_length = max_length
        self._enum = _listed(enum)
        self._nullable = nullable

    def to_json_schema(self) -> dict[str, Any]:
        """The fragment as a dict."""
        return _fragment(
            "string",
            self._nullable,
            description=self._description or None,
            minLength=self._min_length,
            maxLength=self._max_length,
            enum=_listed(self._enum),
        )


class _Numeric(Schema):
    _kind: str

    def __init__(
        self,
        *,
        description: str = "",
        minimum: float | None = None,
        maximum: float | None = None,
        enum: tuple[Any, ...] | list[Any] | None = None,
        nullable: bool = False,
    ) -> None:
        self._description = description
        self._minimum = minimum
        self._maximum = maximum
        self._enum = _listed(enum)
        self._nullable = nullable

    def to_json_schema(self) -> dict[str, Any]:
        """The fragment as a dict."""
        return _fragment(
            self._kind,
            self._nullable,
            description=self._description or None,
            minimum=self._minimum,
            maximum=self._maximum,
            enum=_listed(self._enum),
        )


class IntegerSchema(_Numeric):
    """An integer.

    Args:
        description: What the model is told.
        minimum: The least value allowed.
        maximum: The greatest value allowed.
        enum: The values that are allowed.
        nullable: Whether null is allowed.
    """

    _kind = "integer"


class NumberSchema(_Numeric):
    """A number, with the arguments of :class:`IntegerSchema`."""

    _kind = "number"


class BooleanSchema(Schema):
    """A boolean.

    Args:
        description: What the model is told.
        default: The value that holds when none is given; shown to the model only.
        nullable: Whether null is allowed.
    """

    def __init__(self, *, description: str = "", default: bool | None = None, nullable: bool = False) -> None:
        self._description = description
        self._default = default
        self._nullable = nullable

    def to_json_schema(self) -> dict[str, Any]:
        """The fragment as a dict."""
        return _fragment(
            "boolean", self._nullable, description=self._description or None, default=self._default
        )


class ArraySchema(Schema):
    """An array.

    Args:
        items: Schema of the elements, as a :class:`Schema` or a dict. Default: strings.
        description: What the model is told.
        min_items: Elements at least.
        max_items: Elements at most.
        nullable: Whether null is allowed.
    """

    def __init__(
        self,
        items: Any | None = None,
        *,
        description: str = "",
        min_items: int | None = None,
        max_items: int | None = None,
        nullable: bool = False,
    ) -> None:
        self._items_schema: Any = StringSchema("") if items is None else items
        self._description = description
        self._min_items = min_items
        self._max_items = max_items
        self._nullable = nullable

    def to_json_schema(self) -> dict[str, Any]:
        """The fragment as a dict."""
        return _fragment(
            "array",
            self._nullable,
            items=Schema.fragment(self._items_schema),
            description=self._description or None,
            minItems=self._min_items,
            maxItems=self._max_items,
        )


class ObjectSchema(Schema):
    """An object.

    Args:
        properties: Name -> :class:`Schema` or dict; keyword arguments are added.
        required: Names of the properties that must be there.
        description: What the model is told.
        additional_properties: Whether others are allowed, or their schema.
        nullable: Whether null is allowed.
    """

    def __init__(
        self,
        properties: Mapping[str, Any] | None = None,
        *,
        required: list[str] | None = None,
        description: str = "",
        additional_properties: bool | dict[str, Any] | None = None,
        nullable: bool = False,
        **kwargs: Any,
    ) -> None:
        self._properties = {**(properties or {}), **kwargs}
        self._required = list(required or [])
        self._root_description = description
        self._additional_properties = additional_properties
        self._nullable = nullable

    def to_json_schema(self) -> dict[str, Any]:
        """The fragment as a dict."""
        return _fragment(
            "object",
            self._nullable,
            properties={name: Schema.fragment(value) for name, value in self._properties.items()},
            required=list(self._required) or None,
            description=self._root_description or None,
            additionalProperties=self._additional_properties,
        )


def tool_parameters_schema(
    *,
    required: list[str] | None = None,
    description: str = "",
    additional_properties: bool | dict[str, Any] | None = False,
    **properties: Any,
) -> dict[str, Any]:
    """The schema of a tool's arguments, for :func:`~nanobot_tools.tool_parameters`.

    Args:
        required: Names of the parameters that must be given.
        description: Description of the arguments as a whole.
        additional_properties: Whether other parameters are allowed. They are not by default, so that a
            misspelt one is named instead of ignored; ``None`` leaves the keyword out.
        **properties: The parameters, as :class:`Schema` or dict.
    """
    return ObjectSchema(
        required=required,
        description=description,
        additional_properties=additional_properties,
        **properties,
    ).to_json_schema()


def normalize_schema(schema: Any, profile: str = "openai") -> dict[str, Any]:
    """The schema of a tool's arguments in the form that a provider of models accepts.

    A provider refuses the whole request over one schema that it does not like. The result is for the model
    to see; calls are cast and checked against the original, which is left as it is.

    What the original accepts the result accepts too, if ``nullable: true`` is read as admitting null;
    where a provider cannot be told something, more is admitted. (One exception: Gemini wants the type of
    the elements of every array, so that there arrays of anything may hold arrays two levels deep.) The
    same schema gives the same result, and a result stays as it is when it is normalised again.

    Profiles:

    - ``openai``: local references move to ``$defs/ref_<hash>``, unions of one schema and null become that
      schema with ``nullable``, arrays name their ``items``.
    - ``anthropic``: JSON Schema 2020-12 with a plain root; properties of the root whose names it refuses
      are only mentioned in the description.
    - ``gemini``: the part of OpenAPI 3.0 that function declarations take, with references written out;
      ``default`` stays, the first of ``examples`` becomes ``example``, and an ``enum`` that holds more
      than texts is mentioned in the description.
    - ``moonshot``: Moonshot's published dialect (MFJS) for Kimi: a type everywhere, none beside ``anyOf``
      or ``$ref``.
    - ``json-schema``: nothing is changed.

    In all but the last the root is a plain object and every ``$ref`` names something in ``$defs``. The
    result has at most 2.2 times the size of the original (as compact JSON) plus 256 bytes; for Gemini 8
    times plus 16 KiB.

    The rules of Moonshot and the fields of Gemini are documented by them; the other limits of Gemini, and
    those of OpenAI and Anthropic, are known from the errors of their APIs.

    Args:
        schema: A JSON Schema as a dict. Whatever else is given, or found inside, never raises: what has
            no JSON form becomes null, what is not an object at all the schema of any object.
        profile: Whose model is to see it.

    Returns:
        A new dict.

    Raises:
        ValueError: There is no such profile.
    """
    result: dict[str, Any] = _normalize_schema(schema, str(profile))
    return result
