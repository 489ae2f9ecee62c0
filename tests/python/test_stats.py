"""Promises of the statistics of registries and providers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import echo
from nanobot_tools import MCPProvider, ToolCall, ToolError, ToolExecutor, ToolRegistry, tool
from nanobot_tools.tools.search import GrepTool


@tool(read_only=True)
async def nap(seconds: float = 0.0) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "slept"


@tool(read_only=True)
async def fails(how: str) -> str:
    """Fail in one of several ways."""
    raise {"tool": ToolError("no"), "value": ValueError("no"), "cancel": asyncio.CancelledError()}[how]


@tool(read_only=True)
def plain() -> str:
    """Run in a thread."""
    return "plain"


@pytest.fixture
def registry(tmp_path: Path) -> ToolRegistry:
    made = ToolRegistry()
    for one in (nap, fails, plain, GrepTool(workspace=tmp_path)):
        made.register(one)
    return made


def of(registry: ToolRegistry, name: str) -> dict[str, Any]:
    one: dict[str, Any] = registry.stats()["tools"][name]
    return one


def test_before_any_call_there_is_nothing() -> None:
    assert ToolRegistry().stats() == {"tools": {}, "unknown": 0}


async def test_single_calls_and_calls_of_a_batch_are_counted_alike(registry: ToolRegistry) -> None:
    calls = [
        ToolCall("nap", {}), ToolCall("nap", {"seconds": "x"}), ToolCall("fails", {"how": "tool"}),
        ToolCall("fails", {"how": "value"}), ToolCall("plain", {}), ToolCall("grep", {"pattern": "x"}),
        ToolCall("nop", {}), ToolCall("grep", {}), {"no": "call"},
    ]  # fmt: skip
    outcomes = await ToolExecutor(registry).run(calls)
    of_batch = registry.stats()
    for call in calls[:-1]:
        await registry.execute(call.name, call.arguments)
    for name, stats in registry.stats()["tools"].items():
        before = of_batch["tools"][name]
        assert stats["calls"] == 2 * before["calls"]
        assert stats["errors"] == {kind: 2 * count for kind, count in before["errors"].items()}
        assert stats["latency"]["count"] == 2 * before["latency"]["count"]
        assert (stats["running"], before["running"]) == (0, 0)
    assert of_batch["tools"]["nap"]["calls"] == 2
    assert of_batch["tools"]["nap"]["errors"] == {"invalid_arguments": 1}
    assert of_batch["tools"]["nap"]["latency"]["count"] == 1
    assert of_batch["tools"]["fails"]["errors"] == {"tool_error": 1, "exception": 1}
    assert of_batch["tools"]["grep"]["errors"] == {"invalid_arguments": 1}
    assert of_batch["tools"]["plain"]["errors"] == {}
    # What names no tool has no numbers of its own: a model can make up any number of names.
    assert (of_batch["unknown"], registry.stats()["unknown"]) == (2, 3)
    assert [one.error_kind for one in outcomes if one.name == "nop"] == ["not_found"]


async def test_what_hooks_surround_is_counted_once(registry: ToolRegistry) -> None:
    async def before(call: ToolCall) -> bool:
        return call.arguments.get("pattern") != "refused"

    executor = ToolExecutor(registry, before=before, after=lambda call, outcome: None)
    await executor.run(
        [ToolCall("grep", {"pattern": "x"}), ToolCall("grep", {"pattern": "refused"}), ToolCall("nap", {})]
    )
    assert (of(registry, "grep")["calls"], of(registry, "grep")["errors"]) == (2, {"refused": 1})
    assert of(registry, "nap")["calls"] == 1


async def test_a_call_runs_until_it_ends_or_is_cancelled(registry: ToolRegistry) -> None:
    batch = asyncio.ensure_future(ToolExecutor(registry).run([ToolCall("nap", {"seconds": 60})] * 3))
    single = asyncio.ensure_future(registry.execute("nap", {"seconds": 60}))
    await asyncio.sleep(0.05)
    assert (of(registry, "nap")["running"], of(registry, "nap")["latency"]["count"]) == (4, 0)
    for one in (batch, single):
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
    stats = of(registry, "nap")
    assert (stats["running"], stats["errors"], stats["calls"]) == (0, {"cancelled": 4}, 4)
    with pytest.raises(asyncio.CancelledError):
        await registry.execute("fails", {"how": "cancel"})
    assert of(registry, "fails")["errors"] == {"cancelled": 1}


async def test_calls_that_are_over_their_time_are_counted_as_such(registry: ToolRegistry) -> None:
    await ToolExecutor(registry).run([ToolCall("nap", {"seconds": 60})], timeout=0.05)
    stats = of(registry, "nap")
    assert stats["errors"] == {"timeout": 1}
    assert 0.05 <= stats["latency"]["max"] < 30


async def test_latency_is_told_in_seconds(registry: ToolRegistry) -> None:
    calls = [ToolCall("nap", {"seconds": 0.0 if n else 0.2}) for n in range(40)]
    await ToolExecutor(registry).run(calls)
    latency = of(registry, "nap")["latency"]
    assert latency["count"] == 40
    assert 0 < latency["p50"] <= latency["p95"] <= latency["max"] <= latency["sum"]
    assert latency["p95"] < 0.2 <= latency["max"]
    assert json.loads(json.dumps(registry.stats())) == registry.stats()


async def test_a_tool_that_is_registered_anew_keeps_its_numbers(registry: ToolRegistry) -> None:
    await registry.execute("nap", {})
    registry.unregister("nap")
    registry.register(nap)
    await registry.execute("nap", {})
    assert of(registry, "nap")["calls"] == 2


async def test_numbers_of_tools_that_are_gone_do_not_pile_up(registry: ToolRegistry) -> None:
    for n in range(2_500):

        @tool(name=f"made_{n}")
        async def made() -> str:
            """Do nothing."""
            return ""

        registry.register(made)
        await registry.execute(f"made_{n}", {})
        registry.unregister(f"made_{n}")
    assert len(registry.stats()["tools"]) < 1_100


async def test_a_provider_tells_of_each_server_what_came_of_requests_to_it() -> None:
    registry = ToolRegistry()
    servers = {"one": echo(), "two": echo(), "bad": {"command": "no-such-program"}, "odd": {"args": []}}
    async with MCPProvider(servers, registry) as provider:
        await registry.execute("mcp_one_echo", {"text": "x"})
        await ToolExecutor(registry).run([ToolCall("mcp_one_add", {"a": 1, "b": 2})] * 3)
        connection = provider.connection("one")
        await connection.call_tool("echo", {"text": "y"})
        await connection.ping()
        slow = asyncio.ensure_future(registry.execute("mcp_one_sleep", {"seconds": 60}))
        await asyncio.sleep(0.05)
        assert provider.stats()["one"]["running"] == 1
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        stats = provider.stats()
        assert stats.keys() == servers.keys()
        one = stats["one"]
        assert (one["calls"], one["errors"], one["running"]) == (7, {"cancelled": 1}, 0)
        assert one["latency"]["count"] == 7
        assert one["latency"]["p50"] <= one["latency"]["max"]
        assert (one["state"], one["reconnects"]) == ("ready", 0)
        assert one["bytes_sent"] > 0
        assert one["bytes_received"] > 0
        for name in ("two", "bad", "odd"):
            assert (stats[name]["calls"], stats[name]["errors"], stats[name]["running"]) == (0, {}, 0)
            assert stats[name]["latency"] == {"count": 0, "sum": 0.0, "p50": None, "p95": None, "max": None}
        assert stats["odd"]["state"] == "faulty"
        assert stats.keys() == provider.status().keys()
        assert connection.stats()["calls"] == 7
    # What the registry counts goes by the tool.
    assert registry.stats()["tools"]["mcp_one_add"]["calls"] == 3


async def test_a_tools_own_error_counts_as_one_for_its_server() -> None:
    registry = ToolRegistry()
    async with MCPProvider({"one": echo()}, registry) as provider:
        await registry.execute("mcp_one_fail", {"text": "no"})
        assert provider.stats()["one"]["errors"] == {"tool_error": 1}
        await provider.connection("one").call_tool("fail", {"text": "no"})
        assert provider.stats()["one"]["errors"] == {"tool_error": 2}
