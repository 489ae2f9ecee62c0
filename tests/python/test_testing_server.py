"""A scripted server is an MCP server like any other, does what a test orders, and tells what it saw."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest
from mcp_servers import eventually
from nanobot_tools import (
    MCPConnectionError,
    MCPError,
    Tool,
    ToolError,
    ToolRegistry,
    ToolResult,
    connect_mcp_servers,
    tool,
)
from nanobot_tools.testing import CallTool, ScriptedServer, assert_error, assert_ok

Make = Callable[..., ScriptedServer]
both = pytest.mark.parametrize("transport", ["stdio", "http"])


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool(read_only=True)
async def look(text: str = "") -> str:
    """Look at a text."""
    return text


@both
async def test_functions_of_the_test_are_its_tools(mcp_server: Make, transport: str) -> None:
    seen: list[Any] = []

    def note(text: str) -> dict[str, Any]:
        """Note a text."""
        seen.append((text, threading.current_thread() is threading.main_thread()))
        return {"noted": len(seen)}

    async def wait(event: str) -> str:
        await events[event].wait()
        return event

    events = {"go": asyncio.Event()}
    server = mcp_server(tools=[note, wait, look], transport=transport)
    async with server.connect() as connection:
        assert connection.protocol_version == "2025-11-25"
        listed = {item["name"]: item for item in await connection.list_tools()}
        assert listed["note"]["description"] == "Note a text."
        assert listed["note"]["inputSchema"]["required"] == ["text"]
        assert listed["look"]["annotations"] == {"readOnlyHint": True}
        assert_ok(await connection.call_tool("note", {"text": "a"}), equals={"noted": 1})
        assert seen == [("a", False)]
        waiting = asyncio.create_task(connection.call_tool("wait", {"event": "go"}))
        assert await server.wait_for_calls(2) == [("note", {"text": "a"}), ("wait", {"event": "go"})]
        events["go"].set()
        assert_ok(await waiting, equals="go")


@both
async def test_its_tools_are_called_from_a_registry(
    mcp_server: Make, tool_registry: ToolRegistry, call_tool: CallTool, transport: str
) -> None:
    server = mcp_server(tools=[add], name="sums", transport=transport)
    async with server.connect(tool_registry):
        assert_ok(await call_tool("mcp_sums_add", a="1", b=2), equals="3")
        assert_error(await call_tool("mcp_sums_add", a="x", b=2), kind="invalid_arguments")
    assert server.calls == [("add", {"a": 1, "b": 2})]
    assert tool_registry.tool_names == []


async def test_any_client_can_be_configured_with_its_entry(mcp_server: Make) -> None:
    registry = ToolRegistry()
    one, two = mcp_server(tools=[add], name="one"), mcp_server(tools=[add], name="two", transport="http")
    connections = await connect_mcp_servers({"one": one.entry, "two": two.entry}, registry)
    assert sorted(registry.tool_names) == ["mcp_one_add", "mcp_two_add"]
    for connection in connections.values():
        await connection.aclose()


@both
async def test_results_errors_and_content_reach_the_client(mcp_server: Make, transport: str) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    results: dict[str, Any] = {
        "none": None,
        "blocks": [image],
        "whole": {"content": [image], "structuredContent": {"a": 1}},
        "marked": ToolResult.error("no paper"),
        "list": [1, 2],
    }

    def give(what: str) -> Any:
        if what == "fail":
            raise ToolError("out of order")
        if what == "refuse":
            raise MCPError(-32050, "not for you", {"why": "because"})
        if what == "stop":
            raise SystemExit(3)
        return results[what]

    async with mcp_server(tools=[give], transport=transport).connect() as connection:

        async def got(what: str) -> dict[str, Any]:
            return await connection.call_tool("give", {"what": what})

        assert (await got("none"))["content"] == [{"type": "text", "text": ""}]
        assert (await got("blocks"))["content"] == [image]
        assert (await got("whole"))["structuredContent"] == {"a": 1}
        assert_ok(await got("list"), equals=[1, 2])
        assert_error(await got("marked"), contains="no paper")
        assert_error(await got("fail"), contains="out of order")
        assert_error(await got("stop"), contains="SystemExit(3)")
        with pytest.raises(MCPError, match="not for you") as refused:
            await got("refuse")
        assert (refused.value.rpc_code, refused.value.data) == (-32050, {"why": "because"})


async def test_tools_that_are_objects_or_only_listed(mcp_server: Make) -> None:
    class Shout(Tool):
        name, description = "shout", "Shout."
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}}

        async def execute(self, text: str = "") -> str:
            return text.upper()

    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": {"type": "odd"}}}}
    server = mcp_server(tools=[Shout(), odd])
    async with server.connect() as connection:
        assert_ok(await connection.call_tool("shout", {"text": "a"}), equals="A")
        assert odd in await connection.list_tools()
        assert (await connection.call_tool("odd", {"x": 1}))["content"] == []
        server.answer_next("odd", {"content": [{"type": "text", "text": "as ordered"}]})
        assert_ok(await connection.call_tool("odd"), equals="as ordered")
    assert server.calls[1:] == [("odd", {"x": 1}), ("odd", {})]


@both
async def test_resources_and_prompts(mcp_server: Make, transport: str) -> None:
    async def greet(who: str, how: str = "Hello") -> str:
        """Greet somebody."""
        return f"{how}, {who}."

    server = mcp_server(
        resources={
            "memo://one": "first",
            "memo://raw": b"\x00\x01",
            "memo://made/{name}": lambda name: [name],
        },
        prompts={"greet": greet, "fixed": "Say yes."},
        transport=transport,
    )
    async with server.connect() as connection:
        assert [item["uri"] for item in await connection.list_resources()] == ["memo://one", "memo://raw"]
        templates = await connection.list_resource_templates()
        assert [item["uriTemplate"] for item in templates] == ["memo://made/{name}"]
        assert (await connection.read_resource("memo://one"))["contents"][0]["text"] == "first"
        assert (await connection.read_resource("memo://raw"))["contents"][0]["blob"] == "AAE="
        assert (await connection.read_resource("memo://made/x"))["contents"][0]["text"] == '["x"]'
        with pytest.raises(MCPError, match="no resource"):
            await connection.read_resource("memo://two")
        [listed] = [item for item in await connection.list_prompts() if item["name"] == "greet"]
        assert listed["description"] == "Greet somebody."
        assert [(a["name"], a["required"]) for a in listed["arguments"]] == [("who", True), ("how", False)]
        said = await connection.get_prompt("greet", {"who": "Bo"})
        assert said["messages"][0]["content"]["text"] == "Hello, Bo."
        with pytest.raises(MCPError, match="who"):
            await connection.get_prompt("greet")


@both
async def test_ordered_failures_come_once_and_in_order(mcp_server: Make, transport: str) -> None:
    server = mcp_server(tools=[add], transport=transport)
    server.fail_next("add", "jammed", times=2)
    server.fail_next("add", MCPError(-32099, "overloaded"))
    sum_of = {"a": 1, "b": 2}
    async with server.connect() as connection:
        for _ in range(2):
            assert_error(await connection.call_tool("add", sum_of), contains="jammed")
        with pytest.raises(MCPError, match="overloaded"):
            await connection.call_tool("add", sum_of)
        assert_ok(await connection.call_tool("add", sum_of), equals="3")


def test_orders_for_a_tool_that_is_not_there_are_refused(mcp_server: Make) -> None:
    server = mcp_server(tools=[add])
    for order in (
        server.fail_next,
        lambda name: server.delay(name, 1),
        lambda name: server.answer_next(name, {}),
    ):
        with pytest.raises(ValueError, match=r"no tool 'ad', only \['add'\]"):
            order("ad")
    with pytest.raises(ValueError, match="stdio"):
        mcp_server(transport="pigeon")
    with pytest.raises(ValueError, match="no standard error"):
        mcp_server(transport="http").write_stderr("text")
    server.close()
    server.close()
    with pytest.raises(RuntimeError, match="server 'demo' is closed"):
        server.exit()


@both
async def test_a_delayed_call_can_be_taken_back_and_others_pass_it(mcp_server: Make, transport: str) -> None:
    server = mcp_server(tools=[add, look], transport=transport)
    server.delay("add", 60)
    async with server.connect() as connection:
        slow = asyncio.create_task(connection.call_tool("add", {"a": 1, "b": 2}))
        await server.wait_for_calls(1)
        assert_ok(await connection.call_tool("look", {"text": "quick"}), equals="quick")
        slow.cancel()
        await eventually(lambda: server.cancelled == ["add"])
        server.delay("add", 0)
        assert_ok(await connection.call_tool("add", {"a": 1, "b": 2}), equals="3")


@both
@pytest.mark.parametrize("fault", ["drop_connection", "exit"])
async def test_the_client_heals_after_a_broken_connection(
    mcp_server: Make, transport: str, fault: str
) -> None:
    server = mcp_server(tools=[look], transport=transport)
    async with server.connect() as connection:
        first = connection.pid
        waiting = asyncio.create_task(connection.call_tool("look", {"text": "before"}))
        await waiting
        getattr(server, fault)()
        if transport == "stdio":
            await eventually(lambda: connection.state == "ready" and connection.pid != first)
        assert_ok(await connection.call_tool("look", {"text": "after"}), equals="after")


async def test_the_status_that_a_process_exits_with_is_known(mcp_server: Make) -> None:
    server = mcp_server(tools=[add])
    server.delay("add", 60)
    async with server.connect() as connection:
        call = asyncio.create_task(connection.call_tool("add", {"a": 1, "b": 2}))
        await server.wait_for_calls(1)
        server.exit(7)
        with pytest.raises(MCPConnectionError, match="exit status: 7"):
            await call


async def test_garbage_over_stdio_is_survived_and_stderr_is_kept(mcp_server: Make) -> None:
    server = mcp_server(tools=[look])
    async with server.connect() as connection:
        server.garbage()
        server.write_stderr("something odd\n")
        assert_ok(await connection.call_tool("look", {"text": "a"}), equals="a")
        await eventually(lambda: "something odd" in connection.stderr_tail)


async def test_garbage_over_http_is_the_next_answer(mcp_server: Make) -> None:
    server = mcp_server(tools=[add], transport="http")
    async with server.connect() as connection:
        server.garbage("<html>")
        with pytest.raises(MCPError, match="could not be read"):
            await connection.call_tool("add", {"a": 1, "b": 2})
        assert_ok(await connection.call_tool("add", {"a": 1, "b": 2}), equals="3")


@both
async def test_changed_tools_reach_the_registry(
    mcp_server: Make, tool_registry: ToolRegistry, transport: str
) -> None:
    server = mcp_server(tools=[add], transport=transport)
    async with server.connect(tool_registry):
        server.change_tools([add, look])
        await eventually(lambda: sorted(tool_registry.tool_names) == ["mcp_demo_add", "mcp_demo_look"])
        server.change_tools([look])
        await eventually(lambda: tool_registry.tool_names == ["mcp_demo_look"])


@both
async def test_progress_is_reported_from_inside_a_tool(mcp_server: Make, transport: str) -> None:
    def work() -> str:
        for step in (1, 2):
            server.progress(step, 2, f"step {step}")
        return "done"

    server = mcp_server(tools=[work], transport=transport)
    reports: list[Any] = []
    async with server.connect() as connection:
        await connection.call_tool("work", progress=lambda *report: reports.append(report))
        assert_ok(await connection.call_tool("work"), equals="done")
    assert reports == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
    with pytest.raises(RuntimeError, match="as a tool"):
        server.progress(1)


@both
async def test_many_calls_of_many_clients_run_at_once(mcp_server: Make, transport: str) -> None:
    arrived = threading.Barrier(20)

    def meet(n: int) -> str:
        arrived.wait(30)
        return str(n)

    server = mcp_server(tools=[meet], transport=transport)
    async with server.connect() as one, server.connect() as two:
        calls = [(one, two)[n % 2].call_tool("meet", {"n": n}) for n in range(20)]
        for n, result in enumerate(await asyncio.gather(*calls)):
            assert_ok(result, equals=str(n))
    assert len(server.calls) == 20


def test_it_serves_tests_that_are_no_coroutines(mcp_server: Make) -> None:
    async def on_its_own_loop(text: str) -> str:
        await asyncio.sleep(0)
        return text

    server = mcp_server(tools=[on_its_own_loop])

    async def use() -> None:
        async with server.connect() as connection:
            assert_ok(await connection.call_tool("on_its_own_loop", {"text": "a"}), equals="a")

    asyncio.run(use())
    assert len(server.calls) == 1


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_it_speaks_the_versions_that_begin_with_initialize(mcp_server: Make, version: str) -> None:
    server = mcp_server(tools=[add])
    async with server.connect(protocol=version) as connection:
        assert connection.protocol_version == version
        assert_ok(await connection.call_tool("add", {"a": 1, "b": 2}), equals="3")
    assert server.requests[0]["method"] == "initialize"


def test_its_process_ends_with_the_test_even_without_its_client(mcp_server: Make) -> None:
    server = mcp_server(tools=[add])
    entry = server.entry
    process = subprocess.Popen(
        [entry["command"], *entry["args"]],
        env=entry["env"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\nno JSON\n')
        process.stdin.flush()
        replies = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert {"jsonrpc": "2.0", "id": 1, "result": {}} in replies
        server.close()
        assert process.wait(30) == 0
    late = subprocess.run(
        [entry["command"], *entry["args"]], env=entry["env"], capture_output=True, text=True, timeout=30
    )
    assert late.returncode == 1
    assert "is over" in late.stderr


def test_nobody_else_is_let_in(mcp_server: Make) -> None:
    server = mcp_server(tools=[add])
    port = int(server.entry["args"][-1])
    with socket.create_connection(("127.0.0.1", port), 10) as stranger:
        stranger.sendall(b'guess\n{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n')
        stranger.settimeout(30)
        assert stranger.recv(100) == b""
    assert server.requests == []


def test_pages_in_browsers_are_refused(mcp_server: Make) -> None:
    server = mcp_server(tools=[add], transport="http")
    port = int(server.entry["url"].split(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), 10) as page:
        page.sendall(b"POST /mcp HTTP/1.1\r\nOrigin: http://evil\r\nContent-Length: 2\r\n\r\n{}")
        assert page.recv(100).startswith(b"HTTP/1.1 403 ")


def test_a_function_that_does_not_end_is_named(mcp_server: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nanobot_tools.testing._server.GRACE", 0.1)
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait(60)

    server = mcp_server(tools=[hang])

    async def use() -> None:
        async with server.connect() as connection:
            call = asyncio.create_task(connection.call_tool("hang"))
            await server.wait_for_calls(1)
            call.cancel()

    asyncio.run(use())
    with pytest.raises(RuntimeError, match=r"still running.*mcp-server-demo-hang"):
        server.close()
    go_on.set()
