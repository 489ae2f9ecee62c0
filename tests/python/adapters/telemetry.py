"""Checks against OpenTelemetry's SDK; run by test_adapters_libraries.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from harness import main
from nanobot_tools import (
    MCPConnection,
    MCPProvider,
    ToolCall,
    ToolError,
    ToolExecutor,
    ToolRegistry,
    telemetry,
    tool,
)
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

META_SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("meta_server.py"))]}
OPERATION = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}


@tool(read_only=True)
async def look() -> str:
    """Say which span the tool runs in."""
    return format(trace.get_current_span().get_span_context().span_id, "016x")


@tool(read_only=True)
def look_in_a_thread() -> str:
    """Say which span the tool runs in, from a thread."""
    return format(trace.get_current_span().get_span_context().span_id, "016x")


@tool(read_only=True)
async def fails() -> str:
    """Fail."""
    raise ToolError("a secret")


@tool(read_only=True)
async def forever(a: int = 0) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


class Told:
    """What was told of calls while they were traced."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans() if span.name == name]
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]


@contextlib.contextmanager
def traced() -> Iterator[Told]:
    told = Told()
    telemetry.instrument(tracer_provider=told.tracers, meter_provider=told.meters)
    try:
        yield told
    finally:
        telemetry.uninstrument()
        told.meters.shutdown()
        told.tracers.shutdown()


def registry() -> ToolRegistry:
    made = ToolRegistry()
    for one in (look, look_in_a_thread, fails, forever):
        made.register(one)
    return made


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[ToolRegistry, MCPConnection]]:
    made = ToolRegistry()
    async with MCPProvider({"m": META_SERVER}, made, cache_dir=None) as provider:
        yield made, provider.connection("m")


def id_of(span: ReadableSpan) -> str:
    return format(span.context.span_id, "016x")


def traceparent(span: ReadableSpan) -> str:
    context = span.context
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def test_a_single_call_is_a_span_inside_of_which_the_tool_runs() -> None:
    with traced() as told:
        result = await registry().execute("look", {})
        span = told.named("execute_tool look")
    assert result == id_of(span)
    assert dict(span.attributes) == {**OPERATION, "gen_ai.tool.name": "look"}
    assert (span.kind, span.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)


async def test_each_call_of_a_batch_is_a_span_below_the_callers() -> None:
    calls = [
        ToolCall("look", {}, "one"),
        ToolCall("look_in_a_thread", {}, "two"),
        ToolCall("look", {}, "three"),
    ]
    with traced() as told:
        with told.tracers.get_tracer("t").start_as_current_span("turn"):
            outcomes = await ToolExecutor(registry()).run(calls)
        spans = {span.attributes.get("gen_ai.tool.call.id"): span for span in told.spans()}
        parent = told.named("turn")
    for outcome in outcomes:
        assert outcome.result == id_of(spans[outcome.id])
        assert spans[outcome.id].parent.span_id == parent.context.span_id


async def test_a_call_that_fails_says_how_and_tells_no_contents() -> None:
    calls = [
        ToolCall("fails", {}),
        ToolCall("forever", {"a": "x"}),
        ToolCall("nothing", {}),
        ToolCall("look", {}),
    ]
    with traced() as told:
        made = registry()
        kinds = [outcome.error_kind for outcome in await ToolExecutor(made).run(calls)]
        batch = {span.name: span for span in told.spans()}
        told.exporter.clear()
        for call in calls:
            await made.execute(call.name, call.arguments)
        single = {span.name: span for span in told.spans()}
    assert kinds == ["tool_error", "invalid_arguments", "not_found", None]
    for spans in (batch, single):
        for call, kind in zip(calls, kinds, strict=True):
            span = spans[f"execute_tool {call.name}"]
            assert span.attributes.get("error.type") == kind
            assert span.status.status_code == (StatusCode.ERROR if kind else StatusCode.UNSET)
            assert "a secret" not in span.to_json()


async def test_calls_that_are_cancelled_or_over_their_time_end_their_spans() -> None:
    with traced() as told:
        made = registry()
        await ToolExecutor(made).run([ToolCall("forever", {})] * 2, timeout=0.02)
        assert [span.attributes["error.type"] for span in told.spans()] == ["timeout"] * 2
        told.exporter.clear()
        running = [made.execute("forever", {}), ToolExecutor(made).run([ToolCall("forever", {})] * 2)]
        tasks = [asyncio.ensure_future(one) for one in running]
        await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert [span.attributes["error.type"] for span in told.spans()] == ["cancelled"] * 3


async def test_a_stream_is_traced_like_a_run() -> None:
    with traced() as told:
        calls = [ToolCall("look", {}, "one"), ToolCall("nothing", {}, "two")]
        outcomes = [e.outcome async for e in ToolExecutor(registry()).stream(calls) if e.outcome is not None]
        spans = {span.attributes["gen_ai.tool.call.id"]: span for span in told.spans()}
    assert {outcome.id for outcome in outcomes} == spans.keys()
    assert spans["two"].attributes["error.type"] == "not_found"


async def test_an_mcp_server_is_told_the_span_of_the_call() -> None:
    with traced() as told:
        async with served() as (made, _):
            single = json.loads(await made.execute("mcp_m_meta", {}))
            span = told.named("execute_tool mcp_m_meta")
            told.exporter.clear()
            outcomes = await ToolExecutor(made).run([ToolCall("mcp_m_meta", {}, str(n)) for n in range(5)])
            spans = {span.attributes["gen_ai.tool.call.id"]: span for span in told.spans()}
    assert single["traceparent"] == traceparent(span)
    assert (span.kind, dict(span.attributes)) == (
        SpanKind.CLIENT,
        {
            **OPERATION,
            "gen_ai.tool.name": "mcp_m_meta",
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": "2025-11-25",
            "mcp.server.name": "m",
            "network.transport": "pipe",
        },
    )
    for outcome in outcomes:
        assert json.loads(outcome.result)["traceparent"] == traceparent(spans[outcome.id])


async def test_resources_and_prompts_are_told_as_such() -> None:
    with traced() as told:
        async with served() as (made, _):
            for name in ("mcp_m_resource_it", "mcp_m_prompt_ask"):
                assert traceparent_in(await made.execute(name, {})) == traceparent(
                    told.named(f"execute_tool {name}")
                )
            resource, prompt = told.spans()
    assert resource.attributes["mcp.method.name"] == "resources/read"
    assert resource.attributes["mcp.resource.uri"] == "meta://it"
    assert prompt.attributes["mcp.method.name"] == "prompts/get"
    assert prompt.attributes["gen_ai.prompt.name"] == "ask"


def traceparent_in(text: str) -> str:
    found: str = json.loads(text[text.index("{") : text.rindex("}") + 1])["traceparent"]
    return found


async def test_requests_of_a_connection_are_spans_of_their_own() -> None:
    with traced() as told:
        async with served() as (_, connection):
            result = await connection.call_tool("meta", {"fail": True})
            await connection.get_prompt("ask")
            await connection.ping()
            call, prompt, ping = told.spans()
    assert json.loads(result["content"][0]["text"])["traceparent"] == traceparent(call)
    assert [span.name for span in (call, prompt, ping)] == ["tools/call meta", "prompts/get ask", "ping"]
    assert {span.kind for span in (call, prompt, ping)} == {SpanKind.CLIENT}
    assert (call.attributes["error.type"], call.attributes["gen_ai.tool.name"]) == ("tool_error", "meta")
    assert "error.type" not in prompt.attributes


async def test_durations_are_measured_and_made_up_names_are_not_told() -> None:
    with traced() as told:
        async with served() as (made, _):
            for one in (look, fails):
                made.register(one)
            calls = [
                ToolCall("mcp_m_meta", {}),
                ToolCall("look", {}),
                ToolCall("fails", {}),
                ToolCall("made_up", {}),
            ]
            await ToolExecutor(made).run(calls)
            await made.execute("look", {})
            points = {
                p.attributes.get("gen_ai.tool.name"): p for p in told.points("gen_ai.execute_tool.duration")
            }
            requests = told.points("mcp.client.operation.duration")
    assert points.keys() == {"mcp_m_meta", "look", "fails", None}
    assert points["look"].count == 2
    assert points["fails"].attributes["error.type"] == "tool_error"
    assert points[None].attributes["error.type"] == "not_found"
    [request] = requests
    assert request.count == 1
    assert request.attributes["mcp.server.name"] == "m"
    assert request.sum == points["mcp_m_meta"].sum > 0


async def test_what_is_switched_off_tells_nothing_and_leaves_everything_as_it_was() -> None:
    replaced = {
        (owner, name): vars(owner)[name]
        for owner in (ToolRegistry, ToolExecutor, MCPConnection)
        for name in vars(owner)
    }
    with traced() as told:
        assert telemetry.is_instrumented()
        telemetry.instrument()
    assert not telemetry.is_instrumented()
    telemetry.uninstrument()
    assert all(vars(owner)[name] is value for (owner, name), value in replaced.items())
    tracer = told.tracers.get_tracer("t")
    async with served() as (made, _):
        with tracer.start_as_current_span("turn"):
            assert json.loads(await made.execute("mcp_m_meta", {})) == {}
    assert [span.name for span in told.spans()] in (["turn"], [])


async def test_switching_it_on_works_for_what_was_made_before() -> None:
    made = registry()
    executor = ToolExecutor(made, after=lambda call, outcome: None)
    with traced() as told:
        await executor.run([ToolCall("look", {}), ToolCall("look", {})])
        assert await asyncio.to_thread(made.execute_sync, "look") == id_of(told.spans()[-1])
        assert len(told.spans()) == 3


if __name__ == "__main__":
    main(globals().copy())
