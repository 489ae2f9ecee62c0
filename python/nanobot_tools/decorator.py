"""``@tool``: a tool made of a typed function.

The schema comes from the type hints and the docstring, arguments are converted to what the hints promise, and
results that are no text become JSON text. What cannot work is refused where the function is decorated.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from . import context as _context
from ._defs import settled
from ._docstrings import parse
from ._hints import Hints
from ._members import typed_dict_fields
from ._results import shown
from ._shape import MISSING, Convert, Field, Shape, ValueFault, convert_fields, object_schema
from .base import Tool, tool_parameters
from .errors import InvalidArgumentsError

__all__ = ["FunctionTool", "tool"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FunctionTool(Tool, Generic[_P, _R]):
    """A tool made of a function by :func:`tool`.

    Calling the object calls the function, with nothing checked or converted. ``execute`` is how the runtime
    calls it: ``async def`` for an async function, plain ``def`` for another, which then runs in a thread.
    """

    # The loader need not look for "Error:" in the text of such a tool: it raises ToolError.
    _reports_errors = True

    def __init__(self, function: Callable[_P, _R], call: _Call, options: _Options) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._call = call
        self._name = options.name
        self._description = options.description
        self._read_only = options.read_only
        self._exclusive = options.exclusive
        self.timeout = options.timeout
        self._scopes = set(options.scopes)

    @property
    def name(self) -> str:
        """The name that the model uses: the function's, unless ``@tool`` was given another."""
        return self._name

    @property
    def description(self) -> str:
        """The docstring up to its first section, unless ``@tool`` was given another."""
        return self._description

    @property
    def read_only(self) -> bool:
        """Whether a call has no side effect."""
        return self._read_only

    @property
    def exclusive(self) -> bool:
        """Whether a call must run alone."""
        return self._exclusive

    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call the function."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self._name}>"

    def __reduce__(self) -> str:
        # By reference, as functions are: the name leads to this object, not to the bare function.
        return self.__qualname__  # type: ignore[attr-defined,no-any-return]


class _AsyncFunctionTool(FunctionTool[_P, _R]):
    async def execute(self, /, **kwargs: Any) -> Any:
        """Await the function with arguments that were cast and validated.

        Returns:
            Text, ``None`` and content blocks as they are; anything else as JSON text.

        Raises:
            InvalidArgumentsError: A class named by a hint refuses its value.
            TypeError: The result has no JSON form.
            Exception: What the function raises.
        """
        args, kwargs = self._call.bind(kwargs)
        result = await self._call.function(*args, **kwargs)
        return result if type(result) is str else shown(result)


class _SyncFunctionTool(FunctionTool[_P, _R]):
    def execute(self, /, **kwargs: Any) -> Any:
        """Call the function; otherwise as for an async one. An awaitable that it returns is passed on."""
        args, kwargs = self._call.bind(kwargs)
        result = self._call.function(*args, **kwargs)
        if inspect.isawaitable(result):
            return _shown_later(result)
        return result if type(result) is str else shown(result)


async def _shown_later(awaitable: Awaitable[Any]) -> Any:
    return shown(await awaitable)


class _Call:
    """How a function is called: with converted arguments, and what the model does not give."""

    __slots__ = ("_convert", "_injected", "_made", "_plain", "_positional", "function")

    def __init__(
        self,
        function: Callable[..., Any],
        convert: Convert | None,
        injected: Mapping[str, bool],
        positional: Mapping[str, Any],
        made: Mapping[str, Callable[[], Any]],
    ) -> None:
        self.function = function
        self._convert = convert
        self._injected = injected
        self._positional = positional
        self._made = made
        self._plain = not (convert or injected or positional or made)

    def bind(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the function."""
        if self._plain:
            return [], arguments
        for name in self._injected:
            arguments.pop(name, None)  # The model is not to pass itself off as the request.
        if self._convert is not None:
            try:
                arguments = self._convert(arguments)
            except ValueFault as fault:
                failure = (fault.pointer, "type", str(fault))
                raise InvalidArgumentsError(str(fault), [failure]) from fault.__cause__
            except RecursionError:
                raise InvalidArgumentsError("the arguments are nested too deeply") from None
        for name, default in self._made.items():
            if name not in arguments:
                arguments[name] = default()
        for name, needed in self._injected.items():
            arguments[name] = _context.current_request_context()
            if needed and arguments[name] is None:
                raise RuntimeError("there is no current request, and the tool needs one")
        args = []
        for name, default in self._positional.items():
            value = arguments.pop(name, default)
            if value is MISSING:
                raise InvalidArgumentsError(f"missing required {name}", [("", "required", name)])
            args.append(value)
        return args, arguments


class _Options:
    """What ``@tool`` was given, checked."""

    __slots__ = ("description", "exclusive", "name", "read_only", "scopes", "timeout")

    def __init__(
        self,
        name: str,
        description: str,
        read_only: bool,
        exclusive: bool,
        timeout: float | None,
        scopes: Iterable[str],
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"bad tool name {name!r}: only letters, digits, _ and - are allowed, 64 at most; "
                "give another with @tool(name=...)"
            )
        if not isinstance(description, str):
            raise TypeError(f"tool {name}: the description must be a string")
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0
        ):
            raise ValueError(f"tool {name}: timeout must be a positive number of seconds or None")
        self.name = name
        self.description = description
        self.read_only = bool(read_only)
        self.exclusive = bool(exclusive)
        self.timeout = timeout
        self.scopes = frozenset((scopes,) if isinstance(scopes, str) else scopes)


@overload
def tool(function: Callable[_P, _R], /) -> FunctionTool[_P, _R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    exclusive: bool = False,
    timeout: float | None = None,
    scopes: Iterable[str] = ("core",),
) -> Callable[[Callable[_P, _R]], FunctionTool[_P, _R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    exclusive: bool = False,
    timeout: float | None = None,
    scopes: Iterable[str] = ("core",),
) -> Any:
    """Make a tool of a function.

    The parameters' hints become the schema: the primitives, ``Any``, containers, ``Optional`` and unions,
    ``Literal``, enums, dataclasses, TypedDicts, NamedTuples, pydantic models, paths, dates and times,
    ``UUID`` and ``Decimal``. ``Annotated`` adds a description (a string), constraints (pydantic's ``Field``,
    annotated_types), or a :class:`~nanobot_tools.Schema` or JSON Schema dict, whose keywords win. The
    docstring gives the description and, in Google, NumPy or Sphinx style, those of the parameters. A
    parameter of type :class:`~nanobot_tools.RequestContext` gets the current request and is not in the
    schema. ``**kwargs`` lets the model give further arguments.

    A result that is text, a ``ToolResult``, ``None`` or a list of content blocks is passed on as it is;
    anything else becomes JSON text. The function fails by raising :class:`~nanobot_tools.ToolError`.

    Args:
        function: An async or plain function. A bound method will do, a method in a class body will not.
        name: The tool's name (default: the function's).
        description: What the model is told (default: the docstring up to its first section).
        read_only: Whether calls have no side effect, so that they may run in parallel.
        exclusive: Whether a call must run alone.
        timeout: Seconds that one call may take, or ``None``.
        scopes: The scopes that the loader registers it in.

    Returns:
        A :class:`FunctionTool`; without ``function``, a decorator that makes one.

    Raises:
        TypeError: A hint has no JSON form or cannot be resolved, the function has ``*args``, is a generator,
            a class, or a method in a class body.
        ValueError: The name or the timeout is bad.

    Example:
        >>> @tool(read_only=True)
        ... async def weather(city: str, days: int = 1) -> dict:
        ...     '''Forecast the weather.
        ...
        ...     Args:
        ...         city: Where.
        ...     '''
        ...     return {"city": city, "days": days}
    """
    # The names that string annotations may refer to: those of the function that decorates.
    frame = sys._getframe(1)
    local = dict(frame.f_locals) if frame.f_locals is not frame.f_globals else {}
    del frame

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        function = _checked(function)
        lead, about = parse(inspect.getdoc(function))
        options = _Options(
            getattr(function, "__name__", "") if name is None else name,
            lead if description is None else description,
            read_only,
            exclusive,
            timeout,
            scopes,
        )
        try:
            schema, call = _read(function, local, about)
        except TypeError as exc:
            raise TypeError(f"tool {options.name}: {exc}") from None
        kind: type[Any] = _AsyncFunctionTool if inspect.iscoroutinefunction(function) else _SyncFunctionTool
        # A class of its own, so that the schema is known to never change.
        own = types.new_class(kind.__name__, (kind,), {}, lambda body: body.update(__module__=__name__))
        made: FunctionTool[..., Any] = tool_parameters(schema)(own)(function, call, options)
        return made

    if function is None:
        return make
    if isinstance(function, str):
        raise TypeError(f"@tool takes no positional name; write @tool(name={function!r})")
    return make(function)


def _checked(function: Any) -> Callable[..., Any]:
    if isinstance(function, staticmethod):
        function = function.__func__
    elif isinstance(function, types.FunctionType):
        owner = function.__qualname__.rpartition(".")[0]
        if owner and not owner.endswith("<locals>"):
            raise TypeError(
                f"{function.__qualname__} is a method in a class body; make a tool of the bound method "
                "instead: tool(obj.method)"
            )
    if isinstance(function, (type, classmethod, Tool)) or not callable(function):
        raise TypeError(f"@tool makes a tool of a function, not of {function!r}")
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{function!r} is a generator; a tool returns one result")
    return typing.cast("Callable[..., Any]", function)


def _read(
    function: Callable[..., Any], local: dict[str, Any], about: Mapping[str, str]
) -> tuple[dict[str, Any], _Call]:
    """The schema of a function's arguments, and how it is called."""
    hints = Hints()
    fields: list[Field] = []
    injected: dict[str, bool] = {}
    positional: dict[str, Any] = {}
    made: dict[str, Callable[[], Any]] = {}
    additional: bool | dict[str, Any] = False
    others: Convert | None = None
    signature = _signature(function)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"*{name} cannot be given by name; use a parameter of type list")
        hint = _resolve(function, name, parameter.annotation, local)
        if parameter.kind is parameter.VAR_KEYWORD:
            extra, additional, others = _further(hints, name, hint, about)
            fields += extra
            continue
        default = parameter.default
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional[name] = MISSING if default is parameter.empty else default
        if (wanted := _wants_context(hint)) is not None:
            injected[name] = wanted and default is parameter.empty
            continue
        if _is_field_info(default):
            # pydantic's `x: int = Field(3, ge=1)`; the function alone would get the Field itself.
            hint = typing.Annotated[hint, default]
            make = _field_default(default)
            if make is not None:
                made[name] = make
            default = parameter.empty if make is None else MISSING if default.default_factory else make()
        shape = _shape(hints, name, hint)
        needed = default is parameter.empty
        shown_default = MISSING if needed else default
        fields.append(Field(name, shape, needed, about.get(name, ""), shown_default))
    schema = settled(object_schema(fields, additional), hints.defs)
    call = _Call(function, convert_fields(fields, others), injected, positional, made)
    return schema, call


def _shape(hints: Hints, name: str, hint: Any) -> Shape:
    try:
        return hints.shape(hint)
    except TypeError as exc:
        raise TypeError(f"parameter {name}: {exc}") from None


def _further(
    hints: Hints, name: str, hint: Any, about: Mapping[str, str]
) -> tuple[list[Field], bool | dict[str, Any], Convert | None]:
    """What ``**kwargs`` admits: fields of an unpacked TypedDict, or anything of one type."""
    if typing.get_origin(hint) is typing.Unpack:
        inner = typing.get_args(hint)[0]
        fields = [
            Field(key, _shape(hints, key, of), required, text or about.get(key, ""), default)
            for key, of, required, text, default in typed_dict_fields(inner)
        ]
        return fields, False, None
    shape = _shape(hints, f"**{name}", hint)
    schema = dict(shape.schema)
    if about.get(name):
        schema.setdefault("description", about[name])
    return [], schema or True, shape.convert


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # A return type that exists for type checkers only is no concern here.
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def _resolve(function: Callable[..., Any], name: str, hint: Any, local: dict[str, Any]) -> Any:
    """A hint with its text read, in the scope of the function and of who decorates it."""
    if hint is inspect.Parameter.empty:
        return Any
    code = _code(function)
    names = dict(getattr(code, "__globals__", {}))
    # Often imported for type checkers only, and known here all the same.
    names.setdefault("RequestContext", _context.RequestContext)
    holder = types.SimpleNamespace(__annotations__={name: hint})
    try:
        found = typing.get_type_hints(holder, names, {**local, **_enclosed(code)}, include_extras=True)
    except Exception as exc:
        raise TypeError(f"parameter {name}: the type hint {hint!r} cannot be resolved: {exc}") from None
    return found[name]


def _code(function: Any) -> Any:
    """The innermost function: below wrappers, partials, methods and callable objects."""
    while True:
        inner = inspect.unwrap(function)
        inner = inner.func if isinstance(inner, functools.partial) else getattr(inner, "__func__", inner)
        if inner is function:
            break
        function = inner
    if isinstance(function, (types.FunctionType, types.BuiltinFunctionType)):
        return function
    return type(function).__call__


def _enclosed(code: Any) -> dict[str, Any]:
    """The variables of the functions around a function that it uses."""
    found = {}
    names = getattr(getattr(code, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(code, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # Not set yet.
            continue
    return found


def _wants_context(hint: Any) -> bool | None:
    """Whether a parameter must (true) or may (false) get the current request; None if it is another one."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    arms = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    classes = [arm for arm in arms if arm is not type(None)]
    theirs = getattr(sys.modules.get("nanobot.agent.tools.context"), "RequestContext", None)
    known = [_context.RequestContext, *([theirs] if theirs is not None else [])]
    if not classes or not all(any(arm is one for one in known) for arm in classes):
        return None
    return len(classes) == len(arms)


def _is_field_info(value: Any) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def _field_default(field: Any) -> Callable[[], Any] | None:
    if field.default_factory is not None:
        return typing.cast("Callable[[], Any]", field.default_factory)
    if field.is_required():
        return None
    value = field.default
    return lambda: value
