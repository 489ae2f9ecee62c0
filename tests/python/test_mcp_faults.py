"""What servers and configurations get wrong, as Python and the model see it, over each transport.

`mcp_faults.rs` holds the core against the same server; here are names, configuration, and what is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from nanobot_tools import (
    MCPConnectionError,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    _native,
    connect_mcp_servers,
    is_tool_error_result,
)
from nanobot_tools.mcp import MCPConnection, connect_mcp_server
from real_servers import GENEROUS, listening, rust

TRANSPORTS = ["stdio", "json", "sse", "legacy"]
HTTP = ["json", "sse"]
VALID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@contextlib.contextmanager
def misbehaving(over: str, mode: str = "normal") -> Iterator[dict[str, Any]]:
    """An entry for the server that misbehaves, and over HTTP the server itself."""
    [program] = rust("misbehaving_server")
    if over == "stdio":
        yield {"command": program, "args": [mode]}
        return
    with listening([program, mode, over]) as url:
        yield {"type": "sse" if over == "legacy" else "streamableHttp", "url": url, "allowPrivate": True}


@contextlib.contextmanager
def several(over: str, mode: str, number: int) -> Iterator[list[dict[str, Any]]]:
    """Entries for servers of their own: over the older transport this one serves a single client."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(misbehaving(over, mode)) for _ in range(number)]


async def close(connections: dict[str, MCPConnection]) -> None:
    await asyncio.gather(*(connection.aclose() for connection in connections.values()))
    _native.flush_logs()


# ---- names ----


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_names_are_valid_unique_and_the_same_after_a_restart(over: str) -> None:
    seen = []
    for _ in range(2):
        with several(over, "names", 3) as entries:
            registry = ToolRegistry()
            servers = dict(zip(("a", "a_b", "查询"), entries, strict=True))
            connections = await asyncio.wait_for(connect_mcp_servers(servers, registry), GENEROUS)
            assert len(connections) == 3
            seen.append(registry.tool_names)
            await close(connections)
    names = seen[0]
    assert seen[0] == seen[1]
    assert len(names) == len(set(names)) == 3 * (9 + 4 + 2)
    assert all(VALID.fullmatch(name) for name in names), names
    # `b_c` of `a`, and `c` of `a_b`.
    assert len([name for name in names if re.fullmatch(r"mcp_a_b_c(_[0-9a-f]{8})?", name)]) == 2


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_names_that_collide_all_stay_callable_and_the_collision_is_logged(
    over: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = ToolRegistry()
    with misbehaving(over, "names") as entry, caplog.at_level(logging.WARNING):
        connections = await connect_mcp_servers({"s": entry}, registry)
        # A tool `resource_x` beside two resources `x`.
        names = [name for name in registry.tool_names if name.startswith("mcp_s_resource_x")]
        assert len(names) == 3
        assert names[0] == "mcp_s_resource_x"
        shown = {str(await registry.execute(name, {})) for name in names}
        assert {"note note://1", "note note://2"} < shown
        await close(connections)
    assert any("resource_x" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_a_resource_or_prompt_that_cannot_be_had_is_an_error_with_message_and_code(over: str) -> None:
    registry = ToolRegistry()
    with misbehaving(over, "names") as entry:
        connections = await connect_mcp_servers({"s": entry}, registry)
        for kind in ("resource", "prompt"):
            result = await registry.execute(f"mcp_s_{kind}_gone", {})
            assert is_tool_error_result(result)
            assert f"(MCP {kind} " in result
            assert "it is gone [code -32002]" in result
        assert await registry.execute("mcp_s_prompt_x", {}) == "a prompt"
        await close(connections)


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_an_allowed_name_in_wrapped_form_admits_exactly_one_tool(over: str) -> None:
    registry = ToolRegistry()
    with several(over, "normal", 3) as (one, pattern, none):
        servers = {
            "one": {**one, "enabledTools": ["mcp_one_read_a"]},
            "pattern": {**pattern, "enabledTools": ["read_*"]},
            "none": {**none, "enabledTools": []},
        }
        connections = await asyncio.wait_for(connect_mcp_servers(servers, registry), GENEROUS)
        assert sorted(registry.tool_names) == ["mcp_one_read_a", "mcp_pattern_read_a", "mcp_pattern_read_b"]
        await close(connections)


# ---- calls ----


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_an_error_of_the_server_is_shown_with_its_message_and_code(over: str) -> None:
    registry = ToolRegistry()
    with misbehaving(over) as entry:
        connections = await connect_mcp_servers({"s": entry}, registry)
        result = await registry.execute("mcp_s_act", {"do": "error"})
        assert is_tool_error_result(result)
        assert result.startswith("(MCP tool call failed: no such city [code -32042])")
        await close(connections)


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_calls_that_fail_leave_the_others_of_their_batch_alone(over: str) -> None:
    registry = ToolRegistry()
    with misbehaving(over) as entry:
        connections = await connect_mcp_servers({"s": entry}, registry)
        kinds = ["error", "cut", "one", "is_error", "two", "string_error", "three"]
        calls = [ToolCall("mcp_s_act", {"do": kind}) for kind in kinds]
        outcomes = await asyncio.wait_for(ToolExecutor(registry).run(calls), GENEROUS)
        good = [outcome.result for outcome in outcomes if outcome.error_kind is None]
        assert good == ["one", "two", "three"]
        await close(connections)


@pytest.mark.parametrize("over", TRANSPORTS)
async def test_a_slow_server_does_not_delay_another(over: str) -> None:
    registry = ToolRegistry()
    with misbehaving(over) as slow, misbehaving(over) as quick:
        connections = await connect_mcp_servers({"slow": slow, "quick": quick}, registry)
        waiting = asyncio.create_task(registry.execute("mcp_slow_act", {"do": "never"}))
        for index in range(20):
            assert await registry.execute("mcp_quick_act", {"do": str(index)}) == str(index)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await close(connections)


# ---- configuration ----


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", None])
async def test_a_server_over_http_may_be_called_what_readmes_call_it(kind: str | None) -> None:
    with misbehaving("json") as entry:
        entry["type"] = kind
        if kind is None:
            del entry["type"]
        async with await connect_mcp_server("s", entry) as connection:
            assert connection.pid is None
            assert (await connection.call_tool("act", {"do": "x"}))["content"][0]["text"] == "x"


async def test_an_address_that_ends_in_sse_is_the_older_transport_also_with_a_query() -> None:
    with misbehaving("legacy") as entry:
        guessed = {"url": entry["url"] + "?key=secret", "allowPrivate": True}
        async with await connect_mcp_server("s", guessed) as connection:
            assert (await connection.call_tool("act", {"do": "x"}))["content"][0]["text"] == "x"


@pytest.mark.parametrize("over", HTTP)
async def test_headers_are_sent_expanded_and_shown_nowhere(
    over: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NBTOOLS_TEST_SECRET", "hush-hush")
    with misbehaving(over) as entry, caplog.at_level(logging.DEBUG):
        entry["headers"] = {"Authorization": "Bearer ${NBTOOLS_TEST_SECRET}", "X-Plain": "y"}
        async with await connect_mcp_server("s", entry) as connection:
            head = (await connection.call_tool("act", {"do": "http_head"}))["content"][0]["text"].lower()
            assert "authorization: bearer hush-hush" in head
            assert "x-plain: y" in head
            assert "hush-hush" not in repr(connection)
            failed = None
            try:
                await connection.call_tool("act", {"do": "http_500"})
            except Exception as exc:
                failed = f"{exc!r} {exc}"
            assert failed is not None
            assert "out of paper" in failed
            assert "hush-hush" not in failed
    _native.flush_logs()
    assert "hush-hush" not in caplog.text


async def test_a_closed_port_is_unreachable_at_once_and_its_address_is_redacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with misbehaving("json") as entry:
        pass
    entry["url"] = entry["url"].replace("//", "//user:hush@") + "/deep/secret?key=hush"
    with pytest.raises(MCPConnectionError) as caught:
        await asyncio.wait_for(connect_mcp_server("s", entry), GENEROUS)
    assert "'s'" in str(caught.value)
    assert "127.0.0.1" in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "hush" not in caplog.text


@pytest.mark.parametrize("over", HTTP)
async def test_loopback_is_closed_unless_the_entry_opens_it(over: str) -> None:
    with misbehaving(over) as entry:
        del entry["allowPrivate"]
        with pytest.raises(MCPConnectionError, match=r"127\.0\.0\.1|private|loopback"):
            await connect_mcp_server("s", entry)
        entry["ssrfWhitelist"] = ["127.0.0.0/8"]
        async with await connect_mcp_server("s", entry) as connection:
            assert connection.state == "ready"


async def test_one_faulty_entry_or_unset_variable_costs_that_entry_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = ToolRegistry()
    with misbehaving("json") as good, caplog.at_level(logging.WARNING):
        servers = {
            "unset": {"url": "http://127.0.0.1/${NBTOOLS_TEST_UNSET_VARIABLE}"},
            "no address": {"type": "http"},
            "odd address": {"url": "ftp://example.org/mcp"},
            "odd headers": {**good, "headers": {"a b": "c"}},
            "disabled": {**good, "disabled": True},
            "good": good,
        }
        connections = await asyncio.wait_for(connect_mcp_servers(servers, registry), GENEROUS)
        assert list(connections) == ["good"]
        await close(connections)
    messages = [record.getMessage() for record in caplog.records]
    for name in ("unset", "no address", "odd address", "odd headers"):
        assert any(f"'{name}'" in message for message in messages), name
    assert any("NBTOOLS_TEST_UNSET_VARIABLE" in message for message in messages)


async def test_numeric_environment_values_are_texts() -> None:
    with misbehaving("stdio") as entry:
        entry["env"] = {"NBTOOLS_TEST_NUMBER": 8080}
        async with await connect_mcp_server("s", entry) as connection:
            names = (await connection.call_tool("act", {"do": "env"}))["content"][0]["text"]
            assert "NBTOOLS_TEST_NUMBER" in names.split()
