"""What connecting to MCP servers promises, with the embedded server and servers that misbehave."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_servers import echo, eventually
from nanobot_tools import (
    MCPConnectionError,
    MCPError,
    Tool,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    ToolTimeoutError,
    _native,
    connect_mcp_servers,
    is_tool_error_result,
)
from nanobot_tools.mcp import MCPToolWrapper

HINT = "\n\n[Analyze the error above and try a different approach.]"


def script(tmp_path: Path, source: str) -> dict[str, Any]:
    path = tmp_path / "server.py"
    path.write_text(textwrap.dedent(source))
    return {"command": sys.executable, "args": [str(path)]}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if os.path.exists("/proc") else True
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_a_servers_tools_are_registered_and_called_like_the_others() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo()}, registry)
    try:
        connection = connections["srv"]
        assert registry.tool_names == ["mcp_srv_echo", "mcp_srv_add", "mcp_srv_sleep", "mcp_srv_fail"]
        tool = registry.get("mcp_srv_echo")
        assert isinstance(tool, MCPToolWrapper)
        assert isinstance(tool, Tool)
        assert (tool._server_name, tool._original_name, tool.read_only) == ("srv", "echo", True)
        assert connection.state == "ready"
        assert connection.server_info == ("echo", "1.0.0")
        assert connection.instructions == "Tools for trying things out."
        assert await registry.execute("mcp_srv_echo", {"text": "häß\u2028lich"}) == "häß\u2028lich"
        assert await tool.execute(text="direct") == "direct"
        assert await registry.execute("mcp_srv_add", {"a": "1", "b": 2.5}) == "3.5"
        failed = await registry.execute("mcp_srv_fail", {"text": "no luck"})
        assert failed == "no luck" + HINT
        assert is_tool_error_result(failed)
        wrong = await registry.execute("mcp_srv_echo", {"txt": "x"})
        assert "missing required text" in wrong
        assert "unexpected parameter txt" in wrong
        result = await connection.call_tool("add", {"a": 1, "b": 2})
        assert result["content"] == [{"type": "text", "text": "3"}]
        with pytest.raises(MCPError, match="no tool 'nope'") as caught:
            await connection.call_tool("nope")
        assert caught.value.rpc_code == -32602
    finally:
        await connections["srv"].aclose()


async def test_closing_unregisters_the_tools_and_ends_the_process_from_any_task() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo()}, registry)
    connection = connections["srv"]
    tool = registry.get("mcp_srv_echo")
    pid = connection.pid
    assert pid is not None
    assert alive(pid)
    await asyncio.gather(*(asyncio.create_task(connection.aclose()) for _ in range(3)))
    await connection.aclose()
    assert connection.state == "closed"
    assert not alive(pid)
    assert len(registry) == 0
    late = await tool.execute(text="x")
    assert is_tool_error_result(late)
    with pytest.raises(MCPConnectionError):
        await connection.call_tool("echo", {"text": "x"})


async def test_all_pages_of_a_list_are_read() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo("--page", "3", "--tools", "6")}, registry)
    try:
        assert len(registry) == 10
    finally:
        await connections["srv"].aclose()


async def test_the_entry_says_which_tools_are_offered() -> None:
    registry = ToolRegistry()
    servers = {
        "raw": echo(enabledTools=["echo"]),
        "wrapped": echo(enabledTools=["mcp_wrapped_add"]),
        "pattern": echo(enabled_tools=["*"], disabled_tools=["s*", "fail"]),
        "none": echo(enabledTools=[]),
        "off": echo(disabled=True),
        "distrusted": echo(enabledTools=["echo"], trustReadOnly=False),
    }
    connections = await connect_mcp_servers(servers, registry)
    try:
        assert sorted(connections) == ["distrusted", "none", "pattern", "raw", "wrapped"]
        assert sorted(registry.tool_names) == [
            "mcp_distrusted_echo", "mcp_pattern_add", "mcp_pattern_echo", "mcp_raw_echo", "mcp_wrapped_add",
        ]  # fmt: skip
        assert not registry.get("mcp_distrusted_echo").read_only
    finally:
        for connection in connections.values():
            await connection.aclose()


async def test_an_entry_may_be_an_object_with_nanobots_attributes() -> None:
    entry = SimpleNamespace(
        type="stdio", url="", headers={}, auth=None, tool_timeout=5, enabled_tools=["echo"], cwd="", **echo()
    )
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": entry}, registry)
    try:
        assert registry.tool_names == ["mcp_srv_echo"]
    finally:
        await connections["srv"].aclose()


async def test_one_faulty_server_costs_only_itself(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    servers = {
        "missing": {"command": "/no/such/program"},
        "exits": script(tmp_path, "import sys; print('cannot find the token', file=sys.stderr); sys.exit(3)"),
        "empty": {},
        "unset": {"command": "x", "args": ["${NBTOOLS_TEST_UNSET_VARIABLE}"]},
        "odd": {"command": ["a", "b"]},
        "no entry": 42,
        "good": echo(),
    }
    registry = ToolRegistry()
    with caplog.at_level(logging.WARNING):
        connections = await asyncio.wait_for(connect_mcp_servers(servers, registry), 60)
    try:
        assert list(connections) == ["good"]
        messages = [record.getMessage() for record in caplog.records if record.name == "nanobot_tools.mcp"]
        for name in ("missing", "exits", "empty", "unset", "odd", "no entry"):
            assert any(f"'{name}'" in message for message in messages), name
        [exits] = [message for message in messages if "'exits'" in message]
        assert "3" in exits
        assert "cannot find the token" in exits
        assert any("NBTOOLS_TEST_UNSET_VARIABLE" in message for message in messages)
    finally:
        await connections["good"].aclose()
        _native.flush_logs()


async def test_servers_start_at_the_same_time(tmp_path: Path) -> None:
    slow = script(
        tmp_path,
        """
        import runpy, sys, time
        time.sleep(1)
        sys.argv = ["echo"]
        runpy.run_module("nanobot_tools.testing.echo_server", run_name="__main__")
        """,
    )
    slow["env"] = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    registry = ToolRegistry()
    started = asyncio.get_running_loop().time()
    connections = await connect_mcp_servers({f"s{i}": slow for i in range(6)}, registry)
    took = asyncio.get_running_loop().time() - started
    await asyncio.gather(*(connection.aclose() for connection in connections.values()))
    assert len(connections) == 6
    assert took < 30  # one after another would be more than 6 s; the machine may be slow


async def test_a_call_has_the_tool_timeout_and_the_server_lives_on() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo(toolTimeout=0.2)}, registry)
    try:
        result = await asyncio.wait_for(registry.execute("mcp_srv_sleep", {"seconds": 30}), 30)
        assert result == "(MCP tool call timed out after 0.2s)" + HINT
        with pytest.raises(ToolTimeoutError):
            await connections["srv"].call_tool("sleep", {"seconds": 30}, timeout=0.1)
        assert await registry.execute("mcp_srv_echo", {"text": "still here"}) == "still here"
    finally:
        await connections["srv"].aclose()


async def test_cancelling_a_call_tells_the_server() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo()}, registry)
    try:
        task = asyncio.create_task(registry.execute("mcp_srv_sleep", {"seconds": 30}))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await registry.execute("mcp_srv_echo", {"text": "next"}) == "next"
    finally:
        await connections["srv"].aclose()


async def test_a_killed_server_fails_what_may_not_run_twice_and_is_back_for_the_next_call() -> None:
    registry = ToolRegistry()
    once = {**echo(), "retry": "never"}
    connections = await connect_mcp_servers({"srv": once, "other": echo()}, registry)
    try:
        waiting = asyncio.create_task(registry.execute("mcp_srv_sleep", {"seconds": 50}))
        await asyncio.sleep(0.1)
        tool = registry.get("mcp_srv_echo")
        pid = connections["srv"].pid
        assert pid is not None
        os.kill(pid, 9)
        result = await asyncio.wait_for(waiting, 10)
        assert is_tool_error_result(result)
        assert "srv" in result
        await eventually(lambda: connections["srv"].pid not in (None, pid))
        assert await asyncio.wait_for(registry.execute("mcp_srv_echo", {"text": "x"}), 10) == "x"
        assert registry.get("mcp_srv_echo") is tool
        assert connections["srv"].status()["reconnects"] == 1
        assert await registry.execute("mcp_other_echo", {"text": "fine"}) == "fine"
    finally:
        for connection in connections.values():
            await connection.aclose()


async def test_a_call_that_may_run_twice_survives_its_server() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo()}, registry)
    try:
        waiting = asyncio.create_task(registry.execute("mcp_srv_sleep", {"seconds": 0.5}))
        await asyncio.sleep(0.1)
        pid = connections["srv"].pid
        assert pid is not None
        os.kill(pid, 9)
        assert not is_tool_error_result(await asyncio.wait_for(waiting, 10))
    finally:
        await connections["srv"].aclose()


async def test_a_batch_runs_calls_of_several_servers_and_reports_progress() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"a": echo(), "b": echo()}, registry)
    executor = ToolExecutor(registry)
    try:
        calls = [ToolCall(f"mcp_{s}_echo", {"text": f"{s}{i}"}) for i in range(32) for s in "ab"]
        outcomes = await executor.run([*calls, ToolCall("mcp_a_fail", {"text": "no"})])
        assert [o.result for o in outcomes[:-1]] == [c.arguments["text"] for c in calls]
        assert outcomes[-1].error_kind == "tool_error"
        events = [e async for e in executor.stream([ToolCall("mcp_a_sleep", {"seconds": 0.1})])]
        kinds = [e.kind for e in events]
        assert kinds[0] == "started"
        assert kinds[-1] == "finished"
        assert kinds.count("progress") == 10
        [late] = await executor.run([ToolCall("mcp_a_sleep", {"seconds": 30})], timeout=0.1)
        assert late.error_kind == "timeout"
    finally:
        for connection in connections.values():
            await connection.aclose()


async def test_calls_in_parallel_to_one_server_do_not_wait_for_each_other() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo()}, registry)
    try:
        slow = asyncio.create_task(registry.execute("mcp_srv_sleep", {"seconds": 20}))
        quick = [registry.execute("mcp_srv_echo", {"text": str(i)}) for i in range(50)]
        assert await asyncio.wait_for(asyncio.gather(*quick), 15) == [str(i) for i in range(50)]
        assert not slow.done()
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
    finally:
        await connections["srv"].aclose()


async def test_names_that_collide_are_kept_apart_and_stay_the_same() -> None:
    seen = []
    for _ in range(2):
        registry = ToolRegistry()
        servers = {
            # Two that map to one name, and two with nothing in their names to keep.
            "a b": echo(enabledTools=["echo"]),
            "a_b": echo(enabledTools=["echo"]),
            "ä": echo(enabledTools=["echo"]),
            "ö": echo(enabledTools=["echo"]),
        }
        connections = await connect_mcp_servers(servers, registry)
        seen.append(registry.tool_names)
        for connection in connections.values():
            await connection.aclose()
        _native.flush_logs()
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 4
    assert all(len(name) <= 64 and name.isascii() for name in seen[0])


async def test_a_cancelled_connect_leaves_no_process(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    server = script(
        tmp_path,
        f"""
        import os, time
        open({str(marker)!r}, "w").write(str(os.getpid()))
        time.sleep(600)
        """,
    )
    registry = ToolRegistry()
    task = asyncio.create_task(connect_mcp_servers({"silent": server, "good": echo()}, registry))
    for _ in range(2000):
        if marker.exists() and marker.read_text():
            break
        await asyncio.sleep(0.01)
    pid = int(marker.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(500):
        if not alive(pid):
            break
        await asyncio.sleep(0.01)
    assert not alive(pid)
    assert len(registry) == 0
