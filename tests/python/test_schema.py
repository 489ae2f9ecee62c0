"""The schema classes make the dicts that the reference's make."""

# ruff: noqa: E501 - programs for the reference

from __future__ import annotations

import pytest
from nanobot_tools.base import Schema
from nanobot_tools.schema import (
    ArraySchema,
    IntegerSchema,
    ObjectSchema,
    StringSchema,
    tool_parameters_schema,
)
from reference_code import both, needs_reference

DICTS = """
from nanobot.agent.tools.schema import *
from nanobot.agent.tools.schema import (
    ArraySchema, BooleanSchema, IntegerSchema, NumberSchema, ObjectSchema, StringSchema, tool_parameters_schema)
made = [
    StringSchema(), StringSchema("d"), StringSchema("d", min_length=0, max_length=5, enum=("a", "b"), nullable=True),
    StringSchema(enum=[]), IntegerSchema(), IntegerSchema(description="d", minimum=0, maximum=9, enum=[1, 2]),
    IntegerSchema(nullable=True), NumberSchema(description="d", minimum=0.5, maximum=1.5, enum=(1.0,), nullable=True),
    NumberSchema(minimum=0), BooleanSchema(), BooleanSchema(description="d", default=False, nullable=True),
    ArraySchema(), ArraySchema(IntegerSchema(), description="d", min_items=0, max_items=3, nullable=True),
    ArraySchema({"type": "x"}), ArraySchema(items=StringSchema("s")), ObjectSchema(),
    ObjectSchema({"a": StringSchema()}, required=["a"], description="d", additional_properties=False, nullable=True),
    ObjectSchema({"a": {}}, b=IntegerSchema(), additional_properties={"type": "string"}),
    ObjectSchema(required=[], additional_properties=True),
]
result = [[list(m.to_json_schema()), m.to_json_schema()] for m in made]
result += [
    tool_parameters_schema(), tool_parameters_schema(required=["a"], description="d", a=StringSchema("A")),
    tool_parameters_schema(additional_properties=None, a={"type": "string"}),
]
values = [None, 1, 1.5, True, "a", "abcdef", [], [1], ["a"], {}, {"a": 1}, {"a": "x"}, {"b": "x"}]
result += [[m.validate_value(v), m.validate_value(v, "p.q")] for m in made if m is not made[13] for v in values]
"""


@needs_reference
def test_fragments_and_verdicts_are_the_references():
    theirs, ours = both(DICTS)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other


def test_a_fragment_is_made_of_a_schema_or_a_dict_only():
    given = {"type": "string"}
    assert Schema.fragment(given) is given
    assert Schema.fragment(IntegerSchema()) == {"type": "integer"}
    with pytest.raises(TypeError, match="Expected schema object or dict, got int"):
        Schema.fragment(5)


def test_changing_what_was_made_does_not_change_the_schema():
    schema = ObjectSchema({"a": StringSchema(enum=["x"])}, required=["a"])
    made = schema.to_json_schema()
    made["required"].append("b")
    made["properties"]["a"]["enum"].append("y")
    assert (
        schema.to_json_schema()
        == ObjectSchema({"a": StringSchema(enum=["x"])}, required=["a"]).to_json_schema()
    )


def test_a_subclass_may_have_rules_of_its_own():
    class Even(IntegerSchema):
        def validate_value(self, value, path=""):
            return super().validate_value(value, path) or ([f"{path} must be even"] if value % 2 else [])

    assert Even().validate_value(3, "n") == ["n must be even"]
    assert Even().validate_value("3", "n") == ["n should be integer"]


def test_the_parameters_of_a_tool_are_strict_unless_said_otherwise():
    assert tool_parameters_schema(a=ArraySchema())["additionalProperties"] is False
    assert "additionalProperties" not in tool_parameters_schema(additional_properties=None)
