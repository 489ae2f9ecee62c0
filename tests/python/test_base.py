"""`Tool`, `ToolResult` and `tool_parameters` are the reference's, in name, signature and meaning."""

# ruff: noqa: E501 - programs for the reference

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
from nanobot_tools import base
from nanobot_tools.base import Schema, Tool, ToolResult, is_tool_error_result, tool_parameters
from reference_code import both, needs_reference

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "properties": {"k": {"type": "boolean"}}},
    },
    "required": ["n"],
}


class Plain(Tool):
    """A tool in the least words."""

    def __init__(self, schema: Any = SCHEMA) -> None:
        self._given = schema

    @property
    def name(self) -> str:
        return "plain"

    @property
    def description(self) -> str:
        return "Plain."

    @property
    def parameters(self) -> dict[str, Any]:
        return self._given

    async def execute(self, **kwargs: Any) -> Any:
        return kwargs


SIGNATURES = """
import inspect
from nanobot.agent.tools import base, schema, context, loader

def members(cls):
    found = {}
    for name, value in vars(cls).items():
        if name.startswith("__") and name != "__init__":
            continue
        kind = type(value).__name__
        if isinstance(value, property):
            found[name] = "property"
        elif kind in ("function", "staticmethod", "classmethod"):
            function = getattr(value, "__func__", value)
            parameters = inspect.signature(function).parameters.values()
            found[name] = kind + str([(p.name, str(p.kind), repr(p.default)) for p in parameters])
    return found

result = {
    "Tool": members(base.Tool),
    "Schema": members(base.Schema),
    "ToolResult": members(base.ToolResult),
    "tool_parameters": str(list(inspect.signature(base.tool_parameters).parameters)),
    "ToolLoader": {k: v for k, v in members(loader.ToolLoader).items() if not k.startswith("_") or "init" in k},
    "classes": {
        name: str([
            (p.name, str(p.kind), repr(p.default)) for p in inspect.signature(getattr(schema, name)).parameters.values()
        ])
        for name in (
            "StringSchema", "IntegerSchema", "NumberSchema", "BooleanSchema", "ArraySchema", "ObjectSchema",
            "tool_parameters_schema",
        )
    },
    "functions": {
        name: str(list(inspect.signature(getattr(context, name)).parameters))
        for name in (
            "bind_request_context", "reset_request_context", "request_context", "current_request_context",
            "current_request_session_key",
        )
    },
    "RequestContext": [(f, str(p.default)) for f, p in inspect.signature(context.RequestContext).parameters.items()],
    "ToolContext": [(f, str(p.default)) for f, p in inspect.signature(context.ToolContext).parameters.items()],
    "constants": {
        "map": {k: str(v) for k, v in base.Tool._TYPE_MAP.items()},
        "true": sorted(base.Tool._BOOL_TRUE), "false": sorted(base.Tool._BOOL_FALSE),
        "scopes": sorted(base.Tool._scopes), "key": base.Tool.config_key,
        "discoverable": base.Tool._plugin_discoverable,
        "skip": sorted(loader._SKIP_MODULES),
        "abstract": sorted(base.Tool.__abstractmethods__),
    },
}
"""


@needs_reference
def test_every_public_signature_is_the_references():
    theirs, ours = both(SIGNATURES)
    for noun in ("Tool", "Schema", "ToolResult", "ToolLoader"):
        for name, signature in theirs[noun].items():
            assert (noun, name, ours[noun].get(name)) == (noun, name, signature)
    # Both have defaults here, and only here.
    assert theirs.pop("ToolContext")[2:] == ours.pop("ToolContext")[2:]
    for noun in ("tool_parameters", "classes", "functions", "RequestContext", "constants"):
        assert ours[noun] == theirs[noun]


CASTS = """
from nanobot.agent.tools.base import Tool

class T(Tool):
    name = "t"
    description = "d"
    parameters = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"}, "x": {"type": "number"}, "s": {"type": "string"}, "b": {"type": "boolean"},
            "m": {"type": ["string", "null"]}, "e": {"type": "string", "enum": ["a", "b"]},
            "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
            "o": {"type": "object", "properties": {"k": {"type": "boolean"}}, "additionalProperties": False},
        },
        "required": ["n"],
        "additionalProperties": {"type": "integer"},
    }
    async def execute(self, **kwargs): pass

t = T()
values = [1, 1.5, "1", "x", "", True, "true", "NO", None, [], ["1", 2], ["x", "2", 3], {"k": "yes"}, {"k": 1, "z": 2}]
result = [
    [key, repr(t.cast_params({key: value})), t.validate_params(t.cast_params({"n": 1, key: value}))]
    for key in ["n", "x", "s", "b", "m", "e", "list", "o", "other"]
    for value in values
    # A dict or list for a string becomes JSON text here and a Python repr there; 1.0 is an integer here.
    if not (key in "sme" and isinstance(value, (list, dict)))
]
result.append(t.validate_params([]))
result.append(t.validate_params({}))
result.append([t._cast_value(v, {"type": k}) for v in ["5", 5, "true", None] for k in ("integer", "string", "boolean")])
result.append([t._resolve_type(k) for k in ("string", ["null", "string"], ["null"], None)])
result.append(t.to_schema()["function"]["name"])
"""


@needs_reference
def test_arguments_are_cast_and_judged_as_the_reference_does():
    theirs, ours = both(CASTS)
    assert ours == theirs


PLUGIN = """
from pathlib import Path
from typing import Any
from nanobot.agent.tools.base import Tool, ToolResult, tool_parameters
from nanobot.agent.tools.context import ContextAware, RequestContext, ToolContext
from nanobot.agent.tools.schema import BooleanSchema, IntegerSchema, StringSchema, tool_parameters_schema

class Base(Tool):
    def __init__(self, workspace: Path | None = None, *, limit: int = 3):
        super().__init__()
        self.workspace = workspace
        self.limit = limit

    @classmethod
    def create(cls, ctx: Any) -> Tool:
        return cls(workspace=Path(ctx.workspace), limit=ctx.config["limit"])

@tool_parameters(tool_parameters_schema(
    path=StringSchema("Where", min_length=1),
    depth=IntegerSchema(description="How deep", minimum=0, maximum=9),
    all=BooleanSchema(description="Everything", default=False),
    required=["path"],
))
class ListTool(Base):
    _scopes = {"core", "subagent"}
    config_key = "list"

    @property
    def name(self) -> str:
        return "list_things"

    @property
    def description(self) -> str:
        return "List things."

    @property
    def read_only(self) -> bool:
        return True

    def set_context(self, ctx: RequestContext) -> None:
        self.seen = ctx.chat_id

    def _cast_value(self, val, schema):
        if val == "deep":
            return 9
        return super()._cast_value(val, schema)

    def validate_params(self, params):
        return super().validate_params(params) + (["no"] if params.get("path") == "/" else [])

    async def execute(self, path: str, depth: int = 1, **kwargs: Any) -> str:
        if path == "gone":
            return self.error("Error: gone")
        return f"{self.workspace}/{path} {depth} {self.limit}"

import asyncio
tool = ListTool.create(ToolContext(config={"limit": 7}, workspace="/w"))
tool.set_context(RequestContext("c", "chat"))
cast = tool.cast_params({"path": "a", "depth": "deep", "all": "yes"})
bad = asyncio.run(tool.execute("gone"))
result = [
    tool.to_schema(), cast, tool.validate_params(cast), tool.validate_params({"path": "/", "depth": 10, "x": 1}),
    asyncio.run(tool.execute(**cast)), bad, bad.is_error, isinstance(bad, ToolResult), tool.concurrency_safe,
    isinstance(tool, ContextAware), tool.seen, sorted(tool._scopes), tool.runtime_context_provider(),
]
"""


@needs_reference
def test_a_plugin_written_for_nanobot_works_with_only_its_imports_changed():
    theirs, ours = both(PLUGIN)
    assert ours == theirs


def test_a_class_without_all_parts_is_abstract():
    class Half(Tool):
        @property
        def name(self) -> str:
            return "half"

    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_tool_parameters_gives_a_fresh_copy_and_marks_the_class():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    @tool_parameters(schema)
    class T(Plain):
        pass

    schema["properties"]["a"]["type"] = "string"
    tool = T()
    assert tool.parameters["properties"]["a"] == {"type": "integer"}
    tool.parameters["properties"].clear()
    assert tool.parameters is not tool.parameters
    assert tool.cast_params({"a": "5"}) == {"a": 5}
    assert T._constant_parameters == tool.parameters


def test_a_subclass_may_replace_a_constant_schema():
    @tool_parameters({"type": "object", "properties": {"a": {"type": "integer"}}})
    class T(Plain):
        pass

    class U(T):
        parameters = {"type": "object", "properties": {"a": {"type": "string"}}}

    assert U().validate_params({"a": "x"}) == []
    assert T().validate_params({"a": "x"}) == ["a should be integer"]


def test_a_schema_that_changes_is_read_again():
    schema = copy.deepcopy(SCHEMA)
    tool = Plain(schema)
    assert tool.validate_params({"n": 1}) == []
    schema["required"].append("s")
    assert tool.validate_params({"n": 1}) == ["missing required s"]


def test_schemas_that_python_takes_for_equal_are_kept_apart():
    assert Schema.validate_json_schema_value(1, {"enum": [1]}) == []
    assert Schema.validate_json_schema_value(1, {"enum": [True]})
    assert Schema.validate_json_schema_value(True, {"enum": [True]}) == []


def test_one_compiled_schema_serves_until_it_changes(monkeypatch):
    made: list[Any] = []
    real = base.CompiledSchema
    monkeypatch.setattr(base, "CompiledSchema", lambda schema: made.append(schema) or real(schema))
    monkeypatch.setattr(base, "_cache", {})
    schema = {"type": "object", "properties": {"only_here": {"type": "integer"}}}
    for _ in range(3):
        Plain(copy.deepcopy(schema)).validate_params({})
    assert len(made) == 1
    for i in range(base._CACHED + 10):
        Schema.validate_json_schema_value(1, {"enum": [i]})
    assert len(base._cache) == base._CACHED


@pytest.mark.parametrize(
    "schema", [None, {}, [], True, {"properties": {"a": True}}, {"required": None}, {"type": None}]
)
def test_odd_schemas_do_not_raise(schema):
    tool = Plain(schema)
    assert tool.cast_params({"a": "1"}) == {"a": "1"}
    if schema != {"type": None}:
        assert tool.validate_params({"a": "1"}) == []


def test_a_schema_of_another_type_is_refused_as_in_the_reference():
    tool = Plain({"type": "array"})
    assert tool.cast_params({"a": "1"}) == {"a": "1"}
    with pytest.raises(ValueError, match="Schema must be object type, got 'array'"):
        tool.validate_params({})


def test_casting_leaves_the_arguments_alone():
    given = {"n": "1", "list": ["1"], "o": {"k": "true"}}
    kept = copy.deepcopy(given)
    assert Plain().cast_params(given) == {"n": 1, "list": [1], "o": {"k": True}}
    assert given == kept


def test_an_override_of_one_step_is_used_at_every_depth():
    class Shouting(Plain):
        def _cast_value(self, val: Any, schema: dict[str, Any]) -> Any:
            return val.upper() if schema.get("type") == "string" else super()._cast_value(val, schema)

    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"s": {"type": "string"}}}}
        },
    }
    for value in ([{"s": "x"}], '[{"s": "x"}]'):
        assert Shouting(schema).cast_params({"a": value}) == {"a": [{"s": "X"}]}


def test_own_tables_are_used():
    class German(Plain):
        _BOOL_TRUE = frozenset({"ja"})
        _BOOL_FALSE = frozenset({"nein"})

    class Loose(Plain):
        _TYPE_MAP = {**Tool._TYPE_MAP, "string": (str, int)}

    assert German().cast_params({"b": "JA", "o": {"k": "nein"}}) == {"b": True, "o": {"k": False}}
    assert German().cast_params({"b": "true", "n": "5.0", "x": "1e3", "s": 5}) == {
        "b": "true",
        "n": 5,
        "x": 1000.0,
        "s": "5",
    }
    assert German().cast_params({"n": "1_000", "x": "٣", "s": {"a": 1}}) == {
        "n": "1_000",
        "x": "٣",
        "s": '{"a": 1}',
    }
    assert Loose().cast_params({"s": 5}) == {"s": 5}


def test_dataclasses_mixins_and_init_arguments_just_work():
    class Mixin:
        def __init__(self, *, extra: int, **rest: Any) -> None:
            super().__init__(**rest)
            self.extra = extra

    class Mixed(Mixin, Plain):
        pass

    @dataclasses.dataclass
    class Data(Plain):
        limit: int = 5

        def __post_init__(self) -> None:
            self._given = SCHEMA

    assert Mixed(extra=1, schema={}).extra == 1
    tool = Data(limit=7)
    assert tool.validate_params({"n": 1}) == []
    assert copy.deepcopy(tool) == tool


def test_results_are_text_with_a_mark():
    result = ToolResult.error("no")
    assert result == "no"
    assert result.is_error
    assert not ToolResult("yes").is_error
    assert is_tool_error_result(result)
    assert not is_tool_error_result("Error: no")
    assert not is_tool_error_result(ToolResult("Error: no"))
    assert not is_tool_error_result(None)
    assert Plain.error("x").is_error
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert again.is_error
        assert type(again) is ToolResult


async def test_open_and_aclose_are_optional():
    tool = Plain()
    assert await tool.open() is None
    assert await tool.aclose() is None
    assert inspect.iscoroutinefunction(Tool.open)
