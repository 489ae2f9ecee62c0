"""The base classes of tools: :class:`Tool`, :class:`ToolResult` and :class:`Schema`.

Names, signatures and meaning are those of nanobot-ai 0.3.5 (``nanobot.agent.tools.base``), so that a plugin
written for nanobot works with only its import changed. ``Tool`` is plain Python on purpose: constructors,
dataclasses, mixins and ``super()`` of subclasses work as usual. What can be quick is done natively behind
its methods, as long as a subclass does not override them.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

from . import _beside
from ._native import CompiledSchema

if TYPE_CHECKING:
    from .context import ToolContext

__all__ = ["Schema", "Tool", "ToolResult", "is_tool_error_result", "tool_parameters"]

_ToolT = TypeVar("_ToolT", bound="type[Tool]")

_JSON_TYPE_MAP: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}

_NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)

#: Compiled schemas by their text; the oldest one goes first.
_cache: dict[str, CompiledSchema] = {}
_CACHED = 256


def _compiled(schema: Any) -> CompiledSchema:
    """The compiled form of a schema, made anew only when its content is new.

    Content is compared as text: ``==`` takes ``1``, ``1.0`` and ``True`` for the same, and a schema that is
    changed in place must not be taken for what it was.
    """
    try:
        key = repr(schema)
    except Exception:  # Too deep, or an object that cannot say what it is.
        return CompiledSchema(schema)
    compiled = _cache.get(key)
    if compiled is None:
        compiled = CompiledSchema(schema)
        while len(_cache) >= _CACHED:
            _cache.pop(next(iter(_cache), ""), None)
        _cache[key] = compiled
    return compiled


class Schema(ABC):
    """A fragment of JSON Schema that describes a parameter.

    The concrete classes are in :mod:`nanobot_tools.schema`.
    """

    @staticmethod
    def resolve_json_schema_type(t: Any) -> str | None:
        """The type that a ``type`` keyword means: the first that is not ``"null"`` of a list."""
        if isinstance(t, list):
            return next((item for item in t if item != "null"), None)
        return t  # type: ignore[no-any-return]

    @staticmethod
    def subpath(path: str, key: str) -> str:
        """The path of a property below ``path``, as error texts show it."""
        return f"{path}.{key}" if path else key

    @staticmethod
    def validate_json_schema_value(val: Any, schema: dict[str, Any], path: str = "") -> list[str]:
        """Validate a value against a schema.

        Args:
            val: The value.
            schema: A JSON Schema fragment; all of draft 2020-12 is checked.
            path: Where the value stands, for the texts; ``""`` reads as ``parameter``.

        Returns:
            The failures as texts, in the reference's wording where it knows the keyword; empty if valid.
        """
        return _compiled(schema).validate(val, path)

    @staticmethod
    def fragment(value: Any) -> dict[str, Any]:
        """The JSON Schema of a :class:`Schema` or of a dict that is one already.

        Raises:
            TypeError: It is neither.
        """
        make = getattr(value, "to_json_schema", None)
        if callable(make):
            return make()  # type: ignore[no-any-return]
        if isinstance(value, dict):
            return value
        raise TypeError(f"Expected schema object or dict, got {type(value).__name__}")

    @abstractmethod
    def to_json_schema(self) -> dict[str, Any]:
        """The fragment as a dict."""
        ...

    def validate_value(self, value: Any, path: str = "") -> list[str]:
        """Validate one value; the failures as texts, empty if valid. May be overridden for further rules."""
        return Schema.validate_json_schema_value(value, self.to_json_schema(), path)


class ToolResult(str):
    """Text for the model, with a mark that says whether it is an error.

    In a process with nanobot, results are instances of its class of this name as well. A nanobot that has
    none (before 0.3.0) knows errors by how their text begins; there an error's text begins with ``Error``.

    Args:
        content: The text.
        is_error: Whether the call failed.

    Attributes:
        error_kind: What kind of error it is, as in :attr:`ToolOutcome.error_kind`, in results of
            :meth:`ToolRegistry.execute` and executors; ``None`` in those that a tool makes.
    """

    is_error: bool
    error_kind: str | None = None

    def __new__(cls, content: str, *, is_error: bool = False) -> ToolResult:
        if cls is ToolResult:
            cls = _beside.result_class(cls)
        if is_error and not content.startswith("Error") and _beside.speaks_in_texts():
            content = f"Error: {content}"
        result = str.__new__(cls, content)
        result.is_error = is_error
        return result

    def __reduce__(self) -> Any:
        return _result, (str(self), self.is_error, self.error_kind)

    @classmethod
    def error(cls, content: str) -> ToolResult:
        """A result that says the call failed."""
        return cls(content, is_error=True)


def _result(content: str, is_error: bool, error_kind: str | None = None) -> ToolResult:
    """A result as it was before it was copied or pickled."""
    result = ToolResult(content, is_error=is_error)
    if error_kind is not None:
        result.error_kind = error_kind
    return result


def is_tool_error_result(result: Any) -> bool:
    """Whether what a tool returned says that the call failed.

    A result of nanobot's own ``ToolResult`` counts as well as one of ours; plain text never does.
    """
    return isinstance(result, str) and getattr(result, "is_error", False) is True


class Tool(ABC):
    """Something that a model can call.

    A subclass gives ``name``, ``description``, ``parameters`` (a JSON Schema of type ``object``; see
    :func:`tool_parameters`) and ``execute``. ``execute`` is a coroutine function, or a plain function, which
    then runs in a thread. A tool fails by returning ``ToolResult.error(text)`` or raising
    :class:`~nanobot_tools.ToolError`; any other exception becomes an error that names it.

    Attributes:
        config_key: Section of the host's configuration that belongs to the tool.
        timeout: Seconds that one call may take, or ``None``. Kept by
            :class:`~nanobot_tools.ToolExecutor`.
    """

    _TYPE_MAP = _JSON_TYPE_MAP
    _BOOL_TRUE = frozenset(("true", "1", "yes"))
    _BOOL_FALSE = frozenset(("false", "0", "no"))

    config_key: str = ""
    timeout: float | None = None
    _plugin_discoverable: bool = True
    _scopes: set[str] = {"core"}  # noqa: RUF012 - declared as nanobot's tools declare it

    @staticmethod
    def _resolve_type(t: Any) -> str | None:
        return Schema.resolve_json_schema_type(t)

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that the model uses: ``[A-Za-z0-9_-]``, at most 64 characters."""
        ...

    @property
    @abstractmethod
    def description(self) -> str:
        """What the model is told about the tool."""
        ...

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether a call has no side effect. Default false."""
        return False

    @property
    def concurrency_safe(self) -> bool:
        """Whether calls may run beside other safe calls: read-only and not exclusive."""
        return self.read_only and not self.exclusive

    @property
    def exclusive(self) -> bool:
        """Whether a call must run alone. Default false."""
        return False

    @classmethod
    def config_cls(cls) -> type[Any] | None:
        """The class of the tool's own configuration, or ``None``."""
        return None

    @classmethod
    def enabled(cls, ctx: ToolContext) -> bool:
        """Whether the loader registers the tool in this context. Default true."""
        return True

    @classmethod
    def create(cls, ctx: ToolContext) -> Tool:
        """Make the tool from a context. By default it is made without arguments."""
        return cls()

    def runtime_context_provider(self) -> Any:
        """What the tool adds to the prompt of each turn, or ``None``."""
        return None

    async def open(self) -> None:  # noqa: B027 - optional, so not abstract
        """Get ready for calls; run by whoever owns the registry (``ToolRegistry.open``)."""

    async def aclose(self) -> None:  # noqa: B027
        """Release what :meth:`open` took; run by whoever owns the registry."""

    @abstractmethod
    async def execute(self, **kwargs: Any) -> Any:
        """Run the tool with arguments that were cast and validated.

        Returns:
            Text or anything that the host can show the model; ``ToolResult.error(...)`` for a failure.
        """
        ...

    @staticmethod
    def error(content: str) -> ToolResult:
        """An error result: ``ToolResult.error(content)``."""
        return ToolResult.error(content)

    def cast_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Forgive arguments whose meaning is clear (``"5"`` for an integer and the like).

        Args:
            params: The arguments; they are not changed.

        Returns:
            The arguments, a copy where something was cast. What cannot be cast stays as it is, for
            :meth:`validate_params` to name.
        """
        compiled, schema = self._schema()
        if not _describes_object(schema):
            return params
        if compiled is None or self._casts_its_own_way():
            return self._cast_object(params, schema)  # type: ignore[no-any-return]
        return compiled.cast(params)  # type: ignore[no-any-return]

    def validate_params(self, params: dict[str, Any]) -> list[str]:
        """Validate arguments against :attr:`parameters`.

        Returns:
            The failures as texts; empty if valid.

        Raises:
            ValueError: The schema is not of type ``object``.
        """
        if not isinstance(params, dict):
            return [f"parameters must be an object, got {type(params).__name__}"]
        compiled, schema = self._schema()
        if not _describes_object(schema):
            raise ValueError(f"Schema must be object type, got {schema.get('type')!r}")
        return [] if compiled is None else compiled.validate(params, "")

    def to_schema(self) -> dict[str, Any]:
        """The tool as an OpenAI function definition."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    # -- casting in steps, for subclasses that override one of them ------------------------------------

    def _schema(self) -> tuple[CompiledSchema | None, dict[str, Any]]:
        """The schema, compiled and as it is; none is compiled where there is nothing to check."""
        getter = getattr(getattr(type(self), "parameters", None), "fget", None)
        constant: _Constant | None = getattr(getter, "constant", None)
        if constant is not None:
            return constant.compiled(), constant.schema
        schema = self.parameters
        if not schema or not isinstance(schema, dict):
            return None, {}
        return _compiled(schema), schema

    def _casts_its_own_way(self) -> bool:
        cls = type(self)
        return (
            cls._cast_value is not Tool._cast_value
            or cls._cast_object is not Tool._cast_object
            or cls._resolve_type is not Tool._resolve_type
            or not self._plain_tables()
        )

    def _plain_tables(self) -> bool:
        return (
            self._TYPE_MAP == _JSON_TYPE_MAP
            and self._BOOL_TRUE == Tool._BOOL_TRUE
            and self._BOOL_FALSE == Tool._BOOL_FALSE
        )

    def _cast_object(self, obj: Any, schema: dict[str, Any]) -> Any:
        if not isinstance(obj, dict):
            return obj
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties")
        return {key: self._cast_value(value, known.get(key, others)) for key, value in obj.items()}

    def _cast_value(self, val: Any, schema: Any) -> Any:
        if not isinstance(schema, dict):  # None, or a boolean schema
            return val
        kind = self._resolve_type(schema.get("type"))
        if kind == "object" and isinstance(val, dict):
            return self._cast_object(val, schema)
        if kind == "array" and isinstance(val, list):
            items = schema.get("items")
            return [self._cast_value(item, items) for item in val] if isinstance(items, dict) else val
        if not self._plain_tables():
            return self._cast_by_tables(val, kind)
        # The native rules are for the arguments as a whole, so the value is put into an object.
        cast = _compiled({"type": "object", "properties": {"value": schema}}).cast({"value": val})["value"]
        if isinstance(val, str) and isinstance(cast, (dict, list)):
            return self._cast_value(cast, schema)
        return cast

    def _cast_by_tables(self, val: Any, kind: str | None) -> Any:
        """The cast of a value by the tables of a class that has its own."""
        if val is None or kind is None:
            return val
        expected = self._TYPE_MAP.get(kind)
        fits = expected is not None and isinstance(val, expected)
        if fits and not (isinstance(val, bool) and kind in ("integer", "number")):
            return val
        if kind == "string":
            return json.dumps(val, ensure_ascii=False) if isinstance(val, (dict, list)) else str(val)
        if not isinstance(val, str):
            return val
        if kind == "boolean":
            word = val.lower()
            return True if word in self._BOOL_TRUE else False if word in self._BOOL_FALSE else val
        if kind in ("integer", "number") and _NUMERAL.fullmatch(val.strip()):
            number = float(val)
            if kind == "number":
                return number
            if "." not in val and "e" not in val.lower():
                return int(val)
            return int(number) if number.is_integer() else val
        return val


_beside.meet(Tool)


class _Constant:
    """A schema that never changes, compiled when it is first needed."""

    __slots__ = ("_compiled", "schema")

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._compiled: CompiledSchema | None = None

    def compiled(self) -> CompiledSchema:
        if self._compiled is None:
            self._compiled = CompiledSchema(self.schema)
        return self._compiled


def _describes_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type", "object")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def tool_parameters(schema: dict[str, Any]) -> Callable[[_ToolT], _ToolT]:
    """Class decorator: give a :class:`Tool` its ``parameters``.

    Args:
        schema: The JSON Schema. It is copied; each access gives a fresh copy. Since it never changes, it is
            compiled and serialised once.

    Example:
        >>> @tool_parameters({"type": "object", "properties": {"path": {"type": "string"}}})
        ... class ReadTool(Tool): ...
    """

    def decorator(cls: _ToolT) -> _ToolT:
        frozen = deepcopy(schema)

        def parameters(self: Any) -> dict[str, Any]:
            return deepcopy(frozen)

        # Both are marks: the native half reads a schema that never changes only once.
        parameters.constant = _Constant(frozen)  # type: ignore[attr-defined]
        cls._constant_parameters = frozen  # type: ignore[attr-defined]
        cls.parameters = property(parameters)  # type: ignore[assignment,method-assign]
        missing: frozenset[str] = getattr(cls, "__abstractmethods__", frozenset())
        if "parameters" in missing:
            cls.__abstractmethods__ = missing - {"parameters"}
        return cls

    return decorator
