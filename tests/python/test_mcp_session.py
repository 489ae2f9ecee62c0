"""What a connection offers beside calls of tools, and how the registry follows its server."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from mcp_servers import asking, eventually, everything, needs_node, say
from nanobot_tools import (
    ConfigError,
    MCPCallbacks,
    MCPConnectionError,
    MCPError,
    ToolRegistry,
    ToolTimeoutError,
    connect_mcp_server,
    connect_mcp_servers,
)
from nanobot_tools.mcp import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper

DEMANDS = ["ask", "tell", "offer", "work", "seen"]


async def test_everything_that_a_server_has_can_be_asked_for() -> None:
    """Lists come as the server sends them, and results whole."""
    async with await connect_mcp_server("s", asking()) as connection:
        assert connection.capabilities["resources"] == {"subscribe": True, "listChanged": True}
        assert connection.server_info == ("asking", "1")
        assert [tool["name"] for tool in await connection.list_tools()] == DEMANDS
        assert (await connection.list_tools())[0]["inputSchema"] == {"type": "object"}
        [resource] = await connection.list_resources()
        assert resource == {"uri": "memo://one", "name": "one", "description": "A memo"}
        assert await connection.list_resource_templates() == [
            {"uriTemplate": "memo://{name}", "name": "memo"}
        ]
        assert [prompt["name"] for prompt in await connection.list_prompts()] == ["greet"]
        assert (await connection.read_resource("memo://x"))["contents"][0]["text"] == "the text of memo://x"
        messages = (await connection.get_prompt("greet", {"who": "Ann"}))["messages"]
        assert messages[0]["content"]["text"] == "Greet Ann."
        result = await connection.call_tool("seen")
        assert result["structuredContent"]["length"] == len(result["content"][0]["text"])
        await connection.ping()
        await connection.set_logging_level("warning")
        await connection.notify("notifications/odd", {"a": 1})
        assert await connection.request("ping") == {}
        with pytest.raises(MCPError) as caught:
            await connection.request("no/such/method", {"x": 1})
        assert caught.value.rpc_code == -32601
        seen = json.loads(await say(connection, "seen"))
        told = {message["method"]: message.get("params") for message in seen if "method" in message}
        assert told["logging/setLevel"] == {"level": "warning"}
        assert told["notifications/odd"] == {"a": 1}
        assert told["no/such/method"] == {"x": 1}
    with pytest.raises(MCPConnectionError):
        await connection.request("ping")
    with pytest.raises(MCPConnectionError):
        await connection.notify("notifications/odd")


async def test_a_request_has_its_own_deadline() -> None:
    """The deadline is the caller's, and the connection lives on."""
    async with await connect_mcp_server("s", asking(), callbacks=MCPCallbacks(roots=[])) as connection:
        slow = {"name": "ask", "arguments": {"method": "odd", "takeBackAfter": 30}}
        with pytest.raises(ToolTimeoutError):
            await connection.request("tools/call", slow | {"arguments": {"method": "odd"}}, timeout=1e-9)
        await connection.ping()


async def test_progress_is_reported_in_order_before_the_call_is_over() -> None:
    """To a plain function as it comes, to a coroutine function one report after another."""
    async with await connect_mcp_server("s", asking()) as connection:
        plain: list[Any] = []
        await connection.call_tool("work", {"steps": 5}, progress=lambda *report: plain.append(report))
        assert plain == [(float(n), 5.0, f"step {n}") for n in range(1, 6)]
        slow: list[Any] = []

        async def take(progress: float, total: float | None, message: str | None) -> None:
            await asyncio.sleep(0.002)
            slow.append((progress, total, message))

        await connection.call_tool("work", {"steps": 5}, progress=take)
        assert slow == plain


async def test_a_callback_for_progress_that_fails_costs_the_call_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it raises is logged, whichever kind of function it is."""

    def fail(*_: Any) -> None:
        raise LookupError("plain")

    async def fail_later(*_: Any) -> None:
        raise LookupError("later")

    async with await connect_mcp_server("s", asking()) as connection:
        for callback in (fail, fail_later):
            result = await connection.call_tool("work", {"steps": 2}, progress=callback)
            assert result["content"][0]["text"] == "worked"
    assert [r.exc_info[1].args for r in caplog.records if r.exc_info and r.exc_info[1]] == [
        ("plain",), ("plain",), ("later",), ("later",),
    ]  # fmt: skip


async def test_resources_and_prompts_are_read_only_tools_when_everything_is_admitted() -> None:
    """They run natively; an allow-list leaves them out; `resources: one` makes one tool of the resources."""
    registry = ToolRegistry()
    servers = {
        "all": asking(),
        "some": asking(enabledTools=["seen"]),
        "one": asking(resources="one", enabledTools=["*"]),
    }
    connections = await connect_mcp_servers(servers, registry)
    try:
        of = {name: [w.name for w in connection.tools] for name, connection in connections.items()}
        extras = ["mcp_all_resource_one", "mcp_all_prompt_greet"]
        assert of["all"] == [f"mcp_all_{name}" for name in DEMANDS] + extras
        assert of["some"] == ["mcp_some_seen"]
        assert of["one"][len(DEMANDS) :] == ["mcp_one_read_resource", "mcp_one_prompt_greet"]
        resource, prompt = registry.get(extras[0]), registry.get(extras[1])
        assert isinstance(resource, MCPResourceWrapper)
        assert resource._uri == "memo://one"
        assert isinstance(prompt, MCPPromptWrapper)
        assert prompt._prompt_name == "greet"
        assert resource.read_only
        assert prompt.read_only
        assert prompt.parameters["required"] == ["who"]
        assert await registry.execute(extras[0], {}) == "the text of memo://one"
        assert "Greet Bob." in await registry.execute(extras[1], {"who": "Bob"})
        assert "missing required who" in await registry.execute(extras[1], {})
        read = await registry.execute("mcp_one_read_resource", {"uri": "memo://two"})
        assert read == "the text of memo://two"
    finally:
        await asyncio.gather(*(c.aclose() for c in connections.values()))
    assert len(registry) == 0


async def test_the_registry_follows_a_changed_list_in_place() -> None:
    """What is unchanged stays the same object; what is new, gone or different is so for the model at once."""
    registry = ToolRegistry()
    changes: list[tuple[str, str]] = []
    callbacks = MCPCallbacks(list_changed=lambda *change: changes.append(change))
    async with await connect_mcp_server("s", asking(), registry=registry, callbacks=callbacks) as connection:
        before = {name: registry.get(name) for name in registry.tool_names}
        await say(connection, "offer", tools={"red": "A colour", "blue": "Another"})
        await eventually(lambda: len(changes) == 1)
        assert changes == [("s", "tools")]
        assert {name: registry.get(name) for name in before} == before
        red, blue = registry.get("mcp_s_red"), registry.get("mcp_s_blue")
        assert isinstance(red, MCPToolWrapper)
        assert await registry.execute("mcp_s_red", {}) == "red: A colour"
        await say(connection, "offer", tools={"red": "Something else", "blue": "Another"})
        await eventually(lambda: len(changes) == 2)
        assert registry.get("mcp_s_blue") is blue
        assert registry.get("mcp_s_red") is not red
        assert registry.get("mcp_s_red").description == "Something else"
        assert "Something else" in registry.definitions_json().decode()
        await say(connection, "offer", tools={})
        await eventually(lambda: len(changes) == 3)
        assert set(registry.tool_names) == set(before)
        assert [w.name for w in connection.tools] == list(before)
    assert len(registry) == 0


async def test_a_burst_of_changes_is_read_once_and_names_stay() -> None:
    """A tool whose name was taken keeps the name that it was given."""
    registry = ToolRegistry()
    changes: list[str] = []
    callbacks = MCPCallbacks(list_changed=lambda _, kind: changes.append(kind))
    servers = {"a": asking(), "a_b": asking()}
    connections = await connect_mcp_servers(servers, registry, callbacks=callbacks)
    try:
        await say(connections["a"], "offer", tools={"b_seen": "Maps to a name that the other one has"})
        await eventually(lambda: changes)
        [name] = [w.name for w in connections["a"].tools if "b_seen" in w.name]
        assert name.startswith("mcp_a_b_seen_")
        assert registry.get("mcp_a_b_seen")._server_name == "a_b"
        tool = registry.get(name)
        changes.clear()
        method = "notifications/tools/list_changed"
        await say(connections["a"], "tell", method=method, times=20)
        await eventually(lambda: changes)
        seen = json.loads(await say(connections["a"], "seen"))
        assert sum(message.get("method") == "tools/list" for message in seen) <= 4
        assert registry.get(name) is tool
    finally:
        await asyncio.gather(*(c.aclose() for c in connections.values()))
    assert len(registry) == 0


async def test_a_list_that_changes_while_other_servers_are_still_connecting_is_registered() -> None:
    """Real servers announce some of their tools right after the handshake."""
    registry = ToolRegistry()
    servers = {"quick": asking("--restless"), "slow": asking("--slow")}
    connections = await connect_mcp_servers(servers, registry)
    try:
        assert [name for name in registry.tool_names if name.startswith("mcp_quick_")] == [
            w.name for w in connections["quick"].tools
        ]
        assert len(registry) == 14
    finally:
        await asyncio.gather(*(c.aclose() for c in connections.values()))


async def test_updates_of_a_resource_reach_the_callback() -> None:
    """One for each change, and those that come while the callback runs are told once."""
    updates: list[tuple[str, str]] = []
    go_on = asyncio.Event()

    async def updated(server: str, uri: str) -> None:
        updates.append((server, uri))
        await go_on.wait()

    async with await connect_mcp_server(
        "s", asking(), callbacks=MCPCallbacks(resource_updated=updated)
    ) as connection:
        await connection.subscribe_resource("memo://one")
        method = "notifications/resources/updated"
        await say(connection, "tell", method=method, params={"uri": "memo://one"}, times=50)
        await say(connection, "tell", method=method, params={"uri": "memo://two"})
        await eventually(lambda: updates)
        go_on.set()
        await eventually(lambda: ("s", "memo://two") in updates)
        assert updates[-1] == ("s", "memo://two")
        assert updates.count(("s", "memo://one")) <= 2
        await connection.unsubscribe_resource("memo://one")
        seen = json.loads(await say(connection, "seen"))
        subscriptions = [m["method"] for m in seen if m.get("method", "").startswith("resources/")]
        assert subscriptions[-2:] == ["resources/subscribe", "resources/unsubscribe"]


async def test_a_single_server_that_cannot_be_connected_raises() -> None:
    """With the reason; nothing is registered."""
    registry = ToolRegistry()
    with pytest.raises(ConfigError, match="'s'"):
        await connect_mcp_server("s", {}, registry=registry)
    with pytest.raises(ConfigError, match="disabled"):
        await connect_mcp_server("s", asking(disabled=True), registry=registry)
    command = {"command": sys.executable, "args": ["-c", "raise SystemExit('no such luck')"]}
    with pytest.raises(MCPConnectionError, match="no such luck"):
        await connect_mcp_server("s", command, registry=registry)
    assert len(registry) == 0


async def test_without_a_registry_the_tools_are_only_listed() -> None:
    """They can be called all the same."""
    async with await connect_mcp_server("s", asking()) as connection:
        [tool] = [tool for tool in connection.tools if tool.name == "mcp_s_seen"]
        assert "tools/list" in await tool.execute()


@needs_node
async def test_the_official_server_completes_subscribes_and_reports_progress() -> None:
    """server-everything over stdio."""
    updates: list[str] = []
    callbacks = MCPCallbacks(resource_updated=lambda _, uri: updates.append(uri))
    async with await connect_mcp_server("ev", everything(), callbacks=callbacks) as connection:
        resources = await connection.list_resources()
        assert len(resources) == 7
        assert len(await connection.list_resource_templates()) == 2
        assert len(await connection.list_prompts()) == 4
        read = await connection.read_resource(resources[0]["uri"])
        assert read["contents"][0]["uri"] == resources[0]["uri"]
        prompts = {prompt["name"]: prompt for prompt in await connection.list_prompts()}
        [name] = [name for name in prompts if "completable" in name]
        ref = {"type": "ref/prompt", "name": name}
        argument = {"name": prompts[name]["arguments"][0]["name"], "value": ""}
        completion = await connection.complete(ref, argument)
        assert completion["completion"]["values"]
        reports: list[Any] = []
        arguments = {"duration": 0.2, "steps": 4}
        await connection.call_tool(
            "trigger-long-running-operation", arguments, progress=lambda *report: reports.append(report[:2])
        )
        assert reports == [(1.0, 4.0), (2.0, 4.0), (3.0, 4.0), (4.0, 4.0)]
        uri = "demo://resource/dynamic/text/1"
        await connection.subscribe_resource(uri)
        await connection.call_tool("toggle-subscriber-updates")
        await eventually(lambda: uri in updates)
        await connection.call_tool("toggle-subscriber-updates")
        await connection.unsubscribe_resource(uri)


async def test_the_end_of_what_a_url_was_opened_for_is_told() -> None:
    done: list[tuple[str, str]] = []
    callbacks = MCPCallbacks(elicitation_complete=lambda server, number: done.append((server, number)))
    async with await connect_mcp_server("s", asking(), callbacks=callbacks) as connection:
        params = {"elicitationId": "e-1"}
        await say(connection, "tell", method="notifications/elicitation/complete", params=params)
        await eventually(lambda: done == [("s", "e-1")])
