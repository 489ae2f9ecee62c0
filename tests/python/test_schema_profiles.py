"""``normalize_schema``: what each profile promises, for schemas made of any Python objects."""

# ruff: noqa: E501 - schemas and a program for the reference

from __future__ import annotations

import copy
import dataclasses
import enum
import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nanobot_tools
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from nanobot_tools import normalize_schema
from reference_code import needs_reference, run

PROFILES = ["openai", "anthropic", "gemini", "moonshot"]
LISTS = sorted(Path(__file__).parents[1].joinpath("data/tool_lists").glob("*.json"))
KINDS = ["string", "number", "integer", "boolean", "object", "array", "null"]
NAMES = st.sampled_from(["a", "b", "c", "$ref", "type", "x y"])
ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "unevaluatedProperties")
LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
MAP = ("properties", "patternProperties", "$defs")

data = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "abc", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)
references = st.sampled_from(
    [
        "#",
        "#/$defs/A",
        "#/$defs/B",
        "#/properties/a",
        "#/definitions/C",
        "#/properties/b/items",
        "#/nowhere",
        "http://h/s",
    ]
)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of a few keywords, each with a value that suits it."""
    pairs = st.one_of(
        st.tuples(
            st.just("type"),
            st.sampled_from(KINDS) | st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
        ),
        st.tuples(st.just("properties"), st.dictionaries(NAMES, inner, max_size=3)),
        st.tuples(st.just("required"), st.lists(NAMES, max_size=2, unique=True)),
        st.tuples(st.sampled_from(ONE), inner),
        st.tuples(st.sampled_from(LIST), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("anyOf"), inner.map(lambda schema: [schema, {"type": "null"}])),
        st.tuples(st.just("patternProperties"), inner.map(lambda schema: {"^a": schema})),
        st.tuples(st.just("enum"), st.lists(data, min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["const", "default"]), data),
        st.tuples(
            st.sampled_from(
                ["minItems", "maxItems", "minLength", "maxLength", "minimum", "exclusiveMaximum"]
            ),
            st.integers(0, 3),
        ),
        st.tuples(st.just("$ref"), references),
        st.sampled_from([("nullable", True), ("description", "d"), ("title", "t"), ("format", "uri")]),
    )
    return st.lists(pairs, max_size=4).map(dict)


leaves = st.sampled_from(
    [
        {},
        True,
        False,
        {"type": "string"},
        {"type": "object"},
        {"type": "array"},
        {"type": ["string", "null"]},
        {"$ref": "#/$defs/A"},
    ]
)
schemas = st.recursive(leaves, keywords, max_leaves=6)
definitions = st.dictionaries(st.sampled_from(["A", "B", "C", "x/y"]), schemas, min_size=1, max_size=2)
roots = st.tuples(
    keywords(schemas),
    st.fixed_dictionaries(
        {}, optional={"$defs": definitions, "definitions": definitions, "type": st.just("object")}
    ),
).map(lambda parts: {**parts[1], **parts[0]})
calls = st.lists(st.dictionaries(NAMES, data, max_size=3), min_size=3, max_size=5)


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def below(schema: Any) -> Any:
    """Each schema in ``schema``, and itself."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword, value in schema.items():
        inner = [value] if keyword in ONE else value if keyword in LIST else []
        if keyword in MAP and isinstance(value, dict):
            inner = list(value.values())
        for one in inner:
            yield from below(one)


def spelled_out(schema: Any) -> Any:
    """``nullable: true`` as what it means."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in ONE:
            value = spelled_out(value)
        elif keyword in LIST:
            value = [spelled_out(one) for one in value]
        elif keyword in MAP:
            value = {name: spelled_out(one) for name, one in value.items()}
        made[keyword] = value
    if made.pop("nullable", None) is not True:
        return made
    defs = {"$defs": made.pop("$defs")} if "$defs" in made else {}
    return {"anyOf": [made, {"type": "null"}], **defs}


def accepts(schema: Any, value: Any) -> bool | None:
    """Whether it does; None where nobody can say (references to nothing, or in a circle)."""
    try:
        return Draft202012Validator(schema).is_valid(value)
    except Exception:
        return None


def check(schema: dict[str, Any], profile: str) -> dict[str, Any]:
    before = copy.deepcopy(schema)
    made = normalize_schema(schema, profile)
    assert schema == before
    assert compact(normalize_schema(schema, profile)) == compact(made)
    assert compact(normalize_schema(made, profile)) == compact(made)
    assert made["type"] == "object"
    assert isinstance(made["properties"], dict)
    assert not made.keys() & {"$ref", "anyOf", "oneOf", "allOf", "not", "enum", "definitions"}
    limit = 8 * len(compact(schema)) + 16 * 1024 if profile == "gemini" else 2.2 * len(compact(schema)) + 256
    assert len(compact(made)) <= limit
    for one in below(made):
        if "$ref" in one:
            start, name = one["$ref"][:8], one["$ref"][8:]
            assert start == "#/$defs/"
            assert name in made["$defs"]
            assert len(one) == 1 or profile == "anthropic"
    return made


@pytest.mark.parametrize("profile", PROFILES)
@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(schema=roots, arguments=calls)
def test_what_the_original_accepts_the_normalised_schema_accepts(
    profile: str, schema: dict[str, Any], arguments: list[dict[str, Any]]
) -> None:
    made = spelled_out(check(schema, profile))
    original = spelled_out(schema)
    for one in arguments:
        # Gemini cannot be told of arrays in arrays in arrays; see the docstring.
        if profile == "gemini" and "[[[" in json.dumps(one):
            continue
        if accepts(original, one):
            assert accepts(made, one), made


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("profile", PROFILES)
def test_the_tools_of_real_servers_keep_their_parameters(path: Path, profile: str) -> None:
    for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]:
        made = check(tool["inputSchema"], profile)
        assert list(made["properties"]) == list(tool["inputSchema"].get("properties", {}))


REFERENCE = """
import json
from pathlib import Path
from nanobot.agent.tools.mcp import _normalize_schema_for_openai as normalise
schemas = json.loads(Path({path!r}).read_text(encoding="utf-8"))
result = [json.dumps(normalise(schema)) for schema in schemas]
"""

# Without what the reference is at fault in: a root that is no plain object, references with siblings, arrays
# without elements, drafts before 2020-12, nulls in an enum, and null admitted twice in one place.
plain = st.recursive(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer", "minimum": 1},
            {"type": "object"},
            {"type": ["string", "null"]},
            {"enum": ["a", 1]},
        ]
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda named: {"type": "object", "properties": named}
        ),
        inner.map(lambda one: {"type": "array", "items": one}),
        inner.filter(lambda one: "anyOf" not in one and not isinstance(one.get("type"), list)).map(
            lambda one: {"anyOf": [one, {"type": "null"}], "default": None}
        ),
        st.lists(inner, min_size=2, max_size=3).map(lambda several: {"oneOf": several, "description": "d"}),
        inner.map(
            lambda one: {"type": ["object", "null"], "properties": {"x": one}, "additionalProperties": False}
        ),
    ),
    max_leaves=8,
)


@needs_reference
def test_for_openai_it_is_what_the_reference_makes_where_that_is_right(tmp_path: Path) -> None:
    drawn: list[Any] = []

    @settings(max_examples=150, database=None)
    @given(st.dictionaries(st.sampled_from("abc"), plain, max_size=3), st.booleans())
    def draw(properties: dict[str, Any], referring: bool) -> None:
        schema = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
        if referring:
            schema["$defs"] = {"D": {"type": "object", "properties": {"again": {"$ref": "#/$defs/D"}}}}
            first = {name: {"$ref": "#/properties/other"} for name in sorted(properties)[:1]}
            schema["properties"] = {
                **properties,
                "other": {"type": ["number", "null"]},
                **first,
                "d": {"$ref": "#/$defs/D"},
            }
        drawn.append(schema)

    draw()
    for path in LISTS:
        drawn += [tool["inputSchema"] for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]]
    drawn += ["text", None, 5, []]
    path = tmp_path / "schemas.json"
    path.write_text(json.dumps(drawn), encoding="utf-8")
    program = REFERENCE.format(path=str(path))
    for schema, theirs in zip(drawn, run(program), strict=True):
        assert normalize_schema(schema) == json.loads(theirs)


@pytest.mark.parametrize("profile", PROFILES)
def test_data_and_names_are_not_schemas(profile: str) -> None:
    value = {"$ref": "#/properties/a", "type": ["string", "null"], "anyOf": [{"type": "null"}]}
    made = normalize_schema(
        {
            "type": "object",
            "properties": {
                "a": {"type": "object", "default": value},
                "$ref": {"type": "string"},
                "type": {"type": "object", "properties": {"$ref": {"type": "integer"}}},
            },
            "required": ["type"],
        },
        "openai" if profile == "anthropic" else profile,
    )
    assert made["properties"]["a"]["default"] == value
    assert made["properties"]["$ref"] == {"type": "string"}
    assert made["properties"]["type"]["properties"] == {"$ref": {"type": "integer"}}
    assert made["required"] == ["type"]


def test_only_examples_are_renamed_for_gemini_alone() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "examples": [{"$ref": "#/x"}], "const": "x"}},
    }
    for profile in ("openai", "anthropic", "moonshot"):
        assert normalize_schema(schema, profile)["properties"] == schema["properties"]
    assert normalize_schema(schema, "gemini")["properties"]["a"] == {
        "type": "string",
        "enum": ["x"],
        "example": {"$ref": "#/x"},
    }


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int = 1


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def odd_objects() -> list[Any]:
    circle: dict[str, Any] = {"type": "object"}
    circle["properties"] = {"self": circle}
    circle["enum"] = [circle]
    ring: list[Any] = []
    ring.append(ring)
    deep: Any = {}
    for _ in range(5_000):
        deep = {"properties": {"x": deep}}
    return [
        None, 5, "text", b"bytes", [], {1}, object(), Hostile(), circle, {"anyOf": ring, "default": ring}, deep,
        {"properties": {"a": {1, 2}, "b": b"x", "c": float("nan"), "d": object(), "e": Hostile()}},
        {"properties": {"a": {"default": float("inf"), "enum": {1, 2}, "minimum": float("nan")}}},
        {2: 2, None: 3, True: 4, (1, 2): 5, 1.5: 6, "properties": {7: {"type": Colour.RED}, "p": Point()}},
        {"properties": MappingProxyType({"a": {"type": "string"}}), "required": ("a",)},
        {"properties": {"\ud800": {"description": "\udfff"}}, "description": "\ud83d"},
        {"type": ["object", 5], "required": "a", "properties": None, "$defs": 1, "$ref": [], "allOf": {}},
    ]  # fmt: skip


@pytest.mark.parametrize("profile", [*PROFILES, "json-schema"])
def test_no_object_raises(profile: str) -> None:
    for schema in odd_objects():
        made = normalize_schema(schema, profile)
        assert isinstance(made, dict)
        json.dumps(made, allow_nan=False).encode()
        if profile != "json-schema":
            assert made["type"] == "object"
            assert isinstance(made["properties"], dict)


def test_numbers_keep_every_digit() -> None:
    great, small = 10**40 + 7, -(2**64) - 1
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "default": great, "enum": [great, small, 1], "maximum": great + 1}
        },
    }
    for profile in ("openai", "anthropic", "moonshot", "json-schema"):
        assert normalize_schema(schema, profile)["properties"] == schema["properties"]
    assert normalize_schema(schema, "gemini")["properties"]["n"]["default"] == great


def test_the_plain_profile_changes_nothing() -> None:
    schema = {
        "oneOf": [{"$ref": "http://h/s"}],
        "type": ["object", "null"],
        "properties": {"a": True},
        "x": 1.5,
    }
    made = normalize_schema(schema, "json-schema")
    assert made == schema
    assert made is not schema


@pytest.mark.parametrize("profile", ["", "OpenAI", "gpt", None, 5])
def test_an_unknown_profile_is_refused_and_the_known_ones_are_named(profile: Any) -> None:
    with pytest.raises(ValueError, match=r"openai, anthropic, gemini, moonshot and json-schema"):
        normalize_schema({}, profile)


def test_it_belongs_to_the_package() -> None:
    assert nanobot_tools.normalize_schema is normalize_schema
    assert "normalize_schema" in nanobot_tools.__all__
