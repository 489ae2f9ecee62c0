"""What the registry promises."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from nanobot_tools import (
    RequestContext,
    Tool,
    ToolExecutor,
    ToolRegistry,
    ToolResult,
    is_tool_error_result,
    request_context,
    tool_parameters,
)
from nanobot_tools.tools.search import FindFilesTool, GrepTool

HINT = "\n\n[Analyze the error above and try a different approach.]"


class Sample(Tool):
    """A tool with one integer parameter."""

    def __init__(self, name: str = "sample", description: str = "A sample.") -> None:
        self._name = name
        self.text = description

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self.text

    @property
    def parameters(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    async def execute(self, **kwargs: Any) -> Any:
        return f"x={kwargs['x']!r}"


@tool_parameters({"type": "object", "properties": {"text": {"type": "string"}}})
class Constant(Tool):
    """A tool whose schema is constant."""

    name = "constant"
    description = "Constant."

    async def execute(self, text: str = "") -> str:
        return text


def registry_of(*tools: Any) -> ToolRegistry:
    registry = ToolRegistry()
    for tool in tools:
        registry.register(tool)
    return registry


# -- names ------------------------------------------------------------------------------------------------


def test_get_gives_the_very_object_that_was_registered() -> None:
    tool = Sample()
    registry = registry_of(tool)
    assert registry.get("sample") is tool
    assert registry.has("sample")
    assert "sample" in registry
    assert len(registry) == 1
    assert registry.tool_names == ["sample"]
    assert registry._tools["sample"] is tool
    assert registry.get("other") is None
    assert registry.get(None) is None  # type: ignore[arg-type]
    registry.unregister("sample")
    registry.unregister("sample")
    assert "sample" not in registry


def test_a_taken_name_is_replaced_in_place() -> None:
    first, second = Sample(), Sample()
    registry = registry_of(first, Sample("z"))
    registry.register(second)
    assert registry.get("sample") is second
    assert registry.tool_names == ["sample", "z"]


def test_any_duck_typed_object_is_a_tool() -> None:
    class Duck:
        name = "duck"

        def to_schema(self) -> dict[str, Any]:
            return {"name": "duck"}

    registry = registry_of(Duck(), SimpleNamespace(name="ns", description="d", parameters={}, execute=None))
    assert [d.get("name") or d["function"]["name"] for d in registry.get_definitions()] == ["duck", "ns"]


def test_an_object_without_a_usable_name_is_refused_aloud() -> None:
    registry = ToolRegistry()
    with pytest.raises(AttributeError, match="name"):
        registry.register(object())
    with pytest.raises(TypeError, match="name must be a string"):
        registry.register(SimpleNamespace(name=3))
    assert len(registry) == 0


def test_an_unknown_tool_is_told_with_near_names() -> None:
    registry = registry_of(Sample("read_file"), Sample("write_file"))
    tool, params, error = registry.prepare_call("ReadFile", {"x": 1})
    assert tool is None
    assert params == {"x": 1}
    assert error == (
        "Error: Tool 'ReadFile' not found. Did you mean 'read_file'? Tool names must match exactly. "
        "Available: read_file, write_file"
    )
    assert is_tool_error_result(error)


def test_a_miss_among_many_tools_does_not_list_them_all() -> None:
    registry = registry_of(*(Sample(f"tool_number_{i}") for i in range(300)))
    _, _, error = registry.prepare_call("tool_numbr_7", {})
    assert error is not None
    assert len(error) < 600
    assert "tool_number_7" in error
    assert "of 300" in error


# -- definitions ------------------------------------------------------------------------------------------


def test_definitions_are_built_ins_sorted_then_mcp_sorted() -> None:
    registry = registry_of(*(Sample(n) for n in ("mcp_b_x", "zeta", "alpha", "mcp_a_x")))
    names = [d["function"]["name"] for d in registry.get_definitions()]
    assert names == ["alpha", "zeta", "mcp_a_x", "mcp_b_x"]
    assert registry.get_definitions()[0] == {
        "type": "function",
        "function": {"name": "alpha", "description": "A sample.", "parameters": Sample().parameters},
    }


def test_a_caller_who_changes_the_list_does_not_spoil_the_cache() -> None:
    registry = registry_of(Sample("a"), Sample("b"))
    first = registry.get_definitions()
    second = registry.get_definitions()
    assert first is not second
    assert first[0] is second[0]
    first.clear()
    assert len(registry.get_definitions()) == 2


def test_definitions_json_is_what_json_dumps_would_give(tmp_path: Any) -> None:
    registry = registry_of(Sample("ümlaut"), Constant(), GrepTool(workspace=tmp_path))
    compact = json.dumps(registry.get_definitions(), ensure_ascii=False, separators=(",", ":"))
    assert registry.definitions_json().decode() == compact
    assert json.loads(registry.snapshot().json) == registry.get_definitions()


def test_descriptions_are_read_again_at_each_rebuild_and_at_refresh() -> None:
    tool = Sample("a")
    registry = registry_of(tool)
    assert registry.get_definitions()[0]["function"]["description"] == "A sample."
    tool.text = "Changed."
    assert registry.get_definitions()[0]["function"]["description"] == "A sample."
    registry.register(Sample("b"))
    assert registry.get_definitions()[0]["function"]["description"] == "Changed."
    tool.text = "Again."
    registry.refresh("a")
    assert registry.get_definitions()[0]["function"]["description"] == "Again."


def test_the_fingerprint_changes_only_when_what_the_model_sees_changes() -> None:
    registry = registry_of(Sample("a"))
    before, generation = registry.fingerprint(), registry.generation
    registry.register(Sample("a"))
    assert registry.generation > generation
    assert registry.fingerprint() == before
    registry.register(Sample("b"))
    assert registry.fingerprint() != before
    registry.unregister("b")
    assert registry.fingerprint() == before


def test_one_bad_tool_never_spoils_the_list() -> None:
    class Bad(Sample):
        @property
        def description(self) -> str:
            raise RuntimeError("no description today")

    class NoJson(Sample):
        @property
        def parameters(self) -> dict[str, Any]:
            return {"type": "object", "default": object()}

    registry = registry_of(Sample("a"), Bad("bad"), NoJson("nojson"), Sample("z"))
    names = [d["function"]["name"] for d in registry.get_definitions()]
    assert names == ["a", "nojson", "z"]
    [(name, reason)] = registry.snapshot().skipped
    assert name == "bad"
    assert "no description today" in reason
    assert [d["function"]["name"] for d in json.loads(registry.definitions_json())] == ["a", "z"]


def test_native_tools_are_described_like_the_others(tmp_path: Any) -> None:
    tool = FindFilesTool(workspace=tmp_path)
    registry = registry_of(tool)
    [definition] = registry.get_definitions()
    assert definition["function"] == {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    assert registry.get("find_files") is tool


# -- changes ----------------------------------------------------------------------------------------------


async def test_subscribers_are_called_on_their_own_loop_once_for_a_burst() -> None:
    registry = ToolRegistry()
    seen: list[tuple[int, bool]] = []
    here = threading.current_thread()
    subscription = registry.subscribe(lambda g: seen.append((g, threading.current_thread() is here)))

    def change() -> None:
        for i in range(50):
            registry.register(Sample(f"t{i}"))

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    for _ in range(200):
        if seen:
            break
        await asyncio.sleep(0.005)
    assert seen == [(50, True)]
    subscription.close()
    subscription.close()
    registry.register(Sample("more"))
    await asyncio.sleep(0.02)
    assert len(seen) == 1


def test_subscribing_without_a_loop_is_refused_aloud() -> None:
    with pytest.raises(RuntimeError, match="loop"):
        ToolRegistry().subscribe(print)


def test_the_registry_is_safe_from_any_thread() -> None:
    registry = ToolRegistry()
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for i in range(200):
                registry.register(Sample(f"t{k}_{i % 7}"))
                registry.get_definitions()
                registry.definitions_json()
                registry.prepare_call(f"t{k}_{i % 7}", {"x": "1"})
                registry.unregister(f"t{k}_{(i + 3) % 7}")
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert all(d["function"]["name"] in registry for d in registry.get_definitions())


def test_a_registry_lets_go_of_its_tools() -> None:
    tool = Sample()
    gone = weakref.ref(tool)
    registry = registry_of(tool)
    registry.get_definitions()
    registry.prepare_call("sample", {"x": 1})
    registry.unregister("sample")
    registry.get_definitions()
    del tool
    gc.collect()
    assert gone() is None


# -- calls ------------------------------------------------------------------------------------------------


def test_prepare_call_gives_tool_cast_arguments_and_no_error() -> None:
    tool = Sample()
    registry = registry_of(tool)
    assert registry.prepare_call("sample", {"x": "5"}) == (tool, {"x": 5}, None)
    assert registry.prepare_call("sample", '{"x": 5}') == (tool, {"x": 5}, None)
    assert registry.prepare_call("sample", {"arguments": '{"x": 5}'}) == (tool, {"x": 5}, None)
    _, params, error = registry.prepare_call("sample", {"y": 1})
    assert params == {"y": 1}
    assert error == "Error: Invalid parameters for tool 'sample': missing required x"


def test_what_a_subclass_overrides_is_honoured() -> None:
    class Own(Sample):
        def cast_params(self, params: dict[str, Any]) -> dict[str, Any]:
            return {"x": 41 + int(params["x"])}

        def validate_params(self, params: dict[str, Any]) -> list[str]:
            return [] if params["x"] < 50 else ["x is too large", "try less"]

        def to_schema(self) -> dict[str, Any]:
            return {"type": "function", "function": {"name": "own", "extra": True}}

    registry = registry_of(Own("own"))
    assert registry.prepare_call("own", {"x": "1"})[1:] == ({"x": 42}, None)
    assert registry.prepare_call("own", {"x": 20})[2] == (
        "Error: Invalid parameters for tool 'own': x is too large; try less"
    )
    assert registry.get_definitions()[0]["function"]["extra"] is True


def test_an_overridden_cast_value_is_honoured() -> None:
    class Own(Sample):
        def _cast_value(self, val: Any, schema: dict[str, Any]) -> Any:
            return 7

    registry = registry_of(Own())
    assert registry.prepare_call("sample", {"x": "abc"})[1:] == ({"x": 7}, None)


def test_overridden_tables_of_casting_are_honoured() -> None:
    class Ja(Sample):
        _BOOL_TRUE = frozenset(("ja",))

        @property
        def parameters(self) -> dict[str, Any]:
            return {"type": "object", "properties": {"x": {"type": "boolean"}}}

    registry = registry_of(Ja())
    assert registry.prepare_call("sample", {"x": "ja"})[1:] == ({"x": True}, None)
    assert registry.prepare_call("sample", {"x": "true"})[2] is not None


def test_user_code_that_raises_costs_only_its_call() -> None:
    class Broken(Sample):
        def validate_params(self, params: dict[str, Any]) -> list[str]:
            raise RuntimeError("validator is broken")

    class Schemaless(Sample):
        @property
        def parameters(self) -> dict[str, Any]:
            raise RuntimeError("no schema")

    registry = registry_of(Broken("broken"), Schemaless("schemaless"))
    for name, reason in (("broken", "validator is broken"), ("schemaless", "no schema")):
        _, _, error = registry.prepare_call(name, {"x": 1})
        assert error is not None
        assert reason in error


def test_a_schema_that_changes_is_seen_by_the_next_call() -> None:
    class Changing(Sample):
        schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}

        @property
        def parameters(self) -> dict[str, Any]:
            return self.schema

    tool = Changing()
    registry = registry_of(tool)
    assert registry.prepare_call("sample", {"x": "5"})[1] == {"x": 5}
    tool.schema["properties"]["x"]["type"] = "string"
    assert registry.prepare_call("sample", {"x": 5})[1] == {"x": "5"}


def test_tools_that_know_the_old_context_protocol_get_the_context() -> None:
    class Aware(Sample):
        seen: Any = None

        def set_context(self, ctx: RequestContext) -> None:
            self.seen = ctx

    tool = Aware()
    registry = registry_of(tool)
    registry.prepare_call("sample", {"x": 1})
    assert tool.seen is None
    ctx = RequestContext(channel="c", chat_id="1")
    with request_context(ctx):
        registry.prepare_call("sample", {"x": 1})
    assert tool.seen is ctx


async def test_execute_gives_results_and_errors_as_the_reference_does(tmp_path: Any) -> None:
    class Failing(Sample):
        async def execute(self, **kwargs: Any) -> Any:
            if kwargs["x"] == 1:
                raise ValueError("one")
            if kwargs["x"] == 2:
                return ToolResult.error("Error: two")
            return ToolResult("three")

    registry = registry_of(Sample(), Failing("failing"), GrepTool(workspace=tmp_path))
    assert await registry.execute("sample", {"x": 1}) == "x=1"
    assert await registry.execute("failing", {"x": 1}) == "Error executing failing: one" + HINT
    assert await registry.execute("failing", {"x": 2}) == "Error: two" + HINT
    result = await registry.execute("failing", {"x": 3})
    assert result == "three"
    assert not is_tool_error_result(result)
    missing = await registry.execute("missing", {})
    assert missing.endswith(HINT)
    assert is_tool_error_result(missing)
    (tmp_path / "a.txt").write_text("needle\n")
    assert "needle" in await registry.execute("grep", {"pattern": "needle"})


async def test_a_tool_that_would_end_the_process_fails_its_call() -> None:
    class Exit(Sample):
        async def execute(self, **kwargs: Any) -> Any:
            raise SystemExit(1)

    result = await registry_of(Exit()).execute("sample", {"x": 1})
    assert is_tool_error_result(result)
    assert "SystemExit" in result


async def test_parameters_may_have_any_name() -> None:
    class Anything(Tool):
        name = "anything"
        description = "Takes what it gets."
        parameters = {"type": "object"}

        async def execute(self, /, **kwargs: Any) -> Any:
            return sorted(kwargs)

    names = {"self": 1, "name": 2, "params": 3, "tool": 4, "class": 5, "lambda": 6, "arguments": 7}
    assert await registry_of(Anything()).execute("anything", names) == sorted(names)


async def test_tools_are_opened_and_closed_by_the_owner_of_the_registry() -> None:
    log: list[str] = []

    class Lived(Sample):
        async def open(self) -> None:
            log.append(f"open {self.name}")
            if self.name == "b":
                raise RuntimeError("cannot open")

        async def aclose(self) -> None:
            log.append(f"close {self.name}")

    async with registry_of(Lived("a"), Lived("b"), Sample("c")):
        pass
    assert log == ["open a", "open b", "close b", "close a"]


async def test_context_providers_come_in_the_order_of_tool_names() -> None:
    class Providing(Sample):
        def runtime_context_provider(self) -> Any:
            return self.name if self.name != "m" else None

    registry = registry_of(Providing("z"), Providing("a"), Providing("m"), SimpleNamespace(name="duck"))
    assert registry.get_runtime_context_providers() == ["a", "z"]


async def test_cancelling_a_call_of_a_native_tool_ends_it(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    registry = registry_of(GrepTool(workspace=tmp_path))
    task = asyncio.create_task(registry.execute("grep", {"pattern": "needle"}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "needle" in await registry.execute("grep", {"pattern": "needle"})


def test_a_registry_that_its_own_tools_know_can_be_collected() -> None:
    registry = ToolRegistry()
    tool = Sample()
    tool.registry = registry  # type: ignore[attr-defined]
    tool.executor = ToolExecutor(registry)  # type: ignore[attr-defined]
    registry.register(tool)
    registry.get_definitions()
    registry.prepare_call("sample", {"x": 1})
    gone = [weakref.ref(tool), weakref.ref(registry)]
    del tool, registry
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
