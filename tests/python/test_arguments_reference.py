"""Arguments are treated as nanobot-ai 0.3.5 treats them, but for a written list of differences.

The list is docs/decisions/0002-argument-differences.md; `intended` below is its encoding. Real tool lists
are checked against the `jsonschema` package.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from nanobot_tools._native import CompiledSchema

LISTS = Path(__file__).resolve().parents[1] / "data/tool_lists"


@pytest.fixture(scope="module")
def peer() -> Iterator[reference.Reference]:
    if not reference.available():
        pytest.skip("nanobot-ai's interpreter is not installed (NBTOOLS_REFERENCE_PYTHON)")
    peer = reference.Reference()
    yield peer
    peer.close()


# Schemas of the subset that the reference knows, and values near to them.

names = st.sampled_from(["a", "b", "self", "name", "class", "x-y", "ü"])
NUMBERS = "5| 5 |-7|+3|5.0|0.5|1e3|1_000|\u0663|0|1|1.5e400|123456789012345678901234567890|9007199254740993"
WORDS = '|abc|true|False|YES|no|nan|inf|-Infinity|None|null|\u00fc\u2028|it\'s|"q"'
CONTAINERS = '[1, 2]|["1"]|{"a": "1"}|{}|[|{"a":'
words = st.sampled_from("|".join([NUMBERS, WORDS, CONTAINERS]).split("|")) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x1c\x1d\x1e\x1f"), max_size=6
)
integers = st.integers(-5, 5) | st.sampled_from([10**30, -(10**18), 2**53 + 1])
floats = st.sampled_from([0.0, 1.0, -2.5, 1e20, 1e-7, float("nan"), float("inf"), 3.0]) | st.floats(-10, 10)
scalars = st.none() | st.booleans() | integers | floats | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
bounds = st.integers(-3, 5) | st.sampled_from([0.5, -1.5, 2.0])


def with_null(schema: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def admit(pair: tuple[dict[str, Any], str]) -> dict[str, Any]:
        schema, how = pair
        if how == "union" and "type" in schema:
            return {**schema, "type": [schema["type"], "null"]}
        return {**schema, "nullable": True} if how == "nullable" else schema

    return st.tuples(schema, st.sampled_from(["no", "no", "union", "nullable"])).map(admit)


def optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def enum(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=1, max_size=3)


texts = optional(minLength=st.integers(0, 3), maxLength=st.integers(0, 4), enum=enum(words))
figures = optional(minimum=bounds, maximum=bounds, enum=enum(bounds))
untyped = optional(enum=enum(st.sampled_from([1, 0, True, "a", None, 2.5, [1]])))
leaves = with_null(
    texts.map(lambda keywords: {"type": "string", **keywords})
    | figures.map(lambda keywords: {"type": "integer", **keywords})
    | figures.map(lambda keywords: {"type": "number", **keywords})
    | st.just({"type": "boolean"})
    | untyped
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=4)},
        optional={
            "required": st.lists(names, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
        },
    )


def arrays(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={"items": inner | st.just({}), "minItems": st.integers(0, 2), "maxItems": st.integers(0, 2)},
    )


nested = st.recursive(leaves, lambda inner: with_null(arrays(inner) | objects(inner)), max_leaves=6)
roots = objects(nested)


@st.composite
def calls(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    schema = draw(roots)
    value: Any = draw(near(schema)) if draw(st.integers(0, 9)) else draw(values)
    wrapped = draw(st.sampled_from(["plain", "plain", "plain", "text", "arguments", "both"]))
    if wrapped in ("text", "both"):
        value = json.dumps(value)
    if wrapped in ("arguments", "both"):
        value = {"arguments": value}
    return schema, value


def near(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that mostly have the shape that the schema asks for."""
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        members = {name: near(member) for name, member in schema["properties"].items()}
        shape = st.fixed_dictionaries({}, optional=members)
        more = st.dictionaries(names, values, max_size=1)
        return shape | st.tuples(more, shape).map(lambda pair: pair[0] | pair[1])
    if kind == "array" and schema.get("items"):
        return st.lists(near(schema["items"]), max_size=3) | values
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | values
    return values


# What is meant to differ.


def intended(schema: Any, value: Any, required: bool = True) -> Iterator[str]:
    """The differences of the written list that a value may meet under a schema."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    union = isinstance(kind, list)
    nullable = (union and "null" in kind) or bool(schema.get("nullable"))
    kind = next((k for k in kind if k != "null"), None) if union else kind
    if value is None:
        if not required and not nullable:
            yield "optional null"
        return
    if kind in ("array", "object") and isinstance(value, str) and value.strip().startswith(("[", "{")):
        yield "nested text"
    if kind == "string" and isinstance(value, list | dict):
        yield "container for text"
    if kind == "integer" and isinstance(value, float):
        yield "whole float"
    if kind in ("integer", "number") and isinstance(value, str):
        if "_" in value or not value.isascii():
            yield "Python's notation of numbers"
        if kind == "integer" and "." in value:
            yield "whole float"
        if kind == "number" and value.strip().lstrip("+-").isdigit() and abs(int(value)) >= 2**53:
            yield "every digit"
    if "enum" in schema and any(item == value and repr(item) != repr(value) for item in schema["enum"]):
        yield "enum by type"
    if "enum" in schema and not all(item.isprintable() for item in schema["enum"] if isinstance(item, str)):
        yield "unprintable characters as they are"
    if kind == "object" and isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, member in value.items():
            if name in properties:
                yield from intended(properties[name], member, name in schema.get("required", []))
            else:
                yield from intended(schema.get("additionalProperties"), member)
    if kind == "array" and isinstance(value, list):
        for item in value:
            yield from intended(schema.get("items"), item)


@settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))
@given(call=calls())
def test_verdict_cast_and_text_are_the_references(
    peer: reference.Reference, call: tuple[dict[str, Any], Any]
) -> None:
    schema, params = call
    expected = peer.ask(schema=schema, params=params)
    compiled = CompiledSchema(schema)
    assert compiled.warning is None
    cast, error, failures = compiled.prepare("x", params)
    assert "raised" not in expected, expected
    unwrapped = expected["params"] if not isinstance(params, dict) or set(params) == {"arguments"} else params
    if isinstance(unwrapped, dict) and "parameters must be a JSON object" not in (error or ""):
        raw = params
        for _ in range(2):
            raw = json.loads(raw) if isinstance(raw, str) and raw.strip() else raw
            if isinstance(raw, dict) and set(raw) == {"arguments"}:
                raw = raw["arguments"]
        if set(intended(schema, raw)):
            return
    if expected["error"] is not None and "must be a JSON object" in expected["error"]:
        # What is added behind names the required fields.
        assert error is not None
        assert error.startswith(expected["error"])
        return
    assert error == expected["error"]
    assert repr(cast) == repr(expected["params"])
    assert bool(failures) == (error is not None)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=nested, value=values, path=st.sampled_from(["", "p", "p[0].q"]))
def test_fragments_are_validated_as_the_reference_does(
    peer: reference.Reference, schema: dict[str, Any], value: Any, path: str
) -> None:
    if set(intended(schema, value)) - {"optional null", "nested text"}:
        return
    expected = peer.ask(schema=schema, value=value, path=path)
    assert CompiledSchema(schema).validate(value, path) == expected["failures"]


# Real tool lists against the jsonschema package.


def tool_schemas() -> Iterator[Any]:
    for file in sorted(LISTS.glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            for field in ("inputSchema", "outputSchema"):
                if field in tool:
                    yield pytest.param(tool[field], id=f"{file.stem}-{tool['name']}-{field}")


def example(schema: Any, root: Any, rng: random.Random, depth: int = 0) -> Any:
    """A value that mostly satisfies a schema."""
    if not isinstance(schema, dict) or depth > 6:
        return rng.choice([1, "text", None, [], {}])
    if "$ref" in schema:
        target = root
        for segment in schema["$ref"].removeprefix("#/").split("/"):
            target = target[segment]
        return example(target, root, rng, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return example(rng.choice(schema[keyword]), root, rng, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        required = schema.get("required", [])
        chosen = [n for n in schema.get("properties", {}) if n in required or rng.random() < 0.4]
        return {name: example(schema["properties"][name], root, rng, depth + 1) for name in chosen}
    if kind == "array":
        return [example(schema.get("items"), root, rng, depth + 1) for _ in range(rng.choice([0, 1, 2, 12]))]
    low, high = schema.get("minimum", -2), schema.get("maximum", 10**6)
    return {
        "string": rng.choice(["", "text", "a" * 40, "https://docs.aws.amazon.com/a.html", "2026-01-01"]),
        "integer": rng.choice([low, high, low - 1, high + 1, (low + high) // 2]),
        "number": rng.choice([low, high, low - 1, high + 1, (low + high) / 2]),
        "boolean": rng.choice([True, False]),
        "null": None,
    }[kind]


def broken(value: Any, rng: random.Random) -> Any:
    """The value with one thing changed somewhere."""
    junk = rng.choice([None, True, 0, -1, 1.5, 1e9, "", "junk", [], {}, [None], {"a": 1}])
    if isinstance(value, dict) and value and rng.random() < 0.9:
        copy = dict(value)
        name = rng.choice(list(copy))
        action = rng.random()
        if action < 0.2:
            del copy[name]
        elif action < 0.35:
            copy["unheard of"] = junk
        else:
            copy[name] = broken(copy[name], rng)
        return copy
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [broken(item, rng) if index == at else item for index, item in enumerate(value)]
    return junk


@pytest.mark.parametrize("schema", list(tool_schemas()))
def test_real_schemas_compile_and_judge_as_jsonschema_does(schema: dict[str, Any]) -> None:
    compiled = CompiledSchema(schema)
    assert compiled.warning is None
    judge = Draft202012Validator(schema)
    rng = random.Random(0)
    verdicts = set()
    for _ in range(25):
        value = example(schema, schema, rng)
        for candidate in (value, broken(value, rng)):
            failures = compiled.failures(candidate)
            verdicts.add(bool(failures))
            assert (not failures) == judge.is_valid(candidate), (candidate, failures)
            assert len({message for _, _, message in failures}) == len(failures)
    assert verdicts == {True, False} or schema.get("properties") == {}
