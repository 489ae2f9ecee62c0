"""`@tool` makes tools of functions as they are written, and refuses aloud what cannot work."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import enum
import functools
import inspect
import json
import pickle
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union, Unpack

import annotated_types
import pydantic
import pytest
from nanobot_tools.base import Tool, ToolResult
from nanobot_tools.context import RequestContext, request_context
from nanobot_tools.decorator import FunctionTool, tool
from nanobot_tools.errors import InvalidArgumentsError
from nanobot_tools.schema import StringSchema


def properties(made: FunctionTool[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = made.parameters["properties"]
    return found


def run(made: FunctionTool[..., Any], /, **arguments: Any) -> Any:
    """Cast, validate and run, as the registry does."""
    cast = made.cast_params(arguments)
    assert made.validate_params(cast) == []
    result = made.execute(**cast)
    return asyncio.run(result) if inspect.isawaitable(result) else result


def taken(hint: Any, value: Any) -> Any:
    """What a function with a parameter of this hint receives for a JSON value."""
    got: list[Any] = []

    def take(value):
        got.append(value)

    take.__annotations__ = {"value": hint}
    run(tool(take), value=value)
    return got[0]


def schema_of(hint: Any) -> dict[str, Any]:
    def take(value):
        pass

    take.__annotations__ = {"value": hint}
    found: dict[str, Any] = properties(tool(take))["value"]
    return found


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    A = object()
    B = (1, 2)


@dataclasses.dataclass
class Point:
    """A point.

    Attributes:
        x: To the right.
    """

    x: float
    y: float = 0.0
    tag: Color | None = None


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    seen: NotRequired[datetime.date]


class Pair(NamedTuple):
    left: int
    right: Path = Path(".")


class Item(pydantic.BaseModel):
    sku: str
    amount: int = pydantic.Field(1, ge=1)


class Node(pydantic.BaseModel):
    value: int
    next: Node | None = None


# -- the object --


def test_a_decorated_function_is_a_tool_and_still_the_function():
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert isinstance(add, Tool)
    assert add(1) == 3
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.__name__ == "add"
    assert (add.read_only, add.exclusive, add.concurrency_safe, add.timeout) == (False, False, False, None)
    assert add._scopes == {"core"}
    assert add.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert run(add, a="1") == "3"
    assert list(inspect.signature(add).parameters) == ["a", "b"]


def test_options_are_taken():
    @tool(
        name="n-1", description="D", read_only=True, exclusive=True, timeout=2.5, scopes={"core", "subagent"}
    )
    async def f() -> None:
        """Not this."""

    assert (f.name, f.description, f.read_only, f.exclusive, f.timeout) == ("n-1", "D", True, True, 2.5)
    assert f._scopes == {"core", "subagent"}
    assert not f.concurrency_safe


def test_execute_is_async_exactly_for_async_functions():
    @tool
    async def one() -> str:
        return "1"

    @tool
    def two() -> str:
        return "2"

    assert inspect.iscoroutinefunction(one.execute)
    assert not inspect.iscoroutinefunction(two.execute)
    assert two.execute() == "2"


def test_an_awaitable_of_a_plain_function_is_shown_when_it_is_awaited():
    async def later() -> dict[str, int]:
        return {"a": 1}

    @tool
    def now():
        return later()

    assert run(now) == '{"a": 1}'


def test_the_schema_is_a_fresh_copy_and_marked_as_constant():
    @tool
    def f(a: int) -> None: ...

    f.parameters["properties"].clear()
    assert f.parameters["properties"]
    assert type(f)._constant_parameters == f.parameters
    getter = type(f).parameters.fget
    assert getter.__qualname__ == "tool_parameters.<locals>.decorator.<locals>.parameters"


@tool
def module_level(a: int) -> int:
    """For pickling."""
    return a


def test_a_tool_is_copied_and_pickled_by_reference():
    assert copy.deepcopy(module_level) is module_level
    assert pickle.loads(pickle.dumps(module_level)) is module_level


def test_parameters_with_names_of_python_and_of_the_runtime_arrive():
    @tool
    def f(self: str, name: str, params: int, arguments: int = 0, cls: int = 0, args: int = 0) -> str:
        return f"{self}{name}{params}{arguments}{cls}{args}"

    assert run(f, self="s", name="n", params=1, arguments=2, cls=3, args=4) == "sn1234"


def test_keyword_arguments_admit_more():
    @tool
    def f(a: int, **more: datetime.date) -> str:
        return f"{a} {more['b'].year}"

    assert f.parameters["additionalProperties"] == {"type": "string", "format": "date"}
    assert run(f, a=1, b="2024-05-06") == "1 2024"


def test_the_docstring_describes_further_arguments():
    made = tool(google)
    assert made.parameters["additionalProperties"] == {"type": "string", "description": "Anything else."}


def test_arguments_nested_too_deeply_are_an_error():
    @tool
    def f(tree: Tree) -> None: ...

    deep: dict[str, Any] = {"name": "x"}
    for _ in range(5000):
        deep = {"name": "x", "children": [deep]}
    with pytest.raises(InvalidArgumentsError, match="nested too deeply"):
        f.execute(tree=deep)


def test_positional_only_parameters_are_given():
    @tool
    def f(a: int, b: int = 5, /, c: int = 6) -> list[int]:
        return [a, b, c]

    assert run(f, a=1) == "[1, 5, 6]"
    assert run(f, a=1, b=2, c=3) == "[1, 2, 3]"


def test_bound_methods_static_methods_and_partials_are_taken():
    class Box:
        def __init__(self, n: int) -> None:
            self.n = n

        def plus(self, a: int) -> int:
            return self.n + a

        @tool
        @staticmethod
        def fixed(a: int) -> int:
            return a

    assert run(tool(Box(2).plus), a=3) == "5"
    assert run(Box.fixed, a=3) == "3"
    assert run(tool(name="p")(functools.partial(Box(2).plus)), a=1) == "3"


def test_wrapped_functions_keep_their_hints():
    def logged(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @tool
    @logged
    def f(when: datetime.date) -> int:
        return when.year

    assert run(f, when="2024-05-06") == "2024"


# -- refused aloud --


@pytest.mark.parametrize("name", ["", "a b", "größe", "x" * 65, "a.b", "a\n"])
def test_a_bad_name_is_refused(name):
    with pytest.raises(ValueError, match="bad tool name"):
        tool(name=name)(lambda: None)


def test_a_lambda_needs_a_name():
    with pytest.raises(ValueError, match="bad tool name"):
        tool(lambda: None)


@pytest.mark.parametrize("timeout", [0, -1, True, "5", float("nan")])
def test_a_bad_timeout_is_refused(timeout):
    with pytest.raises(ValueError, match="timeout"):
        tool(name="x", timeout=timeout)(lambda: None)


def test_what_cannot_be_called_by_names_is_refused():
    def star(*args: int) -> None: ...

    def generator():
        yield 1

    async def async_generator():
        yield 1

    with pytest.raises(TypeError, match=r"\*args cannot be given by name"):
        tool(star)
    for function in (generator, async_generator):
        with pytest.raises(TypeError, match="generator"):
            tool(function)
    for other in (int, Point, 5, classmethod(star)):
        with pytest.raises(TypeError, match="makes a tool of a function"):
            tool(other)
    with pytest.raises(TypeError, match="name='x'"):
        tool("x")


def test_a_method_in_a_class_body_is_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"tool\(obj\.method\)"):

        class A:
            @tool
            def method(self, a: int) -> None: ...


@pytest.mark.parametrize("hint", [bytes, complex, type, list[bytes], dict[bytes, int], object()])
def test_a_hint_without_a_json_form_is_refused_by_name(hint):
    with pytest.raises(TypeError, match=r"tool take: parameter value: "):
        schema_of(hint)


def test_a_hint_that_cannot_be_resolved_is_refused_by_name():
    def f(a: Unknown) -> None: ...  # noqa: F821

    with pytest.raises(TypeError, match=r"parameter a: .*Unknown"):
        tool(f)


def test_the_return_hint_is_not_read():
    @tool
    def f(a: int) -> Unknown:  # noqa: F821
        return "x"

    assert run(f, a=1) == "x"


def test_local_classes_are_found_in_string_annotations():
    class Kind(enum.Enum):
        A = "a"

    @tool
    def f(kind: Kind, kinds: list[Kind] = ()) -> str:
        return kind.name

    assert run(f, kind="a") == "A"


# -- hints --


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (Any, {}),
        (None, {"type": "null"}),
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": True}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045
        (int | str, {"type": ["integer", "string"]}),
        (Union[int, str, None], {"type": ["integer", "string", "null"]}),  # noqa: UP007
        (
            list[int] | str,
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]},
        ),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", 1, None], {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),
        (Literal["a"] | None, {"type": ["string", "null"], "enum": ["a", None]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Odd, {"type": "string", "enum": ["A", "B"]}),
        (Path, {"type": "string"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (
            Annotated[int, "How many", annotated_types.Ge(1)],
            {"type": "integer", "description": "How many", "minimum": 1},
        ),
        (Annotated[str, annotated_types.Len(1, 5)], {"type": "string", "minLength": 1, "maxLength": 5}),
        (
            Annotated[list[int], annotated_types.MinLen(1)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        ),
        (
            Annotated[int | None, annotated_types.Interval(ge=1, lt=9)],
            {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 9},
        ),
        (
            Annotated[int, pydantic.Field(description="D", gt=0, multiple_of=2)],
            {"type": "integer", "description": "D", "exclusiveMinimum": 0, "multipleOf": 2},
        ),
        (Annotated[str, pydantic.Field(pattern="^a")], {"type": "string", "pattern": "^a"}),
        (
            Annotated[str, StringSchema("S", max_length=3)],
            {"type": "string", "description": "S", "maxLength": 3},
        ),
        (Annotated[bytes, {"type": "string"}], {"type": "string"}),
    ],
    ids=str,
)
def test_hints_become_schemas(hint, schema):
    assert schema_of(hint) == schema


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (float, 5, 5.0),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, Color], [1, "red"], (1, Color.RED)),
        (set[int], [1, 2], {1, 2}),
        (frozenset[Color], ["red"], frozenset({Color.RED})),
        (list[Path], ["a", "b"], [Path("a"), Path("b")]),
        (dict[Color, Path], {"red": "x"}, {Color.RED: Path("x")}),
        (dict[int, str], {"5": "x"}, {5: "x"}),
        (Color, "blue", Color.BLUE),
        (Level, "2", Level.HIGH),
        (Odd, "B", Odd.B),
        (Literal[Color.RED], "red", Color.RED),
        (Color | None, None, None),
        (Path | None, "x", Path("x")),
        (datetime.datetime | str, "soon", "soon"),
        (datetime.datetime | str, "2024-05-06T07:08:09", datetime.datetime(2024, 5, 6, 7, 8, 9)),
        (
            datetime.datetime,
            "2024-05-06T07:08:09Z",
            datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
        ),
        (datetime.timedelta, 90, datetime.timedelta(seconds=90)),
        (Decimal, "0.10", Decimal("0.10")),
        (uuid.UUID, "12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678")),
        (Point, {"x": 1, "tag": "red"}, Point(1.0, 0.0, Color.RED)),
        (
            list[Point | Movie],
            [{"x": 1}, {"title": "t", "seen": "2024-01-02"}],
            [Point(1.0), {"title": "t", "seen": datetime.date(2024, 1, 2)}],
        ),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (Pair, {"left": 1, "right": "x"}, Pair(1, Path("x"))),
        (Item, {"sku": "s"}, Item(sku="s")),
        (list[Item] | None, [{"sku": "s", "amount": 3}], [Item(sku="s", amount=3)]),
        (Node, {"value": 1, "next": {"value": 2}}, Node(value=1, next=Node(value=2))),
        (Annotated[int, pydantic.AfterValidator(lambda v: v * 2)], 3, 6),
    ],
    ids=str,
)
def test_values_arrive_as_the_hint_promises(hint, value, expected):
    got = taken(hint, value)
    assert got == expected
    assert type(got) is type(expected)


def test_true_is_not_one_in_an_enumeration():
    class Mixed(enum.Enum):
        ONE = 1
        YES = True

    # Python makes YES an alias of ONE; a Literal keeps both apart.
    assert schema_of(Literal[1, True])["enum"] == [1, True]
    assert taken(Literal[1, True], True) is True


def test_structured_classes_are_described():
    assert schema_of(Point) == {
        "type": "object",
        "description": "A point.",
        "properties": {
            "x": {"type": "number", "description": "To the right."},
            "y": {"type": "number", "default": 0.0},
            "tag": {"type": ["string", "null"], "enum": ["red", "blue", None]},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema_of(Movie)["required"] == ["title"]


def test_classes_that_refer_to_themselves_go_to_defs():
    @tool
    def f(tree: Tree, node: Node) -> None: ...

    schema = f.parameters
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert set(schema["$defs"]) == {"Tree", "Node"}
    assert f.validate_params({"tree": {"name": "a", "children": [{}]}, "node": {"value": 1}})


def test_a_class_used_once_is_written_in_place_and_one_used_twice_is_a_definition():
    @tool
    def once(point: Annotated[Point, "Where"]) -> None: ...

    @tool
    def twice(a: Point, b: Point, item: Item, items: list[Item]) -> Any:
        return [a, b, item, items]

    assert "$defs" not in once.parameters
    assert properties(once)["point"]["description"] == "Where"
    assert properties(once)["point"]["required"] == ["x"]
    assert set(twice.parameters["$defs"]) == {"Point", "Item"}
    point, item = {"x": 1}, {"sku": "s"}
    assert json.loads(run(twice, a=point, b=point, item=item, items=[item]))[1]["x"] == 1.0


def test_classes_that_use_each_other_twice_do_not_double():
    last: Any = int
    for level in range(40):
        last = dataclasses.make_dataclass(f"Level{level}", [("a", last), ("b", last)])

    def f(top): ...

    f.__annotations__ = {"top": last}
    assert len(json.dumps(tool(f).parameters)) < 20_000


def test_two_pydantic_models_of_one_name_stay_apart():
    def make(kind: type) -> Any:
        inner = pydantic.create_model("Inner", value=(kind, ...))
        return pydantic.create_model("Outer", inner=(inner, ...))

    first, second = make(int), make(str)

    def f(a, b): ...

    f.__annotations__ = {"a": first, "b": second}
    made = tool(f)
    assert made.validate_params({"a": {"inner": {"value": 1}}, "b": {"inner": {"value": "x"}}}) == []
    assert made.validate_params({"a": {"inner": {"value": "x"}}, "b": {"inner": {"value": "x"}}})


def test_a_value_that_its_class_refuses_is_an_error_that_names_it():
    @dataclasses.dataclass
    class Even:
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    @tool
    def f(when: datetime.date = datetime.date(2024, 1, 1), evens: list[Even] = ()) -> None: ...

    with pytest.raises(InvalidArgumentsError, match=r"^when: Invalid isoformat"):
        f.execute(when="x")
    with pytest.raises(InvalidArgumentsError, match=r"^evens\[1\]: n must be even") as caught:
        f.execute(evens=[{"n": 2}, {"n": 3}])
    assert caught.value.failures[0][0] == "/evens/1"
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_pydantic_failure_does_not_show_the_input():
    @tool
    def f(
        item: Annotated[Item, pydantic.AfterValidator(lambda item: 1 / 0 if item.sku == "z" else item)],
    ): ...

    @tool
    def g(item: Item) -> None: ...

    with pytest.raises(InvalidArgumentsError) as caught:
        g.execute(item={"sku": "secret", "amount": "many"})
    assert "secret" not in str(caught.value)
    assert "many" not in str(caught.value)
    assert str(caught.value).startswith("item: amount: ")


def test_a_tuple_is_checked_position_by_position():
    @tool
    def f(pair: tuple[int, str]) -> None: ...

    assert f.validate_params({"pair": ["a", 1]}) == []
    with pytest.raises(InvalidArgumentsError, match=r"pair: \[0\] should be integer"):
        f.execute(pair=["a", 1])


def test_defaults_are_shown_where_they_have_a_json_form_and_kept_where_not():
    marker = object()

    @tool
    def f(
        a: Color = Color.RED,
        b: Path = Path("x"),
        c: Any = marker,
        d: int | None = None,
        e: Annotated[list[int], pydantic.Field(description="E")] = pydantic.Field(default_factory=list),  # noqa: B008
        g: int = pydantic.Field(3, ge=1),
    ) -> Any:
        return [a, b, c is marker, d, e, g]

    shown = properties(f)
    assert shown["a"]["default"] == "red"
    assert shown["b"]["default"] == "x"
    assert "default" not in shown["c"]
    assert "default" not in shown["d"]
    assert shown["e"] == {"type": "array", "items": {"type": "integer"}, "description": "E"}
    assert shown["g"] == {"type": "integer", "minimum": 1, "default": 3}
    assert "required" not in f.parameters
    assert run(f) == '["red", "x", true, null, [], 3]'


# -- the request --


def test_the_request_is_injected_and_not_in_the_schema():
    @tool
    def needs(ctx: RequestContext, a: int = 0) -> str:
        return ctx.chat_id

    @tool
    def may(a: int, ctx: RequestContext | None = None) -> str:
        return "none" if ctx is None else ctx.chat_id

    @tool
    def more(ctx: Optional[RequestContext], **rest: Any) -> Any:  # noqa: UP045
        return [ctx and ctx.chat_id, rest]

    assert list(properties(needs)) == ["a"]
    assert list(properties(may)) == ["a"]
    with request_context(RequestContext("c", "chat")):
        assert run(needs) == "chat"
        assert run(may, a=1) == "chat"
        # The model cannot pass itself off as the request.
        assert run(more, ctx="x", b=1) == '["chat", {"b": 1}]'
    assert run(may, a=1) == "none"
    with pytest.raises(RuntimeError, match="no current request"):
        needs.execute()


# -- docstrings --


def google(city: str, days: int, **rest: str) -> None:
    """Forecast the weather.

    Over two paragraphs.

    Args:
        city (str): The city,
            or its code: both will do.
        days: How many days.
        **rest: Anything else.

    Returns:
        city: not this.
    """


def numpy(city: str, days: int, hours: int = 1) -> None:
    """Forecast the weather.

    Over two paragraphs.

    Parameters
    ----------
    city : str
        The city,
        or its code: both will do.
    days, hours : int, optional
        How many days.

    Returns
    -------
    city
        not this.
    """


def sphinx(city: str, days: int) -> None:
    """Forecast the weather.

    Over two paragraphs.

    :param str city: The city,
        or its code: both will do.
    :param days: How many days.
    :type days: int
    :returns: not this.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstrings_describe_tool_and_parameters(function):
    made = tool(function)
    assert made.description == "Forecast the weather.\n\nOver two paragraphs."
    assert properties(made)["city"]["description"] == "The city, or its code: both will do."
    assert properties(made)["days"]["description"] == "How many days."


def test_an_annotated_description_wins_over_the_docstring():
    @tool
    def f(a: Annotated[int, "hint"]) -> None:
        """F.

        Args:
            a: doc.
        """

    assert properties(f)["a"]["description"] == "hint"


def test_without_a_docstring_the_description_is_empty():
    @tool
    def f() -> None: ...

    assert f.description == ""


# -- results --


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("text", "text"),
        (None, None),
        ({"a": "ä", "b": Path("x")}, '{"a": "ä", "b": "x"}'),
        ([1, 2.5, True, None], "[1, 2.5, true, null]"),
        ((1, 2), "[1, 2]"),
        ({"b", "a"}, '["a", "b"]'),
        (Point(1.0, 2.0, Color.RED), '{"x": 1.0, "y": 2.0, "tag": "red"}'),
        (Item(sku="s"), '{"sku": "s", "amount": 1}'),
        (Pair(1), '{"left": 1, "right": "."}'),
        (Color.RED, '"red"'),
        (datetime.date(2024, 5, 6), '"2024-05-06"'),
        (Decimal("1.10"), '"1.10"'),
        ({Color.RED: {1: "x"}}, '{"red": {"1": "x"}}'),
        (5, "5"),
        (False, "false"),
        ([], "[]"),
    ],
    ids=str,
)
def test_results_become_text(result, shown):
    assert run(tool(name="f")(lambda: result)) == shown


def test_tool_results_and_content_blocks_pass_unchanged():
    error = ToolResult.error("no")
    blocks = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    assert run(tool(name="f")(lambda: error)) is error
    assert run(tool(name="f")(lambda: blocks)) is blocks
    assert json.loads(run(tool(name="f")(lambda: [{"type": "row", "text": "a"}]))) == [
        {"type": "row", "text": "a"}
    ]


def test_a_result_without_a_json_form_is_an_error_and_no_repr():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="a object has no JSON form"):
        run(tool(name="f")(lambda: [object()]))
    with pytest.raises(TypeError, match="contains itself"):
        run(tool(name="f")(lambda: endless))


def test_an_unpacked_typed_dict_names_the_keyword_arguments():
    @tool
    def f(a: int, **more: Unpack[Movie]) -> Any:
        return more

    assert list(properties(f)) == ["a", "title", "year", "seen"]
    assert f.parameters["required"] == ["a", "title"]
    assert f.parameters["additionalProperties"] is False
    assert run(f, a=1, title="t", seen="2024-01-02") == '{"title": "t", "seen": "2024-01-02"}'


def test_a_callable_object_is_taken():
    class Adder:
        def __call__(self, a: int) -> int:
            return a + 1

    assert run(tool(name="adder")(Adder()), a=1) == "2"
