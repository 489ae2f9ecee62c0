"""Arguments: each situation that the field gets wrong, and what is right."""

from __future__ import annotations

import datetime
import enum
import json
import pathlib
from typing import Any

import pytest
from nanobot_tools._native import CompiledSchema


def schema(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def prepare(schema: Any, params: Any) -> tuple[Any, str | None]:
    cast, error, failures = CompiledSchema(schema).prepare("x", params)
    assert not failures or error is not None
    return cast, error


def accepted(schema: Any, params: Any) -> Any:
    cast, error = prepare(schema, params)
    assert error is None
    return cast


def refused(schema: Any, params: Any) -> str:
    _, error = prepare(schema, params)
    assert error is not None
    return error.removeprefix("Error: Invalid parameters for tool 'x': ")


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            "required": ["value"],
        }
    },
}


# Unwrapping


@pytest.mark.parametrize("params", [None, "", "  ", "{}", {}, {"arguments": None}, {"arguments": "{}"}])
def test_nothing_means_no_arguments(params: Any) -> None:
    assert accepted(schema(), params) == {}


def test_json_text_and_a_lone_arguments_member_are_unwrapped() -> None:
    wanted = schema(("a",), a={"type": "integer"})
    for params in (
        '{"a": 1}',
        {"arguments": {"a": 1}},
        {"arguments": '{"a": 1}'},
        '{"arguments": {"a": "1"}}',
    ):
        assert accepted(wanted, params) == {"a": 1}


def test_a_parameter_called_arguments_is_left_alone() -> None:
    assert accepted(schema(arguments={"type": "object"}), {"arguments": {"a": 1}}) == {"arguments": {"a": 1}}


def test_one_extra_layer_of_encoding_of_the_whole_arguments_is_accepted() -> None:
    text = json.dumps(json.dumps({"a": ["1"]}))
    assert accepted(schema(a={"type": "array", "items": {"type": "integer"}}), text) == {"a": [1]}


@pytest.mark.parametrize(
    "params", ['{"a": [1, 2', '{"a" 1}', "[1]", ["x"], "a bare text", 5, '"text"', '{"arguments": "[']
)
def test_arguments_that_are_no_object_name_the_required_fields(params: Any) -> None:
    error = refused(schema(("path", "content"), path={"type": "string"}), params)
    assert error.startswith("Error: Tool 'x' parameters must be a JSON object, got ")
    assert error.endswith("Required parameters: path, content.")


def test_cut_off_text_is_called_so() -> None:
    error = refused(schema(), '{"a": [1, 2')
    assert "are not valid JSON: " in error
    assert "seems to be cut off" in error


def test_unchanged_arguments_are_the_same_object() -> None:
    params = {"a": 1, "b": ["x"], "c": {"d": 2.5}}
    wanted = schema(a={"type": "integer"}, b={"type": "array"}, c={"type": "object"})
    assert accepted(wanted, params) is params


def test_a_cast_leaves_the_callers_objects_alone() -> None:
    params: dict[str, Any] = {"a": ["1"], "b": {"c": "2"}}
    item = {"type": "integer"}
    wanted = schema(a={"type": "array", "items": item}, b=schema(c=item))
    assert accepted(wanted, params) == {"a": [1], "b": {"c": 2}}
    assert params == {"a": ["1"], "b": {"c": "2"}}


# Casting


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("array", '["x","y"]', ["x", "y"]), ("object", '{"k": 1}', {"k": 1}), ("array", " [1] ", [1])],
)
def test_a_nested_container_sent_as_text_is_decoded(kind: str, text: str, value: Any) -> None:
    assert accepted(schema(a={"type": kind}), {"a": text}) == {"a": value}


def test_text_that_is_no_such_container_is_refused_not_decoded() -> None:
    assert refused(schema(a={"type": "array"}), {"a": '{"k": 1}'}) == "a should be array"
    assert refused(schema(a={"type": "object"}), {"a": "{broken"}) == "a should be object"
    assert accepted(schema(a={"type": ["array", "string"]}), {"a": "[1]"}) == {"a": "[1]"}
    assert accepted(schema(a={"type": "string"}), {"a": "[1]"}) == {"a": "[1]"}


@pytest.mark.parametrize("value", [5, 5.0, "5", "5.0", " 5 ", "+5", "5.000"])
def test_five_point_zero_is_five(value: Any) -> None:
    cast = accepted(schema(a={"type": "integer"}), {"a": value})
    assert repr(cast) == "{'a': 5}"


@pytest.mark.parametrize(
    "value", ["abc", "1_000", "\u0663", "5.5", 5.5, "", "5.", "0x5", True, float("nan"), [5]]
)
def test_what_is_no_integer_is_refused(value: Any) -> None:
    assert refused(schema(a={"type": "integer"}), {"a": value}) == "a should be integer"


@pytest.mark.parametrize("value", ["abc", "1_000.5", "\u0663", "", True, [1]])
def test_what_is_no_number_is_refused(value: Any) -> None:
    assert refused(schema(a={"type": "number"}), {"a": value}) == "a should be number"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "nan", "-Infinity", "1e999"])
def test_a_number_must_be_finite(value: Any) -> None:
    assert refused(schema(a={"type": "number"}), {"a": value}) == "a must be finite"


def test_an_optional_null_is_dropped_where_its_type_forbids_it() -> None:
    wanted = schema(
        ("r",), r={"type": "string"}, o={"type": "string"}, n={"type": ["string", "null"]}, any={}
    )
    assert accepted(wanted, {"r": "", "o": None, "n": None, "any": None}) == {"r": "", "n": None, "any": None}
    assert refused(wanted, {"r": None}) == "r should be string"
    nested = schema(a={"type": "array", "items": wanted})
    assert accepted(nested, {"a": [{"r": "", "o": None}]}) == {"a": [{"r": ""}]}
    referred = schema(o={"anyOf": [{"type": "string"}, {"type": "integer"}]})
    assert accepted(referred, {"o": None}) == {}


def test_casting_alone_keeps_null() -> None:
    params = {"o": None, "a": "1"}
    compiled = CompiledSchema(schema(o={"type": "string"}, a={"type": "integer"}))
    assert compiled.cast(params) == {"o": None, "a": 1}
    assert compiled.validate({"o": None}) == ["o should be string"]


def test_nullable_admits_null() -> None:
    for null in (
        {"type": "string", "nullable": True},
        {"type": "string", "enum": ["q"], "nullable": True},
        {"$ref": "#/$defs/s", "nullable": True},
        {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
        {"allOf": [{"type": "string"}], "nullable": True},
        {"const": "q", "nullable": True},
        {"type": ["string", "null"], "enum": ["q"]},
    ):
        wanted = {**schema(("a",), a=null), "$defs": {"s": {"type": "string"}}}
        assert accepted(wanted, {"a": None}) == {"a": None}
        assert refused(wanted, {"a": [object()]})
    assert (
        refused(schema(a={"type": "string", "enum": ["q"], "nullable": True}), {"a": "z"})
        == "a must be one of ['q']"
    )


def test_a_value_of_one_of_the_types_stays() -> None:
    assert accepted(schema(a={"type": ["string", "integer"]}), {"a": 5}) == {"a": 5}
    assert accepted(schema(a={"type": ["integer", "string"]}), {"a": "abc"}) == {"a": "abc"}
    assert accepted(schema(a={"type": ["integer", "boolean"]}), {"a": "yes"}) == {"a": True}
    assert (
        refused(schema(a={"type": ["integer", "boolean"]}), {"a": "maybe"})
        == "a should be integer or boolean"
    )


def test_a_container_for_a_text_becomes_json_never_a_repr() -> None:
    wanted = schema(a={"type": "string"})
    assert accepted(wanted, {"a": {"k": [1, None, True, "ü"]}}) == {"a": '{"k":[1,null,true,"ü"]}'}
    assert accepted(wanted, {"a": ["x"]}) == {"a": '["x"]'}
    for value in (b"x", {1, 2}, object(), {"k": object()}):
        assert "0x" not in refused(wanted, {"a": value})


def test_a_path_or_date_for_a_text_is_its_text() -> None:
    wanted = schema(a={"type": "string"})
    assert accepted(wanted, {"a": pathlib.PurePosixPath("/tmp/x")}) == {"a": "/tmp/x"}
    assert accepted(wanted, {"a": datetime.date(2026, 1, 2)}) == {"a": "2026-01-02"}


@pytest.mark.parametrize("digits", ["123456789012345678901234567890", "9007199254740993", "-" + "9" * 300])
def test_large_integers_keep_every_digit(digits: str) -> None:
    for kind in ("integer", "number"):
        wanted = schema(a={"type": kind})
        for value in (int(digits), digits):
            assert accepted(wanted, {"a": value}) == {"a": int(digits)}
        assert accepted(wanted, f'{{"a": {digits}}}') == {"a": int(digits)}
    assert accepted(schema(a={"type": "string"}), {"a": int(digits)}) == {"a": digits}


def test_an_absurdly_long_number_is_refused_at_once() -> None:
    assert refused(schema(a={"type": "integer"}), {"a": "9" * 1_000_000}) == "a should be integer"


def test_any_name_reaches_the_tool() -> None:
    names = [
        *["self", "name", "params", "class", "def", "tool", "None", "a.b", "a/b", "~", "ü", "__class__"],
        " ",
    ]
    params = dict.fromkeys(names, "1")
    cast = accepted(schema(tuple(names), **{name: {"type": "integer"} for name in names}), params)
    assert cast == dict.fromkeys(names, 1)


def test_casting_looks_through_references_and_branches() -> None:
    assert accepted(TREE, {"root": {"value": "1", "next": {"value": "2"}}}) == {
        "root": {"value": 1, "next": {"value": 2}}
    }
    either = schema(a={"anyOf": [{"type": "integer"}, {"type": "null"}]})
    assert accepted(either, {"a": "5"}) == {"a": 5}
    assert accepted(schema(a={"allOf": [{"type": "integer"}, {"minimum": 3}]}), {"a": "5"}) == {"a": 5}
    texts = schema(a={"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]})
    assert accepted(texts, {"a": ["5"]}) == {"a": [5]}
    assert accepted(texts, {"a": "[5]"}) == {"a": "[5]"}


def test_the_branch_that_fits_is_cast() -> None:
    def shape(tag: str, field: str, kind: str) -> dict[str, Any]:
        return {**schema(("t", field), **{field: {"type": kind}, "t": {"const": tag}})}

    wanted = schema(a={"oneOf": [shape("A", "n", "integer"), shape("B", "n", "string")]})
    assert accepted(wanted, {"a": {"t": "A", "n": "5"}}) == {"a": {"t": "A", "n": 5}}
    assert accepted(wanted, {"a": {"t": "B", "n": 5}}) == {"a": {"t": "B", "n": "5"}}
    assert refused(wanted, {"a": {"t": "B"}}) == "missing required a.n"
    assert refused(wanted, {"a": 5}) == "a should be object with t, n"


# Validating


@pytest.mark.parametrize(
    ("member", "value", "error"),
    [
        ({"pattern": "^a+$"}, "b", "a must match pattern '^a+$'"),
        ({"const": 5}, 6, "a must be 5"),
        ({"exclusiveMinimum": 5}, 5, "a must be > 5"),
        ({"exclusiveMaximum": 5.5}, 6, "a must be < 5.5"),
        ({"multipleOf": 0.5}, 0.75, "a must be a multiple of 0.5"),
        ({"type": "array", "uniqueItems": True}, [1, 1.0], "a must have unique items"),
        ({"contains": {"type": "integer"}}, ["x"], "a must contain integer"),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"nx": "y"}, "a.nx should be integer"),
        ({"propertyNames": {"maxLength": 2}}, {"abc": 1}, "a.abc is not an allowed name in a"),
        ({"dependentRequired": {"p": ["q"]}}, {"p": 1}, "missing required a.q"),
        ({"minProperties": 1}, {}, "a must have at least 1 members"),
        ({"not": {"type": "string"}}, "x", "a must not be string"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "x", "a must be at least 2 chars"),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, True,
         "a should be integer or array of string"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3,
         "a must fit exactly one of its alternatives, but fits several"),
        ({"prefixItems": [{"type": "integer"}], "items": False}, [1, 2], "a[1] is not allowed"),
        ({"enum": [1]}, True, "a must be one of [1]"),
        ({"enum": [True]}, 1, "a must be one of [True]"),
        ({"$ref": "#/$defs/pos"}, -1, "a must be >= 0"),
        (False, 1, "a is not allowed"),
    ],
)  # fmt: skip
def test_all_of_json_schema_is_checked(member: Any, value: Any, error: str) -> None:
    wanted = {**schema(a=member), "$defs": {"pos": {"minimum": 0}}}
    assert refused(wanted, {"a": value}) == error


def test_failures_come_in_the_references_order_each_once() -> None:
    wanted = {
        **schema(
            ("z", "y"),
            a={"type": "string", "enum": ["q"], "minLength": 9},
            b={"type": "integer", "maximum": 1},
        ),
        "additionalProperties": False,
    }
    assert refused(wanted, {"c": 1, "b": 5, "a": "x"}) == (
        "missing required z; missing required y; unexpected parameter c; b must be <= 1; "
        "a must be one of ['q']; a must be at least 9 chars"
    )


def test_failures_have_pointers_and_keywords() -> None:
    wanted = schema(("z",), **{"a/b": {"type": "array", "items": {"type": "integer"}}})
    failures = CompiledSchema(wanted).failures({"a/b": [1, "x"]})
    assert failures == [
        ("", "required", "missing required z"),
        ("/a~1b/1", "type", "a/b[1] should be integer"),
    ]


def test_texts_never_hold_what_was_sent() -> None:
    secret = "s3cr3t" * 1000
    for member in (
        {"type": "integer"},
        {"pattern": "x"},
        {"enum": ["a"]},
        {"anyOf": [{"const": 1}]},
        {"maxLength": 3},
    ):
        error = refused(schema(a=member), {"a": secret})
        assert "s3cr3t" not in error
        assert len(error) < 500


def test_a_hundred_thousand_failures_are_neither_listed_nor_slow() -> None:
    wanted = schema(a={"type": "array", "items": {"type": "integer"}})
    error = refused(wanted, {"a": ["x"] * 100_000})
    assert error.startswith("a[0] should be integer; a[1] should be integer; ")
    assert error.endswith("; a[49] should be integer; and more")


def test_a_million_elements_are_cast() -> None:
    wanted = schema(a={"type": "array", "items": {"type": "integer"}})
    assert accepted(wanted, {"a": ["7"] * 1_000_000}) == {"a": [7] * 1_000_000}


# Odd schemas


ODD = [
    {"type": "object", "required": None},
    {"type": "object", "required": "a"},
    {"properties": {"a": True}},
    {"properties": {"a": None}},
    {"properties": ["a"]},
    schema(a={"type": "string", "minLength": None}),
    schema(a={"minimum": "1", "maxItems": -1, "enum": "abc", "pattern": 5}),
    schema(a={"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}),
    schema(a={"$ref": "#"}),
    schema(a={"$ref": "#/properties/a"}),
    schema(a={"$ref": "#/$defs/missing"}),
    schema(a={"$ref": "http://nowhere.invalid/schema.json"}),
    schema(a={"$ref": 5}),
    schema(a={"type": "string", "pattern": "("}),
    schema(a={"type": "str"}),
    schema(a={"type": []}),
    schema(a={"anyOf": []}),
    schema(a={"default": float("nan"), "x": {1, 2}, "y": object()}),
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, **schema(a={"$ref": "#/$defs/a"})},
    {"$schema": "http://nowhere.invalid/draft", **schema(a={"type": "integer"})},
    {"$schema": "http://json-schema.org/draft-03/schema#", **schema(a={"type": "integer", "required": True})},
    {"$id": "not a uri \x00", **schema(a={})},
    {"allOf": [{"$ref": "#"}]},
    {"type": "string"},
    {"type": None},
    {},
    None,
    [],
    "schema",
    5,
    True,
    False,
    object(),
    {1: 2},
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:60])
def test_no_schema_raises(odd: Any) -> None:
    compiled = CompiledSchema(odd)
    for params in ({"a": 1}, {"a": "x"}, {"a": [1, "x"]}, {"a": {"a": {}}}, {}, None, "x", {"a": None}):
        cast, error, _ = compiled.prepare("x", params)
        assert cast is None or isinstance(cast, dict | str)
        assert error is None or error.startswith("Error: ")
        compiled.cast(params)
        compiled.validate(params)


def test_a_faulty_keyword_costs_only_itself_and_is_named() -> None:
    compiled = CompiledSchema(
        schema(("a",), a={"type": "string", "minLength": None, "maxLength": 2, "pattern": "("})
    )
    assert (
        compiled.warning
        == "these parts of the schema are ignored: /properties/a/minLength, /properties/a/pattern"
    )
    assert compiled.validate({"a": "abc"}) == ["a must be at most 2 chars"]
    assert compiled.validate({}) == ["missing required a"]


def test_a_schema_beyond_repair_lets_calls_pass_with_a_warning() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(5000):
        deep = {"type": "object", "properties": {"a": deep}}
    compiled = CompiledSchema(deep)
    assert compiled.warning is not None
    assert "unvalidated" in compiled.warning
    assert compiled.prepare("x", {"a": 1}) == ({"a": 1}, None, [])
    while "properties" in deep:
        deep = deep["properties"]["a"]
    assert "unvalidated" in (CompiledSchema({"type": "string"}).warning or "")


def test_older_drafts_are_understood() -> None:
    tuple_items = schema(a={"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False})
    assert CompiledSchema(tuple_items).warning is None
    assert accepted(tuple_items, {"a": ["1", 2]}) == {"a": [1, "2"]}
    assert prepare(tuple_items, {"a": [1, "2", 3]})[1] is not None
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **schema(a={"$ref": "#/definitions/pos"}),
        "definitions": {"pos": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        "dependencies": {"a": ["b"]},
    }
    assert CompiledSchema(old).warning is None
    assert refused(old, {"a": 0}) == "missing required b; a must be > 0"


# Depth, cycles and foreign objects


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"value": 1}
    for _ in range(levels):
        value = {"value": 1, "next": value}
    return value


def unravel(value: dict[str, Any]) -> None:
    while "next" in value:
        value = value.pop("next")


@pytest.mark.parametrize("levels", [200, 20_000])
@pytest.mark.parametrize(
    "wanted", [TREE, schema(), schema(root={"type": "string"})], ids=["recursive", "any", "text"]
)
def test_deep_arguments_are_an_error(levels: int, wanted: dict[str, Any]) -> None:
    value = nested(levels)
    error = refused(wanted, {"root": value})
    assert error == "parameters must not be nested more than 128 levels deep"
    assert CompiledSchema(wanted).validate({"root": value}) == [error]
    CompiledSchema(wanted).cast({"root": value})
    unravel(value)


def test_deep_json_text_is_an_error() -> None:
    for text in ('{"root":' * 20_000, '{"root":' * 20_000 + "1" + "}" * 20_000):
        assert prepare(TREE, text)[1] is not None
        assert prepare(TREE, {"root": text})[1] is not None
    shallow = '{"value":1,"next":' * 100 + '{"value":"1"}' + "}" * 100
    assert prepare(TREE, {"root": shallow})[1] is None
    inner: Any = 1
    for _ in range(12):
        inner = json.dumps([inner])
    assert (
        prepare(schema(a={"type": "array", "items": {"$ref": "#/properties/a"}}), {"a": inner})[1] is not None
    )


def test_branches_within_branches_end_in_time() -> None:
    def branch(tag: str) -> dict[str, Any]:
        return schema(("t",), k={"$ref": "#/$defs/n"}, t={"const": tag})

    wanted = {**schema(k={"$ref": "#/$defs/n"}), "$defs": {"n": {"anyOf": [branch("A"), branch("B")]}}}
    value: Any = "x"
    for level in range(40):
        value = {"k": value, "t": "AB"[level % 2]}
    assert refused(wanted, {"k": value}).startswith("parameters do not fit the schema")


def test_self_referencing_arguments_are_an_error() -> None:
    ring: list[Any] = [1]
    ring += [ring, ring]
    loop: dict[str, Any] = {"value": 1}
    loop["next"] = loop
    for params in ({"root": ring}, {"root": loop}, loop):
        assert prepare(TREE, params)[1] is not None
    lattice: Any = []
    for _ in range(100):
        lattice = [lattice, lattice]
    assert prepare(TREE, {"root": lattice})[1] is not None


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __str__(self) -> str:
        raise RuntimeError("str")

    __repr__ = __str__


class Text(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __str__(self) -> str:
        raise RuntimeError("str")


class Whole(int):
    def __str__(self) -> str:
        raise RuntimeError("str")


class Table(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("getitem")


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean", "array", "object", None])
def test_hostile_objects_are_that_calls_error(kind: str | None) -> None:
    member: dict[str, Any] = {} if kind is None else {"type": kind}
    for wanted in (
        schema(a=member),
        schema(a={"enum": ["x", 1]}),
        schema(a={"anyOf": [member, {"type": "null"}]}),
    ):
        for value in (Hostile(), [Hostile()], {"k": Hostile()}, Whole(5), Text("x"), Table(k=1)):
            cast, error, _ = CompiledSchema(wanted).prepare("x", {"a": value})
            assert isinstance(cast, dict)
            assert error is None or error.startswith("Error: Invalid parameters for tool 'x': ")
    assert CompiledSchema(schema(a={})).prepare("x", Hostile())[1] is not None


def test_subclasses_count_as_their_base() -> None:
    class Name(str):
        __slots__ = ()

    class Count(int):
        pass

    params = Table(a=Name("x"), b=Count(5), c=Table(d=1), e=Colour.RED)
    wanted = schema(
        a={"type": "string", "minLength": 1}, b={"type": "integer", "maximum": 5}, c={"type": "object"},
        e={"type": "string", "enum": ["red"]},
    )  # fmt: skip
    assert accepted(wanted, params) is params
    assert refused(schema(b={"type": "integer", "maximum": 4}), {"b": Count(5)}) == "b must be <= 4"


def test_keys_that_are_no_text_are_refused() -> None:
    assert refused(schema(), {1: 2}) == "parameter should have text as keys, got int"
    wanted = schema(a={"items": {"properties": {"k": {}}, "additionalProperties": False}})
    assert refused(wanted, {"a": [{(): 1}]}) == "a[0] should have text as keys, got tuple"
    # What no keyword looks at is not judged.
    assert accepted(schema(a={}), {"a": [{(): 1}]}) == {"a": [{(): 1}]}


def test_lone_surrogates_do_no_harm() -> None:
    params = {"a": "\ud800", "b\udfff": 1}
    assert accepted(schema(a={"type": "string", "maxLength": 1}), params) is params
    assert refused(schema(a={"type": "string", "minLength": 2}), params) == "a must be at least 2 chars"
